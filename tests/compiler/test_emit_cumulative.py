"""Cumulative operations: along every axis, in both directions, for every operation and dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.emitting import ALONG_AXES, check, close
from weft import lax

CUMULATIVE = [lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp]


@pytest.mark.parametrize("shape, axis", [*ALONG_AXES, ((3, 0), 1)])
@pytest.mark.parametrize("cumulative", CUMULATIVE, ids=lambda f: f.__name__)
def test_shapes(cumulative: Any, shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    for reverse in (False, True):
        kinds = check(lambda x, r=reverse: cumulative(x * 1.5, axis=axis, reverse=r) * 2, x, compare=close(2e-5))
        assert kinds == ["cumulative"]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("cumulative", CUMULATIVE, ids=lambda f: f.__name__)
def test_nan_and_infinity(cumulative: Any, axis: int) -> None:
    x = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
    x[20, 7] = np.nan
    x[:3, 9], x[25, 9] = -np.inf, -np.inf
    x[6, 16] = np.inf
    with np.errstate(all="ignore"):
        check(lambda x: cumulative(x, axis=axis), x, compare=close(2e-5))


def test_the_sign_of_a_zero_is_preserved() -> None:
    def same_bits(got: np.ndarray, want: np.ndarray) -> None:
        assert got.tobytes() == want.tobytes()

    for axis in (0, 1):
        check(lambda x, a=axis: lax.cumsum(x, axis=a), np.full((20, 20), -0.0, np.float32), compare=same_bits)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int4", "int64", "uint32", "float16", "bfloat16", "float64", "complex64"]
)
def test_dtypes(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.random.default_rng(0).integers(0 if dtype[0] == "u" else -3, 4, (9, 40)).astype(np.int8).astype(kind)
    with weft.enable_x64(True):
        for axis in (0, 1):
            check(lambda x, a=axis: lax.cumsum(x, axis=a), x)
            check(lambda x, a=axis: lax.cummax(x, axis=a), x)
            check(lambda x, a=axis: lax.cumprod(x, axis=a, reverse=True), x)


@pytest.mark.parametrize("cumulative", [lax.cumprod, lax.cumlogsumexp], ids=lambda f: f.__name__)
def test_complex_numbers(cumulative: Any) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(5, 21)) + 4j * rng.normal(size=(5, 21))).astype(np.complex64)
    for axis in (0, 1):
        check(lambda x, a=axis: cumulative(x, axis=a), x, compare=close(2e-5))
    check(lambda x: cumulative(x, axis=0), x[0], compare=close(2e-5))


LONG: list[tuple[tuple[int, ...], int]] = [
    ((300_001,), 0),
    ((3, 100_003), 1),
    ((100_003, 3), 0),
    ((5000, 40), 0),
    ((300, 1100), 0),
    ((2, 300, 517), 1),
]


@pytest.mark.parametrize("shape, axis", LONG)
@pytest.mark.parametrize("reverse", [False, True])
def test_long_arrays_are_split_for_threads(shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    x = np.random.default_rng(0).integers(-40, 41, shape).astype(np.float32)
    check(lambda x: lax.cumsum(x, axis=axis, reverse=reverse), x, interpret=False)
    check(lambda x: lax.cummax(x, axis=axis, reverse=reverse) + x, x, interpret=False)
    check(lambda x: lax.cumlogsumexp(x, axis=axis, reverse=reverse), x, interpret=False, compare=close(1e-4))


def test_two_results_and_an_epilogue() -> None:
    x = np.random.default_rng(0).normal(size=(4, 50)).astype(np.float32)

    def function(x: Any) -> Any:
        y = wnp.cumsum(wnp.sin(x), 1)
        return y, y * 2

    assert check(function, x, compare=close(1e-5)) == ["cumulative"]
