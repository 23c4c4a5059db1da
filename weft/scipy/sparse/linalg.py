"""Iterative solvers of linear systems `A x = b`: conjugate gradients, BiCGSTAB, GMRES.

The operator may be a function, vectors may be trees of arrays, and results are differentiated by the system that they
solve, not through the iterations: derivatives cost one more solution each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft.api.differentiate import linear_transpose
from weft.api.inspect import eval_shape
from weft.base import dtypes, tree
from weft.base.arguments import described, index
from weft.base.errors import ArgumentError, ArgumentTypeError, MissingRuleError, ShapeMismatchError, TreeMismatchError
from weft.base.publish import publish as _publish
from weft.ir.types import get_aval
from weft.numpy.complex_parts import conjugate
from weft.numpy.linalg.decompositions import qr
from weft.numpy.util import ensure_array
from weft.trace.array import Array

__all__ = ["bicgstab", "cg", "gmres"]

Operator = Callable[[Any], Any]


def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-05,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:
    """Solve `A x = b` by conjugate gradients, for an operator that is Hermitian and positive definite.

    Args:
        A: a function from a vector to a vector, or a square matrix. A vector is a tree of arrays.
        b: the right side.
        x0: where to begin; zero by default.
        tol: the iteration ends when the norm of `b - A x` is at most `max(tol * norm(b), atol)`.
        atol: see `tol`.
        maxiter: at most this many iterations, 10 times the number of elements of b by default.
        M: a preconditioner, function or matrix: about the inverse of A, and Hermitian and positive definite as well.

    Returns:
        (x, None). The second may one day say how the iteration ended.

    >>> import weft.numpy as np
    >>> from weft.scipy.sparse.linalg import cg
    >>> x, _ = cg(lambda x: np.array([4.0, 1.0]) * x, np.array([2.0, 3.0]))
    >>> x.round(4)
    Array([0.5, 3. ], dtype=float32)
    """
    return _solve_with_derivatives("cg", _cg, A, b, x0, tol, atol, maxiter, M, hermitian=True), None


def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-05,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:
    """Solve `A x = b` by the stabilised biconjugate gradient method, for any invertible operator.

    Arguments and results are those of `cg`; M need not be Hermitian. If the method breaks down, it returns the latest
    iterate.

    >>> import weft.numpy as np
    >>> from weft.scipy.sparse.linalg import bicgstab
    >>> x, _ = bicgstab(np.array([[4.0, 1.0], [0.0, 2.0]]), np.array([5.0, 2.0]))
    >>> x.round(4)
    Array([1., 1.], dtype=float32)
    """
    return _solve_with_derivatives("bicgstab", _bicgstab, A, b, x0, tol, atol, maxiter, M), None


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-05,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, Any]:
    """Solve `A x = b` by the generalised minimal residual method, for any invertible operator.

    Args:
        A, b, x0, tol, atol, M: as in `cg`; M need not be Hermitian.
        restart: of how many dimensions the Krylov spaces are, in which residuals are minimised.
        maxiter: at most this many such spaces, 10 times the number of elements of b by default.
        solve_method: "batched" minimises when a space is complete; "incremental" after each of its vectors, so that it
            can end earlier, with more small operations.

    Returns:
        (x, info), where info is 0, or -1 if x has NaN.

    >>> import weft.numpy as np
    >>> from weft.scipy.sparse.linalg import gmres
    >>> x, info = gmres(np.array([[4.0, 1.0], [0.0, 2.0]]), np.array([5.0, 2.0]))
    >>> x.round(4)
    Array([1., 1.], dtype=float32)
    """
    if solve_method not in ("batched", "incremental"):
        raise ArgumentError(f"gmres: invalid solve_method {solve_method!r}.", fix="'batched' or 'incremental'")
    space = _krylov_by_qr if solve_method == "batched" else _krylov_incremental
    method = functools.partial(_gmres, restart=index(restart), space=space)
    x = _solve_with_derivatives("gmres", method, A, b, x0, tol, atol, maxiter, M)
    failed = functools.reduce(lax.bitwise_or, (lax.reduce_or(lax.ne(v, v), range(v.ndim)) for v in tree.leaves(x)))
    return x, lax.select(failed, np.int32(-1), np.int32(0))


# ---------------------------------------------------------------------------------------- arguments, and derivatives


def _solve_with_derivatives(
    name: str,
    method: Callable[..., Any],
    A: Any,
    b: Any,
    x0: Any,
    tol: Any,
    atol: Any,
    maxiter: Any,
    M: Any,
    hermitian: bool = False,
) -> Any:
    """Run `method(operator, right, start, tol, atol, maxiter, preconditioner)`, with derivatives by the system."""
    operator = _operator(name, "A", A)
    preconditioner = (lambda v: v) if M is None else _operator(name, "M", M)
    b = _right_side(name, operator, b)
    start = tree.map(lax.zeros_like_array, b) if x0 is None else _start(name, x0, b)
    size = sum(leaf.size for leaf in tree.leaves(b))
    limit = 10 * size if maxiter is None else maxiter
    real = not any(dtypes.kind(leaf.dtype) == "c" for leaf in tree.leaves(b))

    def solve(matvec: Operator, right: Any) -> Any:
        return method(matvec, right, lax.stop_gradient(start), tol, atol, limit, preconditioner)

    def transpose_solve(vecmat: Operator, right: Any) -> Any:
        zero = tree.map(lax.zeros_like_array, right)
        return method(vecmat, right, zero, tol, atol, limit, _transpose_preconditioner(M, preconditioner, right))

    return lax.custom_linear_solve(operator, b, solve, transpose_solve, symmetric=hermitian and real)


def _operator(name: str, what: str, A: Any) -> Operator:
    if callable(A):
        return A
    if not hasattr(A, "__matmul__") or not hasattr(A, "shape"):
        raise ArgumentTypeError(
            f"{name}: the linear operator {what} must be a function or a matrix.",
            received=described(A),
            fix="lambda x: ..., which returns A x in the structure of x",
        )
    if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
        raise ShapeMismatchError(f"{name}: {what} must be a square matrix.", received=f"shape {tuple(A.shape)}")
    matrix = ensure_array(A) if isinstance(A, np.ndarray) else A
    return lambda x: matrix @ x


def _transpose_preconditioner(M: Any, preconditioner: Operator, example: Any) -> Operator:
    """Transpose the preconditioner for the transposed system. A preconditioner that cannot be transposed, e.g. one with
    a `while_loop`, is used unchanged: the method may take longer, but ends at the same solution.
    """
    if M is None:
        return preconditioner
    if not callable(M):
        matrix = ensure_array(M) if isinstance(M, np.ndarray) else M
        return lambda x: matrix.T @ x

    def transpose(x: Any) -> Any:
        return linear_transpose(preconditioner, example)(x)[0]

    try:
        eval_shape(transpose, example)
    except MissingRuleError:
        return preconditioner
    return transpose


def _right_side(name: str, operator: Operator, b: Any) -> Any:
    """Convert b to the dtypes of solutions, which the operator must preserve: at least floating-point."""

    def inexact(x: Any) -> Array:
        x = ensure_array(x)
        return lax.convert_element_type(x, dtypes.to_inexact_dtype(x.dtype))

    b = tree.map(inexact, b)
    found = eval_shape(operator, b)
    if tree.structure(found) != tree.structure(b):
        raise TreeMismatchError(
            f"{name}: A must return a value in the structure of b.",
            received=f"{tree.structure(found)} for {tree.structure(b)}",
        )
    for right, out in zip(tree.leaves(b), tree.leaves(found), strict=True):
        if right.shape != out.shape:
            raise ShapeMismatchError(
                f"{name}: A must return arrays of the shapes of b.", received=f"{out.shape} for {right.shape}"
            )
    return tree.map(
        lambda x, out: lax.convert_element_type(x, dtypes.promote_types(x.dtype, out.dtype)),
        b,
        found,
    )


def _start(name: str, x0: Any, b: Any) -> Any:
    if tree.structure(x0) != tree.structure(b):
        raise TreeMismatchError(
            f"{name}: x0 and b must have matching tree structure.",
            received=f"{tree.structure(x0)} for {tree.structure(b)}",
        )
    pairs = list(zip(tree.leaves(x0), tree.leaves(b), strict=True))
    for start, right in pairs:
        if get_aval(start).shape != right.shape:  # type: ignore[attr-defined]
            raise ShapeMismatchError(
                f"{name}: arrays in x0 and b must have matching shapes.",
                received=f"{get_aval(start).short()} for {right.aval.short()}",
            )
    return tree.map(lambda start, right: lax.convert_element_type(start, right.dtype), x0, b)


# ------------------------------------------------------------------------------------------------- vectors as trees


def _dot(x: Any, y: Any) -> Any:
    """Compute the inner product, conjugated in x."""

    def leaf(a: Any, b: Any) -> Any:
        axes = tuple(range(a.ndim))
        return lax.dot_general(conjugate(a), b, ((axes, axes), ((), ())), precision=lax.Precision.HIGHEST)

    return functools.reduce(lambda a, b: a + b, tree.leaves(tree.map(leaf, x, y)))


def _square_norm(x: Any) -> Any:
    """Return the sum of squared magnitudes, a real number."""
    return lax.real(found) if dtypes.kind((found := _dot(x, x)).dtype) == "c" else found


def _plus(x: Any, factor: Any, y: Any) -> Any:
    """Compute x + factor y in the dtypes of x."""
    return tree.map(lambda a, b: (a + factor * b).astype(a.dtype), x, y)


def _minus(x: Any, y: Any) -> Any:
    return tree.map(lambda a, b: (a - b).astype(a.dtype), x, y)


def _square_of_limit(right: Any, tol: Any, atol: Any) -> Any:
    """Return the square of the residual norm at which the iteration stops."""
    squares = _square_norm(right)
    tol, atol = (lax.convert_element_type(x, squares.dtype) for x in (tol, atol))
    return lax.max(tol * tol * squares, atol * atol)


def _ratio(above: Any, below: Any) -> Any:
    """Divide, with 0 where the divisor is 0: in systems that have converged already."""
    zero = lax.eq(below, lax.full_like(below, 0))
    return lax.select(zero, lax.full_like(above, 0), above / lax.select(zero, lax.full_like(below, 1), below))


# ------------------------------------------------------------------------------------------------------ the methods


def _cg(operator: Operator, right: Any, x: Any, tol: Any, atol: Any, maxiter: Any, preconditioner: Operator) -> Any:
    enough = _square_of_limit(right, tol, atol)

    def goes_on(state: Any) -> Any:
        _, residual, _, _, k = state
        return (_square_norm(residual) > enough) & (k < maxiter)

    def improve(state: Any) -> Any:
        x, residual, gamma, direction, k = state
        image = operator(direction)
        step = _ratio(gamma, _dot(direction, image).astype(gamma.dtype))
        x, residual = _plus(x, step, direction), _plus(residual, -step, image)
        z = preconditioner(residual)
        new_gamma = _dot(residual, z).astype(gamma.dtype)
        return x, residual, new_gamma, _plus(z, _ratio(new_gamma, gamma), direction), k + 1

    residual = _minus(right, operator(x))
    direction = tree.map(lambda a, b: b.astype(a.dtype), x, preconditioner(residual))
    return lax.while_loop(goes_on, improve, (x, residual, _dot(residual, direction), direction, 0))[0]


def _bicgstab(
    operator: Operator, right: Any, x: Any, tol: Any, atol: Any, maxiter: Any, preconditioner: Operator
) -> Any:
    enough = _square_of_limit(right, tol, atol)
    shadow = residual = _minus(right, operator(x))

    def goes_on(state: Any) -> Any:
        _, residual, *_, working, k = state
        return (_square_norm(residual) > enough) & (k < maxiter) & working

    def improve(state: Any) -> Any:
        x, residual, direction, image, alpha, omega, rho, _, k = state
        new_rho = _dot(shadow, residual).astype(rho.dtype)
        beta = _ratio(new_rho, rho) * _ratio(alpha, omega)
        direction = _plus(residual, beta, _plus(direction, -omega, image))
        preconditioned = preconditioner(direction)
        image = tree.map(lambda a, b: b.astype(a.dtype), x, operator(preconditioned))
        alpha = _ratio(new_rho, _dot(shadow, image).astype(rho.dtype))
        middle = _plus(residual, -alpha, image)
        preconditioned_middle = preconditioner(middle)
        middle_image = operator(preconditioned_middle)
        omega = _ratio(_dot(middle_image, middle), _dot(middle_image, middle_image)).astype(rho.dtype)
        x = _plus(_plus(x, alpha, preconditioned), omega, preconditioned_middle)
        residual = _plus(middle, -omega, middle_image)
        # With any of these zero the next step would not move: the method has broken down, or is at its end.
        working = (new_rho != 0) & (alpha != 0) & (omega != 0)
        return x, residual, direction, image, alpha, omega, new_rho, working, k + 1

    zero = tree.map(lax.zeros_like_array, x)
    one = lax.full_like(_dot(residual, residual), 1)
    state = x, residual, zero, zero, one, one, one, True, 0
    return lax.while_loop(goes_on, improve, state)[0]


def _gmres(
    operator: Operator,
    right: Any,
    x: Any,
    tol: Any,
    atol: Any,
    maxiter: Any,
    preconditioner: Operator,
    restart: int,
    space: Callable[..., Any],
) -> Any:
    enough = lax.sqrt(_square_of_limit(right, tol, atol))
    size = min(restart, sum(leaf.size for leaf in tree.leaves(right)))

    def matvec(v: Any) -> Any:
        """Apply the preconditioner first, so that residuals are those of the system."""
        return tree.map(lambda a, b: b.astype(a.dtype), v, operator(preconditioner(v)))

    def goes_on(state: Any) -> Any:
        _, _, norm, k = state
        return (norm > enough) & (k < maxiter)

    def improve(state: Any) -> Any:
        x, residual, norm, k = state
        basis, coefficients = space(matvec, tree.map(lambda r: r / norm.astype(r.dtype), residual), norm, size, enough)
        x = tree.map(lambda a, b: a + b.astype(a.dtype), x, preconditioner(_combine(basis, coefficients)))
        residual = _minus(right, operator(x))
        return x, residual, lax.sqrt(_square_norm(residual)), k + 1

    residual = _minus(right, operator(x))
    return lax.while_loop(goes_on, improve, (x, residual, lax.sqrt(_square_norm(residual)), 0))[0]


def _combine(basis: Any, coefficients: Any) -> Any:
    """Sum the vectors of a basis, stacked along the first axis, times their coefficients."""
    return tree.map(
        lambda b: lax.dot_general(
            coefficients.astype(b.dtype),
            b[: coefficients.shape[0]],
            (((0,), (0,)), ((), ())),
            precision=lax.Precision.HIGHEST,
        ),
        basis,
    )


def _empty_basis(first: Any, size: int) -> Any:
    """Allocate a basis of `size` zero vectors after the first."""
    return tree.map(lambda v: lax.pad(v[None], np.zeros((), v.dtype), [(0, size, 0)] + [(0, 0, 0)] * v.ndim), first)


def _extend(matvec: Operator, basis: Any, k: Any) -> tuple[Any, Any, Any]:
    """Extend a basis by the image of its k-th vector, orthogonalised against the others. Also return the inner products
    (a column of the Hessenberg matrix) and the norm of the remainder.
    """
    v = matvec(tree.map(lambda b: lax.dynamic_index_in_dim(b, k, 0, keepdims=False), basis))
    before = _square_norm(v)

    def products(v: Any) -> Any:
        def leaf(b: Any, w: Any) -> Any:
            axes = tuple(range(w.ndim))
            rest = tuple(a + 1 for a in axes)
            return lax.dot_general(conjugate(b), w, ((rest, axes), ((), ())), precision=lax.Precision.HIGHEST)

        return functools.reduce(lambda a, b: a + b, tree.leaves(tree.map(leaf, basis, v)))

    column: Any = 0
    for _ in range(2):  # the second time removes what rounding left
        parts = products(v)
        v = _minus(v, _combine(basis, parts))
        column = column + parts
    norm = lax.sqrt(_square_norm(v))
    # A remainder of rounding errors is no direction: the space is complete.
    eps = np.asarray(10 * float(dtypes.finfo(norm.dtype).eps), norm.dtype)
    norm = lax.select(norm > eps * lax.sqrt(before), norm, lax.full_like(norm, 0))
    unit = tree.map(lambda w: _ratio(w, norm.astype(w.dtype)), v)
    basis = tree.map(lambda b, u: lax.dynamic_update_index_in_dim(b, u, k + 1, 0), basis, unit)
    column = lax.dynamic_update_index_in_dim(column, norm.astype(column.dtype), k + 1, 0)
    return basis, column, norm


def _krylov_by_qr(matvec: Operator, first: Any, norm: Any, size: int, enough: Any) -> tuple[Any, Any]:
    """Return a basis of the Krylov space, and the coefficients of the vector in it that minimises the residual."""
    dtype = _dot(first, first).dtype

    def goes_on(state: Any) -> Any:
        _, _, left, k = state
        return (k < size) & (left > 0)

    def extend(state: Any) -> Any:
        basis, columns, _, k = state
        basis, column, left = _extend(matvec, basis, k)
        return basis, lax.dynamic_update_index_in_dim(columns, column, k, 0), left, k + 1

    # Columns that are not reached are independent of the rest, and their vectors zero.
    columns = np.eye(size, size + 1, dtype=dtype)
    basis, columns, *_ = lax.while_loop(goes_on, extend, (_empty_basis(first, size), columns, norm, 0))
    q, r = qr(columns.T)
    right = norm.astype(dtype) * conjugate(q[0])
    coefficients = lax.linalg.triangular_solve(r, right[:, None], left_side=True)[:, 0]
    return basis, coefficients


def _krylov_incremental(matvec: Operator, first: Any, norm: Any, size: int, enough: Any) -> tuple[Any, Any]:
    """Return basis and coefficients as `_krylov_by_qr` does; rotations make the Hessenberg matrix triangular as it
    grows, so that the norm of the residual is known after each vector.
    """
    dtype = _dot(first, first).dtype

    def goes_on(state: Any) -> Any:
        *_, right, left, k = state
        return (k < size) & (left > 0) & (lax.abs(lax.dynamic_index_in_dim(right, k, 0, keepdims=False)) > enough)

    def extend(state: Any) -> Any:
        basis, columns, rotations, _, _, k = state
        basis, column, left = _extend(matvec, basis, k)
        column = rotations @ column
        a, b = (lax.dynamic_index_in_dim(column, i, 0, keepdims=False) for i in (k, k + 1))
        length = lax.sqrt(_square_norm([a, b]))
        one = lax.full_like(a, 1)
        cosine = lax.select(length > 0, _ratio(a, length.astype(a.dtype)), one)
        sine = _ratio(b, length.astype(b.dtype))
        rows = lax.dynamic_slice_in_dim(rotations, k, 2, 0)
        top = conjugate(cosine) * rows[0] + conjugate(sine) * rows[1]
        bottom = cosine * rows[1] - sine * rows[0]
        rotations = lax.dynamic_update_slice_in_dim(rotations, lax.concatenate([top[None], bottom[None]], 0), k, 0)
        column = lax.dynamic_update_index_in_dim(column, length.astype(dtype), k, 0)
        column = lax.dynamic_update_index_in_dim(column, np.zeros((), dtype), k + 1, 0)
        columns = lax.dynamic_update_index_in_dim(columns, column, k, 0)
        return basis, columns, rotations, norm.astype(dtype) * rotations[:, 0], left, k + 1

    start = np.zeros(size + 1, dtype)
    start[0] = 1
    state = (
        _empty_basis(first, size),
        np.eye(size, size + 1, dtype=dtype),
        np.eye(size + 1, dtype=dtype),
        norm.astype(dtype) * start,
        norm,
        0,
    )
    basis, columns, _, right, _, k = lax.while_loop(goes_on, extend, state)
    reached = np.arange(size) < k
    right = lax.select(reached, right[:size], lax.full_like(right[:size], 0))
    triangle = columns.T[:size]
    return basis, lax.linalg.triangular_solve(triangle, right[:, None], left_side=True)[:, 0]


_publish(__name__)
