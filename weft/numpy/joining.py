"""Concatenation and splitting of arrays."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from weft import lax
from weft.base.arguments import described, index
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.numpy.argument_docs import document
from weft.numpy.creation import convert_dtype
from weft.numpy.manipulation import atleast_1d, atleast_2d, atleast_3d, ndim, ravel
from weft.numpy.util import (
    canonical_dtype,
    canonicalize_axis,
    check_arraylike,
    check_no_out,
    concrete_or_error,
    ensure_array,
    promote_dtypes,
)
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array

# ------------------------------------------------------------------------------------------------------------ joining


def _sequence(name: str, arrays: Any, axis: Any = 0) -> list[Array]:
    """Return the arrays to join as a list; an array is the list of its slices along the first axis."""
    if np.ndim(axis):
        raise ArgumentTypeError(
            f"{name} needs a sequence of arrays, then the axis.",
            received=f"an axis that is {axis.aval.short() if isinstance(axis, Array) else described(axis)}",
            fix=f"{name}([a, b], axis=0)",
        )
    if isinstance(arrays, (Array, np.ndarray)):
        if np.ndim(arrays) == 0:
            raise ArgumentError(f"{name} needs a sequence of arrays.", received="a scalar", fix=f"{name}([a, b])")
        arrays = unstack(arrays)
    if isinstance(arrays, (int, float, complex)):
        raise ArgumentTypeError(
            f"{name} needs a sequence of arrays.", received=described(arrays), fix=f"{name}([a, b])"
        )
    try:
        listed = list(arrays)
    except TypeError:
        fix = f"{name}([a, b])"
        raise ArgumentTypeError(f"{name} needs a sequence of arrays.", received=described(arrays), fix=fix) from None
    check_arraylike(name, *listed)
    if not listed:
        raise ArgumentError(f"Need at least one array to {name}, got no arrays.", fix="a list of at least one array")
    return [ensure_array(x) for x in listed]


def _concatenate(arrays: Sequence[Array], axis: int, dtype: Any, name: str) -> Array:
    if dtype is not None:
        out_dtype = canonical_dtype(dtype, name)
        arrays = [convert_dtype(x, out_dtype) for x in arrays]
    elif len(arrays) > 1:
        arrays = [ensure_array(x) for x in promote_dtypes(*arrays)]
    return lax.concatenate(arrays, axis) if len(arrays) > 1 else arrays[0]


def concatenate(arrays: Any, axis: int | None = 0, dtype: DTypeLike | None = None) -> Array:
    """Concatenate arrays along an axis; flatten them first if it is None.

    Args:
        arrays: a sequence of arrays that agree on all other axes, or one array, whose slices are joined.
        axis: an existing axis; None flattens the arrays first.
        dtype: the dtype of the result; promoted from the arrays by default.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> wnp.concatenate([wnp.arange(2), wnp.ones(1)])
    Array([0., 1., 1.], dtype=float32)
    """
    parts = _sequence("concatenate", arrays, axis)
    if axis is None:
        return _concatenate([ravel(x) for x in parts], 0, dtype, "concatenate")
    if parts[0].ndim == 0:
        raise ArgumentError(
            "Zero-dimensional arrays cannot be concatenated.",
            received=", ".join(x.aval.short() for x in parts[:4]),
            fix=("concatenate([a, b], axis=0)   for a list of arrays", "stack([a, b])   for scalars"),
        )
    return _concatenate(parts, canonicalize_axis(axis, parts[0].ndim, "concatenate"), dtype, "concatenate")


@document(
    "An array in the promoted dtype.",
    "wnp.concat([wnp.arange(2), wnp.arange(3)]) -> Array([0, 1, 0, 1, 2], dtype=int32)",
    arrays="a sequence of arrays that agree on all other axes.",
    axis="an existing axis; None flattens the arrays first.",
)
def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Array:
    """Concatenate arrays along an axis; flatten them first if it is None."""
    return concatenate(arrays, axis)


def stack(arrays: Any, axis: int = 0, out: Any = None, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays of one shape along a new axis.

    Args:
        arrays: a sequence of arrays of one shape.
        axis: the index of the new axis in the result.
        out: must be None: arrays do not change, so nothing can be written into one.
        dtype: the dtype of the result; promoted from the arrays by default.

    Returns:
        An array with one more axis.

    >>> import weft.numpy as wnp
    >>> wnp.stack([wnp.arange(3), wnp.arange(3)], axis=1).shape
    (3, 2)
    """
    check_no_out("stack", out)
    parts = _sequence("stack", arrays, axis)
    shapes = {x.shape for x in parts}
    if len(shapes) > 1:
        raise ArgumentError(
            "All input arrays of stack must have the same shape.",
            received=", ".join(str(x.shape) for x in parts[:6]),
            fix=("concatenate([a, b])   along an axis that is there", "broadcast_to or pad, to make the shapes equal"),
        )
    dim = canonicalize_axis(axis, parts[0].ndim + 1, "stack")
    return _concatenate([lax.expand_dims(x, (dim,)) for x in parts], dim, dtype, "stack")


