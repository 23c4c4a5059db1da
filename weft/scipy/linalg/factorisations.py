"""Factorisations with SciPy's arguments, and systems of equations solved with them.

`overwrite_a`, `overwrite_b` and `check_finite` are accepted and mean nothing: arrays are immutable and not searched.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import lax
from weft.base.arguments import parts
from weft.base.errors import ArgumentError
from weft.lax import linalg as lax_linalg
from weft.numpy import linalg
from weft.numpy.linalg.inputs import inexact, matrix, same_batch, square_matrix
from weft.primitives.linalg.matrix import (
    adjoint,
    conjugate as conjugated,
    identity_like,
    matmul,
    real_dtype,
    resize,
    take_rows,
    triangle,
)
from weft.scipy.argument_docs import document
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@document("Triangular matrices; NaN where `a` is not positive definite.")
def cholesky(a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Compute the Cholesky factor of a positive definite matrix: U with Uᴴ U = a, or L with L Lᴴ = a if `lower`. Only
    that triangle is read.

    >>> import weft.numpy as wnp
    >>> import weft.scipy.linalg as scipy_linalg
    >>> scipy_linalg.cholesky(wnp.array([[4.0, 2.0], [2.0, 2.0]]))
    Array([[2., 1.],
           [0., 1.]], dtype=float32)
    """
    return linalg.cholesky(a, upper=not lower, symmetrize_input=False)


@document("A pair of the factor and `lower`.")
def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """Return the Cholesky factor and whether it is the lower one, as `cho_solve` expects them.

    >>> import weft.numpy as wnp
    >>> import weft.scipy.linalg as scipy_linalg
    >>> factor = scipy_linalg.cho_factor(wnp.array([[4.0, 0.0], [0.0, 1.0]]))
    >>> scipy_linalg.cho_solve(factor, wnp.array([4.0, 2.0]))
    Array([1., 2.], dtype=float32)
    """
    return cholesky(a, lower=lower), lower


@document("An array of the shape of `b`.", c_and_lower="what `cho_factor` returned.")
def cho_solve(
    c_and_lower: tuple[Any, bool], b: ArrayLike, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """Solve a x = b, given the result of `cho_factor(a)`.

    >>> import weft.numpy as wnp
    >>> import weft.scipy.linalg as scipy_linalg
    >>> factor = scipy_linalg.cho_factor(wnp.array([[4.0, 0.0], [0.0, 1.0]]))
    >>> scipy_linalg.cho_solve(factor, wnp.array([4.0, 2.0]))
    Array([1., 2.], dtype=float32)
    """
    c, lower = parts(c_and_lower, 2, "The first argument of cho_solve", "cho_solve(cho_factor(a), b)")
    return _with_columns("cho_solve", c, b, lambda c, b: _cholesky_solve(c, b, bool(lower)))


def _cholesky_solve(c: Any, b: Any, lower: bool) -> Any:
    b = lax_linalg.triangular_solve(c, b, left_side=True, lower=lower, transpose_a=not lower, conjugate_a=not lower)
    return lax_linalg.triangular_solve(c, b, left_side=True, lower=lower, transpose_a=lower, conjugate_a=lower)


def _with_columns(name: str, a: Any, b: Any, solve: Any) -> Array:
    """Solve for a right hand side that is a vector or has matrices in its last two axes."""
    a, b = inexact(name, a, b)
    vector = b.ndim == 1
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or not b.ndim or b.shape[-1 if vector else -2] != a.shape[-1]:
        first = {"cho_solve": "cho_factor(a)", "lu_solve": "lu_factor(a)"}.get(name, "a")
        raise ArgumentError(
            f"Invalid shapes for {name}: {a.shape}, {b.shape}.",
            received=f"{a.aval.short()} and {b.aval.short()}",
            fix=f"{name}({first}, b) with a of shape (..., n, n) and b of shape (n,) or (..., n, k)",
        )
    if vector:
        b = lax.reshape(b, (*b.shape, 1))
    x = solve(*same_batch(name, a, b))
    return lax.reshape(x, x.shape[:-1]) if vector else x


def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Array:
    """Solve op(a) x = b for triangular a.

    `trans` is 0 or "N" for a itself, 1 or "T" for its transposed, 2 or "C" for its adjoint.

    Args:
        a: square matrices of shape (..., n, n).
        b: right-hand sides, of shape (n,) or (..., n, k).
        trans: which of the three.
        lower: whether the lower triangle is used; the upper one by default.
        unit_diagonal: whether the diagonal counts as ones.
        overwrite_b: accepted for compatibility; arrays do not change.
        debug: accepted for compatibility.
        check_finite: accepted for compatibility; what is not finite stays so.

    Returns:
        An array of the shape of `b`.

    >>> import weft.numpy as wnp
    >>> import weft.scipy.linalg as scipy_linalg
    >>> scipy_linalg.solve_triangular(wnp.array([[1.0, 0.0], [2.0, 1.0]]), wnp.array([1.0, 4.0]), lower=True)
    Array([1., 2.], dtype=float32)
    """
    names = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}
    if trans not in names:
        raise ArgumentError(f"trans must be 0, 1, 2, 'N', 'T' or 'C', got {trans!r}.")
    kind = names[trans]

    def solve(a: Any, b: Any) -> Any:
        return lax_linalg.triangular_solve(
            a,
            b,
            left_side=True,
            lower=lower,
            transpose_a=kind > 0,
            conjugate_a=kind == 2,
            unit_diagonal=unit_diagonal,
        )

    return _with_columns("solve_triangular", a, b, solve)


