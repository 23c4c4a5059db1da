"""Functions along an axis: softmax and its relatives, standardization, one-hot vectors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.api.jit import jit
from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.nn.activations import inexact
from weft.nn.argument_docs import document
from weft.numpy.util import (
    as_shape,
    canonicalize_axes,
    canonicalize_axis,
    check_arraylike,
    ensure_array,
    promote_args_inexact,
)
from weft.primitives.reduction.reduce_extrema import least
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array


@document(
    "An array of the shape of `x` that sums to 1 along the axes; large numbers do not overflow.",
    "nn.softmax(wnp.array([0.0, 1000.0])) -> Array([0., 1.], dtype=float32)",
    x="an array.",
)
def softmax(x: ArrayLike, axis: int | Sequence[int] | None = -1, where: ArrayLike | None = None) -> Array:
    """Compute exp(x) / sum(exp(x)) along axes; elements where `where` is false are ignored and result in 0."""
    _, exponentials, total = _exponentials("softmax", x, axis, where)
    out = exponentials / total
    return out if where is None else wnp.where(where, out, wnp.zeros_like(out))


@functools.partial(jit, static_argnames=("axis",))
@document(
    "An array of the shape of `x`.",
    "nn.log_softmax(wnp.array([0.0, 0.0])).round(3) -> Array([-0.693, -0.693], dtype=float32)",
    x="an array.",
)
def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Array:
    """Compute log(softmax(x)) in log space; -inf where `where` is false."""
    shifted, _, total = _exponentials("log_softmax", x, axis, where)
    out = shifted - wnp.log(total)
    return out if where is None else wnp.where(where, out, least(out.dtype))


def _exponentials(name: str, x: Any, axis: Any, where: Any) -> tuple[Array, Array, Array]:
    """Return x minus its maximum, the exponentials of that, and their sum; the shift is constant for derivatives."""
    x = inexact(name, x)
    axes = canonicalize_axes(axis, x.ndim, name)
    lowest = least(x.dtype)
    largest = wnp.max(x, axis=axes, where=where, initial=lowest, keepdims=True)
    masked = x if where is None else wnp.where(where, x, lowest)
    shifted = masked - lax.stop_gradient(largest)
    exponentials = wnp.exp(shifted)
    return shifted, exponentials, wnp.sum(exponentials, axis=axes, where=where, keepdims=True)


def logsumexp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Any:
    """Compute log(sum(b * exp(a))) over axes without overflow; with `return_sign` also return the sign of the sum.

    Args:
        a: the exponents.
        axis: an axis or several; None for all.
        b: factors of the exponentials, which may be negative.
        keepdims: whether the axes stay, with size 1.
        return_sign: whether to return the sign of the sum too.
        where: booleans that broadcast with the array.

    Returns:
        An array without the axes; a pair with `return_sign`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.logsumexp(wnp.array([1000.0, 1000.0])).round(3)
    Array(1000.693, dtype=float32)
    """
    if b is not None:
        check_arraylike("logsumexp", a, b)
        values, factors = (ensure_array(x) for x in promote_args_inexact("logsumexp", a, b))
        if where is not None:
            values = wnp.where(where, values, wnp.zeros_like(values))
        values = wnp.where(factors != 0, values, least(values.dtype))
    else:
        values, factors = inexact("logsumexp", a), None
        if where is not None:
            values = wnp.where(where, values, wnp.zeros_like(values))
    axes = canonicalize_axes(axis, values.ndim, "logsumexp")
    parts = wnp.real(values)
    largest = wnp.max(parts, axis=axes, keepdims=True, where=where, initial=least(parts.dtype))
    # An infinite largest element must not be subtracted: inf - inf is NaN.
    shift = lax.stop_gradient(wnp.where(wnp.isfinite(largest), largest, wnp.zeros_like(largest)))
    exponentials = wnp.exp(values - shift.astype(values.dtype))
    if factors is not None:
        exponentials = exponentials * factors
    total = wnp.sum(exponentials, axis=axes, keepdims=keepdims, where=where)
    sign = wnp.sign(total)
    if return_sign or dtypes.kind(total.dtype) != "c":
        total = wnp.abs(total)
    out = wnp.log(total) + (shift if keepdims else wnp.squeeze(shift, axes)).astype(total.dtype)
    if return_sign:
        return out, sign
    if factors is not None and dtypes.kind(out.dtype) != "c":
        out = wnp.where(sign < 0, np.array(np.nan, out.dtype), out)
    return out


@functools.partial(jit, static_argnames=("axis", "keepdims"))
def logmeanexp(x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Array:
    """Compute log(mean(exp(x))) over axes, without overflow."""
    x = inexact("logmeanexp", x)
    axes = canonicalize_axes(axis, x.ndim, "logmeanexp")
    total = logsumexp(x, axis=axes, where=where, keepdims=keepdims)
    return total - wnp.log(_count(x, axes, where, keepdims))


def _count(x: Array, axes: tuple[int, ...], where: Any, keepdims: bool) -> Any:
    """Count the elements of x that a reduction over axes covers."""
    if where is None:
        count = 1
        for axis in axes:
            count = count * x.shape[axis]
        return np.array(count, x.dtype) if isinstance(count, int) else wnp.asarray(count, x.dtype)
    ones = wnp.broadcast_to(where, x.shape).astype(x.dtype)
    return wnp.sum(ones, axis=axes, keepdims=keepdims)


@functools.partial(jit, static_argnames=("axis", "algorithm"))
def standardize(
    x: Any,
    axis: Any = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: Any = 1e-5,
    where: Any = None,
    *,
    algorithm: str = "fast",
) -> Array:
    """Subtract the mean and divide by the root of the variance plus epsilon, along axes.

    The algorithm 'fast' computes the variance from the mean square in one pass, 'stable' from the centred numbers.

    Args:
        x: an array.
        axis: an axis or several.
        mean, variance: the moments, if they are known.
        epsilon: the number to add to the variance.
        where: booleans that broadcast with the array.
        algorithm: "fast" or "stable".

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.standardize(wnp.array([1.0, 3.0])).round(3)
    Array([-1.,  1.], dtype=float32)
    """
    if algorithm not in ("fast", "stable"):
        raise ArgumentError(f"The algorithm of standardize must be 'fast' or 'stable', got algorithm={algorithm!r}.")
    x = inexact("standardize", x)
    axes = canonicalize_axes(axis, x.ndim, "standardize")
    if mean is None:
        mean = wnp.mean(x, axes, keepdims=True, where=where)
    if variance is None:
        if algorithm == "fast":
            mean_square = wnp.mean(wnp.square(x), axes, keepdims=True, where=where) - wnp.square(mean)
            variance = wnp.maximum(mean_square, 0)  # rounding may have made it negative
        else:
            variance = wnp.mean(wnp.square(x - mean), axes, keepdims=True, where=where)
    return wnp.subtract(x, mean) * lax.rsqrt(wnp.add(variance, wnp.asarray(epsilon, x.dtype)))


def one_hot(x: ArrayLike, num_classes: int, *, dtype: DTypeLike | None = None, axis: int = -1) -> Array:
    """Create vectors along a new axis that are 1 at index x and 0 elsewhere; all 0 for an index out of range.

    Args:
        x: integers.
        num_classes: the size of the new axis.
        dtype: the dtype; the default float by default.
        axis: the index of the new axis.

    Returns:
        An array with one axis more.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.one_hot(wnp.array([0, 2]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    x = wnp.asarray(x)
    (size,) = as_shape(num_classes, "num_classes")
    found = dtypes.requested_dtype(float if dtype is None else dtype, "one_hot")
    dim = canonicalize_axis(axis, x.ndim + 1, "one_hot")
    return _one_hot(x, size, dim, found)


@functools.partial(jit, static_argnums=(1, 2, 3))
def _one_hot(x: Array, size: int, axis: int, dtype: np.dtype[Any]) -> Array:
    classes = lax.broadcasted_iota(x.dtype, (*(1,) * axis, size, *(1,) * (x.ndim - axis)), axis)
    return wnp.equal(wnp.expand_dims(x, axis), classes).astype(dtype)
