"""Building blocks of the rules of matrix factorisations: products, triangles, gaps, batches of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.ir.fusing import UNFUSED, Machine, Properties, element_count, hero
from weft.ir.primitive import Axis, Primitive
from weft.ir.types import ArrayType
from weft.primitives.contraction.contract import dot_general
from weft.primitives.contraction.precision import Precision
from weft.primitives.elementwise.arithmetic import add, div, mul, sub
from weft.primitives.elementwise.compare import eq, ge
from weft.primitives.elementwise.complex import conj, real
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.scalar import is_complex
from weft.primitives.elementwise.select import select_n
from weft.primitives.families import fail
from weft.primitives.movement.gather import GatherDimensionNumbers, GatherScatterMode, gather
from weft.primitives.movement.iota import iota
from weft.primitives.movement.pad import pad
from weft.primitives.movement.shape import broadcast_in_dim, move_batch_to_front, reshape, transpose
from weft.primitives.movement.slicing import slice as slice_
from weft.sharding.factors import AxisFactors

EXACT = (Precision.HIGHEST, Precision.HIGHEST)
# Batches of at least this many matrices are computed side by side in lanes.
MANY = 8
_IN_LANES = hero("matrices", materialized=None)
MATRIX_DTYPES = frozenset(np.dtype(d) for d in (np.float32, np.float64, np.complex64, np.complex128))


class MatrixFunction(Primitive):
    """Operation on the last dimensions of its operands; leading ones are a batch that all operands and results
    share."""

    # Whether kernels compute a large batch of small matrices, one in each lane.
    in_lanes: ClassVar[bool] = False

    # How many trailing dimensions of each operand belong to the function itself.
    core: ClassVar[tuple[int, ...]] = (2,)
    ulp = {"": 64.0}

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        out = self(*(move_batch_to_front(x, d, axis) for x, d in zip(args, dims, strict=True)), **params)
        return (out, [0] * len(out)) if self.multiple_results else (out, 0)

    def fusion(self, equation: Any, target: Machine) -> Properties:
        if not self.in_lanes:
            return UNFUSED
        x = equation.invars[0].aval
        known = all(type(d) is int for a in equation.invars for d in a.aval.shape)
        filled = all(element_count(v.aval.shape) for v in equation.outvars)
        if not known or not filled or x.dtype not in target.libraries.lane_matrix_dtypes:
            return UNFUSED
        *lead, rows, columns = x.shape
        small = 0 < max(rows, columns) <= target.fusion.lane_matrix
        return _IN_LANES if small and element_count(lead) >= target.libraries.lane_matrix_batch else UNFUSED

    def factors(self, *types: ArrayType, **params: Any) -> AxisFactors:
        out_types = self.type(*types, **params)
        results = out_types if self.multiple_results else [out_types]
        batch = tuple(f"b{i}" for i in range(types[0].ndim - self.core[0]))

        def names(t: ArrayType) -> tuple[str | None, ...]:
            return (*batch, *(None,) * (t.ndim - len(batch)))

        operands, outs = tuple(names(t) for t in types), tuple(names(t) for t in results)
        return AxisFactors(operands, outs, reason="a matrix is factorized on one device")


# -------------------------------------------------------------------------------------------------------------- checks


def check_matrix(name: str, x: ArrayType, square: bool = False) -> None:
    """Raise unless the operand is a matrix or a batch of matrices in a dtype that LAPACK supports."""
    if x.dtype not in MATRIX_DTYPES:
        raise ArgumentTypeError(
            f"{name} does not accept dtype {dtypes.name(x.dtype)}; it takes float32, float64, "
            "complex64 and complex128 arrays. Convert with x.astype(weft.numpy.float32)."
        )
    if x.ndim < 2:
        raise fail(
            f"{name} needs a matrix or a batch of matrices, got shape {x.shape}.",
            fix="give an operand of rank 2 or more",
        )
    if square and x.shape[-1] != x.shape[-2]:
        raise fail(
            f"{name} needs square matrices, got shape {x.shape}.",
            received=x.short(),
            fix="the last two dimensions must be equal",
        )


def real_dtype(dtype: Any) -> Any:
    """Return the dtype of the parts of a (perhaps complex) number."""
    return dtypes.to_real_dtype(dtype) if dtypes.kind(dtype) == "c" else dtype


# ------------------------------------------------------------------------------------------------------ linear algebra


def scalar(value: Any, like: Any) -> np.ndarray:
    """Return a rank-0 constant in the dtype of `like`."""
    return np.asarray(value, like.dtype)


def matmul(x: Any, y: Any) -> Any:
    """Multiply matrices that share their leading dimensions."""
    rank = len(x.shape)
    batch = tuple(range(rank - 2))
    return dot_general(
        x,
        y,
        dimension_numbers=(((rank - 1,), (rank - 2,)), (batch, batch)),
        precision=EXACT,
        preferred_element_type=None,
    )


def flip(x: Any) -> Any:
    """Transpose matrices."""
    rank = len(x.shape)
    return transpose(x, permutation=(*range(rank - 2), rank - 1, rank - 2))


def conjugate(x: Any) -> Any:
    """Return the complex conjugate; real arrays are returned unchanged."""
    return conj(x, input_dtype=x.dtype) if is_complex(x) else x


def adjoint(x: Any) -> Any:
    """Return the conjugate transpose of matrices."""
    return conjugate(flip(x))


def real_part(x: Any) -> Any:
    return real(x) if is_complex(x) else x


def as_dtype(x: Any, dtype: Any) -> Any:
    """Convert `x` to another dtype, such as real numbers to complex ones."""
    return x if x.dtype == dtype else convert_element_type(x, new_dtype=dtype, weak_type=False)


def zeros_like(x: Any) -> Any:
    return broadcast_in_dim(scalar(0, x), shape=x.shape, broadcast_dimensions=())


def rows_and_columns(shape: Sequence[Any]) -> tuple[Any, Any]:
    """Return the row and the column index of every element of matrices of this shape."""
    rank, int32 = len(shape), np.dtype(np.int32)
    shape = tuple(shape)
    return iota(dtype=int32, shape=shape, dimension=rank - 2), iota(dtype=int32, shape=shape, dimension=rank - 1)


def on_diagonal(shape: Sequence[Any]) -> Any:
    """Return a mask of the diagonal."""
    return eq(*rows_and_columns(shape))


def triangle(x: Any, lower: bool, offset: int = 0) -> Any:
    """Return the elements on and below (above) the diagonal at `offset`; zeros elsewhere."""
    rows, columns = rows_and_columns(x.shape)
    if offset:
        rows = add(rows, np.asarray(offset, np.int32))
    inside = ge(rows, columns) if lower else ge(columns, rows)
    return select_n(inside, zeros_like(x), x)


def resize(x: Any, rows: Any, columns: Any) -> Any:
    """Cut matrices, or pad them with zeros, at their ends."""
    rank, have = len(x.shape), x.shape[-2:]
    if have == (rows, columns):
        return x
    config = ((0, 0, 0),) * (rank - 2) + ((0, rows - have[0], 0), (0, columns - have[1], 0))
    return pad(x, scalar(0, x), padding_config=config)


def part(x: Any, bounds: tuple[int, int], axis: int) -> Any:
    """Return the elements from bounds[0] up to bounds[1] along an axis, which is negative."""
    axis += len(x.shape)
    if bounds == (0, x.shape[axis]):
        return x
    start, limit = [0] * len(x.shape), list(x.shape)
    start[axis], limit[axis] = bounds
    return slice_(x, start_indices=tuple(start), limit_indices=tuple(limit), strides=None)


def take_rows(x: Any, order: Any) -> Any:
    """Reorder the rows of each matrix by the vector of indices that belongs to it."""
    if 0 in x.shape:
        return x
    lead = len(x.shape) - 2
    batch = tuple(range(lead))
    dnums = GatherDimensionNumbers(
        offset_dims=(lead + 1,),
        collapsed_slice_dims=(lead,),
        start_index_map=(lead,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    return gather(
        x,
        reshape(order, new_sizes=(*order.shape, 1), dimensions=None),
        dimension_numbers=dnums,
        slice_sizes=(1,) * (lead + 1) + (x.shape[-1],),
        indices_are_sorted=False,
        unique_indices=True,
        mode=GatherScatterMode.PROMISE_IN_BOUNDS,
        fill_value=None,
    )


def identity_like(x: Any) -> Any:
    """Return identity matrices in the shape and dtype of `x`."""
    return convert_element_type(on_diagonal(x.shape), new_dtype=x.dtype, weak_type=False)


def diagonal(x: Any, offset: int = 0) -> Any:
    """Return the diagonals at `offset` of matrices, as vectors."""
    *lead, rows, columns = x.shape
    start = offset if offset >= 0 else -offset * columns
    count = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    if count <= 0:
        return broadcast_in_dim(scalar(0, x), shape=(*lead, 0), broadcast_dimensions=())
    flat = reshape(x, new_sizes=(*lead, rows * columns), dimensions=None)
    limit = start + (count - 1) * (columns + 1) + 1
    none, all_of = (0,) * len(lead), tuple(lead)
    strides = (1,) * len(lead) + (columns + 1,)
    return slice_(flat, start_indices=(*none, start), limit_indices=(*all_of, limit), strides=strides)


def only_diagonal(x: Any) -> Any:
    """Return the matrices with zeros off the diagonal."""
    return select_n(on_diagonal(x.shape), zeros_like(x), x)


def as_rows(vector: Any, shape: Sequence[Any]) -> Any:
    """Broadcast vectors to matrices of `shape` with the vector in every row: element [i, j] is vector[j]."""
    rank = len(shape)
    return broadcast_in_dim(vector, shape=tuple(shape), broadcast_dimensions=(*range(rank - 2), rank - 1))


def as_columns(vector: Any, shape: Sequence[Any]) -> Any:
    """Broadcast vectors to matrices of `shape` with the vector in every column: element [i, j] is vector[i]."""
    rank = len(shape)
    return broadcast_in_dim(vector, shape=tuple(shape), broadcast_dimensions=tuple(range(rank - 1)))


def safe_reciprocal(x: Any) -> Any:
    """Return 1/x, and zero where x is zero."""
    zero = eq(x, scalar(0, x))
    ones = broadcast_in_dim(scalar(1, x), shape=x.shape, broadcast_dimensions=())
    return select_n(zero, div(ones, select_n(zero, x, ones)), zeros_like(x))


def inverse_gaps(values: Any, shape: Sequence[Any]) -> Any:
    """Return the matrix 1/(values[j] - values[i]), with zeros on the diagonal.

    Equal values yield infinity, and so NaN in the derivative of vectors, which does not exist: a finite number would
    be wrong for functions of the matrix that do have a derivative.
    """
    gaps = sub(as_rows(values, shape), as_columns(values, shape))
    same = on_diagonal(shape)
    ones = broadcast_in_dim(scalar(1, gaps), shape=gaps.shape, broadcast_dimensions=())
    return select_n(same, div(ones, select_n(same, gaps, ones)), zeros_like(gaps))


def hermitian_from(x: Any, lower: bool) -> Any:
    """Return the Hermitian matrices that one triangle of `x` describes: the meaning of `x` to LAPACK, which reads only
    that triangle."""
    strict = triangle(x, lower, -1 if lower else 1)
    middle = only_diagonal(x)
    if is_complex(x):
        middle = as_dtype(real_part(middle), x.dtype)
    return add(add(strict, adjoint(strict)), middle)


def hermitian_part(x: Any) -> Any:
    """Return the mean of the matrices and their conjugate transposes."""
    return div(add(x, adjoint(x)), scalar(2, x))


def scale(x: Any, factor: float) -> Any:
    return mul(x, scalar(factor, x))


# ---------------------------------------------------------------------------------------------------------- evaluation


def each(
    function: Callable[..., Any], arrays: Sequence[np.ndarray], core: Sequence[int], outs: Sequence[np.ndarray]
) -> None:
    """Apply a function to each matrix of a batch and store its results in `outs`, which are contiguous; NaN where
    LAPACK fails."""
    assert all(o.flags.c_contiguous for o in outs), "views of the results would be copies"
    lead = arrays[0].shape[: arrays[0].ndim - core[0]]
    count = math.prod(lead)
    flat = [a.reshape(count, *a.shape[len(lead) :]) for a in arrays]
    stores = [o.reshape(count, *o.shape[len(lead) :]) for o in outs]
    for i in range(count):
        try:
            results = function(*(a[i] for a in flat))
        except np.linalg.LinAlgError:
            results = [np.nan if o.dtype.kind in "fc" else 0 for o in outs]
        for store, value in zip(stores, results, strict=True):
            store[i] = value


def empty_results(types: Any) -> list[np.ndarray]:
    """Allocate arrays for results of these types."""
    return [np.empty(t.shape, t.dtype) for t in types]


def with_failures(function: Callable[..., Any], x: np.ndarray, types: Sequence[ArrayType]) -> list[np.ndarray]:
    """Apply a batched NumPy function; if it fails for one matrix of the batch, only the results of that matrix are
    NaN."""
    try:
        results = function(x)
    except np.linalg.LinAlgError:
        results = empty_results(types)
        each(function, [x], (2,), results)
    return [np.asarray(r).astype(t.dtype, copy=False) for r, t in zip(results, types, strict=True)]
