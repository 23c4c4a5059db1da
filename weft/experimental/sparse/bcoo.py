"""BCOO: batched coordinates. `data` has shape (*batch, nse, *dense), `indices` (*batch, nse, n_sparse)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

import weft.numpy as wnp
from weft import lax
from weft.api.vectorize import vmap
from weft.base import dtypes, tree
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.experimental.sparse.base import JAXSparse, Shape, check_scipy, check_sparse, is_array, is_known, needs_nse
from weft.numpy.util import combining_ranks


class BCOO(JAXSparse):
    """Sparse array of coordinates, with batch and dense dimensions.

    Args:
        args: `(data, indices)`. With `shape` = (*batch, *sparse, *dense), `data` has shape (*batch, nse, *dense) and
            `indices`, integers, (*batch, nse, n_sparse). Batch dimensions of either may be 1, for the same in every
            batch.
        shape: the shape of the array.
        indices_sorted: whether indices are in lexicographic order.
        unique_indices: whether no index is there twice. Values of an index that is there twice are added.

    Indices out of bounds are padding: their values do not count. Leading dimensions of the buffers are batches, so
    `vmap` maps over them. Derivatives with respect to `data` have its shape: the pattern stays (`sparse.grad`).

        >>> import weft.numpy as wnp
        >>> from weft.experimental import sparse
        >>> x = sparse.BCOO.fromdense(wnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> x
        BCOO(float32[2, 2], nse=2)
        >>> x @ wnp.array([1.0, 10.0])
        Array([20.,  3.], dtype=float32)
    """

    indices: Any
    indices_sorted: bool
    unique_indices: bool
    # Functions that move elements are in `layout.py`, which registers them here.
    update_layout: ClassVar[Callable[..., Any]]
    permuted: ClassVar[Callable[..., Any]]

    def __init__(
        self, args: tuple[Any, Any], *, shape: Sequence[int], indices_sorted: bool = False, unique_indices: bool = False
    ) -> None:
        super().__init__(args, shape=shape)
        self.data, self.indices = map(wnp.asarray, args)
        self.indices_sorted, self.unique_indices = bool(indices_sorted), bool(unique_indices)
        self._check()

    def _check(self) -> None:
        data, indices, shape = self.data, self.indices, self.shape
        if indices.ndim < 2 or dtypes.kind(indices.dtype) not in "iu":
            raise ArgumentTypeError(
                "BCOO needs integer indices of shape (*batch, nse, n_sparse).",
                received=f"{indices.dtype.name}{list(indices.shape)}",
            )
        n_batch, n_dense = indices.ndim - 2, data.ndim - (indices.ndim - 2) - 1
        fits = n_dense >= 0 and self.n_batch + self.n_sparse + n_dense == len(shape)
        fits = fits and data.shape[n_batch] == indices.shape[-2]
        fits = fits and data.shape[n_batch + 1 :] == shape[len(shape) - n_dense :]
        for buffer in (data, indices):
            fits = fits and all(a in (1, b) for a, b in zip(buffer.shape, shape[:n_batch], strict=False))
        if not fits:
            raise ArgumentError(
                "BCOO: the shapes of data, indices and the array do not fit together.",
                received=f"data {data.shape}, indices {indices.shape}, shape {shape}",
                fix="data (*batch, nse, *dense), indices (*batch, nse, n_sparse), shape (*batch, *sparse, *dense)",
            )
        if np.broadcast_shapes(data.shape[:n_batch], indices.shape[:n_batch]) != shape[:n_batch]:
            self.data = wnp.broadcast_to(data, (*shape[:n_batch], *data.shape[n_batch:]))

    # -- as a tree -------------------------------------------------------------------------------------------------

    def tree_flatten(self) -> tuple[tuple[Any, Any], Any]:
        """Return the buffers, and the static data: the shape without batch dimensions, which the buffers have."""
        return (self.data, self.indices), (self.shape[self.n_batch :], self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> BCOO:
        found = object.__new__(cls)
        found.data, found.indices = children
        own, found.indices_sorted, found.unique_indices = aux_data
        batch: Shape = ()
        if is_array(found.data) and is_array(found.indices):
            n = len(found.indices.shape) - 2
            batch = np.broadcast_shapes(found.data.shape[:n], found.indices.shape[:n])
        found.shape = (*batch, *own)
        return found

    @property
    def _bufs(self) -> tuple[Any, Any]:
        return self.data, self.indices

    # -- layout ----------------------------------------------------------------------------------------------------

    @property
    def nse(self) -> int:
        return self.indices.shape[-2]

    @property
    def n_batch(self) -> int:
        """Number of leading dimensions that are batches."""
        return len(self.indices.shape) - 2

    @property
    def n_sparse(self) -> int:
        """Number of dimensions that `indices` index."""
        return self.indices.shape[-1]

    @property
    def n_dense(self) -> int:
        """Number of trailing dimensions that are dense."""
        return len(self.data.shape) - 1 - self.n_batch

    @property
    def batch_shape(self) -> Shape:
        return self.shape[: self.n_batch]

    @property
    def sparse_shape(self) -> Shape:
        return self.shape[self.n_batch : self.n_batch + self.n_sparse]

    @property
    def dense_shape(self) -> Shape:
        return self.shape[self.n_batch + self.n_sparse :]

    @property
    def full(self) -> tuple[Any, Any]:
        """Data and indices with all batch dimensions."""
        batch = self.batch_shape
        return (
            wnp.broadcast_to(self.data, (*batch, *self.data.shape[self.n_batch :])),
            wnp.broadcast_to(self.indices, (*batch, *self.indices.shape[self.n_batch :])),
        )

    def like(self, data: Any) -> BCOO:
        """Return an array of the same pattern with other data."""
        return BCOO(
            (data, self.indices),
            shape=self.shape,
            indices_sorted=self.indices_sorted,
            unique_indices=self.unique_indices,
        )

    # -- conversions -----------------------------------------------------------------------------------------------

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0, n_batch: int = 0
    ) -> BCOO:
        """Make a sparse array of the nonzero elements of a dense one; see `bcoo_fromdense`."""
        return bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """Convert a SciPy matrix."""
        fix = "BCOO.from_scipy_sparse(mat).update_layout(n_batch=1)"
        check_scipy(cls, mat, n_batch, n_dense, fix)
        coordinates = mat.tocoo()
        indices = np.stack([coordinates.row, coordinates.col], axis=1).astype(index_dtype or np.int32)
        return cls((coordinates.data, indices), shape=mat.shape)

    @classmethod
    def _empty(
        cls,
        shape: Sequence[int],
        *,
        dtype: Any = None,
        index_dtype: Any = "int32",
        n_dense: int = 0,
        n_batch: int = 0,
        nse: int = 0,
    ) -> BCOO:
        """Return an array of zeros, with room for `nse` elements in each batch."""
        batch, own, dense = split_shape(shape, n_batch, n_dense)
        data = wnp.zeros((*batch, nse, *dense), dtype)
        indices = wnp.full((*batch, nse, len(own)), wnp.array(own, index_dtype))
        return cls((data, indices), shape=shape, indices_sorted=True, unique_indices=nse <= 1)

    @classmethod
    def _eye(
        cls,
        N: int,
        M: int,
        k: int,
        *,
        dtype: Any = None,
        index_dtype: Any = "int32",
        n_batch: int = 0,
        n_dense: int = 0,
    ) -> BCOO:
        """Return an array of shape (N, M) with ones on the diagonal `k`."""
        count = max(0, min(N + min(k, 0), M - max(k, 0)))
        first = np.arange(count) + max(-k, 0)
        indices = np.stack([first, first + k], axis=1).astype(index_dtype)
        plain = cls(
            (wnp.ones(count, dtype), wnp.asarray(indices)), shape=(N, M), indices_sorted=True, unique_indices=True
        )
        if not n_batch and not n_dense:
            return plain
        split_shape((N, M), n_batch, n_dense)
        # A row has at most one element, and so has a column.
        rows, as_index_arrays = np.arange(N), np.arange(M)
        if n_batch == 2 or n_dense == 2 or (n_batch and n_dense):
            dense = wnp.eye(N, M, k, dtype)
            return bcoo_fromdense(dense, nse=1 if n_dense < 2 else min(1, N), n_batch=n_batch, n_dense=n_dense)
        if n_batch:
            there = (rows + k >= 0) & (rows + k < M)
            data, indices = there[:, None], np.where(there, rows + k, M)[:, None, None]
            return cls((wnp.asarray(data, dtype or plain.dtype), indices.astype(index_dtype)), shape=(N, M))
        rest = as_index_arrays[None] == first[:, None] + k if count else np.zeros((0, M))
        return cls((wnp.asarray(rest, dtype or plain.dtype), first[:, None].astype(index_dtype)), shape=(N, M))

    def todense(self) -> Any:
        return bcoo_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        return BCOO.permuted(self, permutation=tuple(reversed(range(self.ndim))) if axes is None else axes)

    def sort_indices(self) -> BCOO:
        """Sort the indices in lexicographic order."""
        return bcoo_sort_indices(self)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """Merge duplicate indices and sort them; see `bcoo_sum_duplicates`. With `remove_zeros` zero elements are
        dropped too."""
        return bcoo_sum_duplicates(drop_zeros(self) if remove_zeros else self, nse=nse)


tree.register_pytree_node(BCOO, BCOO.tree_flatten, BCOO.tree_unflatten)


def split_shape(shape: Sequence[int], n_batch: int, n_dense: int) -> tuple[Shape, Shape, Shape]:
    """Split a shape into batch, sparse and dense dimensions."""
    shape = tuple(shape)
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > len(shape):
        raise ArgumentError(
            f"n_batch and n_dense must be at least 0, and together at most the number of dimensions, {len(shape)}.",
            received=f"n_batch={n_batch}, n_dense={n_dense}, shape={shape}",
        )
    last = len(shape) - n_dense
    return shape[:n_batch], shape[n_batch:last], shape[last:]


def vmap_batches(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Map a function of arrays over `count` leading dimensions."""
    for _ in range(count):
        function = vmap(function)
    return function


def as_index_arrays(indices: Any) -> tuple[Any, ...]:
    """Return the coordinates of entries as an index of an array: one array for each dimension."""
    return tuple(indices[..., i] for i in range(indices.shape[-1]))


@combining_ranks
def outside(indices: Any, shape: Shape) -> Any:
    """Return which entries are padding, that is, have an index out of bounds."""
    if not shape:
        return wnp.zeros(indices.shape[:-1], bool)
    limit = wnp.array(shape, indices.dtype)
    return wnp.any((indices >= limit) | (indices < 0), axis=-1)


# ------------------------------------------------------------------------------------------------ from and to dense


@combining_ranks
def bcoo_todense(mat: BCOO) -> Any:
    """Convert a BCOO to a dense array: values of equal indices are added, those of indices out of bounds are
    dropped."""
    check_sparse("bcoo_todense", mat, BCOO)
    own, dense = mat.sparse_shape, mat.dense_shape

    def one(data: Any, indices: Any) -> Any:
        if not own:
            return data.sum(0, dtype=data.dtype) if data.dtype != bool else data.any(0)
        zeros = wnp.zeros((*own, *dense), data.dtype)
        options: dict[str, Any] = {"mode": "drop", "unique_indices": mat.unique_indices}
        if data.dtype == bool:
            return zeros.at[as_index_arrays(indices)].max(data, **options)
        return zeros.at[as_index_arrays(indices)].add(data, **options)

    return vmap_batches(one, mat.n_batch)(*mat.full)


@combining_ranks
def bcoo_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = np.int32
) -> BCOO:
    """Make a BCOO of the nonzero elements of a dense array.

    Args:
        mat: a dense array.
        nse: how many elements are specified in each batch; missing ones are padding. By default as many as the batch
            with the most has, which under `jit` is not known.
        n_batch, n_dense: how many leading dimensions are batches, and how many trailing ones dense.
        index_dtype: the dtype of indices.

    Returns:
        A BCOO with sorted, unique indices.
    """
    mat = wnp.asarray(mat)
    batch, own, _ = split_shape(mat.shape, n_batch, n_dense)
    mask = mat != 0
    mask = mask.any(tuple(range(mat.ndim - n_dense, mat.ndim))) if n_dense else mask
    if nse is None:
        if not is_known(mat):
            raise needs_nse("bcoo_fromdense")
        counts = np.asarray(mask).reshape(*batch, -1).sum(-1)
        nse = int(counts.max(initial=0))
    elif is_known(mat) and nse < int(np.asarray(mask).reshape(*batch, -1).sum(-1).max(initial=0)):
        raise ArgumentError(
            "bcoo_fromdense: nse must be at least the count of nonzero elements.",
            received=f"nse={nse}",
            fix="a larger nse",
        )
    if not own:
        indices = wnp.zeros((*batch, nse, 0), index_dtype)
    else:

        def one(mask: Any) -> Any:
            return wnp.stack(wnp.nonzero(mask, size=nse, fill_value=own), axis=-1).astype(index_dtype)

        indices = vmap_batches(one, n_batch)(mask)
    data = extract(indices, mat, n_batch)
    if not own and nse > 1:
        data = data.at[(slice(None),) * n_batch + (slice(1, None),)].set(0)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


