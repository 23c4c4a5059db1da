"""Safe arithmetic: saturating counters, and norms with finite derivatives at zero."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.optim.argument_docs import document
from weft.typing import ArrayLike


@document(
    "An array of the same dtype.",
    "optim.safe_increment(wnp.int32(2147483647)) -> Array(2147483647, dtype=int32)",
    count="an integer or float array of rank 0.",
)
def safe_increment(count: ArrayLike) -> Array:
    """Return `count + 1`, saturated at the largest value of the dtype."""
    count = wnp.asarray(count)
    dtype = count.dtype
    if wnp.issubdtype(dtype, wnp.integer):
        largest: Any = wnp.iinfo(dtype).max
    elif wnp.issubdtype(dtype, wnp.floating):
        largest = wnp.finfo(dtype).max
    else:
        raise ArgumentError(f"safe_increment needs integers or floats, got {dtype}")
    return wnp.where(count < largest, count + wnp.array(1, dtype), wnp.array(largest, dtype))


safe_int32_increment = safe_increment


def abs_sq(x: ArrayLike) -> Array:
    """Return `|x|^2` of each element, which is real also for complex x."""
    x = wnp.asarray(x)
    if wnp.issubdtype(x.dtype, wnp.complexfloating):
        return x.real**2 + x.imag**2
    return x * x


def safe_norm(
    x: ArrayLike,
    min_norm: ArrayLike,
    ord: Any = None,
    axis: Any = None,
    keepdims: bool = False,
) -> Array:
    """Return `max(||x||, min_norm)`, with derivative 0 instead of NaN where the norm is at most `min_norm`."""
    x = wnp.asarray(x)
    norm = wnp.linalg.norm(x, ord=ord, axis=axis, keepdims=True)
    masked = wnp.where(norm <= min_norm, wnp.ones_like(x), x)
    norm = norm if keepdims else wnp.squeeze(norm, axis=axis)
    masked_norm = wnp.linalg.norm(masked, ord=ord, axis=axis, keepdims=keepdims)
    return wnp.where(norm <= min_norm, wnp.asarray(min_norm, norm.dtype), masked_norm)


def safe_root_mean_squares(x: ArrayLike, min_rms: ArrayLike) -> Array:
    """Return `max(sqrt(mean(|x|^2)), min_rms)`, with derivative 0 instead of NaN where the root is at most
    `min_rms`.
    """
    x = wnp.asarray(x)
    rms = wnp.sqrt(wnp.mean(abs_sq(x)))
    masked = wnp.where(rms <= min_rms, wnp.ones_like(x), x)
    return wnp.where(rms <= min_rms, wnp.asarray(min_rms, rms.dtype), wnp.sqrt(wnp.mean(abs_sq(masked))))
