"""The larger and the smaller of two elements; limits."""

from __future__ import annotations

from typing import Any

from weft import lax
from weft.base.errors import ArgumentError
from weft.numpy.util import (
    check_arraylike,
    choose,
    ensure_array,
    kind_of,
    promote_args,
)
from weft.primitives.elementwise import arithmetic
from weft.trace.array import Array


def maximum(x: Any, y: Any, /) -> Array:
    """The larger of two; NaN wins.

    Args:
        x: an array or a number.
        y: an array or a number that broadcasts with `x`.

    Returns:
        The broadcast maximum in the promoted dtype. Where both are equal, each has half of the derivative.

    >>> import weft.numpy as wnp
    >>> wnp.maximum(wnp.array([1, 5]), wnp.array([3, 2]))
    Array([3, 5], dtype=int32)
    """
    return arithmetic.max(*promote_args("maximum", x, y))


def minimum(x: Any, y: Any, /) -> Array:
    """The smaller of two; NaN wins.

    Args:
        x: an array or a number.
        y: an array or a number that broadcasts with `x`.

    Returns:
        The broadcast minimum in the promoted dtype. Where both are equal, each has half of the derivative.

    >>> import weft.numpy as wnp
    >>> wnp.minimum(wnp.array([1, 5]), wnp.array([3, 2]))
    Array([1, 2], dtype=int32)
    """
    return arithmetic.min(*promote_args("minimum", x, y))


def fmax(x1: Any, x2: Any) -> Array:
    """The larger of two; a number wins over NaN.

    Args:
        x1: an array or a number.
        x2: an array or a number that broadcasts with `x1`.

    Returns:
        The broadcast maximum in the promoted dtype; NaN only where both are NaN.

    >>> import weft.numpy as wnp
    >>> wnp.fmax(wnp.array([1.0, wnp.nan]), 0.0)
    Array([1., 0.], dtype=float32)
    """
    x1, x2 = broadcast_promoted("fmax", x1, x2)
    return choose(lax.bitwise_or(_exceeds(x1, x2), lax.ne(x2, x2)), x1, x2)


def fmin(x1: Any, x2: Any) -> Array:
    """The smaller of two; a number wins over NaN.

    Args:
        x1: an array or a number.
        x2: an array or a number that broadcasts with `x1`.

    Returns:
        The broadcast minimum in the promoted dtype; NaN only where both are NaN.

    >>> import weft.numpy as wnp
    >>> wnp.fmin(wnp.array([1.0, wnp.nan]), 0.0)
    Array([0., 0.], dtype=float32)
    """
    x1, x2 = broadcast_promoted("fmin", x1, x2)
    return choose(lax.bitwise_or(_exceeds(x2, x1), lax.ne(x2, x2)), x1, x2)


def _exceeds(x: Any, y: Any) -> Any:
    """Whether x is larger than y; complex numbers by their real parts and, where these are equal, the imaginary."""
    if kind_of(x) != "c":
        return lax.gt(x, y)
    real, other = lax.real(x), lax.real(y)
    return choose(lax.eq(real, other), lax.gt(lax.imag(x), lax.imag(y)), lax.gt(real, other))


def broadcast_promoted(name: str, *args: Any) -> list[Any]:
    """Arguments promoted and broadcast to one shape, scalars included."""
    promoted = [ensure_array(x) for x in promote_args(name, *args)]
    shape = max((x.shape for x in promoted), key=len)
    return [x if x.shape == shape else lax.broadcast(x, shape) for x in promoted]


def clip(arr: Any = None, /, min: Any = None, max: Any = None) -> Array:
    """Each element limited to between `min` and `max`, either of which may be left out.

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
    if any(kind_of(x) == "c" for x in (arr, min, max) if x is not None):
        raise ArgumentError("clip is not defined for complex numbers, which have no order.")
    out = arr
    if min is not None:
        out = maximum(min, out)
    if max is not None:
        out = minimum(max, out)
    return ensure_array(out)
