"""Sorting, partial sorting, searching in sorted arrays, and binning."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.api.shardings import split_result
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.source import user_stacklevel
from weft.numpy.argument_docs import document
from weft.numpy.creation import convert_dtype, full_array
from weft.numpy.extremes import clip
from weft.numpy.manipulation import ravel
from weft.numpy.selection import known_size, take_in_bounds, where as choose_where
from weft.numpy.util import (
    canonical_dtype,
    canonicalize_axis,
    cast,
    check_arraylike,
    concrete_or_error,
    dtype_kind,
    ensure_array,
    expand_to,
    promote_dtypes,
    promote_dtypes_inexact,
)
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array


def _check_kind(name: str, kind: Any, order: Any) -> None:
    if kind is not None:
        warnings.warn(
            f"The 'kind' argument of {name} has no effect: sorting is stable unless stable=False.",
            stacklevel=user_stacklevel(),
        )
    if order is not None:
        raise ArgumentError(f"The 'order' argument of {name} is for structured dtypes, which arrays do not have.")


def sort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: Any = None,
    order: Any = None,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """Sort the elements along an axis, or of the flattened array; NaN comes last (first if descending).

    Args:
        a: an array.
        axis: an axis; None for the flattened array.
        kind: accepted for compatibility; only one algorithm exists, which is stable.
        order: must be None: arrays have no record dtypes.
        stable: whether equal elements keep their order.
        descending: whether the largest comes first.

    Returns:
        An array of the shape of `a`. Derivatives follow the elements to their positions.

    >>> import weft.numpy as wnp
    >>> wnp.sort(wnp.array([3, 1, 2]), descending=True)
    Array([3, 2, 1], dtype=int32)
    """
    check_arraylike("sort", a)
    _check_kind("sort", kind, order)
    a = ensure_array(a)
    if axis is None:
        a, axis = ravel(a), 0
    dim = canonicalize_axis(axis, a.ndim, "sort")
    out = lax.sort(a, dimension=dim, is_stable=stable)
    return lax.rev(out, (dim,)) if descending else out


def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: Any = None,
    order: Any = None,
    stable: bool = True,
    descending: bool = False,
    dtype: DTypeLike | None = None,
) -> Array:
    """Return the indices that sort the elements along an axis, or the flattened array; equal ones keep their order.

    Args:
        a: an array.
        axis: an axis; None for the flattened array.
        kind: accepted for compatibility; only one algorithm exists, which is stable.
        order: must be None: arrays have no record dtypes.
        stable: whether equal elements keep their order.
        descending: whether the largest comes first.
        dtype: the dtype of the indices; int32 by default.

    Returns:
        An array of indices, of the shape of `a`.

    >>> import weft.numpy as wnp
    >>> wnp.argsort(wnp.array([3, 1, 2]))
    Array([1, 2, 0], dtype=int32)
    """
    check_arraylike("argsort", a)
    _check_kind("argsort", kind, order)
    a = ensure_array(a)
    if axis is None:
        a, axis = ravel(a), 0
    dim = canonicalize_axis(axis, a.ndim, "argsort")
    int_dtype = dtypes.default_int_dtype() if dtype is None else canonical_dtype(dtype, "argsort")
    positions = lax.broadcasted_iota(int_dtype, a.shape, dim)
    if not descending:
        return lax.sort((a, positions), dimension=dim, is_stable=stable, num_keys=1)[1]
    # Sorting the reversed array and reversing again keeps equal elements in their order.
    keys, indices = lax.rev(a, (dim,)), lax.rev(positions, (dim,))
    return lax.rev(lax.sort((keys, indices), dimension=dim, is_stable=stable, num_keys=1)[1], (dim,))


def sort_complex(a: Any) -> Array:
    """Sort the elements along the last axis, as complex numbers."""
    out = sort(a)
    return convert_dtype(out, dtypes.canonicalize_dtype(dtypes.to_complex_dtype(out.dtype)))


@document(
    "An array of positions.",
    "wnp.lexsort([wnp.array([1, 0, 2]), wnp.array([0, 0, -1])]) -> Array([2, 1, 0], dtype=int32)",
    keys="a sequence of arrays of one shape.",
    axis="an axis; None for the flattened array.",
)
def lexsort(keys: Any, axis: int = -1) -> Array:
    """Return the indices that sort by several keys; the last key is the primary one."""
    if not isinstance(keys, (list, tuple)) and not np.ndim(keys):
        raise ArgumentTypeError("lexsort needs a sequence of keys.", received="a scalar", fix="lexsort([last, first])")
    arrays = [keys[i] for i in range(keys.shape[0])] if isinstance(keys, (Array, np.ndarray)) else list(keys)
    if not arrays:
        raise ArgumentTypeError("lexsort needs a sequence of at least one key.")
    check_arraylike("lexsort", *arrays)
    arrays = [ensure_array(k) for k in arrays]
    if len({k.shape for k in arrays}) > 1:
        raise ArgumentError(f"lexsort needs keys of one shape, got {[k.shape for k in arrays]}.")
    if arrays[0].ndim == 0:
        return full_array((), 0, dtypes.default_int_dtype())
    dim = canonicalize_axis(axis, arrays[0].ndim, "lexsort")
    positions = lax.broadcasted_iota(dtypes.default_int_dtype(), arrays[0].shape, dim)
    return lax.sort((*arrays[::-1], positions), dimension=dim, is_stable=True, num_keys=len(arrays))[-1]


def partition(a: Any, kth: int, axis: int = -1) -> Array:
    """Partition an array around the element that index `kth` would hold if sorted; smaller ones come before it."""
    check_arraylike("partition", a)
    a = ensure_array(a)
    dim = canonicalize_axis(axis, a.ndim, "partition")
    _check_kth("partition", kth, a, dim)
    return sort(a, dim)


def argpartition(a: Any, kth: int, axis: int = -1) -> Array:
    """Return the indices that `partition` takes elements from."""
    check_arraylike("argpartition", a)
    a = ensure_array(a)
    dim = canonicalize_axis(axis, a.ndim, "argpartition")
    _check_kth("argpartition", kth, a, dim)
    return argsort(a, dim)


def _check_kth(name: str, kth: int, a: Array, axis: int) -> None:
    if dtype_kind(a) == "c":
        raise ArgumentError(f"{name} is not defined for complex numbers.")
    canonicalize_axis(index(kth), a.shape[axis], f"{name}, counting elements along axis {axis},")


def searchsorted(a: Any, v: ArrayLike, side: str = "left", sorter: Any = None, *, method: str = "scan") -> Array:
    """Find the insertion index of values in a sorted array: before equal elements ('left') or after ('right').

    Args:
        a: a vector in ascending order.
        v: values to search.
        side: "left" or "right".
        sorter: indices that sort `a`, if it is not sorted.
        method: "scan", "scan_unrolled", "sort" or "compare_all"; all return the same.

    Returns:
        Integers of the shape of `v`.

    >>> import weft.numpy as wnp
    >>> wnp.searchsorted(wnp.array([1, 3, 5]), wnp.array([0, 3, 9]))
    Array([0, 1, 3], dtype=int32)
    """
    check_arraylike("searchsorted", a, v, *(() if sorter is None else (sorter,)))
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted takes side 'left' or 'right', got {side!r}.")
    if method not in ("scan", "scan_unrolled", "sort", "compare_all", "default"):
        raise ArgumentError(f"searchsorted takes method 'scan', 'sort' or 'compare_all', got {method!r}.")
    a, v = (ensure_array(x) for x in promote_dtypes(a, v))
    if a.ndim != 1:
        raise ArgumentError(f"searchsorted takes a sorted array of rank 1, got shape {a.shape}.")
    if sorter is not None:
        a = a[ensure_array(sorter)]
    dtype = dtypes.default_int_dtype()
    length = a.shape[0]
    if not length:
        return full_array(v.shape, 0, dtype)
    if method == "compare_all":
        pairs = (length, *v.shape)
        elements = lax.broadcast_in_dim(a, pairs, (0,))
        before = _comes_before(elements, lax.broadcast_in_dim(v, pairs, tuple(range(1, v.ndim + 1))), side)
        return lax.reduce_sum(lax.convert_element_type(before, dtype), (0,))
    # Bisection: the answer is between low and high, which halves with each of a known number of steps.
    low, high = full_array(v.shape, 0, dtype), full_array(v.shape, length, dtype)
    for _ in range(length.bit_length()):
        middle = lax.div(lax.add(low, high), cast(2, dtype))
        probe = take_in_bounds(a, clip(middle, 0, length - 1), 0)
        further = lax.bitwise_and(_comes_before(probe, v, side), lax.lt(low, high))
        low = lax.select(further, lax.add(middle, cast(1, dtype)), low)
        high = lax.select(further, high, middle)
    return low


def _comes_before(element: Array, value: Array, side: str) -> Array:
    """Return whether an element of the sorted array comes before the insertion index of a value; NaN is largest."""
    if dtype_kind(element) == "c":
        parts = [(lax.real(element), lax.real(value)), (lax.imag(element), lax.imag(value))]
    else:
        parts = [(element, value)]
    out: Any = None
    for x, v in reversed(parts):
        smaller, same = lax.lt(x, v), lax.eq(x, v)
        if dtype_kind(x) == "f":
            missing, value_missing = lax.ne(x, x), lax.ne(v, v)
            smaller = lax.bitwise_or(smaller, lax.bitwise_and(lax.bitwise_not(missing), value_missing))
            same = lax.bitwise_or(same, lax.bitwise_and(missing, value_missing))
        rest = out if out is not None else (same if side == "right" else None)
        out = smaller if rest is None else lax.bitwise_or(smaller, lax.bitwise_and(same, rest))
    return out


def digitize(x: ArrayLike, bins: Any, right: bool = False, *, method: str | None = None) -> Array:
    """Return the index of the bin that each element falls into; bins are increasing or decreasing."""
    check_arraylike("digitize", x, bins)
    edges = ensure_array(bins)
    if edges.ndim != 1:
        raise ArgumentError(f"digitize takes bins of rank 1, got shape {edges.shape}.")
    count, dtype = edges.shape[0], dtypes.default_int_dtype()
    if not count:
        return full_array(ensure_array(x).shape, 0, dtype)
    side, method = ("right" if not right else "left"), method or "scan"
    upward = searchsorted(edges, x, side, method=method)
    downward = lax.sub(cast(count, dtype), searchsorted(lax.rev(edges, (0,)), x, side, method=method))
    increasing = lax.ge(edges[-1], edges[0])
    return choose_where(increasing, upward, downward)


def bincount(
    x: ArrayLike, weights: Any = None, minlength: int = 0, *, length: int | None = None, out_sharding: Any = None
) -> Array:
    """Count the occurrences of each number from 0 up, or sum the weights where it occurs.

    Under `jit`, `length` is the size of the result; numbers from there on are dropped.

    Args:
        x: a vector of integers; negative ones count as 0.
        weights: the numbers to sum, one for each element.
        minlength: the least size of the result.
        length: the size of the result; needed under `jit`.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        A vector.

    >>> import weft.numpy as wnp
    >>> wnp.bincount(wnp.array([1, 1, 3]))
    Array([0, 2, 0, 1], dtype=int32)
    """
    if out_sharding is not None:
        return split_result(bincount, out_sharding, x, weights, minlength, length=length)
    check_arraylike("bincount", x, *(() if weights is None else (weights,)))
    x = ensure_array(x)
    if dtype_kind(x) not in "biu":
        raise ArgumentTypeError(f"bincount takes integers, got {x.aval.short()}.")
    if x.ndim != 1:
        raise ArgumentError(f"bincount takes arrays of rank 1, got shape {x.shape}.")
    if length is None:
        known = concrete_or_error(
            x, "bincount cannot be traced without `length`: the size of its result depends on values.", "length=n"
        )
        length = max(int(minlength), max(int(known.max()), 0) + 1 if known.size else 0)
    else:
        length = known_size(length, "bincount", "length")
    if weights is None:
        weights = cast(1, dtypes.default_int_dtype())
    elif np.shape(weights) != x.shape:
        raise ArgumentError(f"bincount needs one weight for each element, got {np.shape(weights)} for {x.shape}.")
    weights = ensure_array(weights)
    if dtype_kind(weights) == "b":
        weights = convert_dtype(weights, dtypes.default_int_dtype())
    bins = clip(convert_dtype(x, dtypes.default_int_dtype()), 0, None)
    return full_array((length,), 0, weights.dtype).at[bins].add(weights, mode="drop")


# --------------------------------------------------------------------------------------------------------- histograms


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Array:
    """Compute the edges of equally wide bins over the range of the data; edges as `bins` are returned as they are."""
    check_arraylike("histogram_bin_edges", a, *(() if isinstance(bins, (str, list, tuple)) else (bins,)))
    if isinstance(bins, str):
        raise ArgumentError(f"histogram takes a number of bins or their edges, not the rule {bins!r}.")
    a = ensure_array(a)
    compute = dtypes.canonicalize_dtype(dtypes.to_inexact_dtype(a.dtype))
    if isinstance(bins, (list, tuple)) or np.ndim(bins) == 1:
        return convert_dtype(
            ensure_array(np.asarray(bins)) if isinstance(bins, (list, tuple)) else ensure_array(bins), compute
        )
    count = index(bins)
    if range is None:
        if not a.size:
            low, high = cast(0, compute), cast(1, compute)
        else:
            flat = convert_dtype(ravel(a), compute)
            low, high = lax.reduce_min(flat, (0,)), lax.reduce_max(flat, (0,))
    else:
        low, high = (cast(ensure_array(x), compute) for x in range)
    flat_range = lax.eq(low, high)
    half = cast(0.5, compute)
    low, high = choose_where(flat_range, low - half, low), choose_where(flat_range, high + half, high)
    ratio = lax.div(lax.iota(compute, count + 1), cast(count, compute))
    return low * (1 - ratio) + high * ratio


def histogram(
    a: ArrayLike, bins: Any = 10, range: Any = None, weights: ArrayLike | None = None, density: bool | None = None
) -> tuple[Array, Array]:
    """Count the elements that fall into each bin, or sum their weights; return counts and bin edges.

    Args:
        a: an array; it is flattened.
        bins: the number of bins of equal width, or their edges.
        range: the least and the largest edge; by default those of the elements.
        weights: the number to add for each element.
        density: whether to scale so that the integral is 1.

    Returns:
        A pair of vectors; the second is longer by one.

    >>> import weft.numpy as wnp
    >>> wnp.histogram(wnp.array([0.1, 0.2, 0.9]), bins=2, range=(0, 1))
    (Array([2., 1.], dtype=float32), Array([0. , 0.5, 1. ], dtype=float32))
    """
    check_arraylike("histogram", a, *(() if weights is None else (weights,)))
    a = ensure_array(a)
    edges = histogram_bin_edges(a, bins, range, weights)
    compute = edges.dtype
    if weights is None:
        weights = full_array(a.shape, 1, compute)
    else:
        if np.shape(weights) != a.shape:
            raise ArgumentError(f"histogram needs weights of the shape of a, got {np.shape(weights)} for {a.shape}.")
        weights = ensure_array(promote_dtypes_inexact(a, weights)[1])  # sums of short integers would wrap around
    values = convert_dtype(ravel(a), compute)
    count = edges.shape[0] - 1
    bin_of = _bins(values, edges)
    weights = ravel(weights)
    inside = lax.bitwise_and(lax.ge(values, edges[0]), lax.le(values, edges[-1]))
    total = lax.select(inside, weights, lax.full_like(weights, 0))
    counts = full_array((count,), 0, weights.dtype).at[clip(bin_of, 0, count - 1)].add(total)
    if density:
        widths = edges[1:] - edges[:-1]
        counts = counts / widths / lax.reduce_sum(counts, (0,))
    return counts, edges


def _bins(values: Array, edges: Array) -> Array:
    """Return the bin of each value; the last bin includes its upper edge."""
    bins = searchsorted(edges, values, "right") - 1
    return choose_where(lax.eq(values, expand_to(edges[-1], values.shape)), edges.shape[0] - 2, bins)


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Array, Array, Array]:
    """Compute the histogram of points in the plane, and the edges of the bins along both axes."""
    check_arraylike("histogram2d", x, y)
    if isinstance(bins, (list, tuple)) or np.ndim(bins):
        if len(bins) not in (1, 2):  # one list of edges, for both axes
            bins = [bins, bins]
    points = [ensure_array(c) for c in promote_dtypes(x, y)]
    counts, edges = histogramdd(points, bins, range, weights, density)
    return counts, edges[0], edges[1]


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Array, list[Array]]:
    """Compute the histogram of points in space, one row each, and the edges of the bins along every axis."""
    if isinstance(sample, (list, tuple)):
        columns = [ensure_array(c) for c in sample]
        if any(c.ndim != 1 for c in columns):
            shapes = ", ".join(str(c.shape) for c in columns)
            raise ArgumentError("Coordinates of points must be arrays of rank 1.", received=f"shapes {shapes}")
        sample = lax.concatenate([lax.expand_dims(c, (1,)) for c in columns], 1)
    check_arraylike("histogramdd", sample)
    sample = ensure_array(sample)
    if sample.ndim == 1:
        sample = lax.expand_dims(sample, (1,))
    if sample.ndim != 2:
        raise ArgumentError(f"histogramdd takes points as rows of a matrix, got shape {sample.shape}.")
    count, rank = sample.shape
    if range is not None and len(range) != rank:
        raise ArgumentError(f"histogramdd needs a range for each of {rank} axes, got {len(range)}.")
    ways: Sequence[Any] = bins if isinstance(bins, (list, tuple)) or np.ndim(bins) == 1 else [bins] * rank
    if len(ways) != rank:
        raise ArgumentError(f"histogramdd needs bins for each of {rank} axes, got {len(ways)}.")
    edges, flat, inside = (
        [],
        full_array((count,), 0, dtypes.default_int_dtype()),
        full_array((count,), True, dtypes.bool_),
    )
    for axis in np.arange(rank).tolist():
        column = sample[:, axis]
        bounds = None if range is None else range[axis]
        line = histogram_bin_edges(column, ways[axis], bounds)
        edges.append(line)
        values, size = convert_dtype(column, line.dtype), line.shape[0] - 1
        flat = flat * size + clip(_bins(values, line), 0, size - 1)
        inside = inside & (values >= line[0]) & (values <= line[-1])
    sizes = tuple(e.shape[0] - 1 for e in edges)
    amounts = full_array((count,), 1, dtypes.default_int_dtype()) if weights is None else ensure_array(weights)
    amounts = lax.select(inside, amounts, lax.full_like(amounts, 0))
    out = lax.reshape(full_array((int(np.prod(sizes)),), 0, amounts.dtype).at[flat].add(amounts), sizes)
    if density:
        out = out / lax.reduce_sum(out, tuple(np.arange(rank).tolist()))
        for axis, line in enumerate(edges):
            widths = line[1:] - line[:-1]
            out = out / lax.broadcast_in_dim(widths, sizes, (axis,))
    return out, edges
