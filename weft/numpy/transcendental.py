"""Elementwise exponentials, logarithms, roots and trigonometry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft import lax
from weft.base import dtypes
from weft.numpy.argument_docs import document
from weft.numpy.util import (
    choose,
    dtype_kind,
    ensure_array,
    in_float32,
    promote_args_inexact,
    scalar_like,
    strong,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def one_argument(
    operation: Callable[[Any], Any], name: str, text: str, note: str, example: str, shows: str
) -> Callable[[Any], Array]:
    """Make an elementwise function of one argument that computes in floating point; integers are converted first.

    Its docstring has a summary (`text`), the behavior at the limits of its domain (`note`), and the output (`shows`) of
    an `example`, rounded to three digits.
    """

    def function(x: Any, /) -> Array:
        if isinstance(x, Array) and dtypes.kind(x.dtype) in "fc":
            return operation(x)
        return operation(*promote_args_inexact(name, x))

    function.__name__ = function.__qualname__ = name
    result = f"An array of floats (complex if `x` is) of the shape of `x`. {note}".rstrip()
    function.__doc__ = f"""{text}

    Args:
        x: an array or a number; integers and booleans are converted to floats first.

    Returns:
        {result}

    >>> import weft.numpy as wnp
    >>> wnp.{name}(wnp.array({example})).round(3)
    Array({shows})
    """
    return function


exp = one_argument(
    lax.exp, "exp", "Compute e to the power of each element.", "", "[0.0, 1.0]", "[1.   , 2.718], dtype=float32"
)
exp2 = one_argument(
    lax.exp2, "exp2", "Compute 2 to the power of each element.", "", "[0.0, 3.0]", "[1., 8.], dtype=float32"
)
expm1 = one_argument(
    lax.expm1, "expm1", "Compute exp(x) - 1, precise for small x.", "", "[0.0, 1.0]", "[0.   , 1.718], dtype=float32"
)
log = one_argument(
    lax.log,
    "log",
    "Compute the natural logarithm.",
    "-inf at 0 and NaN below.",
    "[1.0, 10.0]",
    "[0.   , 2.303], dtype=float32",
)
log1p = one_argument(
    lax.log1p,
    "log1p",
    "Compute log(1 + x), precise for small x.",
    "-inf at -1 and NaN below.",
    "[0.0, 1.0]",
    "[0.   , 0.693], dtype=float32",
)
sqrt = one_argument(
    lax.sqrt,
    "sqrt",
    "Compute the square root.",
    "NaN below 0. The derivative at 0 is inf: guard it with `where` on the argument.",
    "[4.0, 2.0]",
    "[2.   , 1.414], dtype=float32",
)
cbrt = one_argument(
    lax.cbrt,
    "cbrt",
    "Compute the cube root.",
    "Negative numbers have a negative root.",
    "[8.0, -27.0]",
    "[ 2., -3.], dtype=float32",
)
sin = one_argument(lax.sin, "sin", "Compute the sine of radians.", "", "[0.0, 1.0]", "[0.   , 0.841], dtype=float32")
cos = one_argument(lax.cos, "cos", "Compute the cosine of radians.", "", "[0.0, 1.0]", "[1.  , 0.54], dtype=float32")
tan = one_argument(lax.tan, "tan", "Compute the tangent of radians.", "", "[0.0, 1.0]", "[0.   , 1.557], dtype=float32")
sinh = one_argument(lax.sinh, "sinh", "Compute the hyperbolic sine.", "", "[0.0, 1.0]", "[0.   , 1.175], dtype=float32")
cosh = one_argument(
    lax.cosh, "cosh", "Compute the hyperbolic cosine.", "", "[0.0, 1.0]", "[1.   , 1.543], dtype=float32"
)
tanh = one_argument(
    lax.tanh, "tanh", "Compute the hyperbolic tangent.", "", "[0.0, 1.0]", "[0.   , 0.762], dtype=float32"
)
arcsin = one_argument(
    lax.asin,
    "arcsin",
    "Compute the inverse sine, in radians.",
    "NaN outside of [-1, 1], where the derivative ends in inf.",
    "[0.0, 1.0]",
    "[0.   , 1.571], dtype=float32",
)
arccos = one_argument(
    lax.acos,
    "arccos",
    "Compute the inverse cosine, in radians.",
    "NaN outside of [-1, 1], where the derivative ends in -inf.",
    "[0.0, 1.0]",
    "[1.571, 0.   ], dtype=float32",
)
arctan = one_argument(
    lax.atan, "arctan", "Compute the inverse tangent, in radians.", "", "[0.0, 1.0]", "[0.   , 0.785], dtype=float32"
)
arcsinh = one_argument(
    lax.asinh, "arcsinh", "Compute the inverse hyperbolic sine.", "", "[0.0, 1.0]", "[0.   , 0.881], dtype=float32"
)
arccosh = one_argument(
    lax.acosh,
    "arccosh",
    "Compute the inverse hyperbolic cosine.",
    "NaN below 1.",
    "[1.0, 2.0]",
    "[0.   , 1.317], dtype=float32",
)
arctanh = one_argument(
    lax.atanh,
    "arctanh",
    "Compute the inverse hyperbolic tangent.",
    "inf at 1, -inf at -1, NaN beyond.",
    "[0.0, 0.5]",
    "[0.   , 0.549], dtype=float32",
)
asin = one_argument(
    lax.asin,
    "asin",
    "Compute the inverse sine, in radians.",
    "NaN outside of [-1, 1], where the derivative ends in inf.",
    "[0.0, 1.0]",
    "[0.   , 1.571], dtype=float32",
)
acos = one_argument(
    lax.acos,
    "acos",
    "Compute the inverse cosine, in radians.",
    "NaN outside of [-1, 1], where the derivative ends in -inf.",
    "[0.0, 1.0]",
    "[1.571, 0.   ], dtype=float32",
)
atan = one_argument(
    lax.atan, "atan", "Compute the inverse tangent, in radians.", "", "[0.0, 1.0]", "[0.   , 0.785], dtype=float32"
)
asinh = one_argument(
    lax.asinh, "asinh", "Compute the inverse hyperbolic sine.", "", "[0.0, 1.0]", "[0.   , 0.881], dtype=float32"
)
acosh = one_argument(
    lax.acosh,
    "acosh",
    "Compute the inverse hyperbolic cosine.",
    "NaN below 1.",
    "[1.0, 2.0]",
    "[0.   , 1.317], dtype=float32",
)
atanh = one_argument(
    lax.atanh,
    "atanh",
    "Compute the inverse hyperbolic tangent.",
    "inf at 1, -inf at -1, NaN beyond.",
    "[0.0, 0.5]",
    "[0.   , 0.549], dtype=float32",
)


@document(
    "An array of floats; integers are converted first. -inf at 0, NaN below.",
    "wnp.log2(wnp.array([1.0, 2.0, 8.0])).round(4) -> Array([0., 1., 3.], dtype=float32)",
)
def log2(x: ArrayLike, /) -> Array:
    """Compute the logarithm to base 2."""
    (x,) = promote_args_inexact("log2", x)
    return in_float32(lambda x: _divide_by(lax.log(x), math.log(2)), strong(ensure_array(x)))


@document(
    "An array of floats; integers are converted first. -inf at 0, NaN below.",
    "wnp.log10(wnp.array([1.0, 100.0])).round(4) -> Array([0., 2.], dtype=float32)",
)
def log10(x: ArrayLike, /) -> Array:
    """Compute the logarithm to base 10."""
    (x,) = promote_args_inexact("log10", x)
    return in_float32(lambda x: _divide_by(lax.log(x), math.log(10)), strong(ensure_array(x)))


def _divide_by(x: Array, divisor: float) -> Array:
    """Divide `x` by a real number; complex numbers part by part, since infinite ones have no quotient."""
    if dtype_kind(x) != "c":
        return lax.div(x, scalar_like(x, divisor))
    parts = (lax.real(x), lax.imag(x))
    return lax.complex(*(lax.div(part, scalar_like(part, divisor)) for part in parts))


# ------------------------------------------------------------------------------------------------ trigonometry


@document(
    "Angles from -pi to pi; signs of zeros matter. The derivative at the origin is NaN.",
    "wnp.arctan2(1.0, wnp.array([1.0, -1.0])).round(3) -> Array([0.785, 2.356], dtype=float32)",
)
def arctan2(x1: ArrayLike, x2: Any, /) -> Array:
    """Compute the angle of the point with ordinate `x1` and abscissa `x2`, in radians."""
    return lax.atan2(*promote_args_inexact("arctan2", x1, x2))


atan2 = arctan2


@document(
    "An array of floats.", "wnp.deg2rad(wnp.array([0.0, 180.0])).round(3) -> Array([0.   , 3.142], dtype=float32)"
)
def deg2rad(x: ArrayLike, /) -> Array:
    """Convert degrees to radians."""
    (x,) = promote_args_inexact("deg2rad", x)
    return lax.mul(x, scalar_like(x, math.pi / 180))


@document("An array of floats.", "wnp.rad2deg(wnp.pi) -> Array(180., dtype=float32, weak_type=True)")
def rad2deg(x: ArrayLike, /) -> Array:
    """Convert radians to degrees."""
    (x,) = promote_args_inexact("rad2deg", x)
    return lax.mul(x, scalar_like(x, 180 / math.pi))


radians = deg2rad


degrees = rad2deg


@document(
    "An array of floats, with right derivatives of all orders at 0.",
    "wnp.sinc(wnp.array([0.0, 0.5])).round(3) -> Array([1.   , 0.637], dtype=float32)",
)
def sinc(x: ArrayLike, /) -> Array:
    """Compute sin(pi x) / (pi x), and 1 at 0."""
    return in_float32(_sinc, *promote_args_inexact("sinc", x))


def _sinc(x: Array) -> Array:
    scaled = lax.mul(scalar_like(x, math.pi), x)
    at_zero = lax.eq(x, scalar_like(x, 0))
    divisor = choose(at_zero, scalar_like(scaled, 1), scaled)
    # At 0 the first terms of the series are used, so that derivatives are right there too.
    squared = lax.mul(scaled, scaled)
    near = scalar_like(x, 1) + squared * (scalar_like(x, -1 / 6) + squared * scalar_like(x, 1 / 120))
    sine = lax.sin(divisor) if dtype_kind(x) == "c" else _sin_pi(choose(at_zero, scalar_like(x, 1), x))
    return choose(at_zero, lax.broadcast_in_dim(near, x.shape, tuple(range(len(x.shape)))), lax.div(sine, divisor))


def _sin_pi(x: Array) -> Array:
    """Compute sin(pi x) with exact argument reduction.

    The distance to the nearest integer is exact; that of pi x to a multiple of pi would not be.
    """
    nearest = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    sine = lax.sin(lax.mul(scalar_like(x, math.pi), lax.sub(x, nearest)))
    half = lax.mul(nearest, scalar_like(x, 0.5))
    return choose(lax.eq(half, lax.floor(half)), sine, lax.neg(sine))
