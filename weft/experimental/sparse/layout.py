"""Operations on BCOO arrays that move elements: layouts, shapes, slices."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import lax
from weft.api.vectorize import vmap
from weft.base.errors import ArgumentError
from weft.base.source import user_stacklevel
from weft.experimental.sparse.base import SparseEfficiencyError, SparseEfficiencyWarning, check_sparse
from weft.experimental.sparse.bcoo import BCOO, bcoo_sum_duplicates, outside, split_shape, storage_size, vmap_batches
from weft.lax import GatherDimensionNumbers
from weft.numpy.util import combining_ranks


@combining_ranks
def bcoo_update_layout(
    mat: BCOO, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
) -> BCOO:
    """Change the numbers of batch and dense dimensions.

    Args:
        mat: a BCOO.
        n_batch, n_dense: the numbering of batch and dense dimensions, by default those that `mat` has.
        on_inefficient: what to do if more elements are stored afterwards: "error", "warn", or None for nothing. Sparse
            dimensions that become batch or dense ones need room for all elements along them.
    """
    check_sparse("bcoo_update_layout", mat, BCOO)
    n_batch = mat.n_batch if n_batch is None else n_batch
    n_dense = mat.n_dense if n_dense is None else n_dense
    split_shape(mat.shape, n_batch, n_dense)
    if on_inefficient not in ("error", "warn", None):
        raise ArgumentError(
            "on_inefficient must be 'error', 'warn' or None.", received=f"{on_inefficient!r}", fix="on_inefficient=None"
        )
    before = storage_size(mat)
    found = mat
    if n_dense < found.n_dense:
        found = _dense_to_sparse(found, found.n_dense - n_dense)
    if n_batch < found.n_batch:
        found = _batch_to_sparse(found, found.n_batch - n_batch)
    more_batch, more_dense = n_batch - found.n_batch, n_dense - found.n_dense
    sizes = found.sparse_shape
    factor = math.prod(sizes[:more_batch]) * math.prod(sizes[len(sizes) - more_dense :])
    if (more_batch or more_dense) and factor * storage_size(found) > before:
        what = f"The layout n_batch={n_batch}, n_dense={n_dense} of {mat!r} stores {factor} times as many elements."
        if on_inefficient == "error":
            raise SparseEfficiencyError(what, fix="on_inefficient=None   if it is meant")
        if on_inefficient == "warn":
            warnings.warn(what, SparseEfficiencyWarning, stacklevel=user_stacklevel())
    if more_dense:
        found = _sparse_to_dense(found, more_dense)
    return _sparse_to_batch(found, more_batch) if more_batch else found


BCOO.update_layout = bcoo_update_layout


def _batch_to_sparse(mat: BCOO, count: int) -> BCOO:
    """Turn the last `count` batch dimensions into sparse ones: positions become coordinates."""
    data, indices = mat.full
    n = mat.n_batch - count
    sizes = mat.shape[n : mat.n_batch]
    position = [lax.broadcasted_iota(indices.dtype, indices.shape[:-1], n + i) for i in range(count)]
    indices = wnp.concatenate([*(p[..., None] for p in position), indices], axis=-1)
    nse = math.prod(sizes) * mat.nse
    return BCOO(
        (
            data.reshape(*data.shape[:n], nse, *mat.dense_shape),
            indices.reshape(*indices.shape[:n], nse, count + mat.n_sparse),
        ),
        shape=mat.shape,
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


def _dense_to_sparse(mat: BCOO, count: int) -> BCOO:
    """Turn the first `count` dense dimensions into sparse ones: positions become coordinates."""
    n = mat.n_batch
    sizes = mat.dense_shape[:count]
    shape = (*mat.indices.shape[:-1], *sizes)
    old = wnp.broadcast_to(
        mat.indices.reshape(*mat.indices.shape[:-1], *[1] * count, mat.n_sparse), (*shape, mat.n_sparse)
    )
    new = [lax.broadcasted_iota(mat.indices.dtype, shape, n + 1 + i)[..., None] for i in range(count)]
    nse = mat.nse * math.prod(sizes)
    indices = wnp.concatenate([old, *new], axis=-1).reshape(*shape[:n], nse, mat.n_sparse + count)
    data = mat.data.reshape(*mat.data.shape[:n], nse, *mat.dense_shape[count:])
    return BCOO((data, indices), shape=mat.shape, indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)


def _sparse_to_batch(mat: BCOO, count: int) -> BCOO:
    """Turn the first `count` sparse dimensions into batch ones: each batch has room for all elements."""
    data, indices = mat.full
    sizes, own = mat.sparse_shape[:count], mat.sparse_shape[count:]

    def one(data: Any, indices: Any) -> Any:
        position = wnp.stack(wnp.meshgrid(*(wnp.arange(n, dtype=indices.dtype) for n in sizes), indexing="ij"), axis=-1)
        here = (indices[:, :count] == position[..., None, :]).all(-1)  # (*sizes, nse)
        limit = wnp.array(own, indices.dtype)
        hidden = here.reshape(*here.shape, *[1] * (data.ndim - 1))
        rest = wnp.where(here[..., None], indices[:, count:], limit)
        return wnp.where(hidden, data, wnp.zeros((), data.dtype)), rest

    data, indices = vmap_batches(one, mat.n_batch)(data, indices)
    return BCOO((data, indices), shape=mat.shape)


def _sparse_to_dense(mat: BCOO, count: int) -> BCOO:
    """Turn the last `count` sparse dimensions into dense ones: each element is surrounded by zeros."""
    data, indices = mat.full
    left = mat.n_sparse - count
    sizes = mat.sparse_shape[left:]

    def one(data: Any, indices: Any) -> Any:
        index = tuple(indices[:, left + i] for i in range(count))
        zeros = wnp.zeros((data.shape[0], *sizes, *data.shape[1:]), data.dtype)
        data = zeros.at[(wnp.arange(data.shape[0]), *index)].set(data, mode="drop", unique_indices=True)
        return data, indices[:, :left]

    data, indices = vmap_batches(one, mat.n_batch)(data, indices)
    return BCOO((data, indices), shape=mat.shape)


# ------------------------------------------------------------------------------------------------------------- shapes


@combining_ranks
def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """Permute dimensions: batch, sparse and dense dimensions each among themselves."""
    check_sparse("bcoo_transpose", mat, BCOO)
    permutation = tuple(p + mat.ndim if p < 0 else p for p in permutation)
    if sorted(permutation) != list(range(mat.ndim)):
        raise ArgumentError(f"bcoo_transpose needs a permutation of {mat.ndim} dimensions.", received=f"{permutation}")
    if permutation == tuple(range(mat.ndim)):
        return mat
    n, last = mat.n_batch, mat.n_batch + mat.n_sparse
    batch, own, dense = permutation[:n], permutation[n:last], permutation[last:]
    if sorted(batch) != list(range(n)) or sorted(dense) != list(range(last, mat.ndim)):
        raise ArgumentError(
            "bcoo_transpose permutes batch, sparse and dense dimensions among themselves only.",
            received=f"permutation={permutation} of {mat!r}",
            fix="mat.update_layout(n_batch=0, n_dense=0) before, which makes all dimensions sparse",
        )
    data, indices = mat.data, mat.indices
    data = wnp.transpose(data, (*batch, n, *(d - last + n + 1 for d in dense)))
    indices = wnp.transpose(indices, (*batch, n, n + 1))
    in_order = own == tuple(sorted(own))
    if not in_order:
        indices = wnp.stack([indices[..., i - n] for i in own], axis=-1)
    return BCOO(
        (data, indices),
        shape=tuple(mat.shape[p] for p in permutation),
        indices_sorted=mat.indices_sorted and in_order,
        unique_indices=mat.unique_indices,
    )


BCOO.permuted = bcoo_transpose


@combining_ranks
def bcoo_broadcast_in_dim(
    mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCOO:
    """Broadcast to a larger shape: dimension i becomes dimension `broadcast_dimensions[i]`, new ones repeat it.

    New dimensions before all sparse ones are batches, those after the first dense one are dense, and others are
    sparse: there the elements are stored once for each position.
    """
    check_sparse("bcoo_broadcast_in_dim", mat, BCOO)
    shape, dims = tuple(shape), tuple(broadcast_dimensions)
    increasing = len(dims) == mat.ndim and all(a < b for a, b in itertools.pairwise(dims))
    fits = increasing and all(d < len(shape) and mat.shape[i] in (1, shape[d]) for i, d in enumerate(dims))
    if not fits or sharding is not None:
        raise ArgumentError(
            "bcoo_broadcast_in_dim: the dimensions of the array do not fit the shape.",
            received=f"{mat!r}, shape={shape}, broadcast_dimensions={dims}, sharding={sharding}",
            fix="increasing broadcast_dimensions, whose sizes are those of the array or of size 1 there",
        )
    n, last = mat.n_batch, mat.n_batch + mat.n_sparse
    first_sparse = dims[n] if mat.n_sparse else (dims[n - 1] + 1 if n else len(shape))
    first_dense = dims[last] if mat.n_dense else len(shape)
    if not mat.n_sparse:
        first_sparse = min(first_sparse, first_dense)
    batch_dims = list(range(first_sparse))
    own_dims = [d for d in range(first_sparse, len(shape)) if d < first_dense]
    dense_dims = [d for d in range(first_sparse, len(shape)) if d >= first_dense]
    where = {d: i for i, d in enumerate(dims)}
    # Batches: buffers have dimensions of size 1 there, which stand for all.
    sizes_of = lambda buffer: [buffer.shape[where[d]] if d in where else 1 for d in batch_dims]
    indices = mat.indices.reshape(*sizes_of(mat.indices), mat.nse, mat.n_sparse)
    dense = [mat.shape[where[d]] if d in where else 1 for d in dense_dims]
    data = mat.data.reshape(*sizes_of(mat.data), mat.nse, *dense)
    data = wnp.broadcast_to(data, (*data.shape[: len(batch_dims) + 1], *(shape[d] for d in dense_dims)))
    padding = outside(indices, mat.sparse_shape)
    # Sparse dimensions: old coordinates, zeros, or one copy of all elements for each position.
    for d in own_dims:
        copies = shape[d] if d not in where or mat.shape[where[d]] != shape[d] else 1
        if copies != 1:
            k = len(batch_dims)
            data = wnp.repeat(data, copies, axis=k)
            indices = wnp.repeat(indices, copies, axis=k)
            padding = wnp.repeat(padding, copies, axis=k)
    parts, step = [], 1
    nse = data.shape[len(batch_dims)]
    for d in reversed(own_dims):
        is_duplicate = d not in where or mat.shape[where[d]] != shape[d]
        if not is_duplicate:
            parts.append(indices[..., where[d] - n])
            continue
        position = (lax.iota(indices.dtype, nse) // step) % shape[d]
        parts.append(wnp.broadcast_to(position, indices.shape[:-1]))
        step *= shape[d]
    if parts:
        limits = wnp.array([shape[d] for d in own_dims], indices.dtype)
        indices = wnp.where(padding[..., None], limits, wnp.stack(parts[::-1], axis=-1))
    sorted_still = mat.indices_sorted and all(d in where and mat.shape[where[d]] == shape[d] for d in own_dims)
    return BCOO(
        (data, indices), shape=shape, indices_sorted=sorted_still, unique_indices=mat.unique_indices and nse > 0
    )


@combining_ranks
def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """Sum over axes, in the dtype of a sum: short integers are widened. Coordinates along summed sparse axes are
    dropped, so indices may be duplicates; the elements of summed batches are concatenated."""
    check_sparse("bcoo_reduce_sum", mat, BCOO)
    wide = mat.data.astype(wnp.sum(wnp.zeros(0, mat.dtype)).dtype)
    return reduce_in_dtype(BCOO((wide, mat.indices), shape=mat.shape), axes)


def reduce_in_dtype(mat: BCOO, axes: Sequence[int]) -> BCOO:
    """Apply `bcoo_reduce_sum` in the dtype of the array."""
    axes = tuple(sorted({a + mat.ndim if a < 0 else a for a in axes}))
    if any(not 0 <= a < mat.ndim for a in axes):
        raise ArgumentError(f"bcoo_reduce_sum: axes must lie within {mat.ndim} dimensions.", received=f"{axes}")
    n, last = mat.n_batch, mat.n_batch + mat.n_sparse
    batch = [a for a in axes if a < n]
    own = [a - n for a in axes if n <= a < last]
    dense = [a - last for a in axes if a >= last]
    data, indices = mat.full if batch or own else (mat.data, mat.indices)
    if own:  # padding along a summed axis must stay padding
        padding = outside(indices, mat.sparse_shape)
        data = wnp.where(padding.reshape(*padding.shape, *[1] * mat.n_dense), wnp.zeros((), data.dtype), data)
    if dense:
        data = data.sum(tuple(n + 1 + d for d in dense), dtype=data.dtype)
    indices = indices[..., np.array([i for i in range(mat.n_sparse) if i not in own], np.int32)]
    if batch:
        rest = [a for a in range(n) if a not in batch]
        nse = mat.nse * math.prod(mat.shape[a] for a in batch)
        order = (*rest, *batch, n)
        data = wnp.transpose(data, (*order, *range(n + 1, data.ndim)))
        data = data.reshape(*(mat.shape[a] for a in rest), nse, *data.shape[n + 1 :])
        indices = wnp.transpose(indices, (*order, n + 1)).reshape(*(mat.shape[a] for a in rest), nse, indices.shape[-1])
    return BCOO((data, indices), shape=tuple(s for a, s in enumerate(mat.shape) if a not in axes))


@combining_ranks
def bcoo_reshape(
    mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, sharding: Any = None
) -> BCOO:
    """Reshape in row-major order, after a permutation to `dimensions`. Batch, sparse and dense dimensions are each
    reshaped among themselves."""
    check_sparse("bcoo_reshape", mat, BCOO)
    if sharding is not None:
        raise ArgumentError("bcoo_reshape has no sharding.", received=f"sharding={sharding}")
    if dimensions is not None and tuple(dimensions) != tuple(range(mat.ndim)):
        mat = bcoo_transpose(mat, permutation=dimensions)
    new_sizes = tuple(new_sizes)
    if math.prod(new_sizes) != mat.size:
        raise ArgumentError("bcoo_reshape: the number of elements differs.", received=f"{mat.shape} for {new_sizes}")
    first = _split_at(new_sizes, math.prod(mat.batch_shape), from_left=True)
    last = _split_at(new_sizes, math.prod(mat.dense_shape), from_left=False)
    first, last = (first if mat.n_batch else 0), (last if mat.n_dense else len(new_sizes))
    if first is None or last is None or first > last:
        raise ArgumentError(
            "bcoo_reshape cannot merge batch, sparse and dense dimensions with each other.",
            received=f"{mat!r} for {new_sizes}",
            fix="mat.update_layout(n_batch=0, n_dense=0) before, which makes all dimensions sparse",
        )
    data, indices = mat.full
    batch, own, dense = new_sizes[:first], new_sizes[first:last], new_sizes[last:]
    if mat.n_sparse or own:
        padding = outside(indices, mat.sparse_shape)
        flat: Any = wnp.zeros(indices.shape[:-1], indices.dtype)
        for i, size in enumerate(mat.sparse_shape):
            flat = flat * size + indices[..., i]
        parts = []
        for size in reversed(own):
            parts.append(wnp.where(padding, size, flat % max(size, 1)).astype(indices.dtype))
            flat = flat // max(size, 1)
        shape = (*indices.shape[:-1], 0)
        indices = wnp.stack(parts[::-1], axis=-1) if parts else wnp.zeros(shape, indices.dtype)
    return BCOO(
        (data.reshape(*batch, mat.nse, *dense), indices.reshape(*batch, mat.nse, len(own))),
        shape=new_sizes,
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


def _split_at(sizes: Sequence[int], count: int, from_left: bool) -> int | None:
    """Return where to split sizes so that those on one side have `count` elements, or None."""
    for k in range(len(sizes) + 1) if from_left else range(len(sizes), -1, -1):
        if math.prod(sizes[:k] if from_left else sizes[k:]) == count:
            return k
    return None


@combining_ranks
def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """Remove dimensions of size 1."""
    check_sparse("bcoo_squeeze", arr, BCOO)
    dims = {d + arr.ndim if d < 0 else d for d in dimensions}
    if any(not 0 <= d < arr.ndim or arr.shape[d] != 1 for d in dims):
        raise ArgumentError(
            "bcoo_squeeze only removes dimensions of size 1.", received=f"{tuple(dimensions)} of {arr.shape}"
        )
    n, last = arr.n_batch, arr.n_batch + arr.n_sparse
    batch = tuple(d for d in dims if d < n)
    data = wnp.squeeze(arr.data, (*batch, *(d - last + n + 1 for d in dims if d >= last)))
    indices = wnp.squeeze(arr.indices, batch)
    remaining = np.array([i for i in range(arr.n_sparse) if i + n not in dims], np.int32)
    if len(remaining) < arr.n_sparse:
        # Padding along a dimension that is removed must stay padding along another one.
        padding = outside(indices, arr.sparse_shape)
        sizes = [arr.sparse_shape[i] for i in remaining]
        if sizes:
            indices = wnp.where(padding[..., None], wnp.array(sizes, indices.dtype), indices[..., remaining])
        else:
            hidden = padding.reshape(*padding.shape, *[1] * (data.ndim - padding.ndim))
            data, indices = wnp.where(hidden, wnp.zeros((), data.dtype), data), indices[..., remaining]
    return BCOO(
        (data, indices),
        shape=tuple(s for d, s in enumerate(arr.shape) if d not in dims),
        indices_sorted=arr.indices_sorted,
        unique_indices=arr.unique_indices,
    )


# ------------------------------------------------------------------------------------------------------------- slices


@combining_ranks
def bcoo_slice(
    mat: BCOO,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> BCOO:
    """Slice from `start_indices` to `limit_indices` in steps of `strides`. Entries outside become padding; if the slice
    has fewer elements than there are entries, duplicates are merged and the padding is dropped."""
    check_sparse("bcoo_slice", mat, BCOO)
    starts, limits = tuple(start_indices), tuple(limit_indices)
    steps = (1,) * mat.ndim if strides is None else tuple(strides)
    fits = len(starts) == len(limits) == len(steps) == mat.ndim
    if not fits or not all(
        0 <= a <= b <= n and s > 0 for a, b, s, n in zip(starts, limits, steps, mat.shape, strict=True)
    ):
        raise ArgumentError(
            "bcoo_slice needs a start, a limit and a stride for each dimension, within the array.",
            received=f"{mat!r}, start_indices={starts}, limit_indices={limits}, strides={strides}",
        )
    n, last = mat.n_batch, mat.n_batch + mat.n_sparse
    shape = tuple(-(-(b - a) // s) for a, b, s in zip(starts, limits, steps, strict=True))
    cuts = [np.s_[a:b:s] for a, b, s in zip(starts, limits, steps, strict=True)]

    def batch_cut(buffer: Any) -> tuple[Any, ...]:
        return tuple(np.s_[:] if buffer.shape[i] != mat.shape[i] else cuts[i] for i in range(n))

    data = mat.data[(*batch_cut(mat.data), np.s_[:], *cuts[last:])]
    indices = mat.indices[batch_cut(mat.indices)]
    for i, size in enumerate(mat.batch_shape):  # buffers of size 1 are broadcast to an empty slice
        if size and not shape[i]:
            data = wnp.broadcast_to(data[(np.s_[:],) * i + (np.s_[:0],)], (*data.shape[:i], 0, *data.shape[i + 1 :]))
            empty = indices[(np.s_[:],) * i + (np.s_[:0],)]
            indices = wnp.broadcast_to(empty, (*indices.shape[:i], 0, *indices.shape[i + 1 :]))
    moved = _shift(indices, shape[n:last], starts[n:last], steps[n:last])
    found = _with_padding(mat, data, moved, shape)
    return _trim(found)


def _shift(indices: Any, sizes: Sequence[int], starts: Sequence[Any], steps: Sequence[int]) -> Any:
    """Convert indices to positions within a slice; those outside become padding."""
    parts = []
    for i, (size, start, step) in enumerate(zip(sizes, starts, steps, strict=True)):
        offset = indices[..., i] - wnp.asarray(start).astype(indices.dtype)
        inside = (offset >= 0) & (offset % step == 0) & (offset // step < size)
        parts.append(wnp.where(inside, offset // step, size).astype(indices.dtype))
    return wnp.stack(parts, axis=-1) if parts else indices


def _with_padding(mat: BCOO, data: Any, indices: Any, shape: Sequence[int]) -> BCOO:
    """Make a BCOO some of whose entries became padding, with data 0 and indices out of bounds in all dimensions."""
    n, count = mat.n_batch, mat.n_sparse
    own = tuple(shape[n : n + count])
    if own:
        padding = outside(indices, own)
        hidden = padding.reshape(*padding.shape, *[1] * mat.n_dense)
        data = wnp.where(hidden, wnp.zeros((), data.dtype), data)
        indices = wnp.where(padding[..., None], wnp.array(own, indices.dtype), indices)
    return BCOO((data, indices), shape=shape, unique_indices=mat.unique_indices)


def _trim(mat: BCOO) -> BCOO:
    """Drop surplus padding: keep at most one entry for each element."""
    most = math.prod(mat.sparse_shape)
    if mat.nse <= most or not mat.n_sparse:
        return mat
    return bcoo_sum_duplicates(mat, nse=most)


@combining_ranks
def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> BCOO:
    """Slice with starts that may be traced; they are clamped so that the slice lies inside."""
    check_sparse("bcoo_dynamic_slice", mat, BCOO)
    sizes = tuple(slice_sizes)
    fits = len(sizes) == len(tuple(start_indices)) == mat.ndim
    if not fits or any(s > n or s < 0 for s, n in zip(sizes, mat.shape, strict=True)):
        raise ArgumentError(
            "bcoo_dynamic_slice takes a start and a size for each dimension, at most that of the array.",
            received=f"{mat!r}, slice_sizes={sizes}",
        )
    starts = []
    for start, size, n in zip(start_indices, sizes, mat.shape, strict=True):
        start = wnp.asarray(start)
        start = wnp.where(start < 0, start + n, start)
        starts.append(wnp.clip(start, 0, n - size).astype(np.int32))
    n, last = mat.n_batch, mat.n_batch + mat.n_sparse

    def batch_start(buffer: Any) -> list[tuple[Any, int]]:
        return [(0, 1) if buffer.shape[i] != mat.shape[i] else (starts[i], sizes[i]) for i in range(n)]

    def cut(buffer: Any, rest: Sequence[tuple[Any, int]]) -> Any:
        pairs = [*batch_start(buffer), *rest]
        return lax.dynamic_slice(buffer, [p[0] for p in pairs], [p[1] for p in pairs])

    data = cut(mat.data, [(0, mat.nse), *zip(starts[last:], sizes[last:], strict=True)])
    indices = cut(mat.indices, [(0, mat.nse), (0, mat.n_sparse)])
    moved = _shift(indices, sizes[n:last], starts[n:last], (1,) * mat.n_sparse)
    return _trim(_with_padding(mat, data, moved, sizes))


@combining_ranks
def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """Reverse the order of elements along some dimensions."""
    check_sparse("bcoo_rev", operand, BCOO)
    n, last = operand.n_batch, operand.n_batch + operand.n_sparse
    dims = {d + operand.ndim if d < 0 else d for d in dimensions}
    batch = tuple(d for d in dims if d < n)
    dense = tuple(d - last + n + 1 for d in dims if d >= last)
    data, indices = wnp.flip(operand.data, (*batch, *dense)), wnp.flip(operand.indices, batch)
    own = [d - n for d in dims if n <= d < last]
    if own:
        sizes = wnp.array(operand.sparse_shape, indices.dtype)
        turned = np.array([i in own for i in range(operand.n_sparse)])
        flipped = wnp.where((indices < sizes) & turned, sizes - 1 - indices, indices)
        indices = flipped.astype(indices.dtype)
    return BCOO(
        (data, indices),
        shape=operand.shape,
        indices_sorted=operand.indices_sorted and not own,
        unique_indices=operand.unique_indices,
    )


@combining_ranks
def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """Concatenate arrays of one layout along a dimension."""
    operands = list(operands)
    for operand in operands:
        check_sparse("bcoo_concatenate", operand, BCOO)
    if not operands:
        raise ArgumentError("bcoo_concatenate takes at least one array.")
    first = operands[0]
    dimension = dimension + first.ndim if dimension < 0 else dimension
    layouts = {(m.n_batch, m.n_dense, m.shape[:dimension], m.shape[dimension + 1 :]) for m in operands}
    if len(layouts) != 1 or not 0 <= dimension < first.ndim:
        raise ArgumentError(
            "bcoo_concatenate takes arrays of one layout whose other dimensions agree.",
            received=", ".join(map(repr, operands)) + f", dimension={dimension}",
            fix="mat.update_layout(n_batch=..., n_dense=...) for those that differ",
        )
    n, last = first.n_batch, first.n_batch + first.n_sparse
    total = sum(m.shape[dimension] for m in operands)
    shape = (*first.shape[:dimension], total, *first.shape[dimension + 1 :])
    full = [m.full for m in operands]
    if dimension < n:  # entries of a batch that has fewer are padded
        nse = max(m.nse for m in operands)
        data = wnp.concatenate([_pad_entries(d, n, nse, 0) for d, _ in full], axis=dimension)
        limits = wnp.array(first.sparse_shape, first.indices.dtype)
        indices = wnp.concatenate([_pad_entries(i, n, nse, limits) for _, i in full], axis=dimension)
        return BCOO((data, indices), shape=shape, unique_indices=all(m.unique_indices for m in operands))
    if dimension < last:
        offset, moved = 0, []
        for m, (_, indices) in zip(operands, full, strict=True):
            padding = outside(indices, m.sparse_shape)
            step = np.array([offset if i == dimension - n else 0 for i in range(m.n_sparse)], indices.dtype)
            limits = wnp.array(shape[n:last], indices.dtype)
            moved.append(wnp.where(padding[..., None], limits, indices + step))
            offset += m.shape[dimension]
        data = wnp.concatenate([d for d, _ in full], axis=n)
        in_order = dimension == n and all(m.indices_sorted for m in operands) and first.n_batch == 0
        return BCOO(
            (data, wnp.concatenate(moved, axis=n)),
            shape=shape,
            indices_sorted=in_order and len(operands) == 1,
            unique_indices=all(m.unique_indices for m in operands),
        )
    # Along a dense dimension every entry gets zeros where the other arrays are.
    axis, before, parts = dimension - last + n + 1, 0, []
    for m, (data, _) in zip(operands, full, strict=True):
        pads = [(0, 0)] * data.ndim
        pads[axis] = (before, total - before - m.shape[dimension])
        parts.append(wnp.pad(data, pads))
        before += m.shape[dimension]
    return BCOO((wnp.concatenate(parts, axis=n), wnp.concatenate([i for _, i in full], axis=n)), shape=shape)


def _pad_entries(buffer: Any, axis: int, size: int, value: Any) -> Any:
    """Append entries of `value` along an axis up to `size`."""
    more = size - buffer.shape[axis]
    if not more:
        return buffer
    shape = (*buffer.shape[:axis], more, *buffer.shape[axis + 1 :])
    return wnp.concatenate([buffer, wnp.broadcast_to(wnp.asarray(value, buffer.dtype), shape)], axis=axis)


@combining_ranks
def bcoo_gather(
    operand: BCOO,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> BCOO:
    """Gather slices of a sparse array at the given starts, as `lax.gather` does. Starts are clamped; the dimensions
    that enumerate slices become batch dimensions, and come first."""
    check_sparse("bcoo_gather", operand, BCOO)
    starts, sizes = wnp.asarray(start_indices), tuple(slice_sizes)
    numbering = dimension_numbers
    rank = starts.ndim - 1
    collapsed = tuple(numbering.collapsed_slice_dims)
    remaining = tuple(d for d in range(operand.ndim) if d not in collapsed)
    in_order = tuple(numbering.offset_dims) == tuple(range(rank, rank + len(remaining)))
    if (mode is not None and str(mode).lower().rpartition(".")[2] == "fill_or_drop") or fill_value is not None:
        raise ArgumentError("bcoo_gather cannot fill or drop: it clamps indices out of bounds.", fix="mode='clip'")
    if not in_order or tuple(getattr(numbering, "operand_batching_dims", ())):
        raise ArgumentError(
            "bcoo_gather needs slice dimensions after those that enumerate slices, in order.",
            received=f"{numbering}",
            fix="bcoo_transpose of the result",
        )
    mapping = tuple(numbering.start_index_map)

    def one(start: Any) -> BCOO:
        full = [start[mapping.index(d)] if d in mapping else 0 for d in range(operand.ndim)]
        full = [wnp.clip(s, 0, n - k) for s, n, k in zip(full, operand.shape, sizes, strict=True)]
        return bcoo_squeeze(bcoo_dynamic_slice(operand, full, sizes), dimensions=collapsed)

    function: Any = one
    for _ in range(rank):
        function = vmap(function)
    return function(starts)
