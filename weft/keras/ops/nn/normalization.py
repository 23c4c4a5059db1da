"""Moments, and arrays scaled by them."""

from __future__ import annotations

import warnings
from typing import Any

import weft.numpy as wnp
from weft.errors import ArgumentError, NotSupportedError
from weft.keras.core.config import epsilon as default_epsilon
from weft.keras.numerics import normalization
from weft.keras.ops.dispatch import inexact, operation, tensor


@operation
def moments(x: Any, axes: Any, keepdims: bool = False, synchronized: bool = False) -> Any:
    """Compute the mean and the (biased) variance of elements.

    Args:
        x: an array of floats. Those of 16 bits are computed in 32, and the results limited to what 16 can have.
        axes: the axis or axes to reduce.
        keepdims: whether reduced axes stay, with size 1.
        synchronized: must be False: sharded arrays are reduced over all their shards as they are.

    Returns:
        A pair of arrays.
    """
    if synchronized:
        raise NotSupportedError(
            "`synchronized` must be False: moments of sharded arrays are always those of all shards."
        )
    x = inexact(x)
    dtype = x.dtype
    axes = tuple(axes) if isinstance(axes, (list, tuple)) else axes
    if dtype == wnp.float16:
        x = x.astype("float32")
    mean = wnp.mean(x, axes, keepdims=True)
    variance = wnp.var(x, axes, keepdims=True)
    if not keepdims:
        mean, variance = wnp.squeeze(mean, axes), wnp.squeeze(variance, axes)
    if dtype == wnp.float16:
        info = wnp.finfo(dtype)
        mean, variance = (wnp.clip(v, float(info.min), float(info.max)).astype(dtype) for v in (mean, variance))
    return mean, variance


@operation
def batch_normalization(
    x: Any, mean: Any, variance: Any, axis: int, offset: Any = None, scale: Any = None, epsilon: float = 1e-3
) -> Any:
    """Compute `(x - mean) / sqrt(variance + epsilon) * scale + offset`, with one value for each entry of an axis.

    Args:
        x: an array.
        mean: a vector.
        variance: a vector.
        axis: the axis of the vectors.
        offset: a vector, or None.
        scale: a vector, or None.
        epsilon: what keeps the root from 0.

    Returns:
        An array of the shape of `x`.
    """
    offset, scale = (None if part is None else tensor(part) for part in (offset, scale))
    return normalization.batch_normalization(tensor(x), tensor(mean), tensor(variance), axis, offset, scale, epsilon)


@operation
def layer_normalization(
    x: Any, gamma: Any = None, beta: Any = None, axis: Any = -1, epsilon: float | None = None, **kwargs: Any
) -> Any:
    """Normalize an array to mean 0 and variance 1 along axes, then scale and shift it.

    Args:
        x: an array.
        gamma: the scale, of the shape of these axes, or None.
        beta: the shift, likewise.
        axis: the axis or axes.
        epsilon: what keeps the root from 0; `keras.backend.epsilon()` by default.
        **kwargs: `rms_scaling=True` leaves the mean and the shift out (use `rms_normalization`).

    Returns:
        An array of the shape and dtype of `x`.
    """
    rms = kwargs.pop("rms_scaling", False)
    if kwargs:
        raise TypeError(f"layer_normalization() got an unexpected keyword argument {next(iter(kwargs))!r}")
    x, epsilon = inexact(x), default_epsilon() if epsilon is None else epsilon
    gamma, beta = (None if part is None else tensor(part) for part in (gamma, beta))
    if not rms:
        return normalization.layer_normalization(x, gamma, beta, axis, epsilon)
    warnings.warn(
        "You passed `rms_scaling=True`, which is deprecated: it divides by the root of the variance and not of the "
        "mean square. Call `rms_normalization`.",
        stacklevel=2,
    )
    return normalization.variance_scaling(x, gamma, beta, axis, epsilon)


@operation
def rms_normalization(x: Any, scale: Any = None, axis: Any = -1, epsilon: float | None = None) -> Any:
    """Divide an array by the root of its mean square along axes.

    Args:
        x: an array.
        scale: what the result is multiplied by, of the shape of these axes, or None.
        axis: the axis or axes.
        epsilon: what keeps the root from 0; `keras.backend.epsilon()` by default.

    Returns:
        An array of the shape and dtype of `x`.
    """
    scale = None if scale is None else tensor(scale)
    return normalization.rms_normalization(inexact(x), scale, axis, default_epsilon() if epsilon is None else epsilon)


@operation
def normalize(x: Any, axis: Any = -1, order: Any = 2, epsilon: float | None = None) -> Any:
    """Divide vectors by their norm.

    Args:
        x: an array.
        axis: the axis of the vectors.
        order: of the norm.
        epsilon: the least norm; `keras.backend.epsilon()` by default.

    Returns:
        An array of floats of the same shape.
    """
    if not isinstance(order, (int, float)) or order < 1:
        raise ArgumentError("`order` must be a number of at least 1.", received=f"{order=}")
    return normalization.normalize(inexact(x), axis, order, default_epsilon() if epsilon is None else epsilon)
