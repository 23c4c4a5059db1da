"""Interpolation between values on a grid."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.arguments import sequence
from weft.base.errors import ArgumentError, NotSupportedError, ShapeMismatchError
from weft.base.publish import publish as _publish
from weft.numpy.extremes import clip
from weft.numpy.indexing import concrete
from weft.numpy.joining import stack
from weft.numpy.manipulation import broadcast_arrays, flip, reshape
from weft.numpy.selection import take_in_bounds, where
from weft.numpy.sorting import searchsorted
from weft.numpy.util import cast, ensure_array, ensure_arrays, promote_dtypes_inexact
from weft.trace.array import Array


class RegularGridInterpolator:
    """Interpolation between values on a rectangular grid, in any number of dimensions.

    Args:
        points: a vector of positions for each axis of the grid, in ascending order; they may be traced.
        values: the values there; axes beyond those of the grid are interpolated alike.
        method: "linear" or "nearest".
        bounds_error: must be False: positions are not known while a function is compiled. What is outside of the grid
            is `fill_value`.
        fill_value: the value outside of the grid; None extrapolates.

    Call it with positions, whose last axis has an element for each axis of the grid (or with a tuple of arrays of
    coordinates); `method` chooses another one for that call.

    >>> import weft.numpy as np
    >>> from weft.scipy.interpolate import RegularGridInterpolator
    >>> f = RegularGridInterpolator((np.array([0.0, 1.0]), np.array([0.0, 2.0])), np.array([[0.0, 1.0], [2.0, 3.0]]))
    >>> f(np.array([[0.5, 1.0], [1.0, 2.0], [3.0, 0.0]]))
    Array([1.5, 3. , nan], dtype=float32)
    """

    def __init__(
        self,
        points: Any,
        values: Any,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: Any = math.nan,
    ) -> None:
        self.method = _method(method)
        if bounds_error:
            raise NotSupportedError(
                "RegularGridInterpolator cannot raise for positions outside of the grid: they are not known in "
                "compiled functions.",
                received="bounds_error=True",
                fix="bounds_error=False, with a fill_value",
            )
        self.bounds_error = False
        (self.values,) = promote_dtypes_inexact(*ensure_arrays("RegularGridInterpolator", values))
        grid = [ensure_array(p) for p in sequence(points, "points")]
        if len(grid) > self.values.ndim or not grid:
            raise ShapeMismatchError(
                f"RegularGridInterpolator needs one to {self.values.ndim} point arrays (its rank), got {len(grid)}.",
                fix="a vector of positions for each of the first axes of values",
            )
        self.grid: tuple[Array, ...] = tuple(self._axis(axis, p) for axis, p in enumerate(grid))
        if fill_value is not None:
            (fill_value,) = ensure_arrays("RegularGridInterpolator", fill_value)
            if dtypes.kind(fill_value.dtype) == "c" and dtypes.kind(self.values.dtype) != "c":
                raise ArgumentError(
                    "RegularGridInterpolator: fill_value must be of the kind of the values.",
                    received=f"{fill_value.aval.short()} for values {self.values.aval.short()}",
                )
            fill_value = cast(fill_value, self.values.dtype)
        self.fill_value = fill_value

    def _axis(self, axis: int, points: Array) -> Array:
        """Return positions along an axis in ascending order; values are reversed along with descending ones."""
        (points,) = (ensure_array(p) for p in promote_dtypes_inexact(points))
        size = self.values.shape[axis]
        if points.shape != (size,) or size < 2:
            raise ShapeMismatchError(
                f"RegularGridInterpolator: axis {axis} needs a vector of at least two positions, one for each value.",
                received=f"points {points.aval.short()}, values {self.values.aval.short()}",
            )
        known = concrete(points)
        if known is None:
            return points
        steps = np.diff(known)
        if (steps < 0).all():
            self.values = flip(self.values, axis)
            return flip(points)
        if not (steps > 0).all():
            raise ArgumentError(
                f"RegularGridInterpolator: the points in dimension {axis} must be strictly ascending or descending.",
                received=str(known) if size <= 10 else points.aval.short(),
            )
        return points

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """Interpolate at positions; NaN where a position is NaN."""
        method = self.method if method is None else _method(method)
        ndim = len(self.grid)
        if isinstance(xi, (tuple, list)):
            xi = stack(broadcast_arrays(*(ensure_array(x) for x in xi)), -1)
        (xi,) = promote_dtypes_inexact(*ensure_arrays("RegularGridInterpolator", xi))
        if xi.ndim == 1 and ndim > 1:
            xi = xi[None]
        elif xi.ndim <= 1:
            xi = xi[..., None]
        if xi.shape[-1] != ndim:
            raise ShapeMismatchError(
                f"The sample points xi must have dimension {ndim}, as the interpolator, got dimension {xi.shape[-1]}.",
                received=xi.aval.short(),
            )
        found = self._at(reshape(xi, (-1, ndim)), method)
        return reshape(found, (*xi.shape[:-1], *self.values.shape[ndim:]))

    def _at(self, xi: Array, method: str) -> Array:
        lower, shares, outside = [], [], np.zeros((), bool)
        for axis, points in enumerate(self.grid):
            x = xi[:, axis]
            i = clip(searchsorted(points, x, side="right") - 1, 0, points.shape[0] - 2)
            low, high = take_in_bounds(points, i, 0), take_in_bounds(points, i + 1, 0)
            lower.append(i)
            shares.append((x - low) / (high - low))
            outside = outside | (x < points[0]) | (x > points[-1])
        rest = (1,) * (self.values.ndim - len(self.grid))

        def value(indices: Any) -> Array:
            return self.values.at[tuple(indices)].get(mode="promise_in_bounds")

        total: Any
        if method == "nearest":
            total = value(where(share <= 0.5, i, i + 1) for i, share in zip(lower, shares, strict=True))
        else:
            total = 0
            for corner in itertools.product((0, 1), repeat=len(self.grid)):
                weight: Any = 1
                for above, share in zip(corner, shares, strict=True):
                    weight = weight * (share if above else 1 - share)
                part = value(i + above for i, above in zip(lower, corner, strict=True))
                total = total + part * reshape(weight, (-1, *rest)).astype(part.dtype)
        if self.fill_value is not None:
            total = where(reshape(outside, (-1, *rest)), self.fill_value, total)
        unknown = (xi != xi).any(-1)
        return where(reshape(unknown, (-1, *rest)), np.asarray(math.nan, total.dtype), total)


def _method(method: str) -> str:
    if method not in ("linear", "nearest"):
        raise ArgumentError(f"RegularGridInterpolator: method {method!r} is not defined.", fix="'linear' or 'nearest'")
    return method


_publish(__name__)
