"""Linear algebra. The last two axes of an argument are matrices; those before them are a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError, publish as _publish
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import inexact, operation, tensor
from weft.scipy.linalg import lu_factor as _lu_factor, solve_triangular as _solve_triangular


def _square(x: Any) -> Any:
    """Convert an argument to square matrices of floats; raise an error if they are not square."""
    x = inexact(x)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ArgumentError("The last two axes must have the same size.", received=f"shape {x.shape}")
    return x


@operation
def cholesky(x: Any, upper: bool = False) -> Any:
    """Compute the Cholesky factor of symmetric positive definite matrices.

    Args:
        x: square matrices.
        upper: whether to return the upper triangular factor instead of the lower one.

    Returns:
        Triangular matrices `l` with `l @ l.T == x`, or `u` with `u.T @ u == x`.
    """
    return wnp.linalg.cholesky(_square(x), upper=upper)


@operation
@document("Symmetric matrices.", x="triangular matrices.", upper="whether they are upper triangular.")
def cholesky_inverse(x: Any, upper: bool = False) -> Any:
    """Compute the inverse of matrices from their Cholesky factors."""
    x = _square(x)
    identity = wnp.broadcast_to(wnp.eye(x.shape[-1], dtype=x.dtype), x.shape)
    inverse = _solve_triangular(x, identity, lower=not upper)
    transposed = wnp.swapaxes(inverse, -1, -2)
    return inverse @ transposed if upper else transposed @ inverse


@operation
@document("An array without the last two axes.", x="square matrices.")
def det(x: Any) -> Any:
    """Compute the determinant of square matrices."""
    return wnp.linalg.det(_square(x))


@operation
@document("A pair of complex eigenvalues and a matrix whose columns are eigenvectors.", x="square matrices.")
def eig(x: Any) -> Any:
    """Compute the eigenvalues and eigenvectors of square matrices."""
    values, vectors = wnp.linalg.eig(_square(x))
    return values, vectors


@operation
def eigh(x: Any) -> Any:
    """Compute the eigenvalues and eigenvectors of symmetric matrices.

    Args:
        x: symmetric matrices.

    Returns:
        A pair of eigenvalues in increasing order and a matrix whose columns are eigenvectors.
    """
    values, vectors = wnp.linalg.eigh(_square(x))
    return values, vectors


@operation
@document("Matrices of the same shape.", x="square matrices.")
def inv(x: Any) -> Any:
    """Compute the inverse of square matrices."""
    return wnp.linalg.inv(_square(x))


@operation
def jvp(fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """Compute the value of a function and its derivative in a direction.

    Args:
        fun: a function of arrays.
        primals: its arguments, a tuple or list.
        tangents: the direction, likewise.
        has_aux: whether the function returns a pair of its value and something else.

    Returns:
        The value and the derivative, and with `has_aux` what else the function returned.
    """
    convert = lambda args: tuple(weft.tree.map(inexact, arg) for arg in args)
    return weft.jvp(fun, convert(primals), convert(tangents), has_aux=has_aux)


@operation
def lstsq(a: Any, b: Any, rcond: float | None = None) -> Any:
    """Solve `a @ x = b` for the vectors of least norm with the least squared error.

    Args:
        a: a matrix.
        b: a vector, or a matrix of right hand sides.
        rcond: singular values below `rcond` times the largest count as 0.

    Returns:
        A vector or matrix.
    """
    return wnp.linalg.lstsq(inexact(a), inexact(b), rcond=rcond)[0]


@operation
@document("A pair of matrices with both factors, and the row that was exchanged with each row.", x="matrices.")
def lu_factor(x: Any) -> Any:
    """Compute the LU factors of matrices with row exchanges."""
    factors, pivots = _lu_factor(inexact(x))
    return factors, pivots


@operation
def matrix_rank(x: Any, tol: Any = None) -> Any:
    """Compute the rank of matrices: the number of singular values that are not 0.

    Args:
        x: matrices.
        tol: singular values below it count as 0; by default it follows from the dtype and the largest one.

    Returns:
        An array of int32 without the last two axes.
    """
    x = inexact(x)
    values = wnp.linalg.svd(x, compute_uv=False)
    if tol is None:
        tol = values.max(-1, keepdims=True) * max(x.shape[-2:]) * wnp.finfo(x.dtype).eps
    else:
        tol = wnp.expand_dims(tensor(tol), -1)
    return wnp.sum(values > tol, axis=-1).astype("int32")


@operation
@document(
    "An array of floats without these axes.",
    "print(keras.ops.norm([3.0, 4.0])) -> 5.0",
    ord='which: a number, infinity, "fro" or "nuc"; the root of the sum of squares by default.',
    axis="the axis of vectors, or the pair of axes of matrices; None takes all axes.",
)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Compute the norm of vectors or matrices."""
    return wnp.linalg.norm(inexact(x), ord, tuple(axis) if isinstance(axis, list) else axis, keepdims)


@operation
def pinv(x: Any, rcond: float | None = None) -> Any:
    """Compute the pseudo-inverse of matrices.

    Args:
        x: matrices.
        rcond: singular values below `rcond` times the largest count as 0.

    Returns:
        Matrices of the transposed shape.
    """
    return wnp.linalg.pinv(inexact(x), rcond)


@operation
@document("A pair of matrices.", x="matrices.", mode='"reduced", or "complete" for a square orthogonal matrix.')
def qr(x: Any, mode: str = "reduced") -> Any:
    """Factor matrices into orthogonal and upper triangular ones."""
    if mode not in ("reduced", "complete"):
        raise ArgumentError("`mode` must be 'reduced' or 'complete'.", received=f"mode={mode!r}")
    orthogonal, triangular = wnp.linalg.qr(inexact(x), mode)
    return orthogonal, triangular


@operation
@document("A pair of arrays without the last two axes.", x="square matrices.")
def slogdet(x: Any) -> Any:
    """Compute the sign of the determinant of square matrices, and the logarithm of its absolute value."""
    sign, logarithm = wnp.linalg.slogdet(_square(x))
    return sign, logarithm


@operation
@document("An array of the shape of `b`.", a="square matrices.", b="vectors, or matrices of right hand sides.")
def solve(a: Any, b: Any) -> Any:
    """Solve `a @ x = b`."""
    a, b = _square(a), inexact(b)
    return wnp.linalg.solve(a, b[..., None])[..., 0] if b.ndim == a.ndim - 1 else wnp.linalg.solve(a, b)


@operation
def solve_triangular(a: Any, b: Any, lower: bool = False) -> Any:
    """Solve `a @ x = b` for triangular matrices.

    Args:
        a: triangular matrices.
        b: vectors, or matrices of right hand sides.
        lower: whether they are lower triangular.

    Returns:
        An array of the shape of `b`.
    """
    a, b = _square(a), inexact(b)
    if b.ndim == a.ndim - 1:
        return _solve_triangular(a, b[..., None], lower=lower)[..., 0]
    return _solve_triangular(a, b, lower=lower)


@operation
def svd(x: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Compute the singular value decomposition of matrices.

    Args:
        x: matrices.
        full_matrices: whether the orthogonal matrices are square.
        compute_uv: whether they are returned at all.

    Returns:
        The left singular vectors, the singular values and the transposed right singular vectors, or only the values.
    """
    found = wnp.linalg.svd(inexact(x), full_matrices, compute_uv)
    return tuple(found) if compute_uv else found


_publish(__name__)
