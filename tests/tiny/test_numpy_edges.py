"""Edge values of NumPy functions that once went wrong, the smallest program for each."""

from __future__ import annotations

import numpy as np

import weft
import weft.numpy as wnp


def test_negative_integer_powers_round_towards_zero() -> None:
    base = wnp.array([1, -1, 2, -3, 0], dtype=wnp.int32)
    np.testing.assert_array_equal(wnp.power(base, wnp.array([-1, -3, -1, -2, 2], dtype=wnp.int32)), [1, -1, 0, 0, 0])


def test_a_greatest_common_divisor_is_positive_beside_the_least_integer() -> None:
    least = np.int32(-(2**31))
    assert int(wnp.gcd(np.int32(2**31 - 1), least)) == 1
    assert int(wnp.gcd(np.int32(12), least)) == 4


def test_the_slope_of_i0_at_zero_is_zero() -> None:
    assert float(weft.grad(wnp.i0)(0.0)) == 0.0
    assert float(weft.grad(wnp.i0)(1.0)) > 0.0


def test_logarithms_of_infinite_complex_numbers() -> None:
    for function in (wnp.log2, wnp.log10):
        result = complex(function(np.complex64(complex(np.inf, 0))))
        assert result.real == np.inf and result.imag == 0.0
    np.testing.assert_allclose(wnp.log2(np.complex64(8j)), np.log2(8) + 1j * np.pi / 2 / np.log(2), rtol=1e-6)
