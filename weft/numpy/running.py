"""Cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.numpy.argument_docs import document
from weft.numpy.creation import convert_dtype, full_array
from weft.numpy.reductions import _strong, _without_nan, accumulation_integer
from weft.numpy.util import (
    canonical_dtype,
    canonicalize_axis,
    check_arraylike,
    check_no_out,
    ensure_array,
)
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array


def _running(
    name: str, operation: Callable[..., Any], a: Any, axis: int | None, dtype: Any, out: Any, fill: Any
) -> Array:
    check_arraylike(name, a)
    check_no_out(name, out)
    a = ensure_array(a)
    if axis is None or not a.ndim:
        a, axis = lax.reshape(a, (a.size,)), 0
    dim = canonicalize_axis(axis, a.ndim, name)
    if fill is not None:
        a = _without_nan(name, a, fill)[0]
    if dtype is not None:
        a = convert_dtype(a, canonical_dtype(dtype, name))
    elif a.dtype == np.bool_:
        a = convert_dtype(a, dtypes.default_int_dtype())
    return _accumulate(operation, _strong(a), dim)


def _accumulate(operation: Callable[..., Any], a: Array, axis: int) -> Array:
    """Compute a cumulative sum or product; for booleans, a cumulative logical OR or AND."""
    if a.dtype != np.bool_:
        return operation(a, axis)
    extreme = lax.cummax if operation is lax.cumsum else lax.cummin
    return convert_dtype(extreme(convert_dtype(a, np.dtype(np.uint8)), axis), a.dtype)


@document(
    "An array of the shape of `a`, flattened if `axis` is None.",
    "wnp.cumsum(wnp.array([1, 2, 3])) -> Array([1, 3, 6], dtype=int32)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
    axis="an axis; None for the flattened array.",
)
def cumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Array:
    """Compute the cumulative sum along an axis, or over the flattened array."""
    return _running("cumsum", lax.cumsum, a, axis, dtype, out, None)


@document(
    "An array of the shape of `a`, flattened if `axis` is None.",
    "wnp.cumprod(wnp.array([1, 2, 3])) -> Array([1, 2, 6], dtype=int32)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
    axis="an axis; None for the flattened array.",
)
def cumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Array:
    """Compute the cumulative product along an axis, or over the flattened array."""
    return _running("cumprod", lax.cumprod, a, axis, dtype, out, None)


@document(
    "An array of the shape of `a`, flattened if `axis` is None.",
    "wnp.nancumsum(wnp.array([1.0, wnp.nan, 3.0])) -> Array([1., 1., 4.], dtype=float32)",
    axis="an axis; None for the flattened array.",
)
def nancumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Array:
    """Compute the cumulative sum, with 0 in place of NaN."""
    return _running("nancumsum", lax.cumsum, a, axis, dtype, out, 0)


@document(
    "An array of the shape of `a`, flattened if `axis` is None.",
    "wnp.nancumprod(wnp.array([2.0, wnp.nan, 3.0])) -> Array([2., 2., 6.], dtype=float32)",
    axis="an axis; None for the flattened array.",
)
def nancumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Array:
    """Compute the cumulative product, with 1 in place of NaN."""
    return _running("nancumprod", lax.cumprod, a, axis, dtype, out, 1)


def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Compute the cumulative sum along an axis, with a leading 0 if `include_initial`."""
    return _cumulative("cumulative_sum", lax.cumsum, x, axis, dtype, include_initial, 0)


def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Compute the cumulative product along an axis, with a leading 1 if `include_initial`."""
    return _cumulative("cumulative_prod", lax.cumprod, x, axis, dtype, include_initial, 1)


def _cumulative(name: str, operation: Any, x: Any, axis: Any, dtype: Any, include_initial: bool, first: int) -> Array:
    check_arraylike(name, x)
    x = ensure_array(x)
    if x.ndim == 0:
        raise ArgumentError(f"{name} takes arrays of rank 1 or more, got a scalar.")
    if axis is None:
        if x.ndim > 1:
            raise ArgumentError(f"{name} needs an axis for an array of shape {x.shape}.")
        axis = 0
    dim = canonicalize_axis(axis, x.ndim, name)
    out_dtype = accumulation_integer(x.dtype) if dtype is None else canonical_dtype(dtype, name)
    out = _accumulate(operation, _strong(convert_dtype(x, out_dtype)), dim)
    if not include_initial:
        return out
    shape = tuple(1 if i == dim else n for i, n in enumerate(out.shape))
    return lax.concatenate([full_array(shape, first, out.dtype), out], dim)
