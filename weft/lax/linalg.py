"""Factorizations and triangular systems: the basis of `weft.numpy.linalg` and `weft.scipy.linalg`.

Every function takes matrices in the last two dimensions of its operands and works over the leading ones.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from weft.base.errors import ArgumentError
from weft.base.publish import publish as _publish
from weft.lax.tridiagonal import solve_perturbed
from weft.primitives.elementwise.arithmetic import add, mul, sub
from weft.primitives.elementwise.compare import lt
from weft.primitives.elementwise.scalar import is_complex
from weft.primitives.elementwise.select import select_n
from weft.primitives.families import fail
from weft.primitives.linalg import (
    cholesky as _cholesky,
    condensed as linalg_reduce,
    eigen as linalg_eigen,
    lu as _lu,
    qr as _qr,
    reflectors as _reflectors,
    svd as linalg_svd,
    triangular as _triangular,
)
from weft.primitives.linalg.matrix import (
    adjoint,
    as_columns,
    as_dtype,
    conjugate,
    diagonal,
    flip,
    hermitian_part,
    matmul,
    scalar,
    scale,
    triangle,
)
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.shape import reshape
from weft.runtime.array import from_numpy
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


class SvdAlgorithm(Enum):
    """Ways to compute singular values; a hint, since all of them compute the same decomposition."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


class EigImplementation(Enum):
    """Libraries that compute eigenvalues of general matrices; a hint."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(Enum):
    """Ways to compute eigenvalues of Hermitian matrices; a hint."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


def _array(x: Any) -> Any:
    return x if isinstance(x, Array) else from_numpy(x)


def _symmetrize_input(name: str, x: Any) -> Any:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise fail(f"{name} needs square matrices, got shape {x.shape}.", fix="the last two dimensions must be equal")
    return hermitian_part(x)


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """Compute the lower triangular L with L Lᴴ = x for positive definite x; NaN where x is not positive definite.

    With `symmetrize_input` the mean of x and xᴴ is factored, which makes gradients symmetric; else the lower triangle
    is read.
    """
    x = _array(x)
    return _cholesky.cholesky(_symmetrize_input("cholesky", x) if symmetrize_input else x)


def cholesky_update(r_matrix: Any, w_vector: Any) -> Array:
    """Update an upper triangular R to the upper triangular R' with R'ᵀ R' = Rᵀ R + w wᵀ."""
    r, w = _array(r_matrix), _array(w_vector)
    if r.ndim < 2 or r.shape[-1] != r.shape[-2] or w.shape != r.shape[:-1]:
        raise fail(
            f"cholesky_update needs a square matrix and a vector that fits; got shapes {r.shape} and {w.shape}.",
            fix="give (n, n) and (n,)",
        )
    row = reshape(conjugate(w), new_sizes=(*w.shape[:-1], 1, w.shape[-1]), dimensions=None)
    stacked = concatenate(triangle(r, lower=False), row, dimension=r.ndim - 2)
    _, found = _qr.qr(stacked, pivoting=False, full_matrices=False)
    if is_complex(found):
        return found
    # LAPACK leaves the signs of the rows open: the diagonal is made positive, as that of a Cholesky factor is.
    negative = lt(as_columns(diagonal(found), found.shape), scalar(0, found))
    return select_n(negative, found, scale(found, -1))


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """Solve op(a) x = b, or x op(a) = b unless `left_side`, for triangular a.

    op transposes with `transpose_a` and conjugates with `conjugate_a`. Only the triangle that `lower` names is read. b
    may have one dimension less than a, and is then a vector.

    Only the triangle that `lower` names is read. b may have one dimension less than a, and is then a vector.
    """
    a, b = _array(a), _array(b)
    vector = b.ndim == a.ndim - 1
    if vector:
        shape = (*b.shape, 1) if left_side else (*b.shape[:-1], 1, b.shape[-1])
        b = reshape(b, new_sizes=shape, dimensions=None)
    out = _triangular.triangular_solve(
        a,
        b,
        left_side=bool(left_side),
        lower=bool(lower),
        transpose_a=bool(transpose_a),
        conjugate_a=bool(conjugate_a) and is_complex(a),
        unit_diagonal=bool(unit_diagonal),
    )
    if not vector:
        return out
    return reshape(out, new_sizes=out.shape[:-1] if left_side else (*out.shape[:-2], out.shape[-1]), dimensions=None)


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Array:
    """Solve T x = b for a tridiagonal T.

    T has `d` on its diagonal, `dl` below (dl[0] is not used) and `du` above (du[-1] is not used).

    If T is singular, x is NaN. With `perturb_singular` a pivot of exactly zero is replaced by a small number, the
    precision of the dtype times the largest element, so that the result is finite.
    """
    dl, d, du, b = _array(dl), _array(d), _array(du), _array(b)
    columns = b if b.ndim != d.ndim else reshape(b, new_sizes=(*b.shape, 1), dimensions=None)
    solve = solve_perturbed if perturb_singular else _triangular.tridiagonal_solve
    return reshape(solve(dl, d, du, columns), new_sizes=b.shape, dimensions=None)


def lu(x: ArrayLike) -> tuple[Array, Array, Array]:
    """Compute the LU factorization with partial pivoting, such that `x[permutation] == L @ U`.

    Returns L and U in one matrix (the diagonal of L is 1), the pivots of LAPACK counted from 0, and the permutation.

    `x[permutation] == L @ U`.
    """
    factors, pivots, permutation = _lu.lu(_array(x))
    return factors, pivots, permutation


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Array:
    """Return the permutation of `permutation_size` rows that results from swapping each row i with row pivots[i]."""
    return _lu.lu_pivots_to_permutation(_array(pivots), permutation_size=int(permutation_size))