@document("A pair of matrices and integer pivots.")
def lu_factor(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """Return L and U in one matrix, and the pivots, as `lu_solve` expects them.

    >>> import weft.numpy as wnp
    >>> import weft.scipy.linalg as scipy_linalg
    >>> lu, pivots = scipy_linalg.lu_factor(wnp.array([[1.0, 2.0], [2.0, 4.5]]))
    >>> pivots
    Array([1, 1], dtype=int32)
    """
    factors, pivots, _ = lax_linalg.lu(matrix("lu_factor", a))
    return factors, pivots


@document("An array of the shape of `b`.", lu_and_piv="what `lu_factor` returned.", trans="0, 1 or 2.")
def lu_solve(
    lu_and_piv: tuple[Any, Any], b: ArrayLike, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """Solve op(a) x = b, given the result of `lu_factor(a)`; `trans` is 0 for a, 1 for aᵀ, 2 for aᴴ.

    >>> import weft.numpy as wnp
    >>> import weft.scipy.linalg as scipy_linalg
    >>> factor = scipy_linalg.lu_factor(wnp.array([[2.0, 0.0], [0.0, 4.0]]))
    >>> scipy_linalg.lu_solve(factor, wnp.array([2.0, 2.0]))
    Array([1. , 0.5], dtype=float32)
    """
    factors, pivots = parts(lu_and_piv, 2, "The first argument of lu_solve", "lu_solve(lu_factor(a), b)")
    if trans not in (0, 1, 2):
        raise ArgumentError(f"trans must be 0, 1, or 2, got {trans!r}.")

    def solve(factors: Any, b: Any) -> Any:
        size = factors.shape[-1]
        order = lax_linalg.lu_pivots_to_permutation(pivots, size)
        order = lax.broadcast_in_dim(
            order, factors.shape[:-1], tuple(range(factors.ndim - 1 - order.ndim, factors.ndim - 1))
        )
        if trans == 0:
            b = lax_linalg.triangular_solve(
                factors, take_rows(b, order), left_side=True, lower=True, unit_diagonal=True
            )
            return lax_linalg.triangular_solve(factors, b, left_side=True)
        turned = {"left_side": True, "transpose_a": True, "conjugate_a": trans == 2}
        b = lax_linalg.triangular_solve(factors, b, **turned)
        b = lax_linalg.triangular_solve(factors, b, lower=True, unit_diagonal=True, **turned)
        return take_rows(b, _inverse(order))

    return _with_columns("lu_solve", factors, b, solve)


def _inverse(order: Any) -> Any:
    """Invert permutations along the last axis."""
    axis = order.ndim - 1
    _, inverse = lax.sort((order, lax.broadcasted_iota(np.int32, order.shape, axis)), dimension=axis, num_keys=1)
    return inverse


def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, ...]:
    """Return P, L and U with a = P L U; with `permute_l`, P L and U."""
    x = matrix("lu", a)
    factors, _, permutation = lax_linalg.lu(x)
    rows, columns = x.shape[-2:]
    small = min(rows, columns)
    lower = triangle(resize(factors, rows, small), lower=True, offset=-1)
    lower = lax.add(lower, identity_like(lower))
    upper = triangle(resize(factors, small, columns), lower=False)
    inverse = _inverse(permutation)
    if permute_l:
        return take_rows(lower, inverse), upper
    square = lax.full((*x.shape[:-2], rows, rows), 0, real_dtype(x.dtype))
    return take_rows(identity_like(square), inverse), lower, upper


def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array, ...]:
    """Return Q and R with a = Q R; with `pivoting` also p with a[:, p] = Q R. mode: "full", "economic", or "r" for R
    alone."""
    if mode not in ("full", "economic", "r"):
        raise ArgumentError(f"Unsupported QR decomposition mode {mode!r}; it is 'full', 'economic' or 'r'.")
    found = lax_linalg.qr(matrix("qr", a), pivoting=pivoting, full_matrices=mode != "economic")
    return found[1:] if mode == "r" else found


