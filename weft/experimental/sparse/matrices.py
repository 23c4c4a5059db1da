"""COO, CSR and CSC: sparse matrices without batch and dense dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.base import tree
from weft.base.errors import ArgumentError
from weft.experimental.sparse.base import JAXSparse, check_sparse
from weft.experimental.sparse.bcoo import BCOO, bcoo_fromdense
from weft.experimental.sparse.bcsr import BCSR
from weft.experimental.sparse.products import bcoo_dot_general, check_rank
from weft.numpy.util import combining_ranks


class Matrix(JAXSparse):
    """Base class of the two-dimensional formats, each a BCOO in another representation."""

    def to_bcoo(self) -> BCOO:
        """Convert to a BCOO."""
        raise NotImplementedError

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> Any:
        """Convert a BCOO with two sparse dimensions."""
        raise NotImplementedError

    @property
    def nse(self) -> int:
        return self.data.shape[0]

    def todense(self) -> Any:
        return self.to_bcoo().todense()

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> Any:
        """Make a sparse matrix of the nonzero elements of a dense one. `nse` bounds their number and must be passed
        under `jit`."""
        check_rank(f"{cls.__name__}.fromdense", mat, 2)
        return cls.from_bcoo(bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype))

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype: Any = None, index_dtype: Any = "int32") -> Any:
        """Return a matrix of zeros."""
        if len(shape) != 2:
            raise ArgumentError(f"{cls.__name__} needs a shape of two dimensions.", received=f"shape={tuple(shape)}")
        return cls.from_bcoo(BCOO._empty(shape, dtype=dtype, index_dtype=index_dtype))

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: Any = None, index_dtype: Any = "int32") -> Any:
        """Return a matrix of shape (N, M) with ones on the diagonal `k`."""
        return cls.from_bcoo(BCOO._eye(N, M, k, dtype=dtype, index_dtype=index_dtype))

    def _check_axes(self, axes: Sequence[int] | None) -> bool:
        """Return whether a transposition changes the order of axes."""
        if axes is None:
            return True
        order = tuple(a % 2 for a in axes)
        if sorted(order) != [0, 1]:
            raise ArgumentError("transpose of a matrix needs a permutation of its two axes.", received=f"{axes}")
        return order == (1, 0)


class COO(Matrix):
    """Sparse matrix of coordinates.

    Args:
        args: `(data, row, col)`, three vectors of one length.
        shape: the shape of the matrix.
        rows_sorted, cols_sorted: whether entries are in the order of rows, or of columns.
    """

    row: Any
    col: Any

    def __init__(
        self,
        args: tuple[Any, Any, Any],
        *,
        shape: Sequence[int],
        rows_sorted: bool = False,
        cols_sorted: bool = False,
    ) -> None:
        super().__init__(args, shape=shape)
        self.data, self.row, self.col = map(wnp.asarray, args)
        self._rows_sorted, self._cols_sorted = rows_sorted, cols_sorted

    @property
    def _bufs(self) -> tuple[Any, Any, Any]:
        return self.data, self.row, self.col

    def tree_flatten(self) -> tuple[tuple[Any, Any, Any], Any]:
        """Return the buffers, and the static data."""
        return self._bufs, (self.shape, self._rows_sorted, self._cols_sorted)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> COO:
        found = object.__new__(cls)
        found.data, found.row, found.col = children
        found.shape, found._rows_sorted, found._cols_sorted = aux_data
        return found

    def to_bcoo(self) -> BCOO:
        indices = wnp.stack([self.row, self.col], axis=-1)
        return BCOO((self.data, indices), shape=self.shape)

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> COO:
        data, indices = mat.full
        return cls((data, indices[:, 0], indices[:, 1]), shape=mat.shape, rows_sorted=mat.indices_sorted)

    def transpose(self, axes: Sequence[int] | None = None) -> COO:
        if not self._check_axes(axes):
            return self
        flags = {"rows_sorted": self._cols_sorted, "cols_sorted": self._rows_sorted}
        return COO((self.data, self.col, self.row), shape=self.shape[::-1], **flags)


class Compressed(Matrix):
    """Base class of CSR and CSC: entries in the order of one coordinate, with pointers to the first entry of each of
    its values."""

    indices: Any
    indptr: Any

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Sequence[int]) -> None:
        super().__init__(args, shape=shape)
        self.data, self.indices, self.indptr = map(wnp.asarray, args)

    @property
    def _bufs(self) -> tuple[Any, Any, Any]:
        return self.data, self.indices, self.indptr

    def tree_flatten(self) -> tuple[tuple[Any, Any, Any], Any]:
        """Return the buffers, and the static data."""
        return self._bufs, self.shape

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> Any:
        found = object.__new__(cls)
        found.data, found.indices, found.indptr = children
        found.shape = aux_data
        return found


class CSR(Compressed):
    """Sparse matrix of compressed rows.

    Args:
        args: `(data, indices, indptr)`: the entries, their columns, and where each row begins.
        shape: the shape of the matrix.
    """

    def to_bcoo(self) -> BCOO:
        return BCSR(self._bufs, shape=self.shape).to_bcoo()

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> CSR:
        return cls(BCSR.from_bcoo(mat)._bufs, shape=mat.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        return CSC(self._bufs, shape=self.shape[::-1]) if self._check_axes(axes) else self


class CSC(Compressed):
    """Sparse matrix of compressed columns.

    Args:
        args: `(data, indices, indptr)`: the entries, their rows, and where each column begins.
        shape: the shape of the matrix.
    """

    def to_bcoo(self) -> BCOO:
        return BCSR(self._bufs, shape=self.shape[::-1]).to_bcoo().T

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> CSC:
        return cls(BCSR.from_bcoo(mat.T)._bufs, shape=mat.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        return CSR(self._bufs, shape=self.shape[::-1]) if self._check_axes(axes) else self


for _format in (COO, CSR, CSC):
    tree.register_pytree_node(_format, _format.tree_flatten, _format.tree_unflatten)


def _product(function: str, mat: Any, kind: type, other: Any, rank: int, transpose: bool) -> Any:
    check_sparse(function, mat, kind)
    check_rank(function, other, rank)
    numbering = (((0 if transpose else 1,), (0,)), ((), ()))
    return bcoo_dot_general(mat.to_bcoo(), other, dimension_numbers=numbering)


@combining_ranks
def coo_todense(mat: COO) -> Any:
    """Convert a COO to a dense matrix."""
    check_sparse("coo_todense", mat, COO)
    return mat.todense()


@combining_ranks
def coo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
    """Make a COO of the nonzero elements of a dense matrix."""
    return COO.fromdense(mat, nse=nse, index_dtype=index_dtype)


@combining_ranks
def coo_matvec(mat: COO, v: Any, transpose: bool = False) -> Any:
    """Multiply a COO, or its transpose, with a vector."""
    return _product("coo_matvec", mat, COO, v, 1, transpose)


@combining_ranks
def coo_matmat(mat: COO, B: Any, *, transpose: bool = False) -> Any:
    """Multiply a COO, or its transpose, with a dense matrix."""
    return _product("coo_matmat", mat, COO, B, 2, transpose)


@combining_ranks
def csr_todense(mat: CSR) -> Any:
    """Convert a CSR to a dense matrix."""
    check_sparse("csr_todense", mat, CSR)
    return mat.todense()


@combining_ranks
def csr_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
    """Make a CSR of the nonzero elements of a dense matrix."""
    return CSR.fromdense(mat, nse=nse, index_dtype=index_dtype)


@combining_ranks
def csr_matvec(mat: CSR, v: Any, transpose: bool = False) -> Any:
    """Multiply a CSR, or its transpose, with a vector."""
    return _product("csr_matvec", mat, CSR, v, 1, transpose)


@combining_ranks
def csr_matmat(mat: CSR, B: Any, *, transpose: bool = False) -> Any:
    """Multiply a CSR, or its transpose, with a dense matrix."""
    return _product("csr_matmat", mat, CSR, B, 2, transpose)
