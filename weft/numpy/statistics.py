"""Order statistics and correlations: medians, quantiles, covariance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.api.shardings import split_result
from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.indexing.dimension import product
from weft.numpy.argument_docs import document
from weft.numpy.complex_parts import conjugate, imag, real
from weft.numpy.contraction import dot
from weft.numpy.creation import convert_dtype, full_array
from weft.numpy.elementwise import add, multiply, subtract, true_divide
from weft.numpy.extremes import clip as clip_values
from weft.numpy.joining import concatenate
from weft.numpy.logic import isnan
from weft.numpy.reductions import any as reduce_any, average, sum as reduce_sum
from weft.numpy.selection import where
from weft.numpy.transcendental import sqrt
from weft.numpy.util import (
    canonicalize_axes,
    cast,
    check_arraylike,
    check_no_out,
    dtype_kind,
    ensure_array,
    expand_to,
    promote_dtypes_inexact,
)
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


@document(
    "An array of floats.",
    "wnp.quantile(wnp.array([1.0, 2.0, 3.0]), 0.25) -> Array(1.5, dtype=float32)",
    q="fractions from 0 to 1; an array of them is the first axis of the result.",
    method='the interpolation between two elements: "linear", "lower", "higher", "midpoint", "nearest" '
    "and others of NumPy's.",
)
def quantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Array:
    """Compute the values below which the fractions `q` of the elements over axes lie."""
    return _quantile("quantile", a, q, 1.0, axis, out, overwrite_input, method, keepdims, weights, False)


@document(
    "An array of floats; NaN where all are NaN.",
    "wnp.nanquantile(wnp.array([1.0, wnp.nan, 3.0]), 0.5) -> Array(2., dtype=float32)",
    q="fractions from 0 to 1.",
    method="the interpolation between two elements.",
)
def nanquantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Array:
    """Compute quantiles, ignoring NaN."""
    return _quantile("nanquantile", a, q, 1.0, axis, out, overwrite_input, method, keepdims, weights, True)


@document(
    "An array of floats.",
    "wnp.percentile(wnp.array([1.0, 2.0, 3.0]), 50) -> Array(2., dtype=float32)",
    q="percentages from 0 to 100; an array of them is the first axis of the result.",
    method='the interpolation between two elements: "linear", "lower", "higher", "midpoint", "nearest" '
    "and others of NumPy's.",
)
def percentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Compute the values below which `q` percent of the elements over axes lie."""
    options = axis, out, overwrite_input, method, keepdims
    if out_sharding is not None:
        return split_result(percentile, out_sharding, a, q, *options, weights=weights)
    return _quantile("percentile", a, q, 100.0, *options, weights, False)


@document(
    "An array of floats; NaN where all are NaN.",
    "wnp.nanpercentile(wnp.array([1.0, wnp.nan, 3.0]), 50) -> Array(2., dtype=float32)",
    q="percentages from 0 to 100.",
    method="the interpolation between two elements.",
)
def nanpercentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Array:
    """Compute percentiles, ignoring NaN."""
    return _quantile("nanpercentile", a, q, 100.0, axis, out, overwrite_input, method, keepdims, weights, True)


