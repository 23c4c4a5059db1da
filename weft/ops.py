"""Reductions over segments: elements of an array that have one identifier are reduced together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft.api.custom import custom_jvp
from weft.api.differentiate import jvp
from weft.api.shardings import split_result
from weft.base.arguments import index
from weft.base.errors import ArgumentError, ArgumentTypeError, ShapeMismatchError
from weft.base.publish import publish as _publish
from weft.indexing.dimension import index_or_size
from weft.lax.slicing import GatherScatterMode
from weft.numpy.at import AtIndex
from weft.numpy.manipulation import broadcast_to
from weft.numpy.reductions import max as max_, min as min_, prod as prod_, sum as sum_
from weft.numpy.selection import take_in_bounds, where
from weft.numpy.sorting import argsort, searchsorted
from weft.numpy.util import concrete_or_error, dtype_kind, ensure_arrays
from weft.primitives.reduction.reduce_extrema import highest, lowest
from weft.trace.array import Array

# For each reduction: how `x.at[i]` is updated, the value of a segment without elements, and how buckets are reduced.
_REDUCTIONS: dict[str, tuple[str, Callable[[Any], Any], Callable[..., Any]]] = {
    "segment_sum": ("add", lambda dtype: np.zeros((), dtype), sum_),
    "segment_prod": ("multiply", lambda dtype: np.ones((), dtype), prod_),
    "segment_max": ("max", lowest, max_),
    "segment_min": ("min", highest, min_),
}


def segment_sum(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | GatherScatterMode | None = None,
    out_sharding: Any = None,
) -> Array:
    """Sum each segment of an array.

    Args:
        data: the values, whose first axis is divided into segments.
        segment_ids: a vector of integers: to which segment each entry along the first axis belongs. They need not be
            sorted, and may occur many times.
        num_segments: how many segments there are, `max(segment_ids) + 1` by default. It is the size of the result, so
            it must be passed where `segment_ids` is traced, as under `jit`.
        indices_are_sorted: a promise that `segment_ids` is sorted.
        unique_indices: a promise that no identifier occurs twice.
        bucket_size: if passed, this many entries are reduced at a time, and then their results: sums of many entries
            lose fewer digits.
        mode: what an identifier outside of `0 .. num_segments - 1` means: by default ("drop") its entry is left out,
            with "clip" it belongs to the nearest segment.
        out_sharding: how the result is split over Explicit mesh axes.

    Returns:
        An array of shape `(num_segments, *data.shape[1:])`; a segment without entries is 0.

    >>> import weft.numpy as np
    >>> from weft import ops
    >>> ops.segment_sum(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 2, 0]))
    Array([7., 0., 3.], dtype=float32)
    """
    options = num_segments, indices_are_sorted, unique_indices, bucket_size, mode, out_sharding
    return _reduce_segments("segment_sum", data, segment_ids, *options)


def segment_prod(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | GatherScatterMode | None = None,
    out_sharding: Any = None,
) -> Array:
    """Multiply the entries of each segment of an array, with the arguments of `segment_sum`; a segment without entries
    is 1.

    It has derivatives wherever entries are zero, too.

    >>> import weft.numpy as np
    >>> from weft import ops
    >>> ops.segment_prod(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 2, 0]))
    Array([8., 1., 3.], dtype=float32)
    """
    options = num_segments, indices_are_sorted, unique_indices, bucket_size, mode, out_sharding
    return _reduce_segments("segment_prod", data, segment_ids, *options)


def segment_max(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | GatherScatterMode | None = None,
    out_sharding: Any = None,
) -> Array:
    """Return the largest entry of each segment of an array, with the arguments of `segment_sum`.

    A segment without entries is minus infinity, or the least value of an integer dtype.

    Args:
        data: the values, whose first axis is divided into segments.
        segment_ids: a vector of integers: to which segment each entry along the first axis belongs.
        num_segments: how many segments there are; needed under `jit`.
        indices_are_sorted: a promise that `segment_ids` ascend.
        unique_indices: a promise that no segment has two entries.
        bucket_size: how many entries are reduced at a time; all by default.
        mode: what a segment out of range means: "fill" or "drop" ignores it.
        out_sharding: the sharding of the result.

    Returns:
        An array with the segments as its first axis.

    >>> import weft.numpy as np
    >>> from weft import ops
    >>> ops.segment_max(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 2, 0]))
    Array([  4., -inf,   3.], dtype=float32)
    """
    options = num_segments, indices_are_sorted, unique_indices, bucket_size, mode, out_sharding
    return _reduce_segments("segment_max", data, segment_ids, *options)


def segment_min(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | GatherScatterMode | None = None,
    out_sharding: Any = None,
) -> Array:
    """Return the smallest entry of each segment of an array, with the arguments of `segment_sum`.

    A segment without entries is infinity, or the greatest value of an integer dtype.

    Args:
        data: the values, whose first axis is divided into segments.
        segment_ids: a vector of integers: to which segment each entry along the first axis belongs.
        num_segments: how many segments there are; needed under `jit`.
        indices_are_sorted: a promise that `segment_ids` ascend.
        unique_indices: a promise that no segment has two entries.
        bucket_size: how many entries are reduced at a time; all by default.
        mode: what a segment out of range means: "fill" or "drop" ignores it.
        out_sharding: the sharding of the result.

    Returns:
        An array with the segments as its first axis.

    >>> import weft.numpy as np
    >>> from weft import ops
    >>> ops.segment_min(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 2, 0]))
    Array([ 1., inf,  3.], dtype=float32)
    """
    options = num_segments, indices_are_sorted, unique_indices, bucket_size, mode, out_sharding
    return _reduce_segments("segment_min", data, segment_ids, *options)


# ------------------------------------------------------------------------------------------------------- how it is done


def _reduce_segments(
    name: str,
    data: Any,
    segment_ids: Any,
    num_segments: Any,
    indices_are_sorted: bool,
    unique_indices: bool,
    bucket_size: Any,
    mode: Any,
    out_sharding: Any,
) -> Array:
    data, segment_ids = _operands(name, data, segment_ids)
    count = _count(name, segment_ids, num_segments)
    if bucket_size is not None and (bucket_size := index(bucket_size)) < 1:
        raise ArgumentError(f"{name}: bucket_size must be at least 1.", received=f"bucket_size={bucket_size}")
    hints = indices_are_sorted, unique_indices, GatherScatterMode.from_any(mode)
    function = _product if name == "segment_prod" and dtype_kind(data) in "fc" else _scatter_segments
    if out_sharding is not None:
        return split_result(function, out_sharding, data, segment_ids, name, count, bucket_size, hints)
    result: Array = function(data, segment_ids, name, count, bucket_size, hints)
    return result


def _operands(name: str, data: Any, segment_ids: Any) -> tuple[Array, Array]:
    """Convert and check the arguments: one identifier for each entry along the first axis."""
    data, ids = ensure_arrays(name, data, segment_ids)
    if dtype_kind(ids) not in "iu":
        raise ArgumentTypeError(
            f"{name}: segment_ids must be integers.",
            received=ids.aval.short(),
            fix="segment_ids.astype(int)",
        )
    if dtype_kind(data) == "b" and name in ("segment_sum", "segment_prod"):
        raise ArgumentTypeError(f"{name} needs numbers.", received=data.aval.short(), fix="data.astype(int)")
    if ids.ndim != 1 or (data.ndim and data.shape[0] not in (1, ids.shape[0])):
        raise ShapeMismatchError(
            f"{name}: segment_ids must be a vector with an identifier for each entry along the first axis of data.",
            received=f"data {data.aval.short()}, segment_ids {ids.aval.short()}",
            fix="segment_ids of shape (data.shape[0],); several axes are one after data.reshape(-1, ...)",
        )
    if ids.dtype.itemsize < 4:  # it must also hold the number of segments and of entries
        ids = ids.astype(np.int32)
    return broadcast_to(data, (ids.shape[0], *data.shape[1:])), ids


def _count(name: str, ids: Array, num_segments: Any) -> int:
    """Return the number of segments; by default one more than the largest identifier."""
    if num_segments is None:
        values = concrete_or_error(
            ids,
            f"{name}: the number of segments is the size of the result, and depends on the values of segment_ids.",
            "pass num_segments=..., an int that is known when tracing",
        )
        if not values.size:
            raise ArgumentError(f"{name}: without segment_ids there is no largest one.", fix="pass num_segments=...")
        return max(int(values.max()) + 1, 0)
    count = index_or_size(num_segments)
    if count < 0:
        raise ArgumentError(f"{name}: num_segments must be non-negative.", received=f"num_segments={count}")
    return count


def _scatter_segments(data: Any, ids: Any, name: str, count: int, bucket_size: int | None, hints: Any) -> Array:
    """Reduce by updating an array of neutral elements at the identifiers."""
    method, neutral, reduce = _REDUCTIONS[name]
    sorted_ids, unique, mode = hints
    initial = neutral(data.dtype)

    def update(out: Any, where_to: Any, in_order: bool) -> Array:
        options = {"indices_are_sorted": in_order, "unique_indices": unique, "mode": mode}
        result: Array = getattr(AtIndex(out, where_to), method)(data, wrap_negative_indices=False, **options)
        return result

    if bucket_size is None:
        return update(lax.full((count, *data.shape[1:]), initial, data.dtype), ids, sorted_ids)
    buckets = -(-ids.shape[0] // bucket_size)
    bucket = np.arange(ids.shape[0], dtype=ids.dtype) // np.asarray(bucket_size, ids.dtype)
    out = update(lax.full((buckets, count, *data.shape[1:]), initial, data.dtype), (bucket, ids), False)
    return reduce(out, axis=0, initial=initial).astype(data.dtype)


def _product(data: Any, ids: Any, *spec: Any) -> Array:
    """Multiply segments. The update multiplies entries in any order and has no derivative; the derivative is that of
    prefix products."""

    @custom_jvp
    def product(data: Any, ids: Any) -> Array:
        return _scatter_segments(data, ids, *spec)

    def rule(primals: Any, tangents: Any) -> Any:
        data, ids = primals
        _, tangent = jvp(lambda x: _multiply_by_prefixes(x, ids, spec[1], spec[3][2]), (data,), (tangents[0],))
        return product(data, ids), tangent

    product.defjvp(rule)
    result: Array = product(data, ids)
    return result


def _multiply_by_prefixes(data: Array, ids: Array, count: int, mode: GatherScatterMode) -> Array:
    """Multiply segments by prefix products of sorted entries, restarted at each segment."""
    if mode is GatherScatterMode.CLIP:
        ids = lax.clamp(np.zeros((), ids.dtype), ids, np.asarray(max(count - 1, 0), ids.dtype))
    if not data.shape[0] or not count:
        return lax.full((count, *data.shape[1:]), 1, data.dtype)
    order = argsort(ids)
    ids, data = take_in_bounds(ids, order, 0), take_in_bounds(data, order, 0)
    begins = lax.concatenate([np.ones((1,), bool), lax.ne(ids[1:], ids[:-1])], 0)
    begins = lax.broadcast_in_dim(begins, data.shape, (0,))

    def combine(before: Any, after: Any) -> Any:
        (x, x_begins), (y, y_begins) = before, after
        return where(y_begins, y, x * y), x_begins | y_begins

    prefixes, _ = lax.associative_scan(combine, (data, begins))
    segments = np.arange(count, dtype=ids.dtype)
    ends = searchsorted(ids, segments, side="right")
    has_entries = lax.gt(ends, searchsorted(ids, segments, side="left"))
    values = take_in_bounds(prefixes, lax.max(ends - 1, np.zeros((), ends.dtype)), 0)
    return where(lax.broadcast_in_dim(has_entries, values.shape, (0,)), values, np.ones((), data.dtype))


_publish(__name__)