@document(
    "A tuple of arrays.",
    "wnp.unstack(wnp.array([[1, 2], [3, 4]])) -> (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))",
    x="an array with at least one axis.",
    axis="the axis to remove.",
)
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Split an array into its slices along an axis."""
    check_arraylike("unstack", x)
    x = ensure_array(x)
    if x.ndim == 0:
        raise ArgumentError("unstack takes arrays of rank 1 or more, got a scalar.")
    dim = canonicalize_axis(axis, x.ndim, "unstack")
    return tuple(lax.index_in_dim(x, i, dim, keepdims=False) for i in range(x.shape[dim]))


@document("An array with at least two axes.", dtype="the dtype of the result; promoted from the arrays by default.")
def vstack(tup: Any, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays vertically: along the first axis, with vectors as rows.

    >>> import weft.numpy as wnp
    >>> wnp.vstack([wnp.arange(2), wnp.arange(2)])
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    return _concatenate([atleast_2d(x) for x in _sequence("vstack", tup)], 0, dtype, "vstack")


@document(
    "An array.",
    "wnp.hstack([wnp.arange(2), wnp.arange(3)]) -> Array([0, 1, 0, 1, 2], dtype=int32)",
    dtype="the dtype of the result; promoted from the arrays by default.",
)
def hstack(tup: Any, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays horizontally: along the second axis, vectors along the first."""
    parts = [atleast_1d(x) for x in _sequence("hstack", tup)]
    return _concatenate(parts, 0 if parts[0].ndim == 1 else 1, dtype, "hstack")


