"""Rules of samplers, against their definitions in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import models
from weft.errors import ArgumentError
from weft.models import sampling


def adjust(sampler: models.Sampler, logits: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return np.asarray(sampling.adjust(weft.numpy.asarray(logits), seen, sampler.numbers, sampler.switches))


def expected(sampler: models.Sampler, logits: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Apply the rules to one row by their definitions."""
    row = logits.astype(np.float64)
    penalty = sampler.repetition_penalty
    row = np.where(seen, np.where(row > 0, row / penalty, row * penalty), row)
    if not sampler.temperature:
        return row
    row = row / sampler.temperature
    if sampler.top_k:
        row[row < np.sort(row)[-min(sampler.top_k, len(row))]] = -np.inf
    shares = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
    if sampler.top_p < 1:
        order = np.argsort(-row)
        before = np.cumsum(shares[order]) - shares[order]
        row[order[before >= sampler.top_p]] = -np.inf
    shares = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
    row[shares < sampler.min_p * shares.max()] = -np.inf
    return row


@pytest.mark.parametrize(
    "sampler",
    [
        models.Sampler(),
        models.Sampler(repetition_penalty=1.7),
        models.Sampler(temperature=0.7),
        models.Sampler(temperature=1.3, top_k=5),
        models.Sampler(temperature=1.3, top_k=500),
        models.Sampler(temperature=0.9, top_p=0.6),
        models.Sampler(temperature=0.9, top_p=1e-6),
        models.Sampler(temperature=1.1, min_p=0.2),
        models.Sampler(temperature=0.8, top_k=20, top_p=0.8, min_p=0.05, repetition_penalty=1.2),
    ],
    ids=str,
)
def test_rules(sampler: models.Sampler) -> None:
    numbers = np.random.default_rng(0)
    logits = (3 * numbers.normal(size=(8, 50))).astype(np.float32)
    seen = numbers.random((8, 50)) < 0.3
    for row, want in zip(adjust(sampler, logits, seen), map(expected, [sampler] * 8, logits, seen), strict=True):
        np.testing.assert_array_equal(np.isinf(row), np.isinf(want))
        np.testing.assert_allclose(row, want, rtol=1e-5)


def test_draws_follow_the_probabilities() -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.2]], np.float32))
    sampler = models.Sampler(temperature=1.0)
    draw = weft.jit(
        weft.vmap(lambda key: sampling.choose(logits, None, None, key, sampler.numbers, sampler.switches)[0][0])
    )
    drawn = np.asarray(draw(weft.random.split(weft.random.key(0), 4000)))
    np.testing.assert_allclose(np.bincount(drawn) / 4000, [0.5, 0.3, 0.2], atol=0.03)


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"min_p": 1.0}, {"repetition_penalty": 0.0}]
)
def test_numbers_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        models.Sampler(**wrong)  # type: ignore[arg-type]
