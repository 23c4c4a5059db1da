"""Diagonals and triangles of matrices, and indices into grids."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.numpy.argument_docs import document
from weft.numpy.creation import asarray, convert_dtype, full_array, put_array
from weft.numpy.elementwise import remainder
from weft.numpy.extremes import clip
from weft.numpy.manipulation import broadcast_arrays, ravel
from weft.numpy.reductions import sum as reduce_sum
from weft.numpy.selection import nonzero, where
from weft.numpy.util import (
    as_shape,
    canonical_dtype,
    canonicalize_axis,
    cast,
    check_arraylike,
    check_no_out,
    dtype_kind,
    ensure_array,
    expand_to,
    is_concrete,
    is_eager,
    promote_dtypes,
)
from weft.runtime.array import from_numpy
from weft.trace.annotations import ArrayLike, DTypeLike, Shape
from weft.trace.array import Array
from weft.trace.tracer import Tracer


def _known_offset(k: Any) -> int | None:
    return index(k if isinstance(k, int) else np.asarray(k)[()]) if is_concrete(k) else None


def _compare_indices(name: str, rows: Any, columns: Any, k: Any, compare: Callable[[Any, Any], Any]) -> Array:
    """Compare, for each element of a matrix, its row index plus `k` with its column index."""
    n, m = as_shape((rows, rows if columns is None else columns), name)
    dtype = dtypes.int32
    down, across = (lax.broadcasted_iota(dtype, (n, m), axis) for axis in (0, 1))
    return compare(lax.add(down, cast(k, dtype)) if not (isinstance(k, int) and k == 0) else down, across)


def eye(N: int, M: int | None = None, k: ArrayLike = 0, dtype: DTypeLike | None = None, *, device: Any = None) -> Array:
    """Create a matrix with ones on the `k`-th diagonal and zeros elsewhere.

    Args:
        N: the number of rows.
        M: the number of columns; `N` by default.
        k: which diagonal: 0 is the main one, positive ones are above it.
        dtype: the dtype; the default float if none is given.
        device: a device or sharding to put the result on; by default where its operands are.

    Returns:
        A matrix.

    >>> import weft.numpy as wnp
    >>> wnp.eye(2, 3, k=1)
    Array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    out_dtype = canonical_dtype(float if dtype is None else dtype, "eye")
    offset = _known_offset(k)
    if is_eager() and offset is not None and isinstance(N, int) and (M is None or isinstance(M, int)):
        n, m = as_shape((N, N if M is None else M), "eye")
        return put_array(from_numpy(np.eye(n, m, offset, dtype=bool).astype(out_dtype), copy=False), device)
    return put_array(convert_dtype(_compare_indices("eye", N, M, k, lax.eq), out_dtype), device)


@document("A matrix.", n="the number of rows and columns.", dtype="the dtype; the default float if none is given.")
def identity(n: int, dtype: DTypeLike | None = None) -> Array:
    """Create a square identity matrix.

    >>> import weft.numpy as wnp
    >>> wnp.identity(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: ArrayLike = 0, dtype: DTypeLike | None = None) -> Array:
    """Create a matrix with ones on and below the `k`-th diagonal, zeros above."""
    out_dtype = canonical_dtype(np.float32 if dtype is None else dtype, "tri")
    offset = _known_offset(k)
    if is_eager() and offset is not None and isinstance(N, int) and (M is None or isinstance(M, int)):
        n, m = as_shape((N, N if M is None else M), "tri")
        return from_numpy(np.tri(n, m, offset, dtype=bool).astype(out_dtype), copy=False)
    return convert_dtype(_compare_indices("tri", N, M, k, lax.ge), out_dtype)


@document("An array of the same shape.", m="an array with at least two axes.")
def tril(m: ArrayLike, k: ArrayLike = 0) -> Array:
    """Zero the elements above the `k`-th diagonal of matrices.

    >>> import weft.numpy as wnp
    >>> wnp.tril(wnp.ones((2, 2)))
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    m = _matrices("tril", m)
    return where(_below(m, k), m, cast(0, m.dtype, m.weak_type))