def extract(indices: Any, mat: Any, n_batch: int) -> Any:
    """Gather the elements of a dense array at indices, with 0 for those out of bounds."""

    def one(indices: Any, mat: Any) -> Any:
        if not indices.shape[-1]:
            return wnp.broadcast_to(mat, (indices.shape[0], *mat.shape))
        return mat.at[as_index_arrays(indices)].get(mode="fill", fill_value=0)

    return vmap_batches(one, n_batch)(indices, mat)


@combining_ranks
def bcoo_extract(sparr: BCOO, arr: Any, *, assume_unique: bool | None = None) -> BCOO:
    """Gather the elements of the dense `arr` at the pattern of `sparr`, as a BCOO.

    `assume_unique` says that no index is there twice (by default what `sparr` says): else the second and further ones
    get 0, so that the sum of values is that of `arr`.
    """
    check_sparse("bcoo_extract", sparr, BCOO)
    arr = wnp.asarray(arr)
    if arr.shape != sparr.shape:
        raise ArgumentError(
            "bcoo_extract: the arrays have different shapes.", received=f"{sparr.shape} and {arr.shape}"
        )
    _, indices = sparr.full
    data = extract(indices, arr, sparr.n_batch)
    unique = sparr.unique_indices if assume_unique is None else assume_unique
    if not unique:
        again = vmap_batches(is_duplicate, sparr.n_batch)(indices)
        again = again.reshape(*again.shape, *[1] * sparr.n_dense)
        data = wnp.where(again, wnp.zeros((), data.dtype), data)
    return BCOO(
        (data, indices), shape=sparr.shape, indices_sorted=sparr.indices_sorted, unique_indices=sparr.unique_indices
    )


