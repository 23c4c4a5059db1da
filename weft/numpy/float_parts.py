"""Parts of floating-point numbers: neighbours, mantissas and exponents."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.ir.types import get_aval
from weft.numpy.argument_docs import document
from weft.numpy.elementwise import SAME_WIDTH, broadcast_full, copysign
from weft.numpy.util import (
    broadcast_operands,
    cast,
    check_arraylike,
    choose,
    dtype_kind,
    ensure_array,
    promote_args_inexact,
    promote_dtypes_inexact,
    scalar_like,
    strong,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@document(
    "An array in the promoted dtype.",
    "wnp.nextafter(wnp.float32(1.0), 2.0) - 1.0 -> Array(1.1920929e-07, dtype=float32)",
    x="floats to start from.",
    y="floats to go towards.",
)
def nextafter(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the next representable number after `x` in the direction of `y`."""
    return lax.nextafter(*(ensure_array(v) for v in broadcast_full("nextafter", x, y)))


def spacing(x: ArrayLike, /) -> Array:
    """Compute the distance from each element to the next representable number away from zero, with the element's sign.

    In float16 it is the distance to the next larger number, and positive, as in NumPy.
    """
    (x,) = promote_args_inexact("spacing", x)
    if dtype_kind(x) == "c":
        raise ArgumentError("spacing does not support complex-valued inputs.", received=get_aval(x).short())
    x = strong(ensure_array(x))
    limit = lax.full_like(x, math.inf)
    return lax.sub(lax.nextafter(x, limit if x.dtype == np.float16 else copysign(limit, x)), x)


def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Compute `x1` times 2 to the power of the integer `x2`."""
    check_arraylike("ldexp", x1, x2)
    if dtype_kind(x1) == "c" or dtype_kind(x2) not in "biu":
        raise ArgumentError(f"ldexp takes real numbers and integer exponents, got {x1!r} and {x2!r}.")
    (x1,) = promote_dtypes_inexact(x1)
    exponent = cast(x2, dtypes.int32)
    x1, exponent = broadcast_operands("ldexp", [x1, exponent])
    # In three parts, since 2**x2 may overflow or vanish where the product does not; three reach from the least number
    # to the greatest and back. A part downwards leaves room for all digits, so that rounding happens in the last alone.
    dtype = x1.dtype
    x1 = strong(ensure_array(cast(x1, dtypes.accumulation_dtype(dtype))))
    limits = dtypes.finfo(x1.dtype)
    least, greatest = np.int32(limits.minexp + limits.nmant + 1), np.int32(limits.maxexp - 1)
    for _ in range(3):
        part = lax.clamp(least, exponent, greatest)
        x1 = lax.mul(x1, _power_of_two(part, x1.dtype))
        exponent = lax.sub(exponent, part)
    return cast(x1, dtype)


def _power_of_two(exponent: Any, dtype: Any) -> Array:
    """Compute 2 to the power of integers exactly, in the range of normal numbers."""
    limits, integer = dtypes.finfo(dtype), SAME_WIDTH[dtype.itemsize]
    biased = lax.add(lax.convert_element_type(exponent, integer), integer.type(limits.maxexp - 1))
    return lax.bitcast_convert_type(lax.shift_left(biased, integer.type(limits.nmant)), dtype)


def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """Split each element into a mantissa between a half and one, and a power of two."""
    check_arraylike("frexp", x)
    (x,) = promote_dtypes_inexact(x)
    x = ensure_array(x)
    if dtype_kind(x) == "c":
        raise ArgumentTypeError("frexp does not support complex-valued inputs.")
    x = strong(x)
    wide = cast(x, dtypes.accumulation_dtype(x.dtype))
    bits, bias = (52, 1022) if wide.dtype == np.float64 else (23, 126)
    integer = SAME_WIDTH[wide.dtype.itemsize]
    plain = lax.bitwise_and(lax.is_finite(wide), lax.ne(wide, scalar_like(wide, 0)))
    # Denormal numbers are scaled up first, so that their exponent field counts.
    tiny = lax.bitwise_and(lax.lt(lax.abs(wide), scalar_like(wide, dtypes.finfo(wide.dtype).tiny)), plain)
    scaled = choose(tiny, lax.mul(wide, scalar_like(wide, 2.0**bits)), wide)
    pattern = lax.bitcast_convert_type(scaled, integer)
    mask = (1 << (8 if bits == 23 else 11)) - 1
    field = lax.bitwise_and(lax.shift_right_logical(pattern, integer.type(bits)), integer.type(mask))
    # Multiplying is exact and, unlike a change of bits, has a derivative. One power of two could leave the range of
    # normal numbers, its two halves cannot.
    shift = lax.sub(field, integer.type(bias))
    half = lax.shift_right_arithmetic(shift, integer.type(1))

    def downscale(value: Array, power: Array) -> Array:
        return lax.mul(value, _power_of_two(lax.neg(power), wide.dtype))

    mantissa = choose(plain, downscale(downscale(scaled, half), lax.sub(shift, half)), wide)
    exponent = choose(tiny, lax.sub(shift, integer.type(bits)), shift)
    exponent = choose(plain, exponent, scalar_like(exponent, 0))
    return cast(mantissa, x.dtype), lax.convert_element_type(exponent, dtypes.int32)
