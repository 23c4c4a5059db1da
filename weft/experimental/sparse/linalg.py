"""Linear algebra of sparse matrices: solving linear systems, and a few extreme eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import lax
from weft.api.callbacks import pure_callback
from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.base.lazy import lazy
from weft.base.publish import publish as _publish
from weft.experimental.sparse.matrices import CSR
from weft.ir.types import ShapeDtypeStruct

sparse = lazy("scipy.sparse")
sparse_linalg = lazy("scipy.sparse.linalg")


def spsolve(data: Any, indices: Any, indptr: Any, b: Any, tol: float = 1e-6, reorder: int = 1) -> Any:
    """Solve A x = b for a square matrix A of compressed rows.

    Args:
        data, indices, indptr: the entries of A, their columns, and where each row begins.
        b: the right-hand side, a vector.
        tol: the smallest pivot that counts as not 0, where the solver asks for one; SciPy's does not.
        reorder: 0 for no reordering of columns, 1 (the default), 2 and 3 for one that saves entries.

    Returns:
        x. SciPy solves the system on the host. Derivatives with respect to `data` (of its pattern) and `b`, in forward
        and reverse mode, are solutions of systems with A and its transpose.

        >>> import weft.numpy as wnp
        >>> from weft.experimental import sparse
        >>> from weft.experimental.sparse.linalg import spsolve
        >>> A = sparse.CSR.fromdense(wnp.array([[2.0, 0.0], [1.0, 4.0]]))
        >>> spsolve(A.data, A.indices, A.indptr, wnp.array([2.0, 9.0]))
        Array([1., 2.], dtype=float32)
    """
    data, indices, indptr, b = map(wnp.asarray, (data, indices, indptr, b))
    size = b.shape[0] if b.ndim == 1 else -1
    if size < 0 or indptr.shape != (size + 1,) or indices.shape != data.shape or data.ndim != 1:
        raise ArgumentError(
            "spsolve needs the three vectors of a square CSR matrix, and a vector.",
            received=f"data {data.shape}, indices {indices.shape}, indptr {indptr.shape}, b {b.shape}",
        )
    if reorder not in (0, 1, 2, 3):
        raise ArgumentError("spsolve: reorder must be 0, 1, 2 or 3.", received=f"{reorder}")
    dtype = dtypes.to_inexact_dtype(wnp.result_type(data.dtype, b.dtype))
    data, b = data.astype(dtype), b.astype(dtype)
    ordering = "NATURAL" if reorder == 0 else "COLAMD"

    def solver(transposed: bool) -> Any:
        def solve(_: Any, right: Any) -> Any:
            def host(data: Any, indices: Any, indptr: Any, right: Any) -> Any:
                matrix = sparse.csr_matrix((np.array(data), np.array(indices), np.array(indptr)), shape=(size, size))
                found = sparse_linalg.spsolve((matrix.T if transposed else matrix).tocsc(), right, permc_spec=ordering)
                return np.asarray(found, dtype).reshape(size)

            shape = ShapeDtypeStruct((size,), dtype)
            return pure_callback(host, shape, data, indices, indptr, right, vmap_method="sequential")

        return solve

    matrix = CSR((data, indices, indptr), shape=(size, size)).to_bcoo()
    return lax.custom_linear_solve(lambda x: matrix @ x, b, solve=solver(False), transpose_solve=solver(True))


def lobpcg_standard(A: Any, X: Any, m: int = 100, tol: Any = None) -> tuple[Any, Any, Any]:
    """Compute the largest eigenvalues of a symmetric matrix and their eigenvectors, by the locally optimal block
    conjugate gradient method.

    Args:
        A: a symmetric matrix, dense or sparse, of shape (n, n), or a function that applies it to matrices of shape
            (n, k).
        X: a first guess of k eigenvectors, of shape (n, k), with 5 k at most n.
        m: the greatest number of iterations.
        tol: how large a residual may be, relative to the eigenvalue and the matrix; by default what the dtype allows.

    Returns:
        The k eigenvalues in descending order, the eigenvectors as columns, and the number of iterations.

        >>> import weft.numpy as wnp
        >>> from weft.experimental.sparse.linalg import lobpcg_standard
        >>> values, vectors, iterations = lobpcg_standard(wnp.diag(wnp.arange(1.0, 9.0)), wnp.ones((8, 1)))
        >>> print(round(float(values[0]), 4))
        8.0
    """
    X = wnp.asarray(X)
    if X.ndim != 2 or X.shape[1] == 0 or 5 * X.shape[1] > X.shape[0]:
        raise ArgumentError(
            "lobpcg_standard needs a matrix of k vectors of at least 5 k components.",
            received=f"shape {X.shape}",
            fix="weft.numpy.linalg.eigh for small matrices",
        )
    n, k = X.shape
    apply = A if callable(A) else lambda x: A @ x
    tolerance = float(np.finfo(X.dtype).eps) * 10 if tol is None else tol

    def orthonormal(vectors: Any, count: int) -> Any:
        """Return an orthonormal basis; linearly dependent directions become 0."""
        left, singular, _ = wnp.linalg.svd(vectors, full_matrices=False)
        independent = singular > float(np.finfo(X.dtype).eps) * n * singular[0]
        return wnp.where(independent[None, :count], left[:, :count], 0)

    def rayleigh_ritz(basis: Any) -> tuple[Any, Any, Any]:
        """Return the k largest Ritz values of an orthonormal basis, the Ritz vectors, and their coordinates."""
        image = apply(basis)
        values, vectors = wnp.linalg.eigh(basis.T @ image)
        # Zero directions have the Ritz value 0, which must not count, so they are sorted last.
        empty = wnp.sum(basis * basis, axis=0) < 0.5
        weight = wnp.where(empty[:, None], vectors**2, 0).sum(0)
        order = wnp.argsort(wnp.where(weight > 0.5, -wnp.inf, values), descending=True)[:k]
        return values[order], basis @ vectors[:, order], vectors[:, order]

    def get_state(basis: Any) -> tuple[Any, Any, Any]:
        theta, U, _ = rayleigh_ritz(basis)
        return theta, U, apply(U) - U * theta[None]

    def going(state: Any) -> Any:
        i, theta, _, R, _ = state
        size = wnp.linalg.norm(R, axis=0)
        return (i < m) & ~wnp.all(size <= tolerance * n * (wnp.abs(theta) + wnp.max(wnp.abs(theta))))

    def step(state: Any) -> Any:
        i, _, U, R, P = state
        # The residuals and the last directions, orthogonal to the eigenvectors and to each other.
        more = wnp.concatenate([R / wnp.maximum(wnp.linalg.norm(R, axis=0, keepdims=True), 1e-30), P], axis=1)
        for _ in range(2):
            more = more - U @ (U.T @ more)
        more = orthonormal(more, 2 * k)
        theta, V, coordinates = rayleigh_ritz(wnp.concatenate([U, more], axis=1))
        V = wnp.linalg.qr(V)[0] * wnp.where(wnp.sum(wnp.linalg.qr(V)[0] * V, axis=0, keepdims=True) < 0, -1, 1)
        direction = more @ coordinates[k:]
        length = wnp.maximum(wnp.linalg.norm(direction, axis=0, keepdims=True), 1e-30)
        return i + 1, theta, V, apply(V) - V * theta[None], direction / length

    theta, U, R = get_state(orthonormal(X, k))
    start = (np.int32(0), theta, U, R, wnp.zeros_like(U))
    i, theta, U, _, _ = lax.while_loop(going, step, start)
    return theta, U, i


_publish(__name__)