def sort_with_order(indices: Any) -> tuple[Any, Any]:
    """Sort the indices of one batch in lexicographic order; also return the permutation. The sort is stable."""
    position = lax.iota(np.int32, indices.shape[0])
    if not indices.shape[1]:
        return indices, position
    *keys, order = lax.sort((*as_index_arrays(indices), position), num_keys=indices.shape[1])
    return wnp.stack(keys, axis=-1), order


def is_first(indices: Any) -> Any:
    """Return which of some sorted indices differ from the one before."""
    count = indices.shape[0]
    if count == 0:
        return wnp.zeros(0, bool)
    return wnp.concatenate([wnp.ones(1, bool), wnp.any(indices[1:] != indices[:-1], axis=-1)])


def is_duplicate(indices: Any) -> Any:
    """Return which indices of one batch are duplicates of earlier ones."""
    found, order = sort_with_order(indices)
    return wnp.zeros(indices.shape[0], bool).at[order].set(~is_first(found), unique_indices=True, mode="drop")


# ----------------------------------------------------------------------------------------------- order and duplicates


@combining_ranks
def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """Sort the indices in lexicographic order."""
    check_sparse("bcoo_sort_indices", mat, BCOO)

    def one(data: Any, indices: Any) -> Any:
        indices, order = sort_with_order(indices)
        return data.at[order].get(mode="promise_in_bounds", unique_indices=True), indices

    data, indices = vmap_batches(one, mat.n_batch)(*mat.full)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=mat.unique_indices)


