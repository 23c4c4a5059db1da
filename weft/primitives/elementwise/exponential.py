"""Exponentials, logarithms, powers and roots."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.ir.primitive import Sample, primitive
from weft.ir.rules.bindable import Operands
from weft.ir.types import array_type
from weft.primitives.elementwise import complex_values
from weft.primitives.elementwise.arithmetic import abs as magnitude, add, div, integer_pow, mul, sub, without_zeros
from weft.primitives.elementwise.bitwise import and_
from weft.primitives.elementwise.compare import eq, lt
from weft.primitives.elementwise.complex_values import of_complex
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.elementwise import Elementwise, common_shape
from weft.primitives.elementwise.scalar import (
    bfloat16,
    complex_ramp,
    constant_like,
    float_samples,
    get_dtype,
    positive_ramp,
    round_result,
    unit_ramp,
)
from weft.primitives.elementwise.select import where
from weft.primitives.movement.shape import ramp


class FloatFunction(Elementwise):
    """Function of a float or complex number, rounded to its dtype."""

    kinds = "fc"
    ulp = {"": 2.0, "complex128": 8.0}
    keeps_nan: ClassVar[Operands] = "all"
    weight = 12

    def samples(self) -> Any:
        yield from float_samples(ramp, "c" in self.kinds)


class PositiveFunction(FloatFunction):
    """Defined for positive numbers."""

    def samples(self) -> Any:
        yield from float_samples(positive_ramp, "c" in self.kinds)


@primitive
class exp(FloatFunction):
    """e to the power of each element."""

    eval = of_complex(np.exp, complex_values.exp)
    negative_zero = False
    weight = 8

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, out)


@primitive
class exp2(FloatFunction):
    """2 to the power of each element."""

    eval = of_complex(np.exp2, complex_values.exp2)
    negative_zero = False
    weight = 8

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, mul(constant_like(x, math.log(2)), out))


@primitive
class expm1(FloatFunction):
    """exp(x) - 1, accurate near 0."""

    eval = of_complex(np.expm1, complex_values.expm1)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, add(out, constant_like(x, 1)))


@primitive
class log(PositiveFunction):
    """Natural logarithm."""

    eval = of_complex(np.log)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return div(tangent, x)


@primitive
class log1p(PositiveFunction):
    """log(1 + x), accurate near 0."""

    eval = of_complex(np.log1p, complex_values.log1p)
    weight = 16

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return div(tangent, add(x, constant_like(x, 1)))

    def samples(self) -> Any:
        yield from float_samples(unit_ramp, True)


@primitive
class logistic(FloatFunction):
    """1 / (1 + exp(-x))."""

    negative_zero = False

    @of_complex
    def eval(x: Any) -> Any:
        # exp of a number that is not positive cannot overflow.
        if x.dtype.kind == "c":
            right = x.real >= 0
            power = complex_values.exp(np.where(right, -x, x))
            return np.where(right, 1, power) / complex_values.of_parts(1 + power.real, power.imag)
        small = np.exp(-np.abs(x))
        return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, mul(out, sub(constant_like(x, 1), out)))


@primitive
class sqrt(PositiveFunction):
    """Square root."""

    ulp = {"": 0.5, "complex64": 2.0, "complex128": 2.0}
    eval = of_complex(np.sqrt)
    weight = 4

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return div(mul(tangent, constant_like(x, 0.5)), out)


@primitive
class rsqrt(PositiveFunction):
    """1 / sqrt(x)."""

    weight = 4

    @of_complex
    def eval(x: Any) -> Any:
        return np.divide(np.ones((), x.dtype), np.sqrt(x))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(mul(tangent, constant_like(x, -0.5)), div(out, x))


@primitive
class cbrt(PositiveFunction):
    """Cube root, also of negative numbers."""

    kinds = "f"
    eval = round_result(np.cbrt)
    weight = 24

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, mul(constant_like(x, 1 / 3), integer_pow(out, y=-2)))


@primitive
class pow(Elementwise):
    """x to the power y; y has the dtype of x or is an integer."""

    kinds = "fc"
    # The angle of a complex power is that of the logarithm times the exponent, and so is its error.
    ulp = {"": 2.0, "complex64": 4.0, "complex128": 256.0}
    weight = 24

    def type(self, x: Any, y: Any) -> Any:
        whole = dtypes.kind(y.dtype) in "iu"
        if not whole and x.dtype == y.dtype:
            return super().type(x, y)
        if dtypes.kind(x.dtype) not in "fc" or not whole:
            raise ArgumentTypeError(
                f"pow takes a float or complex base and an exponent of its dtype or an integer one, got {x.short()} "
                f"and {y.short()}. Convert with lax.convert_element_type, or use weft.numpy.power."
            )
        return array_type(common_shape("pow", (x, y)), x.dtype, x.weak_type and y.weak_type)

    @staticmethod
    def eval(x: Any, y: Any) -> Any:
        if dtypes.kind(y.dtype) in "iu":
            # An exponent that the dtype of x cannot hold is still taken exactly.
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
            return _power(x.astype(wide), y.astype(np.float64)).astype(x.dtype)
        return _power(x, y)

    def partial(self, i: int, tangent: Any, out: Any, x: Any, y: Any) -> Any:
        if i == 1:
            return mul(tangent, mul(log(without_zeros(x)), out))
        one, zero = constant_like(y, 1), constant_like(y, 0)
        # y * x**(y - 1) is 0 for y = 0 also where x is, or so small that 1 / x is infinite. Elsewhere nothing is
        # changed, since the derivative of this in y counts too.
        tiny = np.array(dtypes.finfo(x.dtype).tiny, dtypes.to_real_dtype(x.dtype))
        less = where(and_(eq(y, zero), lt(magnitude(x), tiny)), one, sub(y, one))
        factor = y if get_dtype(y) == out.dtype else convert_element_type(y, new_dtype=out.dtype, weak_type=False)
        return mul(tangent, mul(factor, pow(x, less)))

    def samples(self) -> Any:
        yield Sample(positive_ramp(3, 2), ramp(3, 2))
        yield Sample(positive_ramp(3), np.float32(2.5).reshape(()))
        yield Sample(np.float32(1.5).reshape(()), ramp(3))
        yield Sample(positive_ramp(3), np.array([2, -3, 5], np.int32))
        yield Sample(positive_ramp(3), np.int32(3).reshape(()))
        yield Sample(complex_ramp(2), complex_ramp(2) * 0.5)
        yield Sample(
            np.array([0, 0, -2, np.inf, np.nan], np.float32),
            np.array([0, 2, 3, 0, 0], np.float32),
            differentiable=False,
        )
        yield Sample(positive_ramp(2, dtype=bfloat16), ramp(2, dtype=bfloat16), differentiable=False)


_power = of_complex(np.power, complex_values.pow).__func__