def qr_multiply(
    a: Any,
    c: Any,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Array, ...]:
    """Return c Q (mode "right") or Q c ("left") for the Q of a = Q R, and R; with `conjugate`, use the conjugate of
    Q."""
    if mode not in ("left", "right"):
        raise ArgumentError(f"Mode argument should be either 'left' or 'right', got {mode!r}.")
    a, c = inexact("qr_multiply", a, c)
    vector = c.ndim == 1
    q, *rest = lax_linalg.qr(a, pivoting=pivoting, full_matrices=False)
    if mode == "left":
        c = lax.reshape(c, (*c.shape, 1)) if vector else c
        q = _fitting(a, q, c.shape[-2], pivoting)
    else:
        c = lax.reshape(c, (1, *c.shape)) if vector else c
    if conjugate:
        q = conjugated(q)
    product = matmul(q, c) if mode == "left" else matmul(c, q)
    return (lax.reshape(product, (product.size,)) if vector else product), *rest


def _fitting(a: Any, q: Any, size: int, pivoting: bool) -> Any:
    """Extend Q to the number of columns that the multiplied matrix has rows."""
    return q if q.shape[-1] == size else lax_linalg.qr(a, pivoting=pivoting, full_matrices=True)[0]


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """Return U, s, Vᴴ with a = U diag(s) Vᴴ; s alone unless `compute_uv`."""
    if lapack_driver not in ("gesdd", "gesvd"):
        raise ArgumentError(f"lapack_driver must be 'gesdd' or 'gesvd', got {lapack_driver!r}.")
    found = linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)
    return tuple(found) if compute_uv else found


def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """Return eigenvalues and eigenvectors of Hermitian matrices; with b, of a x = w b x for positive definite b.

    type: 1 for a x = w b x, 2 for a b x = w x, 3 for b a x = w x.
    """
    if eigvals is not None:
        raise ArgumentError(f"eigh got eigvals={eigvals!r}; compute all eigenvalues and select some of them.")
    x = square_matrix("eigh", a)
    if b is None:
        v, w = lax_linalg.eigh(x, lower=lower)
        return w if eigvals_only else (w, v)
    if type not in (1, 2, 3):
        raise ArgumentError(f"type must be 1, 2 or 3, got {type!r}.")
    x, y = same_batch("eigh", *inexact("eigh", x, b))
    factor = lax_linalg.cholesky(y)
    if type == 1:  # with b = L Lᴴ: the problem of L⁻¹ a L⁻ᴴ
        inner = lax_linalg.triangular_solve(factor, x, left_side=True, lower=True)
        inner = lax_linalg.triangular_solve(factor, inner, lower=True, transpose_a=True, conjugate_a=True)
    else:  # the problem of Lᴴ a L
        inner = matmul(adjoint(factor), matmul(x, factor))
    v, w = lax_linalg.eigh(inner)
    if eigvals_only:
        return w
    if type == 3:
        return w, matmul(factor, v)
    return w, lax_linalg.triangular_solve(factor, v, left_side=True, lower=True, transpose_a=True, conjugate_a=True)


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Compute the determinant."""
    return linalg.det(a)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Invert square matrices."""
    return linalg.inv(a)


@document(
    "An array of the shape of `b`.", debug="accepted for compatibility.", assume_a='"gen", "sym", "her" or "pos".'
)
def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """Solve a x = b. With `assume_a="pos"` a is positive definite and its Cholesky factor is used.

    >>> import weft.numpy as wnp
    >>> import weft.scipy.linalg as scipy_linalg
    >>> scipy_linalg.solve(wnp.array([[2.0, 0.0], [0.0, 4.0]]), wnp.array([2.0, 2.0]), assume_a="pos")
    Array([0.99999994, 0.5       ], dtype=float32)
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ArgumentError(f"Expected assume_a to be one of 'gen', 'sym', 'her', 'pos', got {assume_a!r}.")
    if assume_a != "pos":
        return linalg.solve(a, b)
    return _with_columns("solve", a, b, lambda a, b: _cholesky_solve(cholesky(a, lower=lower), b, lower))
