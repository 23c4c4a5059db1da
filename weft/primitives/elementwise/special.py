"""Special functions of one number: error and Bessel functions. SciPy is imported when one is first computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.arithmetic import add, div, mul, neg, sign, square, sub, without_zeros
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.exponential import FloatFunction, exp
from weft.primitives.elementwise.scalar import constant_like, float_samples, precise, unit_ramp
from weft.primitives.elementwise.select import where

special = lazy("scipy.special")

CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip

# The logarithms of Cephes: log1p(v) = v - v**2/2 + v**3 * P(v)/Q(v) up to sqrt(2) - 1, greatest power first;
LOG1P_BOUND = math.sqrt(2) - 1
LOG1P_NUMERATOR = (
    4.5270000862445199635215e-5, 4.9854102823193375972212e-1, 6.5787325942061044846969, 2.9911919328553073277375e1,
    6.0949667980987787057556e1, 5.7112963590585538103336e1, 2.0039553499201281259648e1,
)  # fmt: skip
LOG1P_DENOMINATOR = (
    1.0, 1.5062909083469192043167e1, 8.3047565967967209469434e1, 2.2176239823732856465394e2,
    3.0909872225312059774938e2, 2.1642788614495947685003e2, 6.0118660497603843919306e1,
)  # fmt: skip
# log(2**e * (1 + f)) = e*ln(2) + f - f**2/2 + f**3 * P(f), whose P is summed in three parts by powers of f**3.
LOG_PARTS = (
    (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1),
    (-1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1),
    (2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
LOG_LN2 = (0.693359375, -2.12194440e-4)


def _multiply_add(a: Any, b: Any, c: Any) -> np.ndarray:
    """Return a*b + c of float32, rounded once: the product is exact in float64."""
    result: np.ndarray = (np.multiply(a, b, dtype=np.float64) + c).astype(np.float32)
    return result


def _horner(x: np.ndarray, coefficients: Any) -> np.ndarray:
    value: Any = np.float32(coefficients[0])
    for coefficient in coefficients[1:]:
        value = _multiply_add(value, x, np.float32(coefficient))
    result: np.ndarray = value
    return result


def single_log1p(v: np.ndarray) -> np.ndarray:
    """Return log1p of float32 numbers between -1 and 0, by the formulas above."""
    half, square = np.float32(0.5), v * v
    ratio = _horner(v, LOG1P_NUMERATOR) / _horner(v, LOG1P_DENOMINATOR)
    small = v + ((v * square) * ratio - half * square)
    mantissa, exponent = np.frexp(v + np.float32(1))
    low = mantissa < np.float32(math.sqrt(0.5))
    f = np.where(low, mantissa + mantissa, mantissa) - np.float32(1)
    e = (exponent - low).astype(np.float32)
    square, cube = f * f, f * f * f
    first, second, third = (_horner(f, part) for part in LOG_PARTS)
    value = _multiply_add(_multiply_add(first, cube, second), cube, third)
    rest = _multiply_add(value, cube, e * np.float32(LOG_LN2[1]))
    result: np.ndarray = np.where(
        np.abs(v) < np.float32(LOG1P_BOUND), small, ((f - half * square) + rest) + e * np.float32(LOG_LN2[0])
    )
    return result


def single_erf_inv(x: np.ndarray) -> np.ndarray:
    """Return the inverse error function in float32 by the polynomials of Giles (2010), each step a fused multiply-add.

    Random normal numbers are made with it: they must be the same everywhere, as in JAX (which has the same formulas for
    the logarithm), and must cost little.
    """
    inside = np.abs(x) < 1
    safe = np.where(inside, x, np.float32(0))
    w = -single_log1p(-(safe * safe))
    central = w < 5
    t = np.where(central, w - np.float32(2.5), np.sqrt(w) - np.float32(3))
    value: Any = np.where(central, np.float32(CENTRAL[0]), np.float32(TAIL[0]))
    for near, far in zip(CENTRAL[1:], TAIL[1:], strict=True):
        value = _multiply_add(value, t, np.where(central, np.float32(near), np.float32(far)))
    outside = np.where(np.abs(x) == 1, np.copysign(np.float32(np.inf), x), np.float32(np.nan))
    return np.where(inside, value * x, outside)


class SpecialFunction(FloatFunction):
    """Of floats only, computed in float64."""

    kinds = "f"
    ulp = {"": 8.0}
    foldable = False  # SciPy would be imported for one number
    weight = 60


class IteratedFunction(SpecialFunction):
    """Series or a continued fraction. Small results are off by more: an error of an exponent is one of the value."""

    ulp = {"": 8.0, "float64": 64.0}
    keeps_nan = ()
    weight = 400


@primitive
class erf(SpecialFunction):
    """Error function."""

    weight = 24

    @precise
    def eval(x: Any) -> Any:
        return special.erf(x)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, mul(constant_like(x, 2 / math.sqrt(math.pi)), exp(neg(square(x)))))


@primitive
class erfc(SpecialFunction):
    """1 - erf(x), accurate where that is small."""

    weight = 24

    @precise
    def eval(x: Any) -> Any:
        return special.erfc(x)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, mul(constant_like(x, -2 / math.sqrt(math.pi)), exp(neg(square(x)))))


@primitive
class erf_inv(SpecialFunction):
    """Inverse of the error function, on [-1, 1]."""

    weight = 24

    def eval(self, x: Any) -> Any:
        x = np.asarray(x)
        if x.dtype == np.float64:
            return np.where(x == 0, x, special.erfinv(x))  # a zero keeps its sign
        return single_erf_inv(x.astype(np.float32)).astype(x.dtype)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, mul(constant_like(x, math.sqrt(math.pi) / 2), exp(square(out))))

    def samples(self) -> Any:
        yield from float_samples(unit_ramp)
        yield Sample(np.array([-1, 1, 2, np.nan], np.float32), differentiable=False)


@primitive
class bessel_i0e(SpecialFunction):
    """Modified Bessel function of order 0, scaled by exp(-|x|)."""

    @precise
    def eval(x: Any) -> Any:
        return special.i0e(x)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, sub(bessel_i1e(x), mul(sign(x), out)))


@primitive
class bessel_i1e(SpecialFunction):
    """Modified Bessel function of order 1, scaled by exp(-|x|)."""

    @precise
    def eval(x: Any) -> Any:
        return np.where(x == 0, x, special.i1e(x))  # a zero keeps its sign

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        # I1(x)/x tends to 1/2 at 0, where the quotient itself has no value.
        ratio = where(eq(x, constant_like(x, 0)), constant_like(x, 0.5), div(out, without_zeros(x)))
        return mul(tangent, sub(bessel_i0e(x), add(mul(sign(x), out), ratio)))
