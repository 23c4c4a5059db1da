"""Decoders of all families: a cache, padding, packing and recomputation change nothing; files return what was saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.models.tiny import DECODERS, make, tokens
from weft import models
from weft.errors import ArgumentError
from weft.models import generation
from weft.models.forward import extend

FAMILIES = sorted(DECODERS)


def sweep(*quick: str) -> list[Any]:
    """Return all families; those that are not quick are left to the slow tests."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in FAMILIES]


def close(got: Any, want: Any, tolerance: float = 2e-5) -> None:
    scale = max(1.0, float(np.abs(np.asarray(want)).max()))
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), atol=tolerance * scale, rtol=0)


# -- one computation, in parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", sweep("gpt2", "gemma3", "qwen3", "qwen2_moe"))
def test_a_cache_changes_no_logits(family: str) -> None:
    model = make(DECODERS[family])
    ids = tokens(2, 21)
    whole = model(ids)
    cache = generation.empty_cache(model.config.tower, 2, 32, np.float32, slack=4)
    programs = generation.Programs(model.config)
    logits, cache = programs.prompt(model.params, cache, ids[:, :11])
    close(logits[:, 0], whole[:, 10])
    for i in range(11, 14):
        logits, cache = programs.step(model.params, cache, ids[:, i : i + 1])
        close(logits[:, 0], whole[:, i])
    logits, cache = programs.verify(model.params, cache, ids[:, 14:18])
    close(logits, whole[:, 14:18])
    # Tokens that were taken back leave no trace, in rings neither.
    _, cache = programs.verify(model.params, cache, tokens(2, 4, seed=1))
    cache = cache | {"length": cache["length"] - np.int32(4)}
    for i in range(18, 21):
        logits, cache = programs.step(model.params, cache, ids[:, i : i + 1])
        close(logits[:, 0], whole[:, i])


@pytest.mark.parametrize("family", sweep("gpt2", "mistral"))
def test_padding_changes_no_tokens(family: str) -> None:
    model = make(DECODERS[family])
    prompts = [tokens(n, seed=n) for n in (3, 14, 9)]
    together = model.generate(prompts, max_new_tokens=12, stop_tokens=())
    for prompt, row in zip(prompts, together, strict=True):
        alone = model.generate(prompt, max_new_tokens=12, stop_tokens=())
        assert row[-12 - len(prompt) :].tolist() == alone.tolist()


