"""Special functions of one number: error and Bessel functions. SciPy is imported when one is first computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.ir.primitive import Sample, primitive
from weft.ops.arithmetic import add, div, mul, neg, sign, square, sub, without_zeros
from weft.ops.compare import eq
from weft.ops.exponential import FloatFunction, exp
from weft.ops.scalar import constant_like, float_samples, precise, unit_ramp
from weft.ops.select import where

CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def single_erf_inv(x: np.ndarray) -> np.ndarray:
    """The inverse error function in float32 by the polynomials of Giles (2010), each step a fused multiply-add.

    Random normal numbers are made with it: they are to be the same everywhere, and to cost little.
    """
    w = -np.log1p(-(x * x))
    central = w < 5
    t = np.where(central, w - np.float32(2.5), np.sqrt(w) - np.float32(3)).astype(np.float64)
    value = np.where(central, np.float32(CENTRAL[0]), np.float32(TAIL[0]))
    for near, far in zip(CENTRAL[1:], TAIL[1:], strict=True):
        value = (np.where(central, np.float32(near), np.float32(far)) + value * t).astype(np.float32)
    return np.where(np.abs(x) == 1, x * np.float32(np.inf), value * x)


class SpecialFunction(FloatFunction):
    """Of floats only, computed in float64."""

    kinds = "f"
    ulp = {"": 8.0}


@primitive
class erf(SpecialFunction):
    """Error function."""

    @precise
    def eval(x: Any) -> Any:
        from scipy import special

        return special.erf(x)

    def partial(self, number: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, mul(constant_like(x, 2 / math.sqrt(math.pi)), exp(neg(square(x)))))


@primitive
class erfc(SpecialFunction):
    """1 - erf(x), accurate where that is small."""

    @precise
    def eval(x: Any) -> Any:
        from scipy import special

        return special.erfc(x)

    def partial(self, number: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, mul(constant_like(x, -2 / math.sqrt(math.pi)), exp(neg(square(x)))))


@primitive
class erf_inv(SpecialFunction):
    """Inverse of the error function, on [-1, 1]."""

    def eval(self, x: Any) -> Any:
        x = np.asarray(x)
        if x.dtype == np.float64:
            from scipy import special

            return np.where(x == 0, x, special.erfinv(x))  # a zero keeps its sign
        return single_erf_inv(x.astype(np.float32)).astype(x.dtype)

    def partial(self, number: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, mul(constant_like(x, math.sqrt(math.pi) / 2), exp(square(out))))

    def samples(self) -> Any:
        yield from float_samples(unit_ramp)
        yield Sample(np.array([-1, 1, 2, np.nan], np.float32), differentiable=False)


@primitive
class bessel_i0e(SpecialFunction):
    """Modified Bessel function of order 0, scaled by exp(-|x|)."""

    @precise
    def eval(x: Any) -> Any:
        from scipy import special

        return special.i0e(x)

    def partial(self, number: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, sub(bessel_i1e(x), mul(sign(x), out)))


@primitive
class bessel_i1e(SpecialFunction):
    """Modified Bessel function of order 1, scaled by exp(-|x|)."""

    @precise
    def eval(x: Any) -> Any:
        from scipy import special

        return np.where(x == 0, x, special.i1e(x))  # a zero keeps its sign

    def partial(self, number: int, tangent: Any, out: Any, x: Any) -> Any:
        # I1(x)/x tends to 1/2 at 0, where the quotient itself has no value.
        ratio = where(eq(x, constant_like(x, 0)), constant_like(x, 0.5), div(out, without_zeros(x)))
        return mul(tangent, sub(bessel_i0e(x), add(mul(sign(x), out), ratio)))
