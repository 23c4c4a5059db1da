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

    @precise
    def eval(x: Any) -> Any:
        from scipy import special

        return np.where(x == 0, x, special.erfinv(x))  # a zero keeps its sign

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
