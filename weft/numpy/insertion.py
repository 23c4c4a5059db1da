"""Insertion and deletion of slices."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.errors import ArgumentError, InvalidIndexError
from weft.numpy.creation import asarray, convert_dtype, full_array
from weft.numpy.elementwise import remainder, subtract
from weft.numpy.manipulation import moveaxis, ravel
from weft.numpy.selection import take_in_bounds
from weft.numpy.util import (
    canonicalize_axis,
    cast,
    check_arraylike,
    concrete_or_error,
    ensure_array,
    expand_to,
    is_concrete,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def delete(arr: ArrayLike, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Array:
    """Remove the slices at some positions along an axis.

    Args:
        arr: an array.
        obj: an index, a slice or an array of indices, known when tracing unless `assume_unique_indices`.
        axis: an axis; None flattens the array.
        assume_unique_indices: whether `obj` has no index twice, so that it may be traced.

    Returns:
        A new array without them.

    >>> import weft.numpy as wnp
    >>> wnp.delete(wnp.arange(5), 1)
    Array([0, 2, 3, 4], dtype=int32)
    """
    check_arraylike("delete", arr)
    a = ensure_array(arr)
    if axis is None:
        a, dim = ravel(a), 0
    else:
        dim = canonicalize_axis(axis, a.ndim, "delete")
    length = a.shape[dim]
    if isinstance(obj, builtins.slice):
        obj = np.arange(length)[obj]
    if is_concrete(obj):
        positions = np.asarray(obj)
        if positions.dtype == bool:
            if positions.shape != (length,):
                raise ArgumentError(f"delete takes a mask of {length} elements, got shape {positions.shape}.")
            keep = ~positions
        else:
            if positions.size and not np.issubdtype(positions.dtype, np.integer):
                raise ArgumentError(f"delete takes integer positions, got {positions.dtype}.")
            if ((positions < -length) | (positions >= length)).any():
                raise InvalidIndexError(f"delete got a position outside of the {length} along axis {dim}.")
            keep = np.ones(length, bool)
            keep[positions.astype(np.int64)] = False
        found = np.flatnonzero(keep).astype(dtypes.default_int_dtype())
        return take_in_bounds(a, ensure_array(found), dim)
    return _delete_by_comparison(a, ensure_array(obj), dim, assume_unique_indices)


def _delete_by_comparison(a: Array, obj: Array, axis: int, unique: bool) -> Array:
    if obj.ndim and not unique:
        concrete_or_error(
            obj,
            "delete needs known positions when tracing: the size of the result depends on how many differ.",
            "assume_unique_indices=True if no position is named twice",
        )
    length = a.shape[axis]
    gone = lax.reshape(obj, (obj.size,))
    dtype = dtypes.default_int_dtype()
    gone = lax.sort(remainder(convert_dtype(gone, dtype), length))
    # Each removed position shifts what comes after it by one.
    remaining = lax.iota(dtype, length - gone.size)
    shifted = subtract(gone, lax.iota(dtype, gone.size))
    before = lax.le(
        expand_to(lax.expand_dims(shifted, (0,)), (remaining.size, gone.size)),
        expand_to(lax.expand_dims(remaining, (1,)), (remaining.size, gone.size)),
    )
    positions = lax.add(remaining, lax.reduce_sum(lax.convert_element_type(before, dtype), (1,)))
    return take_in_bounds(a, positions, axis)


def insert(arr: ArrayLike, obj: Any, values: Any, axis: int | None = None) -> Array:
    """Insert values before some positions along an axis."""
    check_arraylike("insert", arr, values, *(() if isinstance(obj, (builtins.slice, list, tuple)) else (obj,)))
    a, new = ensure_array(arr), ensure_array(values)
    if axis is None:
        a, dim = ravel(a), 0
    else:
        dim = canonicalize_axis(axis, a.ndim, "insert")
    length = a.shape[dim]
    if isinstance(obj, builtins.slice):
        obj = np.arange(length)[obj]
    positions = asarray(obj)
    if positions.dtype == np.bool_:
        known = concrete_or_error(positions, "insert needs a known mask.", "integer positions")
        positions = ensure_array(np.flatnonzero(known).astype(dtypes.default_int_dtype()))
    if positions.ndim > 1:
        raise ArgumentError(f"insert takes positions of rank 0 or 1, got shape {positions.shape}.")
    dtype = dtypes.default_int_dtype()
    new = cast(new, a.dtype, a.weak_type)
    if positions.size == 1:
        new = lax.reshape(new, (1,) * (a.ndim - new.ndim) + new.shape)
        new = moveaxis(new, 0, dim) if positions.ndim == 0 else new
        count = new.shape[dim]
        flat = expand_to(lax.reshape(positions, (1,)), (count,))
    else:
        flat, count = lax.reshape(positions, (positions.size,)), positions.size
    sizes = (*a.shape[:dim], count, *a.shape[dim + 1 :])
    new = expand_to(new, sizes)
    flat = convert_dtype(flat, dtype)
    flat = lax.select(flat < 0, flat + length, flat)
    order = lax.sort((flat, lax.iota(dtype, count)), num_keys=1, is_stable=True)
    targets = lax.add(order[0], lax.iota(dtype, count))  # each earlier insertion shifts this one
    total = length + count
    is_new = full_array((total,), False, dtypes.bool_).at[targets].set(True)
    source_old = subtract(lax.cumsum(lax.convert_element_type(lax.bitwise_not(is_new), dtype), 0), 1)
    source_new = full_array((total,), 0, dtype).at[targets].set(order[1])
    both = lax.concatenate([a, new], dim)
    return take_in_bounds(both, lax.select(is_new, source_new + length, source_old), dim)