@document("An array of the same shape.", m="an array with at least two axes.")
def triu(m: ArrayLike, k: ArrayLike = 0) -> Array:
    """Zero the elements below the `k`-th diagonal of matrices.

    >>> import weft.numpy as wnp
    >>> wnp.triu(wnp.ones((2, 2)))
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    m = _matrices("triu", m)
    below = k - 1 if isinstance(k, int) else ensure_array(k) - 1
    return where(_below(m, below), cast(0, m.dtype, m.weak_type), m)


def _below(m: Array, k: Any) -> Array:
    """Return a mask of the elements on or below the `k`-th diagonal."""
    return expand_to(tri(m.shape[-2], m.shape[-1], k, bool), m.shape)


def _matrices(name: str, m: Any) -> Array:
    check_arraylike(name, m)
    m = ensure_array(m)
    if m.ndim < 2:
        raise ArgumentError(f"Argument to weft.numpy.{name} must be at least 2D, got shape {m.shape}.")
    return m


@document("A matrix or a vector.", v="a vector or a matrix.")
def diag(v: ArrayLike, k: int = 0) -> Array:
    """Create a matrix with a vector on its `k`-th diagonal; for a matrix, return that diagonal.

    >>> import weft.numpy as wnp
    >>> wnp.diag(wnp.array([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    check_arraylike("diag", v)
    v, k = ensure_array(v), index(k)
    if v.ndim == 1:
        size = v.shape[0] + abs(k)
        zero = cast(0, v.dtype, v.weak_type)
        line = lax.pad(v, zero, [(max(-k, 0), max(k, 0), 0)])
        rows = lax.broadcast_in_dim(line, (size, size), (0,))
        return where(eye(size, k=k, dtype=bool), rows, zero)
    if v.ndim == 2:
        return diagonal(v, k)
    raise ArgumentError(f"diag takes arrays of rank 1 or 2, got shape {v.shape}.")


def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """Create a matrix with the flattened elements of an array on its `k`-th diagonal."""
    return diag(ravel(v), k)


def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return the diagonals of the matrices along two axes, as the last axis.

    Args:
        a: an array with at least two axes.
        offset: which diagonal: 0 is the main one, positive ones are above it.
        axis1, axis2: the axes of the matrices.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> wnp.diagonal(wnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    check_arraylike("diagonal", a)
    a = ensure_array(a)
    if a.ndim < 2:
        raise ArgumentError(f"diagonal requires an array of at least two dimensions, got shape {a.shape}.")
    first, second = (canonicalize_axis(x, a.ndim, "diagonal") for x in (axis1, axis2))
    if first == second:
        raise ArgumentError(f"axis1 and axis2 cannot be the same: diagonal got {axis1} and {axis2}.")
    offset = index(offset)
    rest = tuple(i for i in range(a.ndim) if i not in (first, second))
    moved = lax.transpose(a, (*rest, first, second))
    rows, columns = moved.shape[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    line = lax.iota(dtypes.default_int_dtype(), count)
    down, across = (line + max(-offset, 0) if offset < 0 else line), (line + offset if offset > 0 else line)
    return moved.at[(..., down, across)].get(mode="promise_in_bounds")


def trace(
    a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None, out: Any = None
) -> Array:
    """Sum a diagonal of the matrices along two axes.

    Args:
        a: an array with at least two axes.
        offset: which diagonal: 0 is the main one, positive ones are above it.
        axis1, axis2: the axes of the matrices.
        dtype: the dtype to compute in and of the result.
        out: must be None: arrays do not change, so nothing can be written into one.

    Returns:
        An array without the two axes.

    >>> import weft.numpy as wnp
    >>> wnp.trace(wnp.array([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    check_no_out("trace", out)
    return reduce_sum(diagonal(a, offset, axis1, axis2), -1, dtype=dtype)


# ------------------------------------------------------------------------------------------ indices of matrices


@document("A pair of integer vectors.", n="the number of rows.", m="the number of columns; `n` by default.")
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Return the row and column indices on and below a diagonal.

    >>> import weft.numpy as wnp
    >>> wnp.ones((2, 2)).at[wnp.tril_indices(2)].set(0)
    Array([[0., 1.],
           [0., 0.]], dtype=float32)
    """
    return _positions(np.tril_indices(n, k, m))


@document(
    "A pair of integer vectors.",
    "wnp.triu_indices(2) -> (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))",
    n="the number of rows.",
    m="the number of columns; `n` by default.",
)
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Return the row and column indices on and above a diagonal."""
    return _positions(np.triu_indices(n, k, m))


def _positions(found: Any) -> Any:
    return tuple(from_numpy(x.astype(dtypes.default_int_dtype()), copy=False) for x in found)


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Array, Array]:
    """Return the row and column indices on and below a diagonal of a matrix."""
    return tril_indices(*_two("tril_indices_from", arr, k))


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Array, Array]:
    """Return the row and column indices on and above a diagonal of a matrix."""
    return triu_indices(*_two("triu_indices_from", arr, k))


def _two(name: str, arr: Any, k: int) -> tuple[int, int, int]:
    shape = np.shape(arr) if not hasattr(arr, "shape") else arr.shape
    if len(shape) != 2:
        raise ArgumentError(f"Only 2-D inputs are accepted by {name}, got shape {shape}.")
    return shape[0], k, shape[1]


@document("A tuple of equal integer vectors.", n="the size of each axis.", ndim="the number of axes.")
def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """Return the indices of the main diagonal of an array with equal sizes, one array for each axis.

    >>> import weft.numpy as wnp
    >>> wnp.zeros((2, 2)).at[wnp.diag_indices(2)].set(1)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    n, ndim = index(n), index(ndim)
    if n < 0 or ndim < 0:
        raise ArgumentError(f"diag_indices takes sizes and ranks of at least 0, got {n} and {ndim}.")
    return (lax.iota(dtypes.default_int_dtype(), n),) * ndim


def diag_indices_from(arr: Any) -> tuple[Array, ...]:
    """Return the indices of the main diagonal of an array, one array for each axis."""
    check_arraylike("diag_indices_from", arr)
    shape = ensure_array(arr).shape
    if len(shape) < 2 or len(set(shape)) > 1:
        raise ArgumentError(f"All dimensions of input must be of equal length, and at least two, got {shape}.")
    return diag_indices(shape[0], len(shape))


def mask_indices(n: int, mask_func: Callable[..., Any], k: Any = 0, *, size: int | None = None) -> tuple[Array, ...]:
    """Return the indices of elements that a function such as `triu` leaves nonzero in a matrix of ones."""
    return nonzero(mask_func(full_array((n, n), 1, dtypes.default_int_dtype()), k), size=size)


def ix_(*args: Any) -> tuple[Array, ...]:
    """Create index arrays that select the grid of all combinations of the given indices."""
    check_arraylike("ix_", *args)
    indexes = []
    for axis, a in enumerate(args):
        a = ensure_array(a)
        if a.ndim != 1:
            raise ArgumentError(f"Arguments to weft.numpy.ix_ must be 1-dimensional, got shape {a.shape}.")
        if dtype_kind(a) == "b":
            (a,) = nonzero(a)
        if not a.size:
            a = convert_dtype(a, dtypes.default_int_dtype())
        indexes.append(lax.reshape(a, tuple(a.shape[0] if i == axis else 1 for i in range(len(args)))))
    return tuple(indexes)


@document(
    "A tuple with an array for each axis.",
    "wnp.unravel_index(wnp.array([0, 5]), (2, 3)) -> (Array([0, 1], dtype=int32), Array([0, 2], dtype=int32))",
    indices="integers.",
    shape="the sizes of the axes.",
)
def unravel_index(indices: ArrayLike, shape: Shape) -> tuple[Array, ...]:
    """Convert indices of the flattened array to indices along each axis of `shape`; those outside are clipped."""
    flat, sizes = asarray(indices), _sizes(shape)
    if dtype_kind(flat) not in "iu":
        raise ArgumentTypeError(f"unravel_index takes integers, got {flat.aval.short()}.")
    dtype, weak = flat.dtype, flat.weak_type
    if dtype.itemsize < 4:  # the number of elements may not fit
        flat = convert_dtype(flat, dtypes.default_int_dtype())
    total = math.prod(sizes)
    flat = where(flat < 0, flat + total, flat)
    flat = clip(flat, 0, clip(total - 1, 0))
    parts = []
    for size in reversed(sizes):
        size = clip(size, 1)
        parts.append(remainder(flat, size))
        flat = flat // size
    return tuple(cast(part, dtype, weak) for part in parts[::-1])


def _sizes(shape: Any) -> tuple[Any, ...]:
    """Return the sizes of a shape that is only computed with, so that they may be traced."""
    if isinstance(shape, Tracer):
        return tuple(shape) if shape.ndim else (shape,)
    if isinstance(shape, (list, tuple)) and any(isinstance(size, Tracer) for size in shape):
        return tuple(shape)
    return as_shape(shape, "unravel_index")


def _flat_dtype(parts: Sequence[Any], sizes: Sequence[int], dtype: Any) -> Any:
    """Return the dtype of flattened indices: `dtype`, that of `parts`, or the default int where that is too small."""
    if dtype is not None:
        found = canonical_dtype(dtype, "ravel_multi_index")
    elif not parts:
        return dtypes.default_int_dtype()
    else:
        found = dtypes.result_type(*parts)
    last = math.prod(sizes) - 1
    if dtype is None and last > dtypes.iinfo(found).max:
        found = dtypes.default_int_dtype()
    if dtypes.kind(found) in "iu" and last > dtypes.iinfo(found).max:
        raise ArgumentError(
            f"ravel_multi_index: {dtypes.name(found)} is not large enough to hold flattened index for {tuple(sizes)}.",
            received=f"dims with {last + 1} elements; the greatest {dtypes.name(found)} is {dtypes.iinfo(found).max}",
            fix="pass dtype='int64' or 'uint64' with 64-bit types enabled (jax_enable_x64)",
        )
    return found


def ravel_multi_index(
    multi_index: Any, dims: Any, mode: str = "raise", order: str = "C", *, dtype: DTypeLike | None = None
) -> Array:
    """Convert indices along each axis to indices of the flattened array.

    `mode`, for all axes or one for each, is the treatment of indices out of bounds: 'raise', 'wrap', 'clip', or
    'ignore' to compute with them unchanged.
    """
    sizes = as_shape(dims, "ravel_multi_index")
    parts = [ensure_array(x) if not isinstance(x, (list, tuple)) else asarray(x) for x in multi_index]
    if len(parts) != len(sizes):
        raise ArgumentError(f"ravel_multi_index needs a position for each of {len(sizes)} axes, got {len(parts)}.")
    modes = [mode] * len(sizes) if isinstance(mode, str) else list(mode)
    for part in parts:
        if dtype_kind(part) not in "iu":
            raise ArgumentTypeError(f"only int indices permitted: ravel_multi_index got {part.aval.short()}.")
    out_dtype = _flat_dtype(parts, sizes, dtype)
    coordinates = []
    for part, size, way in zip(broadcast_arrays(*parts), sizes, modes, strict=True):
        part = convert_dtype(part, out_dtype)
        if way == "wrap":
            part = remainder(part, size)
        elif way == "clip":
            part = clip(part, 0, size - 1)
        elif way == "raise":
            if is_concrete(part) and ((np.asarray(part) < 0) | (np.asarray(part) >= size)).any():
                raise ArgumentError(f"invalid entry in coordinates array: a position outside of {size}.")
            if not is_concrete(part):
                raise ArgumentError("ravel_multi_index cannot raise for traced positions: use mode='wrap' or 'clip'.")
        elif way != "ignore":
            raise ArgumentError(f"ravel_multi_index takes mode 'raise', 'wrap', 'clip' or 'ignore', got {way!r}.")
        coordinates.append(part)
    if order not in ("C", "F"):
        raise ArgumentError(f"ravel_multi_index takes order 'C' or 'F', got {order!r}.")
    pairs = list(zip(coordinates, sizes, strict=True))
    out: Any = cast(0, out_dtype)
    for part, size in pairs if order == "C" else pairs[::-1]:
        out = out * size + part
    return ensure_array(out)


def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """Create the matrix whose columns are powers of a vector, descending unless `increasing`."""
    check_arraylike("vander", x)
    x = ensure_array(x)
    if x.ndim != 1:
        raise ArgumentError(f"x must be a one-dimensional array, got shape {x.shape}.")
    count = x.shape[0] if N is None else index(N)
    if count < 0:
        raise ArgumentError(f"vander takes a number of columns of at least 0, got {count}.")
    (x,) = promote_dtypes(x) if dtype_kind(x) != "b" else (convert_dtype(x, dtypes.default_int_dtype()),)
    if not count:
        return full_array((x.shape[0], 0), 0, x.dtype)
    columns = [lax.expand_dims(lax.integer_pow(x, power), (1,)) for power in range(count)]
    return lax.concatenate(columns if increasing else columns[::-1], 1)
