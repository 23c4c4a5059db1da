"""Factorizations of matrices and eigenvalues."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.base.errors import ArgumentError
from weft.lax import linalg as lax_linalg
from weft.numpy.argument_docs import document
from weft.numpy.linalg.inputs import matrix, square_matrix
from weft.primitives.linalg.matrix import adjoint, flip, hermitian_part
from weft.primitives.linalg.qr import geqrf
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors, one per column."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """Eigenvalues in ascending order and eigenvectors, one per column."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """Factors with Q @ R equal to the matrix."""

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """Factors with U @ diag(S) @ Vh equal to the matrix."""

    U: Array
    S: Array
    Vh: Array


def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """Compute the Cholesky factorization of positive definite matrices; NaN where a is not positive definite.

    Returns the lower triangular L with L Lᴴ = a, or with `upper` the upper triangular U with Uᴴ U = a.

    Args:
        a: square matrices of shape (..., n, n).
        upper: whether to return the upper factor.
        symmetrize_input: whether the mean of `a` and its adjoint is factored; otherwise one triangle is read.

    Returns:
        Triangular matrices of the shape of `a`.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> linalg.cholesky(wnp.array([[4.0, 2.0], [2.0, 2.0]]))
    Array([[2., 0.],
           [1., 1.]], dtype=float32)
    """
    x = square_matrix("cholesky", a)
    factor = lax_linalg.cholesky(adjoint(x) if upper else x, symmetrize_input=symmetrize_input)
    return adjoint(factor) if upper else factor


def eig(a: ArrayLike) -> EigResult:
    """Compute eigenvalues and right eigenvectors of square matrices, always complex. Vectors have length 1.

    Args:
        a: square matrices of shape (..., n, n).

    Returns:
        A named tuple of `eigenvalues` (..., n) and `eigenvectors` (..., n, n), in columns. Vectors have derivatives
        where eigenvalues are distinct.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> linalg.eig(wnp.array([[2.0, 0.0], [0.0, 3.0]])).eigenvalues
    Array([2.+0.j, 3.+0.j], dtype=complex64)
    """
    w, v = lax_linalg.eig(square_matrix("eig", a), compute_left_eigenvectors=False)
    return EigResult(w, v)


def eigvals(a: ArrayLike) -> Array:
    """Compute eigenvalues of square matrices, always complex."""
    return lax_linalg.eig(
        square_matrix("eigvals", a), compute_left_eigenvectors=False, compute_right_eigenvectors=False
    )[0]


def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Compute eigenvalues (ascending) and eigenvectors of Hermitian matrices.

    With `symmetrize_input` the mean of a and its adjoint is decomposed, else the triangle that `UPLO` names is read.

    Args:
        a: square matrices of shape (..., n, n).
        UPLO: "L" or "U", the triangle that is read unless `symmetrize_input`.
        symmetrize_input: whether the mean of `a` and its adjoint is decomposed.

    Returns:
        A named tuple of real `eigenvalues` (..., n) and `eigenvectors` (..., n, n), in columns. Derivatives are finite
        where eigenvalues coincide, if the differentiated function does not depend on the choice of vectors.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> linalg.eigh(wnp.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    Array([1., 2.], dtype=float32)
    """
    if UPLO not in (None, "L", "U"):
        raise ArgumentError(f"UPLO must be one of None, 'L', or 'U', got {UPLO!r}.")
    x = square_matrix("eigh", a)
    v, w = lax_linalg.eigh(x, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(w, v)


def eigvalsh(a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Array:
    """Compute eigenvalues of Hermitian matrices, in ascending order.

    Args:
        a: square matrices of shape (..., n, n).
        UPLO: "L" or "U", the triangle that is read unless `symmetrize_input`.
        symmetrize_input: whether the mean of `a` and its adjoint is decomposed.

    Returns:
        Real numbers of shape (..., n).

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> linalg.eigvalsh(wnp.array([[2.0, 0.0], [0.0, 1.0]]))
    Array([1., 2.], dtype=float32)
    """
    return eigh(a, UPLO, symmetrize_input).eigenvalues


def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """Compute Q with orthonormal columns and upper triangular R such that a = Q R.

    mode: "reduced" for as many columns as needed, "complete" (or "full") for a square Q, "r" for R alone, "raw" for the
    reflectors and factors of LAPACK, transposed as NumPy has them.

    Args:
        a: matrices of shape (..., m, n).
        mode: "reduced", "complete", "r" or "raw".

    Returns:
        A named tuple of `Q` and `R`; R alone for mode "r".

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> q, r = linalg.qr(wnp.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> (q @ r).round(3)
    Array([[3., 1.],
           [4., 2.]], dtype=float32)
    """
    x = matrix("qr", a)
    if mode in ("reduced", "r", "full", "complete"):
        q, r = lax_linalg.qr(x, full_matrices=mode in ("full", "complete"))
        return r if mode == "r" else QRResult(q, r)
    if mode == "raw":
        reflectors, factors = geqrf(x)
        return QRResult(flip(reflectors), factors)
    raise ArgumentError(f"Unsupported QR decomposition mode {mode!r}; it is 'reduced', 'complete', 'r' or 'raw'.")


def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """Compute U, S, Vh such that a = U diag(S) Vh, with S in descending order; return S alone unless `compute_uv`.

    With `hermitian` the mean of a and its adjoint is decomposed. Vectors have derivatives with full_matrices=False, or
    where the matrix is square.

    Args:
        a: matrices of shape (..., m, n).
        full_matrices: whether U and Vh are square.
        compute_uv: whether to return U and Vh.
        hermitian: whether `a` is Hermitian.
        subset_by_index: the first and one past the last singular value to return.

    Returns:
        A named tuple of `U`, `S` and `Vh`, or S alone.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> linalg.svd(wnp.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False).round(3)
    Array([4., 3.], dtype=float32)
    """
    x = square_matrix("svd", a) if hermitian else matrix("svd", a)
    if hermitian:
        x = hermitian_part(x)
    out = lax_linalg.svd(x, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index)
    return SVDResult(*out) if compute_uv else out


@document("Real numbers of shape (..., min(m, n)).", x="matrices of shape (..., m, n).")
def svdvals(x: ArrayLike, /) -> Array:
    """Compute singular values, in descending order.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> linalg.svdvals(wnp.array([[3.0, 0.0], [0.0, 4.0]])).round(3)
    Array([4., 3.], dtype=float32)
    """
    return svd(x, compute_uv=False)