@combining_ranks
def drop_zeros(mat: BCOO) -> BCOO:
    """Turn zero elements into padding."""
    data, indices = mat.full
    zero = data == 0
    zero = zero.all(tuple(range(mat.n_batch + 1, data.ndim))) if mat.n_dense else zero
    if not mat.n_sparse:
        return mat
    limit = wnp.array(mat.sparse_shape, indices.dtype)
    return BCOO((data, wnp.where(zero[..., None], limit, indices)), shape=mat.shape)


@combining_ranks
def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """Merge duplicate indices: values of equal indices are added, padding is dropped.

    `nse` is the number of elements that the result specifies in each batch. By default it is as small as possible,
    which under `jit` is not known.
    """
    check_sparse("bcoo_sum_duplicates", mat, BCOO)
    own = mat.sparse_shape
    data, indices = mat.full

    def sort(indices: Any) -> tuple[Any, Any, Any]:
        limit = wnp.array(own, indices.dtype)
        padding = outside(indices, own)
        found, order = sort_with_order(wnp.where(padding[:, None], limit, indices)) if own else sort_with_order(indices)
        return found, order, padding

    found, order, padding = vmap_batches(sort, mat.n_batch)(indices)
    first = vmap_batches(is_first, mat.n_batch)(found)
    if is_known(indices):
        counts = np.asarray(first & ~vmap_batches(lambda i: outside(i, own), mat.n_batch)(found)).sum(-1)
        needed = int(np.max(counts, initial=0))
        if nse is not None and nse < needed:
            raise ArgumentError(
                f"bcoo_sum_duplicates: {needed} indices differ, more than nse has room for.",
                received=f"nse={nse}",
                fix=f"nse={needed} or more",
            )
        nse = needed if nse is None else nse
    elif nse is None:
        raise needs_nse("bcoo_sum_duplicates")

    def one(data: Any, found: Any, order: Any, first: Any, padding: Any) -> Any:
        group = wnp.cumsum(first, dtype=np.int32) - 1
        values = data.at[order].get(mode="promise_in_bounds", unique_indices=True)
        hidden = padding[order].reshape(-1, *[1] * (data.ndim - 1))
        values = wnp.where(hidden, wnp.zeros((), data.dtype), values)
        zeros = wnp.zeros((nse, *data.shape[1:]), data.dtype)
        options: dict[str, Any] = {"mode": "drop", "indices_are_sorted": True}
        summed = (
            zeros.at[group].max(values, **options) if data.dtype == bool else zeros.at[group].add(values, **options)
        )
        rest = wnp.full((nse, len(own)), wnp.array(own, found.dtype), found.dtype)
        return summed, rest.at[group].set(found, **options) if own else rest

    data, indices = vmap_batches(one, mat.n_batch)(data, found, order, first, padding)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


def storage_size(mat: BCOO) -> int:
    """Return the number of stored elements, of data and indices."""
    return math.prod(mat.data.shape) + math.prod(mat.indices.shape)
