"""Arrays as sets: distinct elements, unions, intersections, differences, membership.

Sizes of results depend on values. Outside of traced functions they are computed; inside, `size` is a bound.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.indexing.dimension import is_symbolic
from weft.numpy.argument_docs import document
from weft.numpy.creation import full_array
from weft.numpy.extremes import clip
from weft.numpy.logic import logical_not
from weft.numpy.manipulation import moveaxis, ravel
from weft.numpy.reductions import any as reduce_any
from weft.numpy.selection import flat_positions, known_size, needs_size, take_in_bounds, where
from weft.numpy.sorting import searchsorted, sort as sort_array
from weft.numpy.util import (
    canonicalize_axis,
    cast,
    check_arraylike,
    concrete_or_error,
    dtype_kind,
    ensure_array,
    expand_to,
    follow_device,
    promote_dtypes,
    scalar_like,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


class UniqueAll(NamedTuple):
    """Result of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """Result of `unique_counts`."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """Result of `unique_inverse`."""

    values: Array
    inverse_indices: Array


def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Any:
    """Return the distinct elements in ascending order, or the distinct slices along an axis.

    On request, also return the index of each first occurrence, the index of its distinct element for every element, and
    the counts. With `size`, elements beyond the last distinct one hold `fill_value`, by default the smallest element.

    Args:
        ar: an array.
        return_index: whether to return the index of each first occurrence.
        return_inverse: whether to return, for every element, the index of its distinct element.
        return_counts: whether to return the number of occurrences of each.
        axis: the axis whose slices are compared; None for the elements.
        equal_nan: whether all NaN are one element.
        size: the number of elements to return; needed under `jit`.
        fill_value: the value of elements beyond the last distinct one.
        sorted: accepted for compatibility; the result is always in order.

    Returns:
        An array, or a tuple of it and the requested arrays.

    >>> import weft.numpy as wnp
    >>> wnp.unique(wnp.array([3, 1, 3]))
    Array([1, 3], dtype=int32)
    """
    check_arraylike("unique", ar)
    ar = ensure_array(ar)
    axis = None if axis is None else canonicalize_axis(axis, ar.ndim, "unique")
    if size is None:
        known = concrete_or_error(ar, *needs_size("unique"))
        found = tuple(follow_device(x, ar) for x in _unique_known(known, axis, equal_nan))
    else:
        found = _unique_within_bound(ar, axis, equal_nan, known_size(size, "unique"), fill_value)
    results = [
        found[0],
        *(x for x, asked in zip(found[1:], (return_index, return_inverse, return_counts), strict=True) if asked),
    ]
    return results[0] if len(results) == 1 else tuple(results)


def _unique_known(known: np.ndarray, axis: int | None, equal_nan: bool) -> tuple[Array, ...]:
    wide = known.astype(np.float32) if known.dtype.kind == "V" else known  # NumPy cannot sort all of ml_dtypes
    values, first, inverse, counts = np.unique(
        wide, return_index=True, return_inverse=True, return_counts=True, axis=axis, equal_nan=equal_nan
    )
    inverse = inverse.reshape(known.shape) if axis is None else inverse.reshape(-1)
    int_dtype = dtypes.default_int_dtype()
    rest = (ensure_array(x.astype(int_dtype)) for x in (first, inverse, counts))
    return ensure_array(values.astype(known.dtype)), *rest


def _unique_within_bound(ar: Array, axis: int | None, equal_nan: bool, size: int, fill_value: Any) -> tuple[Array, ...]:
    shape = ar.shape
    if axis is None:
        rows = lax.reshape(ar, (ar.size, 1))
        tail: tuple[Any, ...] = ()
    else:
        moved = moveaxis(ar, axis, 0)
        tail = moved.shape[1:]
        rows = lax.reshape(moved, (moved.shape[0], math.prod(tail)))
    int_dtype = dtypes.default_int_dtype()
    count, width = rows.shape
    if not count:
        if size and fill_value is None:
            raise ArgumentError(
                f"unique of an empty array with size={size} has no element to fill the result with: give fill_value."
            )
        fill = cast(ensure_array(0 if fill_value is None else fill_value), ar.dtype)
        nothing = full_array((size,), 0, int_dtype)
        values = expand_to(lax.reshape(ensure_array(fill), (1,) * (1 + len(tail))), (size, *tail))
        return (
            (values if axis is None else moveaxis(values, 0, axis)),
            nothing,
            full_array(shape, 0, int_dtype),
            nothing,
        )
    positions = lax.iota(int_dtype, count)
    columns = [rows[:, i] for i in range(width)]
    *keys, order = lax.sort((*columns, positions), dimension=0, is_stable=True, num_keys=max(width, 1))
    first = _differs(keys, equal_nan, count)
    # One more than requested: the last element that fits ends where the first one that does not begins.
    bounds = flat_positions(first, size + 1)
    starts, ends = bounds[:-1], bounds[1:]
    present = lax.lt(starts, cast(count, int_dtype))
    inside = clip(starts, 0, count - 1)
    index = take_in_bounds(order, inside, 0)
    values = take_in_bounds(rows, index, 0)
    fill = values[:1] if fill_value is None else cast(ensure_array(fill_value), ar.dtype)
    values = where(present[:, None], values, fill)
    index = lax.select(present, index, expand_to(order[0], index.shape))
    counts = lax.sub(ends, starts)
    group = lax.sub(lax.cumsum(lax.convert_element_type(first, int_dtype), 0), cast(1, int_dtype))
    inverse = full_array((count,), 0, int_dtype).at[order].set(group)
    if axis is None:
        return lax.reshape(values, (size,)), index, lax.reshape(inverse, shape), counts
    return moveaxis(lax.reshape(values, (size, *tail)), 0, axis), index, inverse, counts


def _differs(keys: list[Array], equal_nan: bool, count: int) -> Array:
    """Return a mask of the rows of a sorted sequence that differ from the row before; the first one counts."""
    differs: Any = full_array((count - 1,), False, dtypes.bool_)
    for key in keys:
        before, after = key[:-1], key[1:]
        other = lax.ne(before, after)
        if equal_nan and dtype_kind(key) in "fc":
            other = lax.bitwise_and(
                other, lax.bitwise_not(lax.bitwise_and(lax.ne(before, before), lax.ne(after, after)))
            )
        differs = lax.bitwise_or(differs, other)
    return lax.concatenate([full_array((1,), True, dtypes.bool_), differs], 0)


def unique_all(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """Return distinct elements, the index of each first occurrence, its index for every element, and counts."""
    return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


@document(
    "A named tuple of `values` and `counts`.",
    "wnp.unique_counts(wnp.array([3, 1, 3])).counts -> Array([1, 2], dtype=int32)",
    x="an array; it is flattened.",
)
def unique_counts(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """Return distinct elements and their counts."""
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """Return distinct elements, and for every element the index of its distinct one."""
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


@document(
    "A vector in ascending order.",
    "wnp.unique_values(wnp.array([3, 1, 3])) -> Array([1, 3], dtype=int32)",
    x="an array; it is flattened.",
)
def unique_values(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Return the distinct elements."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


# --------------------------------------------------------------------------------------------------------- membership


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"
) -> Array:
    """Test each element for membership in the test elements.

    Args:
        element: an array.
        test_elements: an array.
        assume_unique: accepted for compatibility.
        invert: whether to negate the result.
        method: "auto", "sort", "binary_search" or "compare_all"; all return the same.

    Returns:
        Booleans of the shape of `element`.

    >>> import weft.numpy as wnp
    >>> wnp.isin(wnp.array([1, 2, 3]), wnp.array([2, 5]))
    Array([False,  True, False], dtype=bool)
    """
    check_arraylike("isin", element, test_elements)
    if method not in ("auto", "compare_all", "binary_search", "sort"):
        raise ArgumentError(f"isin takes method 'auto', 'compare_all', 'binary_search' or 'sort', got {method!r}.")
    elements, tests = (ensure_array(x) for x in promote_dtypes(element, test_elements))
    tests = ravel(tests)
    if not tests.size or not elements.size:
        out = full_array(elements.shape, False, dtypes.bool_)
    elif method == "compare_all" or (method == "auto" and (is_symbolic(tests.size) or tests.size <= 16)):
        pairs = (*elements.shape, tests.size)
        same = lax.eq(expand_to(lax.expand_dims(elements, (elements.ndim,)), pairs), expand_to(tests, pairs))
        out = reduce_any(same, -1)
    else:
        ordered = lax.sort(tests)
        nearest = clip(searchsorted(ordered, elements), 0, tests.size - 1)
        out = lax.eq(take_in_bounds(ordered, nearest, 0), elements)
    return logical_not(out) if invert else out


# --------------------------------------------------------------------------------------------------- sets of two arrays


def _flat_pair(name: str, ar1: Any, ar2: Any) -> tuple[Array, Array]:
    check_arraylike(name, ar1, ar2)
    first, second = (ravel(x) for x in promote_dtypes(ar1, ar2))
    return first, second


def _compress(mask: Array, values: Array, size: int | None, fill: Any, name: str) -> Array:
    """Select the values where a mask holds: all of them, or `size` of them with `fill` for missing ones.

    `fill` is by default the first selected value, or 0 if no element is selected.
    """
    if size is None:
        found = np.flatnonzero(concrete_or_error(mask, *needs_size(name))).astype(dtypes.default_int_dtype())
        return take_in_bounds(values, ensure_array(found), 0)
    count = values.shape[0]
    positions = flat_positions(mask, known_size(size, name))
    if not count:
        return full_array(positions.shape, 0 if fill is None else fill, values.dtype)
    out = take_in_bounds(values, clip(positions, 0, count - 1), 0)
    chosen = lax.lt(positions, cast(count, positions.dtype))
    beyond = where(chosen[:1], out[:1], scalar_like(out, 0)) if fill is None else cast(ensure_array(fill), values.dtype)
    return where(chosen, out, beyond)


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Return the distinct elements of both arrays, in order."""
    return unique(lax.concatenate(list(_flat_pair("union1d", ar1, ar2)), 0), size=size, fill_value=fill_value)


