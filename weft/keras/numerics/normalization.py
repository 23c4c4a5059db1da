"""Normalization with Keras' arguments; statistics are in float32 at least, results have the dtype of the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array, lax, nn


def wide_dtype(x: Array) -> Any:
    """Return the dtype in which the statistics of `x` are computed: at least float32."""
    return wnp.promote_types(x.dtype, wnp.float32)


def along(values: Any, axes: Sequence[int], rank: int) -> Any:
    """Reshape values with one dimension for each of `axes` to `rank` dimensions, with 1 for the others; other values
    are unchanged.
    """
    if values.ndim != len(axes):
        return values
    sizes = [1] * rank
    for axis, size in zip(axes, values.shape, strict=True):
        sizes[axis] = size
    return wnp.reshape(values, sizes)


def batch_normalization(
    x: Array, mean: Array, variance: Array, axis: int, offset: Any = None, scale: Any = None, epsilon: float = 1e-3
) -> Array:
    """Compute (x - mean) · scale / √(variance + epsilon) + offset, where all are vectors along `axis`."""
    mean, variance = (along(value, (axis,), x.ndim) for value in (mean, variance))
    scale, offset = (None if value is None else along(value, (axis,), x.ndim) for value in (scale, offset))
    return nn.normalize_by(x, mean, variance, scale, offset, epsilon)


def layer_normalization(
    x: Array, gamma: Any = None, beta: Any = None, axis: int | Sequence[int] = -1, epsilon: float = 1e-3
) -> Array:
    """Normalize x to mean 0 and variance 1 over axes, times gamma, plus beta."""
    axes = axis_list(axis, x.ndim)
    wide = x.astype(wide_dtype(x))
    mean, variance = nn.moments(wide, axes, keepdims=True, fast=False)
    scale, offset = (
        None if value is None else along(value, axes, x.ndim).astype(wide.dtype) for value in (gamma, beta)
    )
    return nn.normalize_by(wide, mean, variance, scale, offset, epsilon).astype(x.dtype)


def variance_scaling(
    x: Array, gamma: Any = None, beta: Any = None, axis: int | Sequence[int] = -1, epsilon: float = 1e-3
) -> Array:
    """Divide x by the root of its variance over axes, times gamma; mean and beta are ignored (Keras' `rms_scaling`)."""
    axes = axis_list(axis, x.ndim)
    wide = x.astype(wide_dtype(x))
    out = wide * lax.rsqrt(wnp.var(wide, axes, keepdims=True) + epsilon)
    return (out if gamma is None else out * along(gamma, axes, x.ndim).astype(wide.dtype)).astype(x.dtype)


def rms_normalization(x: Array, scale: Any = None, axis: int | Sequence[int] = -1, epsilon: float = 1e-6) -> Array:
    """Divide x by the root of its mean square over axes, times scale."""
    axes = axis_list(axis, x.ndim)
    wide = x.astype(wide_dtype(x))
    _, mean_square = nn.moments(wide, axes, keepdims=True, centered=False)
    out = wide * lax.rsqrt(mean_square + epsilon)
    if scale is not None:
        out = out * along(scale, axes, x.ndim).astype(wide.dtype)
    return out.astype(x.dtype)


def axis_list(axis: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Return axes as non-negative integers in ascending order."""
    return tuple(sorted(one % rank for one in ((axis,) if isinstance(axis, int) else axis)))


def normalize(x: Any, axis: Any = -1, order: Any = 2, epsilon: float | None = None) -> Array:
    """Divide x by its norm over axes if that is larger than epsilon (1e-7 by default); else by epsilon."""
    x = wnp.asarray(x)
    epsilon = 1e-7 if epsilon is None else epsilon
    wide = x.astype(wide_dtype(x))
    out_dtype = x.dtype if wnp.issubdtype(x.dtype, wnp.inexact) else wide.dtype
    if order == 2:
        # The square sum is compared and not its root, whose gradient at 0 is not finite.
        square_sum = wnp.sum(wnp.square(wide), axis=_axes(axis), keepdims=True)
        large = square_sum > epsilon**2
        factor = wnp.where(large, lax.rsqrt(wnp.where(large, square_sum, 1)), 1 / epsilon)
        return (wide * factor).astype(out_dtype)
    norm = wnp.linalg.norm(wide, ord=order, axis=_axes(axis), keepdims=True)
    return (wide / wnp.maximum(norm, epsilon)).astype(out_dtype)


def _axes(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, (list, tuple)) else axis


def masked_moments(x: Array, mask: Array, axes: Sequence[int], epsilon: float) -> tuple[Array, Array]:
    """Compute mean and variance over axes of the elements whose mask is true; the mask lacks the last dimension of x.

    A batch without any such element has mean and variance 0: `epsilon` is added to the count.
    """
    valid = wnp.broadcast_to(wnp.expand_dims(mask, -1), x.shape).astype(bool)
    count = wnp.sum(valid, axes, keepdims=True).astype(x.dtype) + epsilon
    mean = wnp.sum(wnp.where(valid, x, 0), axes, keepdims=True) / count
    variance = wnp.sum(wnp.square(wnp.where(valid, x - mean, 0)), axes, keepdims=True) / count
    return wnp.squeeze(mean, tuple(axes)), wnp.squeeze(variance, tuple(axes))
