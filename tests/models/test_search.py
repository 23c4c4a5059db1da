"""Beams against the search of all texts, and speculation against the model alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft
from tests.models.tiny import DECODERS, SEQUENCES, make, source, tokens
from weft import models
from weft.errors import ArgumentError
from weft.models.transformer import ACTIVATIONS


def scores(model: models.Model, texts: np.ndarray, start: int) -> np.ndarray:
    """Return the sum of log-probabilities of each text after its first tokens."""
    shares = np.asarray(weft.nn.log_softmax(model(texts)))[:, start - 1 : -1]
    return np.take_along_axis(shares, texts[:, start:, None], -1)[..., 0].sum(1)


def test_wide_beams_find_the_most_probable_text() -> None:
    fields = {**DECODERS["gpt2"], "vocab_size": 5, "eos_token_id": None}
    model = make(fields, spread=0.4)
    texts = np.array([[3, 1, *rest] for rest in itertools.product(range(5), repeat=3)], np.int32)
    best = texts[np.argmax(scores(model, texts, 2))]
    found, score = models.beam_search(model, [[3, 1]], 3, beams=25, stop_tokens=())
    assert found[0].tolist() == best.tolist()
    np.testing.assert_allclose(score[0], scores(model, texts, 2).max() / 3, rtol=1e-4)


def test_one_beam_is_greedy() -> None:
    model = make(DECODERS["gemma2"])
    prompts = [tokens(4), tokens(7)]
    found, _ = models.beam_search(model, prompts, 9, beams=1, stop_tokens=())
    np.testing.assert_array_equal(found, model.generate(prompts, 9, stop_tokens=()))


def test_beams_of_a_model_with_an_encoder() -> None:
    model = make(SEQUENCES["t5"])
    inputs = source(SEQUENCES["t5"])
    found, score = models.beam_search(model, None, 6, source=inputs, stop_tokens=())
    greedy = model.generate(None, 6, source=inputs, stop_tokens=())
    _, alone = models.beam_search(model, None, 6, beams=1, source=inputs, stop_tokens=())
    assert found.shape == greedy.shape
    assert (score >= alone - 1e-5).all()


@pytest.mark.parametrize("family", ["qwen3", pytest.param("gemma3", marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", [0, 1])
def test_speculation_yields_the_greedy_tokens(family: str, seed: int) -> None:
    model = make(DECODERS[family])
    # Seed 0 is the model itself, which guesses all tokens; another guesses few.
    draft = model if seed == 0 else make(DECODERS["qwen3"], seed=seed)
    parts = list(models.speculate(model, draft, tokens(6), 20, ahead=3, stop_tokens=()))
    want = model.generate(tokens(6), 20, stop_tokens=())[6:]
    np.testing.assert_array_equal(np.concatenate(parts), want)
    if seed == 0:
        assert [len(part) for part in parts] == [1, 4, 4, 4, 4, 3]
    stop = int(want[4])
    stopped = np.concatenate(list(models.speculate(model, draft, tokens(6), 20, stop_tokens=stop)))
    np.testing.assert_array_equal(stopped, want[: want.tolist().index(stop) + 1])


@pytest.mark.slow
def test_speculation_has_the_distribution_of_the_model() -> None:
    fields = {**DECODERS["gpt2"], "vocab_size": 4, "eos_token_id": None}
    model, draft = make(fields), make(fields, seed=1)
    sampler = models.Sampler(temperature=1.0)
    counts = np.zeros((4, 4))
    for seed in range(400):
        parts = models.speculate(model, draft, [1, 2], 2, ahead=1, sampler=sampler, key=weft.random.key(seed))
        first, second = np.concatenate(list(parts))
        counts[first, second] += 1
    texts = np.array([[1, 2, a, b] for a, b in itertools.product(range(4), repeat=2)], np.int32)
    np.testing.assert_allclose(counts.reshape(-1) / 400, np.exp(scores(model, texts, 2)), atol=0.08)


def test_arguments() -> None:
    model, other = make(DECODERS["gpt2"]), make({**DECODERS["gpt2"], "vocab_size": 50})
    with pytest.raises(ArgumentError, match="vocabulary"):
        models.speculate(model, other, tokens(3))
    with pytest.raises(ArgumentError, match="one prompt"):
        models.speculate(model, model, tokens(2, 3))
    with pytest.raises(ArgumentError, match="at least 1"):
        models.beam_search(model, tokens(1, 3), beams=0)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_are_smooth_at_zero(name: str) -> None:
    values = np.asarray(ACTIVATIONS[name](np.linspace(-0.01, 0.01, 5, dtype=np.float32)))
    assert abs(values[2]) < 1e-6 and (np.diff(values) >= 0).all()