@document(
    "An array of floats without the axes; NaN if there is one.",
    "wnp.median(wnp.array([1, 7, 2, 4])) -> Array(3., dtype=float32)",
)
def median(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """Compute the middle element over axes, or the mean of the two in the middle."""
    return _quantile("median", a, 0.5, 1.0, axis, out, overwrite_input, "linear", keepdims, None, False)


@document(
    "An array of floats; NaN where all are NaN.",
    "wnp.nanmedian(wnp.array([1.0, wnp.nan, 3.0])) -> Array(2., dtype=float32)",
)
def nanmedian(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """Compute the median, ignoring NaN."""
    return _quantile("nanmedian", a, 0.5, 1.0, axis, out, overwrite_input, "linear", keepdims, None, True)


def _quantile(
    name: str,
    a: Any,
    q: Any,
    scale: float,
    axis: Any,
    out: Any,
    overwrite_input: bool,
    method: str,
    keepdims: bool,
    weights: Any,
    ignore_nan: bool,
) -> Array:
    check_arraylike(name, a, q, *(() if weights is None else (weights,)))
    check_no_out(name, out)
    if overwrite_input:
        raise ArgumentError(f"{name} cannot overwrite its input: arrays are immutable.")
    if method not in _METHODS:
        raise ArgumentError(f"{name} takes method {', '.join(map(repr, _METHODS))}, got {method!r}.")
    if weights is not None and method != "inverted_cdf":
        raise ArgumentError(f"{name} takes weights only with method='inverted_cdf', got {method!r}.")
    # The array alone decides the dtype of the result.
    a = ensure_array(*promote_dtypes_inexact(a))
    fraction = ensure_array(cast(ensure_array(q), dtypes.accumulation_dtype(a.dtype)))
    if dtype_kind(a) == "c":
        raise ArgumentError(f"{name} is not defined for complex numbers.")
    if fraction.ndim > 1:
        raise ArgumentError(f"{name} takes q of rank 0 or 1, got shape {fraction.shape}.")
    if scale != 1.0:
        fraction = lax.div(fraction, cast(scale, fraction.dtype))
    # All reduced axes become one, at the front, along which the elements are sorted.
    axes = canonicalize_axes(axis, a.ndim, name)
    other_axes = tuple(i for i in range(a.ndim) if i not in axes)
    rest = tuple(a.shape[i] for i in other_axes)
    count: Any = product(a.shape[i] for i in axes)
    rows = lax.reshape(lax.transpose(a, (*axes, *other_axes)), (count, *rest))
    if not count or 0 in rest:
        result = full_array((*fraction.shape, *rest), np.nan, a.dtype)
    elif weights is not None:
        share = _broadcast_weights(name, weights, a, axes, other_axes, count, rest)
        result = _weighted_quantile(rows, fraction, share, ignore_nan)
    else:
        result = _interpolate(rows, fraction, method, ignore_nan)
    if keepdims:
        result = lax.expand_dims(result, tuple(i + fraction.ndim for i in axes))
    return convert_dtype(result, result.dtype)


def _interpolate(rows: Array, fraction: Array, method: str, ignore_nan: bool) -> Array:
    count, rest = rows.shape[0], rows.shape[1:]
    wide = convert_dtype(rows, dtypes.accumulation_dtype(rows.dtype))
    ordered = lax.sort(wide, dimension=0)
    compute_dtype, int_dtype = ordered.dtype, dtypes.default_int_dtype()
    full_shape = (*fraction.shape, *rest)
    ratio = lax.broadcast_in_dim(convert_dtype(fraction, compute_dtype), full_shape, tuple(range(fraction.ndim)))
    missing = isnan(wide)
    if ignore_nan:
        # NaN sorts to the end, so only the numbers before it count.
        present = lax.sub(cast(count, int_dtype), reduce_sum(missing, 0, dtype=int_dtype))
        total = expand_to(convert_dtype(present, compute_dtype), full_shape)
    else:
        total = expand_to(cast(count, compute_dtype), full_shape)
    last = lax.max(lax.sub(total, cast(1, compute_dtype)), cast(0, compute_dtype))
    if method == "inverted_cdf":
        position = lax.sub(lax.ceil(lax.mul(ratio, total)), cast(1, compute_dtype))
    else:
        position = lax.mul(ratio, last)
    position = lax.clamp(cast(0, compute_dtype), position, last)
    low, high = lax.floor(position), lax.min(lax.add(lax.floor(position), cast(1, compute_dtype)), last)
    below, above = (_pick(ordered, convert_dtype(p, int_dtype), fraction.ndim) for p in (low, high))
    weight = lax.sub(position, low)
    if method == "linear":
        out = add(multiply(below, subtract(1, weight)), multiply(above, weight))
        # An exact position takes the element itself, so that an infinite neighbour does no harm.
        out = where(lax.eq(weight, cast(0, compute_dtype)), below, out)
    elif method in ("lower", "inverted_cdf"):
        out = below
    elif method == "higher":
        out = where(lax.eq(weight, cast(0, compute_dtype)), below, above)
    elif method == "nearest":
        out = where(lax.le(weight, cast(0.5, compute_dtype)), below, above)
    else:
        out = where(lax.eq(weight, cast(0, compute_dtype)), below, multiply(add(below, above), 0.5))
    if ignore_nan:
        out = where(lax.le(total, cast(0, compute_dtype)), np.nan, out)
    else:
        out = where(expand_to(reduce_any(missing, 0), full_shape), np.nan, out)
    return convert_dtype(out, rows.dtype)


def _pick(ordered: Array, positions: Array, batch: int) -> Array:
    """Select the element at a position of each column of `ordered`."""
    dimension_numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        operand_batching_dims=tuple(range(1, ordered.ndim)),
        start_indices_batching_dims=tuple(range(batch, positions.ndim)),
    )
    starts = lax.expand_dims(positions, (positions.ndim,))
    return lax.gather(ordered, starts, dimension_numbers, (1,) * ordered.ndim, mode="promise_in_bounds")


def _broadcast_weights(
    name: str, weights: Any, a: Array, axes: Sequence[int], other_axes: Sequence[int], count: int, rest: tuple[int, ...]
) -> Array:
    share = ensure_array(weights)
    if share.shape == a.shape:
        return lax.reshape(lax.transpose(share, (*axes, *other_axes)), (count, *rest))
    if len(axes) == 1 and share.shape == (a.shape[axes[0]],):
        return lax.broadcast_in_dim(share, (count, *rest), (0,))
    raise ArgumentError(f"{name} got weights of shape {share.shape} for an array of shape {a.shape}.")


def _weighted_quantile(rows: Array, fraction: Array, share: Array, ignore_nan: bool) -> Array:
    """Return the first element at which the running sum of the weights reaches a fraction of their total."""
    dtype, rows = rows.dtype, convert_dtype(rows, dtypes.accumulation_dtype(rows.dtype))
    missing = isnan(rows)
    share = convert_dtype(share, rows.dtype)
    if ignore_nan:
        share = where(missing, 0, share)
    ordered, share = lax.sort((rows, share), dimension=0, is_stable=True, num_keys=1)
    running = lax.cumsum(share, 0)
    total = running[-1]
    full_shape = (*fraction.shape, *rows.shape[1:])
    target = lax.broadcast_in_dim(fraction, full_shape, tuple(range(fraction.ndim))) * expand_to(total, full_shape)
    # A fraction of zero means the first element that has weight.
    reached = lax.ge(lax.broadcast(running, fraction.shape), lax.expand_dims(target, (fraction.ndim,)) + 0)
    heavy = lax.gt(lax.broadcast(running, fraction.shape), cast(0, rows.dtype))
    position = lax.argmax(lax.bitwise_and(reached, heavy), fraction.ndim, dtypes.default_int_dtype())
    out = _pick(ordered, clip_values(position, 0, rows.shape[0] - 1), fraction.ndim)
    out = out if ignore_nan else where(expand_to(reduce_any(missing, 0), full_shape), np.nan, out)
    return convert_dtype(out, dtype)


# ---------------------------------------------------------------------------------------------------------- correlation


def cov(
    m: ArrayLike,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Compute the covariance matrix of variables, one for each row, or column unless `rowvar`."""
    check_arraylike("cov", m, *(() if y is None else (y,)))
    promoted = promote_dtypes_inexact(m, *(() if y is None else (y,)))
    samples = [ensure_array(x) for x in promoted]
    if dtype is not None:
        samples = [convert_dtype(x, dtypes.requested_dtype(dtype, "cov")) for x in samples]
    if any(x.ndim > 2 for x in samples):
        raise ArgumentError(f"cov takes arrays of rank 1 or 2, got {[x.shape for x in samples]}.")
    rows = [lax.reshape(x, (1, x.size)) if x.ndim < 2 else x if rowvar else lax.transpose(x, (1, 0)) for x in samples]
    table = concatenate(rows, 0)
    variables, count = table.shape
    if not variables or not count:
        return full_array(() if variables == 1 else (variables, variables), math.nan, table.dtype)
    correction = (0 if bias else 1) if ddof is None else ddof
    weights = _sample_weights(table, fweights, aweights)
    divisor: Any = count - correction
    if weights is None:
        center = average(table, 1)
        centered = table - center[:, None]
        weighted = centered
    else:
        center, total = average(table, 1, weights, returned=True)
        divisor = total = total[0]
        if correction and aweights is None:
            divisor = total - correction
        elif correction:
            reliability = convert_dtype(ensure_array(aweights), dtypes.to_real_dtype(table.dtype))
            divisor = total - correction * reduce_sum(multiply(weights, reliability)) / total
        centered = table - center[:, None]
        weighted = multiply(centered, expand_to(weights, centered.shape))
    result = true_divide(dot(centered, conjugate(weighted).T), cast(ensure_array(divisor), table.dtype))
    return lax.reshape(result, ()) if result.shape == (1, 1) else result


def _sample_weights(table: Array, fweights: Any, aweights: Any) -> Array | None:
    """Return the weight of each column of a table of samples, `fweights` times `aweights`; None without weights."""
    weights, real = None, dtypes.to_real_dtype(table.dtype)
    for kind, values in (("fweights", fweights), ("aweights", aweights)):
        if values is None:
            continue
        check_arraylike("cov", values)
        values = ensure_array(values)
        if values.shape != (table.shape[1],):
            raise ArgumentError(f"cov needs one of {kind} for each of {table.shape[1]} samples.")
        if kind == "fweights" and dtype_kind(values) not in "iu":
            raise ArgumentTypeError(f"cov takes integer fweights, got {values.aval.short()}.")
        values = convert_dtype(values, real)
        weights = values if weights is None else multiply(weights, values)
    return None if weights is None else convert_dtype(weights, table.dtype)


def corrcoef(x: ArrayLike, y: Any = None, rowvar: bool = True, dtype: DTypeLike | None = None) -> Array:
    """Compute the correlation matrix of variables: the covariance divided by the standard deviations."""
    out = cov(x, y, rowvar, dtype=dtype)
    if out.ndim == 0:
        return true_divide(out, out)
    diagonal = out[lax.iota(np.dtype(np.int32), out.shape[0]), lax.iota(np.dtype(np.int32), out.shape[0])]
    deviation = convert_dtype(sqrt(real(diagonal)), out.dtype)
    out = true_divide(true_divide(out, deviation[:, None]), deviation[None, :])
    if dtype_kind(out) == "c":
        return lax.complex(clip_values(real(out), -1, 1), clip_values(imag(out), -1, 1))
    return clip_values(out, -1, 1)
