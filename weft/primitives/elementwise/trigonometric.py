"""Circular and hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise import complex_values
from weft.primitives.elementwise.arithmetic import add, div, mul, neg, square, sub
from weft.primitives.elementwise.complex_values import of_complex
from weft.primitives.elementwise.exponential import FloatFunction, rsqrt
from weft.primitives.elementwise.scalar import complex_ramp, constant_like, float_samples, positive_ramp, unit_ramp
from weft.primitives.movement.shape import ramp


@primitive
class sin(FloatFunction):
    """Sine of each element, in radians."""

    eval = of_complex(np.sin, complex_values.sin)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, cos(x))


@primitive
class cos(FloatFunction):
    """Cosine of each element, in radians."""

    eval = of_complex(np.cos, complex_values.cos)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return neg(mul(tangent, sin(x)))


@primitive
class tan(FloatFunction):
    """Tangent of each element, in radians."""

    eval = of_complex(np.tan, complex_values.tan)
    weight = 16

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, add(constant_like(x, 1), square(out)))

    def samples(self) -> Any:
        yield from float_samples(unit_ramp, True)


class UnitFunction(FloatFunction):
    """Defined between -1 and 1."""

    weight = 16

    def samples(self) -> Any:
        yield from float_samples(unit_ramp, True)


def _one_minus_square(x: Any) -> Any:
    """Return 1 - x*x as a product, which keeps its digits near 1."""
    one = constant_like(x, 1)
    return mul(sub(one, x), add(one, x))


@primitive
class asin(UnitFunction):
    """Inverse sine."""

    eval = of_complex(np.arcsin, complex_values.asin)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, rsqrt(_one_minus_square(x)))


@primitive
class acos(UnitFunction):
    """Inverse cosine."""

    eval = of_complex(np.arccos, complex_values.acos)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return neg(mul(tangent, rsqrt(_one_minus_square(x))))


@primitive
class atan(FloatFunction):
    """Inverse tangent."""

    eval = of_complex(np.arctan, complex_values.atan)
    weight = 16

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return div(tangent, add(constant_like(x, 1), square(x)))


@primitive
class sinh(FloatFunction):
    """Hyperbolic sine."""

    eval = of_complex(np.sinh, complex_values.sinh)
    weight = 16

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, cosh(x))


@primitive
class cosh(FloatFunction):
    """Hyperbolic cosine."""

    eval = of_complex(np.cosh, complex_values.cosh)
    weight = 16

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, sinh(x))


@primitive
class tanh(FloatFunction):
    """Hyperbolic tangent."""

    eval = of_complex(np.tanh, complex_values.tanh)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, _one_minus_square(out))


@primitive
class asinh(FloatFunction):
    """Inverse hyperbolic sine."""

    eval = of_complex(np.arcsinh, complex_values.asinh)
    weight = 16

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, rsqrt(add(square(x), constant_like(x, 1))))


@primitive
class acosh(FloatFunction):
    """Inverse hyperbolic cosine, of numbers from 1 up."""

    eval = of_complex(np.arccosh, complex_values.acosh)
    weight = 16

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        one = constant_like(x, 1)
        # Two roots rather than that of the product, which is on another branch for complex numbers.
        return mul(tangent, mul(rsqrt(sub(x, one)), rsqrt(add(x, one))))

    def samples(self) -> Any:
        def above_one(*shape: int, dtype: Any = np.float32) -> np.ndarray:
            return (positive_ramp(*shape, dtype=np.float64) + 1).astype(dtype)

        yield from float_samples(above_one, True)


@primitive
class atanh(UnitFunction):
    """Inverse hyperbolic tangent, of numbers between -1 and 1."""

    eval = of_complex(np.arctanh, complex_values.atanh)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return div(tangent, _one_minus_square(x))


@primitive
class atan2(FloatFunction):
    """The angle of the point that lies `y` to the right and `x` up."""

    weight = 24

    # Of complex numbers by a logarithm, which cancels near 1.
    ulp = {"": 2.0, "complex64": 4.0, "complex128": 256.0}

    eval = of_complex(np.arctan2, complex_values.atan2)

    def partial(self, i: int, tangent: Any, out: Any, x: Any, y: Any) -> Any:
        length = add(square(x), square(y))
        return mul(tangent, div(y, length)) if i == 0 else neg(mul(tangent, div(x, length)))

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), ramp(3, 2)[::-1].copy())
        yield Sample(ramp(3), np.float32(0.5).reshape(()))
        yield Sample(np.float32(0.5).reshape(()), ramp(3))
        yield Sample(complex_ramp(2), complex_ramp(2)[::-1] * 0.7)
        edges = np.array([0.0, -0.0, 0.0, np.inf, np.nan], np.float32)
        yield Sample(edges, edges[::-1].copy(), differentiable=False)