def setdiff1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Array:
    """Return the distinct elements of the first array that are not in the second."""
    check_arraylike("setdiff1d", ar1, ar2)
    first, second = ravel(ar1), ravel(ar2)
    if not first.size:
        return first if size is None else full_array((known_size(size, "setdiff1d"),), fill_value or 0, first.dtype)
    if not assume_unique:
        first = sort_array(first)
        keep = _differs([first], True, first.shape[0])
    else:
        keep = full_array(first.shape, True, dtypes.bool_)
    mask = lax.bitwise_and(keep, isin(first, second, invert=True))
    return _compress(mask, first, size, 0 if fill_value is None else fill_value, "setdiff1d")


def setxor1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Array:
    """Return the distinct elements that are in exactly one of the arrays, in order.

    A NaN of one array differs from a NaN of the other.
    """
    first, second = _flat_pair("setxor1d", ar1, ar2)
    merged = lax.concatenate([first, second], 0)
    if not merged.size:
        return merged if size is None else full_array((known_size(size, "setxor1d"),), fill_value or 0, merged.dtype)
    if assume_unique:
        merged = sort_array(merged)
        keep = _differs([merged], False, merged.shape[0])
        alone = lax.bitwise_and(keep, lax.concatenate([keep[1:], full_array((1,), True, dtypes.bool_)], 0))
        return _compress(alone, merged, size, fill_value, "setxor1d")
    origin = lax.ge(lax.iota(dtypes.int32, merged.size), np.int32(first.size))
    merged, origin = lax.sort((merged, origin), dimension=0, is_stable=True, num_keys=2)
    # Two NaN of one array yield one NaN; equal elements of both arrays yield nothing.
    keep = _differs([merged, origin], True, merged.shape[0])
    both = lax.bitwise_and(isin(merged, first), isin(merged, second))
    return _compress(lax.bitwise_and(keep, lax.bitwise_not(both)), merged, size, fill_value, "setxor1d")


def intersect1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Return the distinct elements that are in both arrays, in order; on request also their first index in each."""
    first, second = _flat_pair("intersect1d", ar1, ar2)
    int_dtype = dtypes.default_int_dtype()
    if not first.size or not second.size:
        length = 0 if size is None else known_size(size, "intersect1d")
        nothing = full_array((length,), fill_value or 0, first.dtype)
        positions = (full_array((length,), first.size, int_dtype), full_array((length,), second.size, int_dtype))
        return (nothing, *positions) if return_indices else nothing
    keys, order = lax.sort((first, lax.iota(int_dtype, first.size)), dimension=0, is_stable=True, num_keys=1)
    other, other_order = lax.sort((second, lax.iota(int_dtype, second.size)), dimension=0, is_stable=True, num_keys=1)
    mask = lax.bitwise_and(_differs([keys], True, first.size), isin(keys, other, method="sort"))
    out = _compress(mask, keys, size, fill_value, "intersect1d")
    if not return_indices:
        return out
    here = _compress(mask, order, size, first.size, "intersect1d")
    nearest = clip(searchsorted(other, keys), 0, second.size - 1)
    there = _compress(mask, take_in_bounds(other_order, nearest, 0), size, second.size, "intersect1d")
    return out, here, there
