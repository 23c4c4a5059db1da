"""Elementwise rounding, and replacement of numbers that are not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.arguments import index
from weft.numpy.argument_docs import document
from weft.numpy.creation import convert_dtype
from weft.numpy.elementwise import floor_divide
from weft.numpy.transcendental import one_argument
from weft.numpy.util import (
    cast,
    check_arraylike,
    check_no_out,
    choose,
    dtype_kind,
    ensure_array,
    scalar_like,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array

rint = one_argument(
    lambda x: _round_parts(x),
    "rint",
    "Round each element to the nearest integer, as a float; halves go to the even one.",
    "Its derivative is 0.",
    "[0.5, 1.5, 2.7]",
    "[0., 2., 3.], dtype=float32",
)


@document(
    "An array of the dtype of `x`. Its derivative is 0.",
    "wnp.floor(wnp.array([1.7, -1.2])) -> Array([ 1., -2.], dtype=float32)",
)
def floor(x: ArrayLike, /) -> Array:
    """Round down to an integer, as a float; integers are unchanged."""
    return _round_by("floor", lax.floor, x)


@document(
    "An array of the dtype of `x`. Its derivative is 0.",
    "wnp.ceil(wnp.array([1.2, -1.7])) -> Array([ 2., -1.], dtype=float32)",
)
def ceil(x: ArrayLike, /) -> Array:
    """Round up to an integer, as a float; integers are unchanged."""
    return _round_by("ceil", lax.ceil, x)


@document(
    "An array of the dtype of `x`. Its derivative is 0.",
    "wnp.trunc(wnp.array([1.7, -1.7])) -> Array([ 1., -1.], dtype=float32)",
)
def trunc(x: ArrayLike) -> Array:
    """Truncate to the integer part, as a float; integers are unchanged."""
    return _round_by("trunc", lambda v: choose(lax.lt(v, scalar_like(v, 0)), lax.ceil(v), lax.floor(v)), x)


def _round_by(name: str, operation: Callable[[Any], Any], x: Any) -> Array:
    check_arraylike(name, x)
    x = ensure_array(x)
    return x if dtype_kind(x) in "biu" else operation(x)


def _round_parts(x: Any) -> Array:
    if dtype_kind(x) == "c":
        return lax.complex(_nearest(lax.real(x)), _nearest(lax.imag(x)))
    return _nearest(x)


def _nearest(x: Any) -> Array:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def round(a: ArrayLike, decimals: int = 0, out: Any = None) -> Array:
    """Round each element to a number of decimals; halves go to the even digit.

    Args:
        a: an array or a number.
        decimals: the number of digits after the point; negative ones round integers and large floats to tens, hundreds
            and so on.
        out: must be None: arrays do not change, so nothing can be written into one.

    Returns:
        An array of the dtype of `a`. Its derivative is 0.

    >>> import weft.numpy as wnp
    >>> wnp.round(wnp.array([0.5, 1.5, 2.345]), 2)
    Array([0.5 , 1.5 , 2.34], dtype=float32)
    >>> wnp.round(wnp.array([0.5, 1.5]))
    Array([0., 2.], dtype=float32)
    """
    check_arraylike("round", a)
    check_no_out("round", out)
    decimals = index(decimals)
    x = ensure_array(a)
    kind = dtype_kind(x)
    if kind in "biu":
        return x if decimals >= 0 or kind == "b" else _round_integers(x, 10**-decimals)
    if kind == "c":
        return lax.complex(round(lax.real(x), decimals), round(lax.imag(x), decimals))
    if decimals == 0:
        return _nearest(x)
    wide = cast(x, dtypes.accumulation_dtype(x.dtype), x.weak_type)
    if abs(decimals) > 38 and wide.dtype == np.float32:
        return x if decimals > 0 else lax.mul(x, scalar_like(x, 0))
    factor = scalar_like(wide, 10.0 ** abs(decimals))
    if decimals > 0:
        result = lax.div(_nearest(lax.mul(wide, factor)), factor)
    else:
        result = lax.mul(_nearest(lax.div(wide, factor)), factor)
    result = choose(lax.is_finite(result), result, wide)  # numbers too large to scale have no decimals
    return cast(result, x.dtype, x.weak_type)


around = round


def _round_integers(x: Array, factor: int) -> Array:
    if factor > dtypes.iinfo(x.dtype).max:
        return lax.full_like(x, 0)
    unit, one, zero = (scalar_like(x, n) for n in (factor, 1, 0))
    down = floor_divide(x, unit)
    twice = lax.mul(lax.sub(x, lax.mul(down, unit)), scalar_like(x, 2))
    odd = lax.ne(lax.bitwise_and(down, one), zero)
    up = lax.bitwise_or(lax.gt(twice, unit), lax.bitwise_and(lax.eq(twice, unit), odd))
    return lax.mul(lax.add(down, lax.convert_element_type(up, x.dtype)), unit)


def nan_to_num(x: ArrayLike, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    """Replace NaN by `nan`, and infinities by the largest and least finite numbers.

    Args:
        x: an array or a number.
        copy: accepted for compatibility; arrays do not change, so it makes no difference.
        nan: the replacement of NaN. If it is infinite, it is then replaced like an infinity of `x`.
        posinf: the replacement of infinity; the largest number of the dtype by default.
        neginf: the replacement of minus infinity; the least number of the dtype by default.

    Returns:
        An array of the shape and dtype of `x`.

    >>> import weft.numpy as wnp
    >>> wnp.nan_to_num(wnp.array([wnp.nan, 1.0, wnp.inf]), posinf=9.0)
    Array([0., 1., 9.], dtype=float32)
    """
    check_arraylike("nan_to_num", x)
    x = ensure_array(x)
    kind = dtype_kind(x)
    if kind not in "fc":
        return x
    if kind == "c":
        return lax.complex(*(nan_to_num(part, copy, nan, posinf, neginf) for part in (lax.real(x), lax.imag(x))))
    limits = dtypes.finfo(x.dtype)
    largest = limits.max if posinf is None else posinf
    least = limits.min if neginf is None else neginf
    out = _replace(x, lax.ne(x, x), nan)
    out = _replace(out, lax.eq(out, scalar_like(x, math.inf)), largest)
    return _replace(out, lax.eq(out, scalar_like(x, -math.inf)), least)


def _replace(x: Any, condition: Any, value: Any) -> Any:
    value = convert_dtype(ensure_array(value), x.dtype)
    return choose(
        condition, lax.broadcast_in_dim(value, x.shape, tuple(range(len(x.shape) - value.ndim, len(x.shape)))), x
    )
