"""Moments over axes, normalization by them, and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax, numpy as wnp, random
from weft.base.errors import ArgumentError
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def moments(
    x: ArrayLike,
    axis: int | Sequence[int],
    *,
    where: ArrayLike | None = None,
    keepdims: bool = False,
    centered: bool = True,
    fast: bool = True,
    wide: bool = True,
    axis_name: Any = None,
    axis_index_groups: Any = None,
) -> tuple[Array, Array]:
    """Compute mean and variance of `x` over axes, and over the named axis.

    `fast` computes the variance from the mean square in one pass; else it is the mean square of the centred numbers.
    With `centered=False` the mean is 0 and the variance the mean square. `wide` computes in float32 at least.
    """
    x = wnp.asarray(x)
    if wide:
        x = x.astype(wnp.promote_types(x.dtype, np.float32))

    def average(values: Array, keepdims: bool = keepdims) -> Array:
        out = wnp.mean(values, axis, keepdims=keepdims, where=where)
        return out if axis_name is None else lax.pmean(out, axis_name, axis_index_groups=axis_index_groups)

    if not centered:
        variance = average(_square(x))
        return wnp.zeros_like(variance), variance
    mean = average(x)
    if fast:
        # Rounding may make the difference negative.
        return mean, wnp.maximum(average(_square(x)) - _square(mean), 0)
    if keepdims:
        return mean, average(_square(x - mean))
    return mean, average(_square(x - wnp.expand_dims(mean, axis)))


def _square(x: Array) -> Array:
    """Compute |x|², real for complex x."""
    if wnp.iscomplexobj(x):
        return wnp.square(x.real) + wnp.square(x.imag)
    return wnp.square(x)


def normalize_by(
    x: Any, mean: Any, variance: Any, scale: ArrayLike | None = None, offset: Any = None, epsilon: Any = 1e-6
) -> Array:
    """Compute (x - mean) · scale / √(variance + epsilon) + offset; all operands broadcast to x."""
    factor = lax.rsqrt(variance + wnp.asarray(epsilon, variance.dtype))
    if scale is not None:
        factor = factor * scale
    out = (x - mean) * factor
    return out if offset is None else out + offset


def dropout(key: ArrayLike, rate: ArrayLike, x: ArrayLike, broadcast_dims: Sequence[int] = ()) -> Array:
    """Zero each element with probability `rate`, else divide by 1 - rate; equal masks along `broadcast_dims`."""
    x = wnp.asarray(x)
    if isinstance(rate, (int, float)):
        if not 0 <= rate <= 1:
            raise ArgumentError(f"dropout needs a rate from 0 to 1, got {rate}.")
        if rate == 0:
            return x
        if rate == 1:
            return wnp.zeros_like(x)
    dims = {axis % x.ndim for axis in broadcast_dims}
    shape = tuple(1 if axis in dims else size for axis, size in enumerate(x.shape))
    keep = wnp.broadcast_to(random.bernoulli(key, 1.0 - rate, shape), x.shape)
    return wnp.where(keep, x / wnp.asarray(1.0 - rate, x.dtype), wnp.zeros_like(x))
