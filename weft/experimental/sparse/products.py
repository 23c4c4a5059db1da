"""Products of sparse arrays. All are composed of gathers, contractions and scatters of the entries, so derivatives with
respect to data have the pattern of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import lax
from weft.api.vectorize import vmap
from weft.base.errors import ArgumentError, NotSupportedError
from weft.experimental.sparse.base import JAXSparse, check_sparse
from weft.experimental.sparse.bcoo import BCOO, as_index_arrays, bcoo_sum_duplicates, extract, outside, vmap_batches
from weft.numpy.util import combining_ranks

DimensionNumbers = Any


def dimension_lists(numbering: DimensionNumbers) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return the contracting dimensions of both operands, then the batch dimensions."""
    (lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch) = numbering
    return list(lhs_contracting), list(rhs_contracting), list(lhs_batch), list(rhs_batch)


def check_dimensions(function: str, lhs: Any, rhs: Any, numbering: DimensionNumbers) -> None:
    """Raise unless corresponding dimensions have equal sizes."""
    lc, rc, lb, rb = dimension_lists(numbering)
    pairs = [*zip(lc, rc, strict=False), *zip(lb, rb, strict=False)]
    fits = len(lc) == len(rc) and len(lb) == len(rb)
    fits = fits and all(0 <= i < len(lhs.shape) and 0 <= j < len(rhs.shape) for i, j in pairs)
    if not fits or any(lhs.shape[i] != rhs.shape[j] for i, j in pairs):
        raise ArgumentError(
            f"{function}: the dimensions that are contracted, or are batches, do not fit together.",
            received=f"{lhs.shape} and {rhs.shape} with {numbering}",
            fix="dimension_numbers=((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))",
        )


