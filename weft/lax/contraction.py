"""Contractions: dot_general, dot, batch_matmul, and matmuls whose rows belong to groups (ragged_dot)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from weft.api.shardings import split_result
from weft.base import conversion, dtypes
from weft.base.arguments import index, parts
from weft.ir.types import ArrayType, get_aval
from weft.primitives.contraction.contract import DimensionNumbers, dot_general as dot_general_primitive
from weft.primitives.contraction.precision import (
    DotAlgorithm as DotAlgorithm,
    DotAlgorithmPreset as DotAlgorithmPreset,
    Precision as Precision,
    PrecisionLike as PrecisionLike,
    canonical_precision,
)
from weft.primitives.elementwise.arithmetic import sub
from weft.primitives.elementwise.bitwise import and_
from weft.primitives.elementwise.compare import ge, lt
from weft.primitives.elementwise.select import select_n
from weft.primitives.families import fail, remaining_axes
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim, move_axis, reshape, transpose
from weft.primitives.movement.slicing import dynamic_slice
from weft.primitives.reduction.cumulative import cumsum
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array

DotDimensionNumbers: TypeAlias = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Contract pairs of dimensions of two arrays, element by element along their batch dimensions.

    `dimension_numbers` is `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`. The result has the batch
    dimensions, then the remaining ones of `lhs`, then those of `rhs`. `preferred_element_type` is the dtype of the
    result, in which the sum is then accumulated as well. `out_sharding` says how the result is split over Explicit
    axes of a mesh, where the operands leave it open.

    Args:
        lhs: an array.
        rhs: an array.
        dimension_numbers: the contracting and batch dimensions.
        precision: how exact products are where hardware has shorter formats, see `weft.lax.Precision`.
        preferred_element_type: the dtype to accumulate in and of the result; by default promoted from the operands,
            with sums of short floats in float32.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.dot_general(wnp.ones((2, 3)), wnp.ones((3, 4)), (((1,), (0,)), ((), ()))).shape
    (2, 4)
    """
    if out_sharding is not None:
        return split_result(dot_general, out_sharding, lhs, rhs, dimension_numbers, precision, preferred_element_type)
    return dot_general_primitive(
        lhs,
        rhs,
        dimension_numbers=canonical_dimension_numbers(dimension_numbers),
        precision=canonical_precision(precision),
        preferred_element_type=canonical_element_type(preferred_element_type, "dot_general"),
    )


def canonical_dimension_numbers(dimension_numbers: DotDimensionNumbers) -> DimensionNumbers:
    """Convert dimension numbers to the tuples of ints that equations hold."""
    what, fix = "The dimension numbers of dot_general", "((lhs_contract, rhs_contract), (lhs_batch, rhs_batch))"
    contract, batch = parts(dimension_numbers, 2, what, fix)
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = (parts(pair, 2, what, fix) for pair in (contract, batch))
    return (_axes(lhs_contract), _axes(rhs_contract)), (_axes(lhs_batch), _axes(rhs_batch))


def _axes(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple([index(axis) for axis in axes])


def canonical_element_type(dtype: Any, name: str) -> Any:
    """Return a `preferred_element_type` as a canonical dtype, or None."""
    return None if dtype is None else dtypes.requested_dtype(dtype, name)


def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Array:
    """Multiply two vectors or matrices; with `dimension_numbers`, compute `dot_general`.

    Args:
        lhs: an array.
        rhs: an array.
        dimension_numbers: the contracting and batch dimensions; None for vectors and matrices.
        precision: how exact products are where hardware has shorter formats, see `weft.lax.Precision`.
        preferred_element_type: the dtype to accumulate in and of the result; by default promoted from the operands,
            with sums of short floats in float32.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.dot(wnp.array([1.0, 2.0]), wnp.array([3.0, 4.0]))
    Array(11., dtype=float32)
    """
    if dimension_numbers is None:
        left, right = np.shape(lhs), np.shape(rhs)
        if not (1 <= len(left) <= 2 and 1 <= len(right) <= 2 and left[-1] == right[0]):
            raise fail(
                f"dot multiplies vectors and matrices whose inner sizes agree, got shapes {left} and {right}.",
                fix="give dimension_numbers, or use weft.numpy.matmul",
            )
        dimension_numbers = (((len(left) - 1,), (0,)), ((), ()))
    return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding)


