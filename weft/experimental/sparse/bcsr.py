"""BCSR: batched compressed rows. `data` (*batch, nse, *dense), `indices` (*batch, nse), `indptr` (*batch, rows + 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import lax
from weft.base import dtypes, tree
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.experimental.sparse.base import JAXSparse, Shape, check_scipy, check_sparse, is_array
from weft.experimental.sparse.bcoo import (
    BCOO,
    bcoo_fromdense,
    bcoo_sort_indices,
    bcoo_sum_duplicates,
    extract,
    split_shape,
    vmap_batches,
)
from weft.experimental.sparse.layout import bcoo_broadcast_in_dim, bcoo_concatenate, bcoo_transpose
from weft.experimental.sparse.products import bcoo_dot_general
from weft.numpy.util import combining_ranks


class BCSR(JAXSparse):
    """Sparse array of compressed rows, with batch and dense dimensions.

    Args:
        args: `(data, indices, indptr)`. With `shape` = (*batch, rows, columns, *dense), `data` has shape (*batch, nse,
            *dense), `indices` (*batch, nse) has columns, and the entries of row i are those from `indptr[..., i]` to
            `indptr[..., i + 1]`.
        shape: the shape of the array.
        indices_sorted: whether columns are in order in every row.
        unique_indices: whether no column is there twice in a row.

        >>> import weft.numpy as wnp
        >>> from weft.experimental import sparse
        >>> x = sparse.BCSR.fromdense(wnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> x.indptr, x.indices
        (Array([0, 1, 2], dtype=int32), Array([1, 0], dtype=int32))
        >>> x @ wnp.array([1.0, 10.0])
        Array([20.,  3.], dtype=float32)
    """

    indices: Any
    indptr: Any
    indices_sorted: bool
    unique_indices: bool

    def __init__(
        self,
        args: tuple[Any, Any, Any],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> None:
        super().__init__(args, shape=shape)
        self.data, self.indices, self.indptr = map(wnp.asarray, args)
        self.indices_sorted, self.unique_indices = bool(indices_sorted), bool(unique_indices)
        if any(dtypes.kind(i.dtype) not in "iu" for i in (self.indices, self.indptr)):
            raise ArgumentTypeError(
                "BCSR needs integer indices and indptr.",
                received=f"{self.indices.dtype.name}, {self.indptr.dtype.name}",
            )
        n = self.indices.ndim - 1
        own = self.shape[n:]
        fits = n >= 0 and len(own) >= 2 and self.indptr.ndim == n + 1 and self.indptr.shape[-1] == own[0] + 1
        fits = fits and self.data.shape[n:] == (self.indices.shape[-1], *own[2:])
        for buffer in (self.data, self.indices, self.indptr) if fits else ():
            fits = fits and all(a in (1, b) for a, b in zip(buffer.shape[:n], self.shape[:n], strict=True))
        if not fits:
            raise ArgumentError(
                "BCSR: the shapes of data, indices, indptr and the array do not fit together.",
                received=f"data {self.data.shape}, indices {self.indices.shape}, indptr {self.indptr.shape}, "
                f"shape {self.shape}",
                fix="data (*batch, nse, *dense), indices (*batch, nse), indptr (*batch, rows + 1), "
                "shape (*batch, rows, columns, *dense)",
            )
        if np.broadcast_shapes(*(b.shape[:n] for b in self._bufs)) != self.shape[:n]:
            self.data = wnp.broadcast_to(self.data, (*self.shape[:n], *self.data.shape[n:]))

    def tree_flatten(self) -> tuple[tuple[Any, Any, Any], Any]:
        """Return the buffers, and the static data: the shape without batch dimensions, which the buffers have."""
        return self._bufs, (self.shape[self.n_batch :], self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> BCSR:
        found = object.__new__(cls)
        found.data, found.indices, found.indptr = children
        own, found.indices_sorted, found.unique_indices = aux_data
        batch: Shape = ()
        if all(map(is_array, found._bufs)):
            n = len(found.indices.shape) - 1
            batch = np.broadcast_shapes(*(b.shape[:n] for b in found._bufs))
        found.shape = (*batch, *own)
        return found

    @property
    def _bufs(self) -> tuple[Any, Any, Any]:
        return self.data, self.indices, self.indptr

    @property
    def nse(self) -> int:
        return self.indices.shape[-1]

    @property
    def n_batch(self) -> int:
        """Number of leading dimensions that are batches."""
        return len(self.indices.shape) - 1

    @property
    def n_sparse(self) -> int:
        """Number of sparse dimensions: rows and columns."""
        return 2

    @property
    def n_dense(self) -> int:
        """Number of trailing dimensions that are dense."""
        return len(self.data.shape) - 1 - self.n_batch

    @property
    def _sparse_shape(self) -> Shape:
        return self.shape[self.n_batch : self.n_batch + 2]

    @property
    def full(self) -> tuple[Any, Any, Any]:
        """Buffers with all batch dimensions."""
        n = self.n_batch
        data, indices, indptr = (wnp.broadcast_to(b, (*self.shape[:n], *b.shape[n:])) for b in self._bufs)
        return data, indices, indptr

    def to_bcoo(self) -> BCOO:
        """Convert to a BCOO; entries after the last row are padding."""
        data, indices, indptr = self.full
        rows, last = self._sparse_shape
        coordinates = vmap_batches(lambda i, p: _coordinates(i, p, rows, last), self.n_batch)(indices, indptr)
        return BCOO(
            (data, coordinates),
            shape=self.shape,
            indices_sorted=self.indices_sorted,
            unique_indices=self.unique_indices,
        )

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """Convert a BCOO with two sparse dimensions, with sorted indices."""
        check_sparse("BCSR.from_bcoo", arr, BCOO)
        if arr.n_sparse != 2:
            raise ArgumentError(
                "BCSR.from_bcoo needs an array with two sparse dimensions.",
                received=f"{arr!r}",
                fix="arr.update_layout(n_batch=..., n_dense=...)",
            )
        arr = arr if arr.indices_sorted else bcoo_sort_indices(arr)
        data, indices = arr.full
        rows = arr.sparse_shape[0]

        def pointers(row: Any) -> Any:
            counts = wnp.zeros(rows + 1, row.dtype).at[row + 1].add(1, mode="drop")
            return wnp.cumsum(counts, dtype=row.dtype)

        indptr = vmap_batches(pointers, arr.n_batch)(indices[..., 0])
        return cls(
            (data, indices[..., 1], indptr),
            shape=arr.shape,
            indices_sorted=True,
            unique_indices=arr.unique_indices,
        )

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """Make a sparse array of the nonzero elements of a dense one; see `bcsr_fromdense`."""
        return bcsr_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCSR:
        """Convert a SciPy matrix."""
        fix = "BCSR.from_scipy_sparse(mat); for a stack of matrices BCSR.fromdense(x, n_batch=1)"
        check_scipy(cls, mat, n_batch, n_dense, fix)
        rows = mat.tocsr()
        index_dtype = index_dtype or np.int32
        return cls((rows.data, rows.indices.astype(index_dtype), rows.indptr.astype(index_dtype)), shape=mat.shape)

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
    ) -> BCSR:
        """Return an array of zeros, with room for `nse` elements in each batch."""
        batch, own, dense = split_shape(shape, n_batch, n_dense)
        if len(own) != 2:
            raise ArgumentError("BCSR needs two sparse dimensions.", received=f"shape={tuple(shape)}")
        indices = wnp.full((*batch, nse), own[1], index_dtype)
        indptr = wnp.zeros((*batch, own[0] + 1), index_dtype)
        return cls((wnp.zeros((*batch, nse, *dense), dtype), indices, indptr), shape=shape)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, **options: Any) -> BCSR:
        """Return an array of shape (N, M) with ones on the diagonal `k`."""
        return cls.from_bcoo(BCOO._eye(N, M, k, **options))

    def todense(self) -> Any:
        return bcsr_todense(self)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """Merge duplicate indices and sort them; with `remove_zeros` zero elements are dropped too."""
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse=nse, remove_zeros=remove_zeros))

    def transpose(self, axes: Sequence[int] | None = None) -> BCSR:
        order = tuple(reversed(range(self.ndim))) if axes is None else axes
        return BCSR.from_bcoo(bcoo_transpose(self.to_bcoo(), permutation=order))


tree.register_pytree_node(BCSR, BCSR.tree_flatten, BCSR.tree_unflatten)


def _coordinates(indices: Any, indptr: Any, rows: int, last: int) -> Any:
    """Return rows and columns of the entries of one batch."""
    entry = lax.iota(indptr.dtype, indices.shape[0])
    row = wnp.searchsorted(indptr, entry, side="right").astype(indices.dtype) - 1
    padding = entry >= indptr[-1]
    return wnp.stack([wnp.where(padding, rows, row), wnp.where(padding, last, indices)], axis=-1).astype(indices.dtype)


@combining_ranks
def bcsr_todense(mat: BCSR) -> Any:
    """Convert a BCSR to a dense array."""
    check_sparse("bcsr_todense", mat, BCSR)
    return mat.to_bcoo().todense()


@combining_ranks
def bcsr_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = np.int32
) -> BCSR:
    """Make a BCSR of the nonzero elements of a dense array. Arguments are those of `bcoo_fromdense`."""
    mat = wnp.asarray(mat)
    if mat.ndim - n_batch - n_dense != 2:
        raise ArgumentError(
            "bcsr_fromdense needs two sparse dimensions.",
            received=f"shape {mat.shape}, n_batch={n_batch}, n_dense={n_dense}",
        )
    return BCSR.from_bcoo(bcoo_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype))


@combining_ranks
def bcsr_extract(indices: Any, indptr: Any, mat: Any) -> Any:
    """Gather the elements of a dense array at the entries of a pattern: the data of a BCSR."""
    indices, indptr, mat = wnp.asarray(indices), wnp.asarray(indptr), wnp.asarray(mat)
    n = indices.ndim - 1
    rows, last = mat.shape[n : n + 2]
    coordinates = vmap_batches(lambda i, p: _coordinates(i, p, rows, last), n)(indices, indptr)
    return extract(coordinates, mat, n)


@combining_ranks
def bcsr_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Contract a BCSR with a dense array as `lax.dot_general` does, in either order; see `bcoo_dot_general`."""
    operands = [m.to_bcoo() if isinstance(m, BCSR) else m for m in (lhs, rhs)]
    if not any(isinstance(m, BCSR) for m in (lhs, rhs)):
        check_sparse("bcsr_dot_general", lhs, BCSR)
    return bcoo_dot_general(
        *operands,
        dimension_numbers=dimension_numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )


@combining_ranks
def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """Merge duplicate indices; see `bcoo_sum_duplicates`."""
    check_sparse("bcsr_sum_duplicates", mat, BCSR)
    return BCSR.from_bcoo(bcoo_sum_duplicates(mat.to_bcoo(), nse=nse))


@combining_ranks
def bcsr_broadcast_in_dim(
    mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCSR:
    """Broadcast to a larger shape; see `bcoo_broadcast_in_dim`. New dimensions are batch or dense ones."""
    check_sparse("bcsr_broadcast_in_dim", mat, BCSR)
    found = bcoo_broadcast_in_dim(
        mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions, sharding=sharding
    )
    return BCSR.from_bcoo(found)


@combining_ranks
def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """Concatenate arrays of one layout along a dimension."""
    for operand in operands:
        check_sparse("bcsr_concatenate", operand, BCSR)
    return BCSR.from_bcoo(bcoo_concatenate([m.to_bcoo() for m in operands], dimension=dimension))
