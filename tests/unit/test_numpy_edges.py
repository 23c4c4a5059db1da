"""Edge values of NumPy functions that were once wrong, with the smallest program for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax


def test_negative_integer_powers_round_towards_zero() -> None:
    base = wnp.array([1, -1, 2, -3, 0], dtype=wnp.int32)
    np.testing.assert_array_equal(wnp.power(base, wnp.array([-1, -3, -1, -2, 2], dtype=wnp.int32)), [1, -1, 0, 0, 0])


def test_a_greatest_common_divisor_is_positive_beside_the_least_integer() -> None:
    least = np.int32(-(2**31))
    assert int(wnp.gcd(np.int32(2**31 - 1), least)) == 1
    assert int(wnp.gcd(np.int32(12), least)) == 4


def test_the_derivative_of_i0_at_zero_is_zero() -> None:
    assert float(weft.grad(wnp.i0)(0.0)) == 0.0
    assert float(weft.grad(wnp.i0)(1.0)) > 0.0


def test_logarithms_of_infinite_complex_numbers() -> None:
    for function in (wnp.log2, wnp.log10):
        result = complex(function(np.complex64(complex(np.inf, 0))))
        assert result.real == np.inf and result.imag == 0.0
    np.testing.assert_allclose(wnp.log2(np.complex64(8j)), np.log2(8) + 1j * np.pi / 2 / np.log(2), rtol=1e-6)


@pytest.mark.parametrize("power", [1, 2, 3, 6, -1, -2])
def test_whole_powers_of_complex_numbers_have_no_factor_of_one(power: int) -> None:
    """1 times (inf - 2j) is (inf + nan j), so there are no factors but the number itself."""
    parts = np.array([0, 2, -1, np.inf, -np.inf, 3e38], np.float32)
    z = np.empty((6, 6), np.complex64)
    z.real, z.imag = parts[:, None], parts
    square = lax.mul(z, z)
    products = {1: z, 2: square, 3: lax.mul(z, square), 6: lax.mul(square, lax.mul(square, square))}
    expected = products[abs(power)]
    if power < 0:
        expected = lax.div(np.ones_like(z), expected)
    for found in (wnp.power(z, power), weft.jit(lambda z: z**power)(z)):
        np.testing.assert_array_equal(found.real, expected.real)
        np.testing.assert_array_equal(found.imag, expected.imag)


def test_polynomials_with_zeros_that_are_not_finite() -> None:
    with np.errstate(all="ignore"):
        for zeros in ([], [np.inf, 2.0], [3.0, np.nan], [1.0, 2.0, 3.0]):
            np.testing.assert_array_equal(wnp.poly(np.array(zeros, np.float32)), np.poly(zeros))


def test_sums_of_polynomials_beside_each_other() -> None:
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(wnp.polyadd(x, x), np.polyadd(x, x))
    np.testing.assert_array_equal(wnp.polysub(x, x[1:]), [x[0], x[1] - x[1]])


NAN = np.array([1.0, np.nan, np.nan], np.float32)


@pytest.mark.parametrize("assume_unique", [False, True])
@pytest.mark.parametrize(
    ("first", "second"), [(NAN, NAN), (NAN, NAN[:2]), (NAN[:1], NAN), (NAN, np.float32([2, 3])), (NAN[:1], NAN[:1])]
)
def test_nan_of_two_arrays_are_different(first: np.ndarray, second: np.ndarray, assume_unique: bool) -> None:
    np.testing.assert_array_equal(wnp.setxor1d(first, second, assume_unique), np.setxor1d(first, second, assume_unique))


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: wnp.intersect1d(a, b, size=2),
        lambda a, b: wnp.setxor1d(a, a, size=2),
        lambda a, b: wnp.setxor1d(a, a, True, size=2),
        lambda a, b: wnp.setdiff1d(a, a, size=2),
    ],
)
def test_a_set_without_elements_is_filled_with_zeros(function: Any) -> None:
    """It was filled with an element that is not in the set."""
    a, b = np.int32([5, 3]), np.int32([9, 7])
    for found in (function(a, b), weft.jit(function)(a, b)):
        np.testing.assert_array_equal(found, [0, 0])


def test_roots_of_traced_coefficients() -> None:
    """One fewer than there are coefficients: zeros at 0 after the others, not-a-number for leading zeros."""
    roots = lambda p: wnp.roots(p, strip_zeros=False)
    nan = complex(np.nan, np.nan)
    for coefficients, expected in [
        ([1.0, -3.0, 2.0], [1, 2]),
        ([1.0, -3.0, 2.0, 0.0], [1, 2, 0]),
        ([0.0, 0.0, 1.0, -3.0, 2.0], [1, 2, nan, nan]),
        ([0.0, 1.0, -3.0, 2.0, 0.0], [1, 2, 0, nan]),
        ([0.0, 0.0, 4.0], [nan, nan]),
        ([0.0, 0.0], [nan]),
        ([5.0], []),
    ]:
        p = wnp.array(coefficients)
        for found in (roots(p), weft.jit(roots)(p), weft.vmap(roots)(p[None])[0]):
            there = np.array(found)
            count = sum(e != 0 and e == e for e in expected)
            there[:count] = np.sort(there[:count])
            np.testing.assert_allclose(there, np.array(expected, np.complex64), rtol=1e-5)
    gradients = weft.jacfwd(lambda p: wnp.sort(roots(p).real))(wnp.array([1.0, -3.0, 2.0]))
    np.testing.assert_allclose(gradients[:, 2], [1.0, -1.0], rtol=1e-4)  # the zeros of x**2 - 3 x + 2 + t near t = 0


def test_spacing_of_complex_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="spacing does not support complex"):
        wnp.spacing(1j)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_short_integers_do_not_wrap_around_in_differences_and_sums(dtype: type) -> None:
    values, positions = np.arange(4.0, dtype=np.float32) ** 2, np.array([120, 60, 5, 0], dtype)
    np.testing.assert_allclose(wnp.gradient(values, positions), np.gradient(values, positions.astype(float)), rtol=1e-6)
    np.testing.assert_allclose(wnp.gradient(values, dtype(100)), np.gradient(values, 100.0), rtol=1e-6)
    counts, _ = wnp.histogram(values, bins=2, weights=np.full(4, 100, dtype))
    assert counts.dtype == np.float32 and counts.tolist() == [300, 100]


def test_select_takes_arrays_of_conditions_and_choices() -> None:
    conditions, choices = np.array([[True, False], [True, True]]), np.arange(4.0).reshape(2, 2)
    assert wnp.select(wnp.asarray(conditions), wnp.asarray(choices)).tolist() == [0, 3]
