"""Arrays at positions between their elements."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.arguments import index, sequence
from weft.base.errors import ArgumentError, NotSupportedError
from weft.base.publish import publish as _publish
from weft.base.settings import numpy_dtype_promotion
from weft.numpy.elementwise import remainder
from weft.numpy.selection import where
from weft.numpy.util import broadcast_all, cast, ensure_array, ensure_arrays, promote_dtypes_inexact
from weft.trace.array import Array


def _mirror(i: Any, size: int) -> Any:
    """Reflect an index at the centres of the first and the last element."""
    inner = max(size - 1, 1)
    return inner - lax.abs(remainder(i, 2 * inner) - inner) if size > 1 else lax.full_like(i, 0)


def _reflect(i: Any, size: int) -> Any:
    """Reflect an index at the outer edges of the first and the last element."""
    position = remainder(i, 2 * size)
    return lax.min(position, 2 * size - 1 - position)


# Index of the element that stands for a position outside of the array.
_OUTSIDE: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda i, size: i,
    "nearest": lambda i, size: lax.clamp(np.zeros((), i.dtype), i, np.asarray(size - 1, i.dtype)),
    "wrap": remainder,
    "mirror": _mirror,
    "reflect": _reflect,
}


def map_coordinates(input: Any, coordinates: Any, order: int, mode: str = "constant", cval: Any = 0.0) -> Array:
    """Interpolate an array at the given positions.

    Args:
        input: an array.
        coordinates: a sequence with an array of positions for each axis of `input`; the arrays broadcast to the shape
            of the result.
        order: 0 for the nearest element, 1 for linear interpolation.
        mode: what is outside of the array: "constant" (`cval`), "nearest" (the last element), "wrap" (the array again),
            "mirror" and "reflect" (the array backwards, from its last element or with that twice).
        cval: the value outside, with the mode "constant".

    Returns:
        Values of the dtype of `input`, rounded if that is an integer one.

    >>> import weft.numpy as np
    >>> from weft.scipy.ndimage import map_coordinates
    >>> map_coordinates(np.array([[1.0, 2.0], [3.0, 4.0]]), [np.array([0.5, 1.0]), np.array([0.5, 0.0])], order=1)
    Array([2.5, 3. ], dtype=float32)
    """
    (array,) = ensure_arrays("map_coordinates", input)
    positions = [ensure_array(x) for x in ensure_arrays("map_coordinates", *sequence(coordinates, "coordinates"))]
    if len(positions) != array.ndim:
        raise ArgumentError(
            "map_coordinates: coordinates must be a sequence of length input.ndim.",
            received=f"{len(positions)} for an array {array.aval.short()}",
        )
    if mode not in _OUTSIDE:
        raise NotSupportedError(f"map_coordinates has no mode {mode!r}.", fix=f"one of {', '.join(_OUTSIDE)}")
    if index(order) not in (0, 1):
        raise NotSupportedError("map_coordinates only interpolates with order 0 or 1.", received=f"order={order}")
    if any(not size for size in array.shape) and mode != "constant":
        raise ArgumentError("map_coordinates: an array without elements has no values.", received=array.aval.short())
    if not array.ndim:
        return array
    positions = broadcast_all("map_coordinates", *(ensure_array(x) for x in promote_dtypes_inexact(*positions)))
    corners = [_corners(x, order) for x in positions]
    fill = cast(ensure_array(cval), array.dtype)
    total: Any = 0
    for corner in itertools.product(*corners):
        indices = [_OUTSIDE[mode](i, size) for (i, _), size in zip(corner, array.shape, strict=True)]
        if mode == "constant":
            inside = functools.reduce(
                operator.and_, ((i >= 0) & (i < size) for i, size in zip(indices, array.shape, strict=True))
            )
            values = where(inside, array.at[tuple(indices)].get(mode="fill", fill_value=0), fill)
        else:
            values = array.at[tuple(indices)].get(mode="promise_in_bounds")
        weights = [weight for _, weight in corner if weight is not None]
        with numpy_dtype_promotion("standard"):  # weights are floats, whatever the array holds
            total = total + functools.reduce(operator.mul, weights, values)
    if dtypes.kind(array.dtype) in "iu" and order:
        total = lax.round(total, lax.RoundingMethod.AWAY_FROM_ZERO)
    return cast(total, array.dtype)


def _corners(position: Any, order: int) -> list[tuple[Any, Any]]:
    """Return the elements along an axis that contribute to an interpolated value, each with its weight (None for 1)."""
    if order == 0:
        nearest = lax.round(position, lax.RoundingMethod.AWAY_FROM_ZERO)
        return [(lax.convert_element_type(nearest, np.int32), None)]
    below = lax.floor(position)
    share = position - below
    first = lax.convert_element_type(below, np.int32)
    return [(first, 1 - share), (first + 1, share)]


_publish(__name__)