@document(
    "An array with at least three axes.",
    "wnp.dstack([wnp.arange(2), wnp.arange(2)]).shape -> (1, 2, 2)",
    dtype="the dtype of the result; promoted from the arrays by default.",
)
def dstack(tup: Any, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays in depth: along the third axis."""
    return _concatenate([atleast_3d(x) for x in _sequence("dstack", tup)], 2, dtype, "dstack")


@document("A matrix.", tup="a sequence of vectors and matrices with equally many rows.")
def column_stack(tup: Any) -> Array:
    """Stack vectors as the columns of a matrix, and matrices next to each other.

    >>> import weft.numpy as wnp
    >>> wnp.column_stack([wnp.arange(2), wnp.arange(2)])
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    parts = [x if x.ndim > 1 else lax.reshape(x, (x.size, 1)) for x in _sequence("column_stack", tup)]
    return _concatenate(parts, 1, None, "column_stack")


@document(
    "A new array; `arr` does not change.",
    "wnp.append(wnp.arange(2), 5) -> Array([0, 1, 5], dtype=int32)",
    values="the array to append, with the same sizes along other axes.",
    axis="an axis; None flattens both.",
)
def append(arr: ArrayLike, values: Any, axis: int | None = None) -> Array:
    """Append `values` to `arr` along an axis, or both flattened."""
    check_arraylike("append", arr, values)
    return concatenate([ensure_array(arr), ensure_array(values)], axis)


@document(
    "An array.",
    "wnp.block([[wnp.ones((1, 1)), wnp.zeros((1, 2))]]) -> Array([[1., 0., 0.]], dtype=float32)",
    arrays="nested lists of arrays.",
)
def block(arrays: Any) -> Array:
    """Assemble an array from nested lists of blocks; innermost lists join along the last axis, outer ones before it.
    it."""
    out, _ = _block(arrays, _depth(arrays))
    return out


def _depth(arrays: Any) -> int:
    if isinstance(arrays, tuple):
        raise ArgumentTypeError("block takes nested lists of arrays, got a tuple.")
    if not isinstance(arrays, list):
        return 0
    depths = {_depth(x) for x in arrays}
    if len(depths) != 1:
        raise ArgumentError("block needs lists nested equally deep everywhere, none of them empty.")
    return depths.pop() + 1


def _block(arrays: Any, depth: int, rank: int | None = None) -> tuple[Array, int]:
    if rank is None:
        rank = builtins.max(depth, _greatest_rank(arrays))
    if not isinstance(arrays, list):
        check_arraylike("block", arrays)
        x = ensure_array(arrays)
        return lax.reshape(x, (1,) * (rank - x.ndim) + x.shape), rank
    parts = [_block(x, depth - 1, rank)[0] for x in arrays]
    return _concatenate(parts, rank - depth, None, "block"), rank


def _greatest_rank(arrays: Any) -> int:
    return builtins.max(map(_greatest_rank, arrays)) if isinstance(arrays, list) else ndim(arrays)


# ----------------------------------------------------------------------------------------------------------- splitting


@document(
    "A list of arrays; a number that does not divide the size raises.",
    "wnp.split(wnp.arange(4), 2) -> [Array([0, 1], dtype=int32), Array([2, 3], dtype=int32)]",
    axis="an axis; negative ones count from the end.",
)
def split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Split an array along an axis into equal parts, or at given positions."""
    return _split("split", ary, indices_or_sections, axis)


@document(
    "A list of arrays.",
    "[part.size for part in wnp.array_split(wnp.arange(5), 3)] -> [2, 2, 1]",
    indices_or_sections="the number of parts, or the positions where parts begin; the first parts are one longer if "
    "needed.",
    axis="an axis; negative ones count from the end.",
)
def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Split an array along an axis into parts, whose number need not divide the size."""
    return _split("array_split", ary, indices_or_sections, axis)


@document("A list of arrays.", "[x.shape for x in wnp.vsplit(wnp.ones((4, 2)), 2)] -> [(2, 2), (2, 2)]")
def vsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Split an array along the first axis."""
    return _split("vsplit", ary, indices_or_sections, 0)


@document("A list of arrays.", "[x.shape for x in wnp.hsplit(wnp.ones((4, 2)), 2)] -> [(4, 1), (4, 1)]")
def hsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Split an array along the second axis; a vector, along the first."""
    return _split("hsplit", ary, indices_or_sections, 0 if ndim(ary) == 1 else 1)


@document("A list of arrays.", "[x.shape for x in wnp.dsplit(wnp.ones((1, 1, 4)), 2)] -> [(1, 1, 2), (1, 1, 2)]")
def dsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Split an array along the third axis."""
    return _split("dsplit", ary, indices_or_sections, 2)


def _split(name: str, ary: Any, sections: Any, axis: int) -> list[Array]:
    check_arraylike(name, ary)
    a = ensure_array(ary)
    dim = canonicalize_axis(axis, a.ndim, name)
    length = a.shape[dim]
    if isinstance(sections, (tuple, list)) or np.ndim(sections):
        known = [int(concrete_or_error(s, *_known_sections(name))) for s in sections]
        bounds = [0, *(builtins.min(builtins.max(k + length if k < 0 else k, 0), length) for k in known), length]
    else:
        count = index(concrete_or_error(sections, *_known_sections(name))[()])
        if count < 1:
            raise ArgumentError(f"{name} needs a positive number of parts, got {count}.", fix="split(x, 2)")
        part, rest = builtins.divmod(length, count)
        if rest and name != "array_split":
            raise ArgumentError(
                f"array split does not result in an equal division: rest is {rest}.",
                received=f"{length} elements along axis {dim} for {count} parts",
                fix=("array_split(x, n)   for parts of about one size", "split(x, [i, j])   for positions"),
            )
        bounds = [0]
        for i in range(count):
            bounds.append(bounds[-1] + part + (i < rest))
    return [lax.slice_in_dim(a, low, builtins.max(low, high), axis=dim) for low, high in pairwise(bounds)]


def _known_sections(name: str) -> tuple[str, str]:
    return f"{name} needs to know where to split when tracing, since sizes follow from it.", "a static argument"
