"""Trends, and signals without them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from weft import lax
from weft.base.arguments import index
from weft.base.errors import ArgumentError, NotSupportedError
from weft.numpy.manipulation import moveaxis
from weft.numpy.reductions import mean, sum as sum_
from weft.numpy.util import canonicalize_axis, combining_ranks, ensure_array, ensure_arrays, promote_dtypes_inexact
from weft.trace.array import Array


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: Any = 0, overwrite_data: Any = None) -> Array:
    """Remove the trend along an axis of a signal.

    Args:
        data: the signal.
        axis: along which it has a trend.
        type: "linear" removes the line that fits best, "constant" the mean.
        bp: positions at which a new line begins, for the type "linear".
        overwrite_data: must be None: arrays are immutable.

    >>> import weft.numpy as np
    >>> from weft.scipy.signal import detrend
    >>> detrend(np.array([1.0, 2.0, 6.0]), type="constant")
    Array([-2., -1.,  3.], dtype=float32)
    """
    if overwrite_data is not None:
        raise NotSupportedError("detrend: overwrite_data is not supported: arrays are immutable.", fix="x = detrend(x)")
    if type not in ("linear", "constant"):
        raise ArgumentError("detrend: Trend type must be 'linear' or 'constant'.", received=f"type={type!r}")
    (x,) = (ensure_array(a) for a in promote_dtypes_inexact(*ensure_arrays("detrend", data)))
    axis = canonicalize_axis(axis, x.ndim, "detrend")
    if type == "constant":
        return x - mean(x, axis=axis, keepdims=True)
    count = x.shape[axis]
    breaks = sorted({0, count, *(index(b) for b in np.atleast_1d(np.asarray(bp)).tolist())})
    if breaks[0] < 0 or breaks[-1] > count:
        raise ArgumentError(
            "detrend: Breakpoints must be less than length of data along given axis.", received=f"bp={bp}, {count} data"
        )
    x = moveaxis(x, axis, -1)
    parts = [_without_line(x[..., start:stop]) for start, stop in itertools.pairwise(breaks)]
    return moveaxis(lax.concatenate(parts, x.ndim - 1) if parts else x, -1, axis)


@combining_ranks
def _without_line(x: Array) -> Array:
    """Subtract the line of best fit from a part of a signal, by the moments of positions around their middle."""
    count = x.shape[-1]
    x = x - mean(x, axis=-1, keepdims=True)
    if count == 1:
        return x
    position = np.arange(count) - (count - 1) / 2
    weights = (position / np.sum(position**2)).astype(x.dtype)
    return x - sum_(x * weights, axis=-1, keepdims=True) * position.astype(x.dtype)