@pytest.mark.parametrize("family", sweep("mistral"))
def test_long_prompts_run_in_parts(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(DECODERS[family])
    prompts = [tokens(n, seed=n) for n in (25, 4, 18)]
    whole = model.generate(prompts, max_new_tokens=8, stop_tokens=())
    monkeypatch.setattr(generation, "MOST_TOKENS", 10)
    np.testing.assert_array_equal(model.generate(prompts, max_new_tokens=8, stop_tokens=()), whole)


@pytest.mark.parametrize("family", sweep("qwen3"))
def test_texts_in_one_row_are_independent(family: str) -> None:
    model = make(DECODERS[family])
    first, second = tokens(7), tokens(9, seed=1)
    row = np.concatenate([first, second])[None]
    pieces = np.repeat([0, 1], [7, 9])[None]
    logits = weft.jit(model.apply)(model.params, row, pieces=pieces)
    close(logits[0, :7], model(first))
    close(logits[0, 7:], model(second))


@pytest.mark.parametrize("family", sweep("qwen3"))
def test_recomputation_changes_no_gradients(family: str) -> None:
    model = make(DECODERS[family])
    ids = tokens(2, 8)

    def gradient(remat: bool) -> Any:
        return weft.jit(weft.grad(lambda p: model.apply(p, ids, remat=remat).var()))(model.params)

    for a, b in zip(*map(weft.tree.leaves, (gradient(False), gradient(True))), strict=True):
        close(a, b)


def test_layers_run_in_as_few_loops_as_periods_allow() -> None:
    segments = models.read_config(DECODERS["gemma3"]).tower.segments
    assert [(s.start, len(s.kinds), s.repeats) for s in segments] == [(0, 6, 1), (6, 2, 1)]
    assert [(len(s.kinds), s.repeats) for s in models.read_config(DECODERS["gemma2"]).tower.segments] == [(2, 2)]
    assert [(len(s.kinds), s.repeats) for s in models.read_config(DECODERS["llama"]).tower.segments] == [(1, 4)]


# -- generation --------------------------------------------------------------------------------------------------------


def test_the_stream_has_the_tokens_of_generate() -> None:
    model = make(DECODERS["qwen3"])
    prompts = tokens(2, 5)
    whole = model.generate(prompts, max_new_tokens=6, stop_tokens=())
    assert whole.shape == (2, 11)
    np.testing.assert_array_equal(whole[:, :5], prompts)
    np.testing.assert_array_equal(np.stack(list(model.stream(prompts, 6, stop_tokens=())), 1), whole[:, 5:])


def test_greedy_tokens_are_those_of_the_largest_logits() -> None:
    model = make(DECODERS["llama"])
    out = model.generate(tokens(4), max_new_tokens=10, stop_tokens=())
    np.testing.assert_array_equal(np.argmax(np.asarray(model(out)), -1)[3:-1], out[4:])


def test_sequences_end_at_a_stop_token() -> None:
    model = make(DECODERS["llama"])
    prompts = tokens(3, 4)
    free = model.generate(prompts, max_new_tokens=10, stop_tokens=())
    stop = int(free[1, 6])
    out = model.generate(prompts, max_new_tokens=10, stop_tokens=stop)
    for row, own in zip(free[:, 4:].tolist(), out[:, 4:].tolist(), strict=True):
        end = row.index(stop) + 1 if stop in row else len(own)
        assert own[:end] == row[:end][: len(own)]
        assert set(own[end:]) <= {stop}


def test_constraints_hold() -> None:
    model = make(DECODERS["gpt2"])
    seen = []

    def allowed(ids: np.ndarray) -> np.ndarray:
        seen.append(ids.shape)
        return np.arange(96) % 2 == ids.shape[1] % 2

    out = model.generate(tokens(2, 5), max_new_tokens=8, stop_tokens=(), allowed=allowed)
    assert (out[:, 5:] % 2 == np.arange(5, 13) % 2).all()
    assert seen == [(2, n) for n in range(5, 13)]


def test_random_tokens_depend_on_the_key_alone() -> None:
    model = make(DECODERS["gpt2"])
    sampler = models.Sampler(temperature=1.5, top_k=40, top_p=0.95, min_p=0.01, repetition_penalty=1.2)
    draw = lambda seed: model.generate(
        tokens(2, 5), max_new_tokens=12, stop_tokens=(), sampler=sampler, key=weft.random.key(seed)
    )
    np.testing.assert_array_equal(draw(0), draw(0))
    assert (draw(0) != draw(1)).any()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda m: m.generate(tokens(250), max_new_tokens=7), "250 \\+ 7"),
        (lambda m: m.generate(tokens(4), max_new_tokens=0), "at least 1"),
        (lambda m: m.generate([5, 96]), "vocabulary"),
        (lambda m: m([-1]), "vocabulary"),
        (lambda m: m.generate([]), "must be integers"),
        (lambda m: m.generate([[3], []]), "at least one token"),
        (lambda m: m.generate("text"), "must be integers"),
        (lambda m: m.generate([3], sampler=models.Sampler(temperature=1.0)), "needs a key"),
        (lambda m: m.generate([3], allowed=lambda ids: np.ones(3, bool)), "must return booleans"),
        (lambda m: m.generate([3], allowed=lambda ids: np.zeros(96, bool)), "at least one token"),
        (lambda m: m.tokenizer, "without a folder"),
    ],
)
def test_arguments_that_do_not_fit(call: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        call(make(DECODERS["llama"]))


def test_logits_that_are_not_finite() -> None:
    model = make(DECODERS["llama"])
    broken = model.replace(model.params | {"norm": {"weight": wnp.full(32, np.nan)}})
    with pytest.raises(weft.errors.NonFiniteValueError, match="token 3 of sequence 0"):
        broken.generate(tokens(3))


def test_one_program_serves_all_lengths() -> None:
    model = make(DECODERS["qwen3"])
    model.generate(tokens(5), max_new_tokens=3)
    model.generate(tokens(6), max_new_tokens=3)
    traced = []
    program = weft.jit(lambda p, c, i: (traced.append(1), extend(model.config, p, c, i, True, False))[1])
    for length in (5, 6, 7, 11, 19):
        cache = generation.empty_cache(model.config.tower, 1, 32, np.float32)
        program(model.params, cache, tokens(1, length))
    assert len(traced) <= 3  # the first length, all lengths, and the comparison of the two