def batch_matmul(lhs: Any, rhs: Any, precision: PrecisionLike = None) -> Any:
    """Multiply matrices over leading batch dimensions that both operands have."""
    left, right = np.shape(lhs), np.shape(rhs)
    if len(left) != len(right) or len(left) < 2:
        raise fail(f"batch_matmul needs two arrays of one rank of at least 2, got shapes {left} and {right}.")
    batch = tuple(range(len(left) - 2))
    return dot_general(lhs, rhs, (((len(left) - 1,), (len(left) - 2,)), (batch, batch)), precision)


# ------------------------------------------------------------------------------------------------------------- groups


class RaggedDotDimensionNumbers(NamedTuple):
    """Dimension numbers of `dot_general`, the grouped dimension of lhs and the group dimension of rhs."""

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]


def ragged_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: Any,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Multiply consecutive groups of rows of `lhs` (m, k), each with its own matrix of `rhs` (g, k, n).

    Rows after the last group are zeros. With `group_offset`, shape (1,), `rhs` holds matrices only from that group on.

    Args:
        lhs: an array (m, k).
        rhs: an array (g, k, n).
        group_sizes: g integers, which may be traced.
        precision: how exact products are where hardware has shorter formats, see `weft.lax.Precision`.
        preferred_element_type: the dtype to accumulate in and of the result; by default promoted from the operands,
            with sums of short floats in float32.
        group_offset: the first group that `rhs` has a matrix for.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array (m, n).

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> matrices = wnp.stack([wnp.eye(2), 10.0 * wnp.eye(2)])
    >>> lax.ragged_dot(wnp.ones((3, 2)), matrices, wnp.array([1, 2]))
    Array([[ 1.,  1.],
           [10., 10.],
           [10., 10.]], dtype=float32)
    """
    if len(np.shape(lhs)) != 2 or len(np.shape(rhs)) != 3:
        raise fail(f"ragged_dot needs lhs (m, k) and rhs (g, k, n), got shapes {np.shape(lhs)} and {np.shape(rhs)}.")
    dimension_numbers = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    return ragged_dot_general(
        lhs,
        rhs,
        group_sizes,
        dimension_numbers,
        precision,
        preferred_element_type,
        group_offset,
        out_sharding=out_sharding,
    )


def ragged_dot_general(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Compute `dot_general` where one dimension of `lhs` is divided into consecutive groups of `group_sizes`.

    If that dimension is free, each group has its own slice of `rhs` along the group dimension. If it is contracting,
    each group is summed separately, and the result has the groups first. If it is a batch dimension, the values do not
    depend on the groups.
    """
    if out_sharding is not None:
        operands = (
            lhs,
            rhs,
            group_sizes,
            ragged_dot_dimension_numbers,
            precision,
            preferred_element_type,
            group_offset,
        )
        return split_result(ragged_dot_general, out_sharding, *operands)
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = canonical_dimension_numbers(
        ragged_dot_dimension_numbers.dot_dimension_numbers
    )
    ragged_axes, group_axes = map(_axes, ragged_dot_dimension_numbers[1:])
    x, y, sizes = (get_aval(v) for v in (lhs, rhs, group_sizes))
    assert isinstance(x, ArrayType) and isinstance(y, ArrayType) and isinstance(sizes, ArrayType)
    free = not set(ragged_axes) & {*lhs_contract, *lhs_batch}
    check_ragged(x, y, sizes, ragged_axes, group_axes, free)
    (ragged,) = ragged_axes

    def product(left: Any, dimension_numbers: DotDimensionNumbers) -> Any:
        return dot_general(left, rhs, dimension_numbers, precision, preferred_element_type)

    if ragged in lhs_batch:
        return product(lhs, ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch)))
    outer: tuple[int, ...]
    if free:
        outer = tuple(a for a in remaining_axes(x.ndim, (*lhs_contract, *lhs_batch)) if a < ragged)
    else:
        outer = lhs_contract[: lhs_contract.index(ragged)]
    groups = y.shape[group_axes[0]] if free else sizes.shape[-1]
    if group_offset is None and sizes.shape[-1] != groups:
        raise fail(
            f"A ragged contraction needs a size for each group, got {sizes.shape[-1]} group sizes for {groups} groups.",
            received=f"rhs {y.short()}",
        )
    chosen = in_group(x, group_sizes, (*lhs_batch, *outer), ragged, groups, group_offset)
    shape = (groups, *x.shape)
    repeated = broadcast_in_dim(lhs, shape=shape, broadcast_dimensions=tuple(range(1, len(shape))))
    zeros = broadcast_in_dim(np.zeros((), x.dtype), shape=shape, broadcast_dimensions=())
    masked = select_n(chosen, zeros, repeated)
    contract, batch = tuple(a + 1 for a in lhs_contract), tuple(a + 1 for a in lhs_batch)
    if free:
        return product(masked, (((0, *contract), (group_axes[0], *rhs_contract)), (batch, rhs_batch)))
    return move_axis(product(masked, ((contract, rhs_contract), (batch, rhs_batch))), len(batch), 0)


