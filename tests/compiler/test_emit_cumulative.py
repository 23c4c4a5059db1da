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


@pytest.mark.parametrize("shape", [(), (3, 1)], ids=str)
@pytest.mark.parametrize("cumulative", CUMULATIVE, ids=lambda f: f.__name__)
def test_elements_that_are_all_equal(cumulative: Any, shape: tuple[int, ...]) -> None:
    """What vectors go along does not depend on their lanes."""
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    function = lambda x: cumulative(wnp.broadcast_to(x, (3, 40)), axis=1) * 2
    assert check(function, x, compare=close(2e-5)) == ["cumulative"]
    with weft.enable_checks(True):  # which verifies kernels
        checked = np.asarray(weft.jit(function)(x))
    np.testing.assert_array_equal(checked, np.asarray(weft.jit(function)(x)))


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


def extreme_factors(size: int, dtype: Any, seed: int) -> np.ndarray:
    """Numbers whose products leave the range of floats on the way, among them zeros or infinities."""
    rng = np.random.default_rng(seed)
    large = np.float64(np.finfo(dtype).max) ** 0.8
    half = np.where(np.arange(size) < size // 2, large, 1 / large)
    x = [
        np.full(size, 10.0),  # a product of many overflows
        half,
        1 / half,
        np.exp(rng.normal(size=size) * np.log(large) / 3),
        rng.normal(size=size),
        rng.uniform(0.99, 1.01, size),
    ][seed % 6]
    x = x * rng.choice([-1, 1], size)
    if seed % 2 == 0:
        x[0 if seed % 3 else rng.integers(size)] = 0
    if seed % 5 == 4:
        x[rng.integers(size)] = np.inf
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def assert_same_class(got: np.ndarray, want: np.ndarray) -> None:
    """NaN where that is NaN, infinite and of no normal size where that is, with its sign, and close elsewhere."""
    info = ml_dtypes.finfo(want.dtype)
    got, want = np.asarray(got), np.asarray(want)
    got, want = got.astype(np.float64), want.astype(np.float64)
    tiny = np.abs(want) < 4 * float(info.tiny)
    np.testing.assert_array_equal(np.abs(got[tiny]) < 8 * float(info.tiny), True)
    np.testing.assert_array_equal(np.signbit(got[tiny]), np.signbit(want[tiny]))
    np.testing.assert_allclose(got[~tiny], want[~tiny], rtol=1e-10 if info.bits == 64 else 1e-2)


FEW_AND_MANY: list[tuple[tuple[int, ...], int]] = [
    ((7,), 0), ((16,), 0), ((100,), 0), ((1030,), 0), ((3, 700), 1), ((700, 3), 0), ((70, 40), 0),
    ((300_001,), 0), ((3, 100_003), 1), ((100_003, 3), 0), ((5000, 40), 0), ((2, 300, 517), 1),
]  # fmt: skip


@pytest.mark.parametrize("shape, axis", FEW_AND_MANY, ids=str)
def test_products_are_zero_finite_infinite_or_nan_as_one_after_the_other(shape: tuple[int, ...], axis: int) -> None:
    count, length = int(np.prod(shape)) // shape[axis], shape[axis]
    small = count * length < 300
    for dtype in (np.float32, np.float64, ml_dtypes.bfloat16):
        with weft.enable_x64(True), np.errstate(all="ignore"):
            rows = [extreme_factors(length, np.float64 if dtype is np.float64 else np.float32, i) for i in range(18)]
            for first in range(0, 18, max(count, 3 if small else 9)):
                x = np.stack([rows[(first + i) % 18] for i in range(count)]).astype(dtype)
                x = np.moveaxis(x.reshape(*[d for i, d in enumerate(shape) if i != axis], length), -1, axis)
                for reverse in (False, True):
                    check(
                        lambda x, r=reverse: lax.cumprod(x, axis=axis, reverse=r),
                        x,
                        interpret=small,
                        compare=assert_same_class,
                    )


def test_two_results_and_an_epilogue() -> None:
    x = np.random.default_rng(0).normal(size=(4, 50)).astype(np.float32)

    def function(x: Any) -> Any:
        y = wnp.cumsum(wnp.sin(x), 1)
        return y, y * 2

    assert check(function, x, compare=close(1e-5)) == ["cumulative"]


@pytest.mark.parametrize("shape", [(5,), (3, 40), (2, 70000)])
def test_running_sums_of_one_value(shape: tuple[int, ...]) -> None:
    """A value that is the same in all lanes is none of a vector; the verifier did not accept it."""
    with weft.enable_checks(True):
        sums = weft.jit(lambda x: weft.numpy.cumsum(weft.numpy.broadcast_to(x, shape), -1))(np.float32(0.5))
    np.testing.assert_array_equal(sums, np.broadcast_to(np.arange(1, shape[-1] + 1, dtype=np.float32) / 2, shape))