def qr(
    x: ArrayLike, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None
) -> tuple[Array, ...]:
    """Compute Q with orthonormal columns and upper triangular R; with `pivoting` also p such that x[:, p] == Q @ R.

    `use_magma` chooses a library on GPUs and changes no result.
    """
    return tuple(_qr.qr(_array(x), pivoting=bool(pivoting), full_matrices=bool(full_matrices)))


def householder_product(a: ArrayLike, taus: Any) -> Array:
    """Compute the first columns of the product of the reflectors below the diagonal of a, as LAPACK's geqrf stores
    them."""
    return _reflectors.householder_product(_array(a), _array(taus))


def ormqr(a: ArrayLike, taus: Any, c: ArrayLike, *, left: bool = True, transpose: bool = False) -> Array:
    """Compute Q c, or c Q unless `left`, for the product Q of the reflectors in a; with `transpose`, use Qᴴ."""
    a, taus, c = _array(a), _array(taus), _array(c)
    _reflectors.check_reflectors("ormqr", a, taus)
    v, t = _reflectors.block_form(a, taus)
    if transpose:
        t = adjoint(t)
    if left:
        return sub(c, matmul(v, matmul(t, matmul(adjoint(v), c))))
    return sub(c, matmul(matmul(matmul(c, v), t), adjoint(v)))


def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Any:
    """Compute the decomposition x = U diag(s) Vᴴ with s in descending order; return s alone unless `compute_uv`."""
    out = linalg_svd.svd(
        _array(x),
        full_matrices=bool(full_matrices),
        compute_uv=bool(compute_uv),
        subset_by_index=subset_by_index,
        algorithm=algorithm,
    )
    if not compute_uv:
        return out[0]
    s, u, v = out
    return u, s, v


def eigh(
    x: ArrayLike,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Array, Array]:
    """Compute eigenvectors (columns) and eigenvalues (ascending) of Hermitian matrices, in this order.

    With `symmetrize_input` the mean of x and xᴴ is decomposed; else the triangle that `lower` names is read.
    """
    x = _array(x)
    v, w = linalg_eigen.eigh(
        _symmetrize_input("eigh", x) if symmetrize_input else x,
        lower=bool(lower),
        sort_eigenvalues=bool(sort_eigenvalues),
        subset_by_index=subset_by_index,
        algorithm=implementation,
    )
    return v, w


def eig(
    x: ArrayLike,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[Array]:
    """Compute the eigenvalues of general matrices, then left and right eigenvectors as requested, all complex.

    Vectors have derivatives whether or not `enable_eigvec_derivs` is given: those of vectors of length 1 with a real
    largest element, which is how they are returned.
    """
    return linalg_eigen.eig(
        _array(x),
        compute_left_eigenvectors=bool(compute_left_eigenvectors),
        compute_right_eigenvectors=bool(compute_right_eigenvectors),
        enable_eigvec_derivs=bool(enable_eigvec_derivs),
        implementation=implementation,
    )


def schur(
    x: ArrayLike,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> tuple[Array, ...]:
    """Compute the Schur form T and, if requested, the unitary Z with x = Z T Zᴴ; a real T may have 2x2 blocks."""
    return tuple(
        linalg_reduce.schur(
            _array(x),
            compute_schur_vectors=bool(compute_schur_vectors),
            sort_eig_vals=bool(sort_eig_vals),
            select_callable=select_callable,
        )
    )


def hessenberg(a: ArrayLike) -> tuple[Array, Array]:
    """Reduce to Hessenberg form; return it with the reflectors below its first subdiagonal, and their factors."""
    form, taus = linalg_reduce.hessenberg(_array(a))
    return form, taus


def tridiagonal(a: Any, *, lower: bool = True) -> tuple[Array, Array, Array, Array]:
    """Reduce Hermitian matrices to tridiagonal form; return form with reflectors, diagonal, off diagonal, factors."""
    form, d, e, taus = linalg_reduce.tridiagonal(_array(a), lower=bool(lower))
    return form, d, e, taus


def symmetric_product(
    a_matrix: Any, c_matrix: Any, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False
) -> Array:
    """Compute alpha a aᵀ + beta c; only the lower triangle is defined unless `symmetrize_output`."""
    a, c = _array(a_matrix), _array(c_matrix)
    product = matmul(a, flip(a))
    if product.shape != c.shape:
        raise fail(
            f"symmetric_product needs c of the shape of a aᵀ; got a of shape {a.shape} and c of shape {c.shape}.",
            fix=f"c must have shape {product.shape}",
        )
    out = add(scale(product, alpha), scale(c, beta))
    if symmetrize_output:
        strict = triangle(out, lower=True, offset=-1)
        out = add(triangle(out, lower=True), flip(strict))
    return out


def qdwh(
    x: Any,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Compute the polar decomposition x = U H of matrices with at least as many rows as columns.

    Returns U, H, the number of iterations and whether they converged. The factors come from the singular value
    decomposition, which is one step and does not depend on `is_hermitian`, `max_iterations` or `eps`.
    """
    x = _array(x)
    if dynamic_shape is not None:
        raise ArgumentError(f"qdwh got dynamic_shape={dynamic_shape!r}; give the matrix in its own shape, x[:m, :n].")
    if x.ndim < 2 or x.shape[-2] < x.shape[-1]:
        raise fail(f"qdwh needs at least as many rows as columns, got shape {x.shape}.", fix="decompose the transposed")
    u, s, v = svd(x, full_matrices=False)
    unitary = matmul(u, v)
    hermitian = matmul(adjoint(v), mul(as_columns(as_dtype(s, x.dtype), v.shape), v))
    return unitary, hermitian, from_numpy(np.int32(1)), from_numpy(np.bool_(True))


_publish(__name__)
