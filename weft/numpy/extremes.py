"""Elementwise maxima and minima, and clipping."""

from __future__ import annotations

from typing import Any

from weft import lax
from weft.base.errors import ArgumentError
from weft.numpy.argument_docs import document
from weft.numpy.util import (
    check_arraylike,
    choose,
    dtype_kind,
    ensure_array,
    promote_args,
)
from weft.primitives.elementwise import arithmetic
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@document(
    "The broadcast maximum in the promoted dtype. Where both are equal, each has half of the derivative.",
    "wnp.maximum(wnp.array([1, 5]), wnp.array([3, 2])) -> Array([3, 5], dtype=int32)",
)
def maximum(x: Any, y: Any, /) -> Array:
    """Compute the element-wise maximum; NaN if either is NaN."""
    return arithmetic.max(*promote_args("maximum", x, y))


@document(
    "The broadcast minimum in the promoted dtype. Where both are equal, each has half of the derivative.",
    "wnp.minimum(wnp.array([1, 5]), wnp.array([3, 2])) -> Array([1, 2], dtype=int32)",
)
def minimum(x: Any, y: Any, /) -> Array:
    """Compute the element-wise minimum; NaN if either is NaN."""
    return arithmetic.min(*promote_args("minimum", x, y))


@document(
    "The broadcast maximum in the promoted dtype; NaN only where both are NaN.",
    "wnp.fmax(wnp.array([1.0, wnp.nan]), 0.0) -> Array([1., 0.], dtype=float32)",
)
def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Compute the element-wise maximum; a number is preferred to NaN."""
    x1, x2 = promote_and_broadcast("fmax", x1, x2)
    return choose(lax.bitwise_or(_exceeds(x1, x2), lax.ne(x2, x2)), x1, x2)


@document(
    "The broadcast minimum in the promoted dtype; NaN only where both are NaN.",
    "wnp.fmin(wnp.array([1.0, wnp.nan]), 0.0) -> Array([0., 0.], dtype=float32)",
)
def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Compute the element-wise minimum; a number is preferred to NaN."""
    x1, x2 = promote_and_broadcast("fmin", x1, x2)
    return choose(lax.bitwise_or(_exceeds(x2, x1), lax.ne(x2, x2)), x1, x2)


def _exceeds(x: Any, y: Any) -> Any:
    """Test element-wise whether x > y; complex numbers compare by real, then imaginary part."""
    if dtype_kind(x) != "c":
        return lax.gt(x, y)
    real, other = lax.real(x), lax.real(y)
    return choose(lax.eq(real, other), lax.gt(lax.imag(x), lax.imag(y)), lax.gt(real, other))


def promote_and_broadcast(name: str, *args: Any) -> list[Any]:
    """Promote arguments and broadcast them to one shape, scalars included."""
    promoted = [ensure_array(x) for x in promote_args(name, *args)]
    shape = max((x.shape for x in promoted), key=len)
    return [x if x.shape == shape else lax.broadcast(x, shape) for x in promoted]


def clip(arr: ArrayLike | None = None, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """Limit each element to between `min` and `max`; each limit may be omitted.

    Args:
        arr: an array or a number.
        min, max: numbers or arrays that broadcast with `arr`; None for no limit.

    Returns:
        An array in the promoted dtype. The derivative is 1 between the limits, 0 beyond them, and one half at a limit.

    >>> import weft.numpy as wnp
    >>> wnp.clip(wnp.array([-1.0, 0.5, 3.0]), 0.0, 1.0)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    if arr is None:
        raise ArgumentError("clip needs an array to clip.")
    check_arraylike("clip", arr, *(x for x in (min, max) if x is not None))
    if any(dtype_kind(x) == "c" for x in (arr, min, max) if x is not None):
        raise ArgumentError("clip is not defined for complex numbers, which have no order.")
    out = arr
    if min is not None:
        out = maximum(min, out)
    if max is not None:
        out = minimum(max, out)
    return ensure_array(out)