@combining_ranks
def bcoo_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: DimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Contract a BCOO with a dense array as `lax.dot_general` does, in either order, or two BCOOs.

    Args:
        lhs, rhs: arrays; one or both must be a BCOO.
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`.
        precision: as for `lax.dot_general`.
        preferred_element_type: the dtype of the result.
        out_sharding: must be None.

    Returns:
        A dense array; of two BCOOs a BCOO, with an entry for each pair of entries that contributes.

        >>> import weft.numpy as wnp
        >>> from weft.experimental import sparse
        >>> x = sparse.BCOO.fromdense(wnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.bcoo_dot_general(x, wnp.array([1.0, 10.0]), dimension_numbers=(((1,), (0,)), ((), ())))
        Array([20.,  3.], dtype=float32)
    """
    if out_sharding is not None:
        raise NotSupportedError("bcoo_dot_general has no out_sharding.", fix="reshard the result")
    lc, rc, lb, rb = dimension_lists(dimension_numbers)
    if isinstance(lhs, BCOO) and isinstance(rhs, BCOO):
        check_dimensions("bcoo_dot_general", lhs, rhs, dimension_numbers)
        return _sparse_times_sparse(lhs, rhs, dimension_numbers, preferred_element_type)
    if isinstance(lhs, BCOO):
        rhs = wnp.asarray(rhs)
        check_dimensions("bcoo_dot_general", lhs, rhs, dimension_numbers)
        return _sparse_times_dense(lhs, rhs, dimension_numbers, precision, preferred_element_type)
    check_sparse("bcoo_dot_general", rhs, BCOO)
    lhs = wnp.asarray(lhs)
    check_dimensions("bcoo_dot_general", lhs, rhs, dimension_numbers)
    swapped = _sparse_times_dense(rhs, lhs, ((rc, lc), (rb, lb)), precision, preferred_element_type)
    # Batches, free dimensions of the right, free dimensions of the left.
    batch, own = len(lb), rhs.ndim - len(rb) - len(rc)
    return wnp.moveaxis(swapped, range(batch, batch + own), range(swapped.ndim - own, swapped.ndim))


def _sparse_times_dense(
    lhs: BCOO, rhs: Any, numbering: DimensionNumbers, precision: Any, preferred_element_type: Any
) -> Any:
    """Contract a BCOO with a dense array: gather the rows of the dense array at each entry, scale them and add them to
    the result."""
    lc, rc, lb, rb = dimension_lists(numbering)
    dtype = wnp.result_type(lhs.dtype, rhs.dtype) if preferred_element_type is None else preferred_element_type
    partner = {**dict(zip(lc, rc, strict=True)), **dict(zip(lb, rb, strict=True))}
    n, last = lhs.n_batch, lhs.n_batch + lhs.n_sparse
    batch, own, dense = range(n), range(n, last), range(last, lhs.ndim)
    # Batches that the dense array has too come first there, in the order of the sparse array. vmap goes over them.
    shared = [d for d in batch if d in partner]
    meeting = [d for d in own if d in partner]
    aligned = [d for d in dense if d in partner]
    free = [d for d in range(rhs.ndim) if d not in partner.values()]
    rhs = wnp.transpose(rhs, [partner[d] for d in (*shared, *meeting, *aligned)] + free)
    left = [d - n for d in own if d not in lc]  # coordinates of the result, counted among the sparse ones
    sizes = [lhs.sparse_shape[i] for i in left]

    def one(data: Any, indices: Any, rhs: Any) -> Any:
        """Contract one batch. The result has the remaining sparse dimensions, the remaining dense ones, and the free
        ones of rhs."""
        data = data.astype(dtype)
        if meeting:
            met = tuple(indices[:, d - n] for d in meeting)
            rhs = rhs.at[met].get(mode="fill", fill_value=0)
        elif own:
            padding = outside(indices, lhs.sparse_shape)
            data = wnp.where(padding.reshape(-1, *[1] * (data.ndim - 1)), wnp.zeros((), dtype), data)
        # Dimensions of rhs: entries if it was gathered, aligned dense ones, free ones.
        entries = [0] if meeting else []
        lhs_aligned = [d - last + 1 for d in aligned]
        rhs_aligned = [len(entries) + k for k in range(len(aligned))]
        summed = [k for k, d in enumerate(aligned) if d in lc]
        remaining = [k for k, d in enumerate(aligned) if d not in lc]
        contract = ([lhs_aligned[k] for k in summed], [rhs_aligned[k] for k in summed])
        together = ([lhs_aligned[k] for k in remaining], [rhs_aligned[k] for k in remaining])
        options: dict[str, Any] = {"precision": precision, "preferred_element_type": dtype}
        rhs = rhs.astype(dtype)
        if not left:
            # No coordinate is left: entries are summed by the contraction.
            if not meeting:
                data = data.sum(0, dtype=dtype)
                shift = ([c - 1 for c in contract[0]], [c - 1 for c in together[0]])
                result = lax.dot_general(data, rhs, ((shift[0], contract[1]), (shift[1], together[1])), **options)
            else:
                pairs = ([0, *contract[0]], [0, *contract[1]])
                result = lax.dot_general(data, rhs, (pairs, together), **options)
            return _dense_in_order(result, [aligned[k] for k in remaining], [], dense, lc)
        if entries:
            together = ([0, *together[0]], [0, *together[1]])
        if not contract[0] and not remaining and not [d for d in dense if d not in aligned]:
            # No dense dimensions: scaled rows.
            scale = data.reshape(-1, *[1] * (rhs.ndim - len(entries)))
            rows = scale * rhs if entries else scale * rhs[None]
        else:
            rows = lax.dot_general(data, rhs, (contract, together), **options)
            if not entries:
                rows = wnp.moveaxis(rows, len(remaining), 0)
            rows = _dense_in_order(rows, [aligned[k] for k in remaining], [0], dense, lc)
        zeros = wnp.zeros((*sizes, *rows.shape[1:]), dtype)
        index = tuple(indices[:, i] for i in left)
        in_order = lhs.indices_sorted and left == list(range(len(left)))
        return zeros.at[index].add(rows, mode="drop", indices_are_sorted=in_order)

    function: Any = one
    for d in reversed(batch):
        if d in partner:
            function = vmap(function)
        else:
            function = vmap(function, in_axes=(0, 0, None))
    data, indices = lhs.full
    result = function(data, indices, rhs)
    summed_batches = tuple(d for d in batch if d in lc)
    # Dimensions now: all batches, coordinates that are left, dense ones that are left, free ones of rhs.
    names = [*batch, *(n + i for i in left), *(d for d in dense if d not in lc)]
    if summed_batches:
        result = result.sum(summed_batches, dtype=dtype)
        names = [d for d in names if d not in summed_batches]
    order = [names.index(d) for d in lb] + [k for k, d in enumerate(names) if d not in lb]
    return wnp.transpose(result, (*order, *range(len(names), result.ndim)))


def _dense_in_order(
    result: Any, remaining: Sequence[int], before: Sequence[int], dense: Sequence[int], contracted: Sequence[int]
) -> Any:
    """Move the dense dimensions of a contraction of entries into order: those that rhs has too come first, then the
    others."""
    others = [d for d in dense if d not in remaining and d not in contracted]
    found = [*remaining, *others]
    start = len(before)
    order = [start + found.index(d) for d in sorted(found)]
    return wnp.transpose(result, (*before, *order, *range(start + len(found), result.ndim)))


def _sparse_times_sparse(lhs: BCOO, rhs: BCOO, numbering: DimensionNumbers, preferred_element_type: Any) -> BCOO:
    """Multiply all pairs of entries and keep those whose contracted coordinates are equal."""
    lc, rc, lb, rb = dimension_lists(numbering)
    # Contracted dimensions are coordinates, and batches of the product are batches of both.
    lhs, rhs = _coordinates(lhs, lc, lb), _coordinates(rhs, rc, rb)
    n = len(lb)
    if sorted(lb) != list(range(n)) or lb != rb:
        raise NotSupportedError(
            "bcoo_dot_general of two sparse arrays needs leading batch dimensions, the same of both.",
            received=f"lhs_batch={lb}, rhs_batch={rb}",
            fix="bcoo_transpose before",
        )
    if lhs.n_dense or rhs.n_dense or lhs.n_batch != n or rhs.n_batch != n:
        raise NotSupportedError(
            "bcoo_dot_general of two sparse arrays takes batch dimensions that are batches of the product, and no "
            "dense ones.",
            received=f"{lhs!r} and {rhs!r}",
            fix=f"mat.update_layout(n_batch={n}, n_dense=0)",
        )
    dtype = wnp.result_type(lhs.dtype, rhs.dtype) if preferred_element_type is None else preferred_element_type
    lhs_left = [i for i in range(lhs.n_sparse) if i + n not in lc]
    rhs_left = [i for i in range(rhs.n_sparse) if i + n not in rc]
    sizes = (*(lhs.sparse_shape[i] for i in lhs_left), *(rhs.sparse_shape[i] for i in rhs_left))

    def one(lhs_data: Any, lhs_indices: Any, rhs_data: Any, rhs_indices: Any) -> Any:
        meet = ~(outside(lhs_indices, lhs.sparse_shape)[:, None] | outside(rhs_indices, rhs.sparse_shape)[None, :])
        for i, j in zip(lc, rc, strict=True):
            meet &= lhs_indices[:, None, i - n] == rhs_indices[None, :, j - n]
        values = lhs_data.astype(dtype)[:, None] * rhs_data.astype(dtype)[None, :]
        data = wnp.where(meet, values, wnp.zeros((), dtype)).reshape(lhs.nse * rhs.nse)
        parts = [wnp.broadcast_to(lhs_indices[:, None, i], meet.shape) for i in lhs_left]
        parts += [wnp.broadcast_to(rhs_indices[None, :, j], meet.shape) for j in rhs_left]
        if not parts:
            return data, wnp.zeros((data.shape[0], 0), lhs_indices.dtype)
        limits = [wnp.where(meet, p, s).reshape(-1) for p, s in zip(parts, sizes, strict=True)]
        return data, wnp.stack(limits, axis=-1).astype(lhs_indices.dtype)

    data, indices = vmap_batches(one, n)(*lhs.full, *rhs.full)
    found = BCOO((data, indices), shape=(*lhs.batch_shape, *sizes))
    most = math.prod(sizes)
    return bcoo_sum_duplicates(found, nse=most) if found.nse > most and sizes else found


def _coordinates(mat: BCOO, contracted: Sequence[int], batch: Sequence[int]) -> BCOO:
    """Turn contracted dimensions into sparse ones."""
    if any(d < mat.n_batch for d in contracted) or mat.n_batch > len(batch) or mat.n_dense:
        return mat.update_layout(n_batch=min(len(batch), mat.n_batch), n_dense=0)
    return mat


@combining_ranks
def bcoo_dot_general_sampled(A: Any, B: Any, indices: Any, *, dimension_numbers: DimensionNumbers) -> Any:
    """Compute the elements at `indices` of the contraction of two dense arrays.

    Args:
        A, B: dense arrays.
        indices: integers of shape (*batch, nse, n_sparse), for the batch and sparse dimensions of the result.
        dimension_numbers: as for `lax.dot_general`.

    Returns:
        An array of shape (*batch, nse, *dense): the data of a BCOO with these indices. Elements out of bounds are 0.
    """
    A, B, indices = wnp.asarray(A), wnp.asarray(B), wnp.asarray(indices)
    check_dimensions("bcoo_dot_general_sampled", A, B, dimension_numbers)
    lc, rc, lb, rb = dimension_lists(dimension_numbers)
    n, count = indices.ndim - 2, indices.shape[-1]
    lhs_free = [d for d in range(A.ndim) if d not in (*lc, *lb)]
    rhs_free = [d for d in range(B.ndim) if d not in (*rc, *rb)]
    if n == len(lb) and count == len(lhs_free) + len(rhs_free):
        # Rows of both are gathered, so that only the sampled elements are computed.
        A, B = wnp.transpose(A, [*lb, *lhs_free, *lc]), wnp.transpose(B, [*rb, *rhs_free, *rc])
        split = len(lhs_free)

        def one(a: Any, b: Any, indices: Any) -> Any:
            index = as_index_arrays(indices)
            rows = a.at[index[:split]].get(mode="fill", fill_value=0) if split else a[None]
            others = b.at[index[split:]].get(mode="fill", fill_value=0) if split < count else b[None]
            axes = tuple(range(1, 1 + len(lc)))
            return wnp.broadcast_to((rows * others).sum(axes), indices.shape[:1])

        return vmap_batches(one, n)(A, B, indices)
    whole = lax.dot_general(A, B, dimension_numbers)
    return extract(indices, whole, n)


# ------------------------------------------------------------------------------------------------------- by elements


@combining_ranks
def bcoo_multiply_dense(sp_mat: BCOO, v: Any) -> Any:
    """Multiply a BCOO with a dense array that broadcasts to its shape; return the data of the result."""
    check_sparse("bcoo_multiply_dense", sp_mat, BCOO)
    v = wnp.asarray(v)
    if v.ndim > sp_mat.ndim or any(a not in (1, b) for a, b in zip(v.shape[::-1], sp_mat.shape[::-1], strict=False)):
        raise ArgumentError(
            "bcoo_multiply_dense: the dense array must broadcast to the shape of the sparse one.",
            received=f"{v.shape} for {sp_mat.shape}",
        )
    v = v.reshape(*[1] * (sp_mat.ndim - v.ndim), *v.shape)
    n = sp_mat.n_batch
    # Along sparse dimensions of size 1 there is one element for all coordinates.
    alike = [i for i in range(sp_mat.n_sparse) if v.shape[n + i] == 1 and sp_mat.sparse_shape[i] != 1]
    left = [i for i in range(sp_mat.n_sparse) if i not in alike]
    v = wnp.squeeze(v, tuple(n + i for i in alike))
    data, indices = sp_mat.full

    def one(data: Any, indices: Any, v: Any) -> Any:
        if left:
            v = v.at[tuple(indices[:, i] for i in left)].get(mode="fill", fill_value=0)
        else:
            v = v[None]
        return data * v

    function: Any = one
    for d in reversed(range(n)):
        if v.shape[d] == 1 and sp_mat.shape[d] != 1:
            function = vmap(function, in_axes=(0, 0, None))
        else:
            function = vmap(function)
    v = wnp.squeeze(v, tuple(d for d in range(n) if v.shape[d] == 1 and sp_mat.shape[d] != 1))
    return function(data, indices, v)


@combining_ranks
def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """Multiply two BCOOs of one shape and layout elementwise."""
    check_sparse("bcoo_multiply_sparse", lhs, BCOO)
    check_sparse("bcoo_multiply_sparse", rhs, BCOO)
    if lhs.shape != rhs.shape or lhs.n_batch != rhs.n_batch or lhs.n_dense != rhs.n_dense:
        raise ArgumentError(
            "bcoo_multiply_sparse needs arrays of one shape and layout.",
            received=f"{lhs!r} and {rhs!r}",
            fix="mat.update_layout(n_batch=..., n_dense=...)",
        )
    own, count = lhs.sparse_shape, lhs.nse * rhs.nse

    def one(lhs_data: Any, lhs_indices: Any, rhs_data: Any, rhs_indices: Any) -> Any:
        meet = (lhs_indices[:, None] == rhs_indices[None]).all(-1) & ~outside(lhs_indices, own)[:, None]
        hidden = meet.reshape(*meet.shape, *[1] * lhs.n_dense)
        values = lhs_data[:, None] * rhs_data[None, :]
        data = wnp.where(hidden, values, wnp.zeros((), values.dtype))
        limits = wnp.array(own, lhs_indices.dtype)
        indices = wnp.where(meet[..., None], lhs_indices[:, None], limits)
        return data.reshape(count, *data.shape[2:]), indices.reshape(count, len(own))

    data, indices = vmap_batches(one, lhs.n_batch)(*lhs.full, *rhs.full)
    return BCOO((data, indices), shape=lhs.shape, unique_indices=lhs.unique_indices and rhs.unique_indices)


@combining_ranks
def bcoo_conv_general_dilated(
    lhs: Any,
    rhs: Any,
    *,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> BCOO:
    """Convolve two BCOOs as `lax.conv_general_dilated` does: one spatial dimension, one batch and one feature.

    Both have shape (1, 1, size) and two batch dimensions. Every pair of entries makes an entry of the result.
    """
    check_sparse("bcoo_conv_general_dilated", lhs, BCOO)
    check_sparse("bcoo_conv_general_dilated", rhs, BCOO)
    numbering = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    plain = all(tuple(spec) == (0, 1, 2) for spec in numbering) if lhs.ndim == rhs.ndim == 3 else False
    single = plain and lhs.shape[:2] == (1, 1) and rhs.shape[:2] == (1, 1)
    layouts = single and all(m.n_batch == 2 and m.n_sparse == 1 for m in (lhs, rhs))
    if not layouts or feature_group_count != 1 or batch_group_count != 1 or out_sharding is not None:
        raise NotSupportedError(
            "bcoo_conv_general_dilated needs arrays of shape (1, 1, size) with n_batch=2: one spatial dimension, one "
            "batch and one feature.",
            received=f"{lhs!r} and {rhs!r}",
            fix="lax.conv_general_dilated of the dense arrays",
        )
    (stride,) = window_strides
    (base,), (hole,) = lhs_dilation or (1,), rhs_dilation or (1,)
    size = (lhs.shape[2] - 1) * base + 1 if lhs.shape[2] else 0
    window = (rhs.shape[2] - 1) * hole + 1
    if isinstance(padding, str):
        padding = lax.padtype_to_pads((size,), (window,), (stride,), padding)
    ((low, high),) = padding
    out = max(0, (size + low + high - window) // stride + 1)
    dtype = wnp.result_type(lhs.dtype, rhs.dtype) if preferred_element_type is None else preferred_element_type

    def one(lhs_data: Any, lhs_indices: Any, rhs_data: Any, rhs_indices: Any) -> Any:
        data = lhs_data.astype(dtype)[:, None] * rhs_data.astype(dtype)[None, :]
        position = lhs_indices[:, None, 0] * base + low - rhs_indices[None, :, 0] * hole
        inside = ~(outside(lhs_indices, lhs.sparse_shape)[:, None] | outside(rhs_indices, rhs.sparse_shape)[None])
        inside &= (position >= 0) & (position % stride == 0) & (position // stride < out)
        index = wnp.where(inside, position // stride, out).reshape(-1, 1)
        return wnp.where(inside, data, wnp.zeros((), dtype)).reshape(-1), index.astype(lhs_indices.dtype)

    data, indices = vmap_batches(one, 2)(*lhs.full, *rhs.full)
    return BCOO((data, indices), shape=(1, 1, out))


def as_dense(value: Any) -> Any:
    """Convert a value to a dense array."""
    return value.todense() if isinstance(value, JAXSparse) else wnp.asarray(value)


def check_rank(function: str, value: Any, rank: int) -> None:
    if np.ndim(value) != rank:
        what = "a vector" if rank == 1 else "a matrix"
        raise ArgumentError(f"{function} needs {what}.", received=f"shape {np.shape(value)}")
