"""Random towers of derivatives with JAX: the same text has the same numbers, where JAX has any."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest

import weft
from tests.fuzz.draw import namespace
from tests.fuzz.towers import EDGES, built, differ, explained, numbers, tower

NAMES = namespace("jax")


def check_with_jax(seed: int) -> str:
    """Return what came of a seed, in a word; a failure begins with `failed`."""
    text = tower(seed).text
    with weft.enable_x64(True), jax.enable_x64(True), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        ours, theirs = built(text, namespace("weft")), built(text, NAMES)
        for point in (np.random.default_rng(seed).normal(size=3), *map(np.asarray, EDGES)):
            try:
                expected = numbers(jax.jit(theirs["result"]), point)
            except Exception:
                return "JAX has no rule"
            try:
                found = numbers(weft.jit(ours["result"]), point)
            except Exception as error:
                return f"failed: {type(error).__name__}: {error}"
            known = np.isfinite(expected)  # JAX has NaN where a case that is not taken has an infinite derivative
            one, other = (lambda x, f=f, known=known: numbers(f, x)[known] for f in (ours["result"], theirs["result"]))
            if differ(found[known], expected[known], 1e-7) and not explained(one, other, point):
                return f"failed: {found} for {expected} at {point.tolist()}"
    return "same"


@pytest.mark.parametrize("seed", range(0, 12))
def test_towers_with_jax(seed: int) -> None:
    assert check_with_jax(seed) in ("same", "JAX has no rule")