def check_ragged(
    x: ArrayType,
    y: ArrayType,
    sizes: ArrayType,
    ragged_axes: Sequence[int],
    group_axes: Sequence[int],
    free: bool,
) -> None:
    """Raise an error unless there are one ragged dimension, its group dimension and integer group sizes.

    rhs has one group dimension if the ragged dimension is free, and none otherwise.
    """
    if len(ragged_axes) != 1 or not 0 <= ragged_axes[0] < x.ndim:
        raise fail(f"A ragged contraction needs one ragged dimension of lhs {x.short()}, got {ragged_axes}.")
    if len(group_axes) != int(free):
        raise fail(
            f"A ragged contraction got group dimensions {group_axes} of rhs for the ragged dimension {ragged_axes[0]} "
            "of lhs.",
            received=f"lhs {x.short()} and rhs {y.short()}",
            fix="one group dimension where the ragged dimension is free, none where it is contracting or batch",
        )
    if dtypes.kind(sizes.dtype) not in "iu" or not sizes.ndim:
        raise fail(f"A ragged contraction needs integer group_sizes with one size a group, got {sizes.short()}.")


def in_group(x: ArrayType, sizes: Any, outer: tuple[int, ...], ragged: int, groups: Any, offset: Any) -> Any:
    """Return a mask, for each group and element of `x`: whether its index along `ragged` lies in the group."""
    shape = (groups, *x.shape)
    if not hasattr(sizes, "aval"):
        sizes = conversion.canonical_array(sizes)
    ends = cumsum(sizes, axis=len(sizes.shape) - 1, reverse=False)
    starts = sub(ends, sizes)
    rank = len(ends.shape)
    if rank not in (1, len(outer) + 1) or (rank > 1 and ends.shape[:-1] != tuple(x.shape[a] for a in outer)):
        raise fail(
            f"A ragged contraction got group_sizes of shape {ends.shape}.",
            fix=f"give shape ({groups},), or a row of sizes for each index along dimensions {outer} of lhs {x.short()}",
        )

    def broadcast_edges(edges: Any) -> Any:
        if offset is not None:
            first = reshape(offset, new_sizes=(), dimensions=None)
            before = [np.zeros((), first.dtype)] * (rank - 1)
            edges = dynamic_slice(edges, *before, first, slice_sizes=(*edges.shape[:-1], groups))
        edges = move_axis(edges, rank - 1, 0)
        axes = (0, *(a + 1 for a in outer)) if rank > 1 else (0,)
        # broadcast_in_dim takes axes in increasing order; batch dimensions may come in any.
        order = sorted(range(len(axes)), key=axes.__getitem__)
        edges = transpose(edges, permutation=tuple(order))
        return broadcast_in_dim(edges, shape=shape, broadcast_dimensions=tuple(sorted(axes)))

    position = iota(dtype=starts.dtype, shape=shape, dimension=ragged + 1)
    return and_(ge(position, broadcast_edges(starts)), lt(position, broadcast_edges(ends)))
