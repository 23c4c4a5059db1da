"""Systems of linear equations, inverses, least squares and rank."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import lax
from weft.api.custom import custom_jvp
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.lax import linalg as lax_linalg
from weft.numpy.contraction import matmul as matmul_broadcast
from weft.numpy.elementwise import absolute, multiply
from weft.numpy.linalg.decompositions import eigvalsh, svdvals
from weft.numpy.linalg.inputs import inexact, matrix, same_batch, square_matrix
from weft.numpy.logic import greater, greater_equal, logical_and, not_equal
from weft.numpy.reductions import any as any_, max as max_, sum as sum_
from weft.numpy.util import canonicalize_axis, concrete_or_error, ensure_array, ensure_arrays, expand_to
from weft.primitives.linalg.lu import solve as solve_matrices
from weft.primitives.linalg.matrix import (
    adjoint,
    as_columns,
    as_dtype,
    diagonal,
    hermitian_part,
    identity_like,
    matmul,
    real_dtype,
    real_part,
    scalar,
)
from weft.primitives.movement.shape import move_axis
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """Solve a x = b for square a of shape (..., n, n) and b of shape (n,) or (..., n, k).

    For a singular matrix the result contains infinities or NaN. Derivatives reuse the factors of a.

    Args:
        a: square matrices of shape (..., n, n).
        b: right-hand sides, of shape (n,) or (..., n, k).

    Returns:
        An array of the shape of `b`, with the leading axes of both.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> linalg.solve(wnp.array([[2.0, 0.0], [0.0, 4.0]]), wnp.array([2.0, 2.0]))
    Array([1. , 0.5], dtype=float32)
    """
    a, b = inexact("solve", a, b)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ArgumentError(
            f"Argument to solve must have shape [..., n, n], got {a.shape}.",
            fix="linalg.lstsq(a, b), which takes any matrix",
        )
    if not b.ndim or b.shape[-1 if b.ndim == 1 else -2] != a.shape[-1]:
        hint = f"b with {a.shape[-1]} rows, as many as the matrix has"
        if b.ndim == a.ndim - 1 and b.shape[-1] == a.shape[-1]:
            hint = "a batch of vectors is solve(a, b[..., None])[..., 0]"
        raise ArgumentError(f"Invalid shapes for solve: {a.shape}, {b.shape}.", fix=hint)
    if b.ndim == 1:
        b = lax.reshape(b, (b.shape[0], 1))
        (a, b) = same_batch("solve", a, b)
        x = solve_matrices(a, b)
        return lax.reshape(x, x.shape[:-1])
    if a.ndim == 2 and b.ndim > 2:
        # One matrix for a batch of right hand sides: they become columns, and the matrix is factored once.
        moved = move_axis(b, b.ndim - 2, 0)
        x = solve_matrices(a, lax.reshape(moved, (moved.shape[0], math.prod(moved.shape[1:]))))
        return move_axis(lax.reshape(x, moved.shape), 0, b.ndim - 2)
    return solve_matrices(*same_batch("solve", a, b))


def inv(a: ArrayLike) -> Array:
    """Invert square matrices.

    Args:
        a: square matrices of shape (..., n, n).

    Returns:
        Matrices of the shape of `a`; infinities or NaN where one is singular.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> linalg.inv(wnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    x = square_matrix("inv", a)
    return solve_matrices(x, identity_like(x))


@custom_jvp
def _pseudo_inverse(x: Any, tolerance: Any) -> tuple[Any, Any]:
    """Compute the pseudo-inverse and the singular values."""
    u, s, v = lax_linalg.svd(x, full_matrices=False)
    largest = max_(s, axis=-1, keepdims=True, initial=0)
    significant = greater(s, multiply(lax.reshape(tolerance, (*tolerance.shape, 1)), largest))
    safe = lax.select_n(significant, lax.full_like(s, 1), s)
    inverse = lax.select_n(significant, lax.full_like(s, 0), lax.div(lax.full_like(s, 1), safe))
    scaled = lax.mul(as_columns(as_dtype(inverse, x.dtype), (*inverse.shape, u.shape[-2])), adjoint(u))
    return matmul(adjoint(v), scaled), s


@_pseudo_inverse.defjvp
def _pseudo_inverse_jvp(primals: Any, tangents: Any) -> Any:
    """Differentiate by the formula of Golub and Pereyra, valid where the rank is constant, even for tied values."""
    (x, tolerance), (change, _) = primals, tangents
    p, s = _pseudo_inverse(x, tolerance)
    adjoint_change, adjoint_p = adjoint(change), adjoint(p)
    dp = lax.neg(_product(p, change, p))
    outside = lax.sub(adjoint_change, _product(adjoint_change, x, p))
    dp = lax.add(dp, _product(p, adjoint_p, outside))
    inner = lax.sub(adjoint_change, _product(p, x, adjoint_change))
    dp = lax.add(dp, _product(inner, adjoint_p, p))
    u, _, v = lax_linalg.svd(x, full_matrices=False)
    ds = diagonal(real_part(matmul(matmul(adjoint(u), change), adjoint(v))))
    return (p, s), (dp, ds)


def _product(x: Any, y: Any, z: Any) -> Any:
    """Multiply x y z in the order of less work: if one side of a matrix is long, its square may not fit into memory."""
    rows, left, right, columns = x.shape[-2], y.shape[-2], y.shape[-1], z.shape[-1]
    if rows * right * (left + columns) <= left * columns * (right + rows):
        return matmul(matmul(x, y), z)
    return matmul(x, matmul(y, z))


def _tolerance(x: Array, tolerance: Any, default: float) -> Array:
    """Return, for each matrix, the fraction of the largest singular value up to which values count as zero."""
    dtype = real_dtype(x.dtype)
    chosen = ensure_array(np.asarray(default, dtype) if tolerance is None else tolerance)
    return expand_to(lax.convert_element_type(chosen, dtype), x.shape[:-2])


def pinv(a: ArrayLike, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Array:
    """Compute the pseudo-inverse; singular values up to `rtol` times the largest count as zero.

    `rcond` is the older name of `rtol`. With `hermitian` the mean of a and its adjoint is inverted.

    Args:
        a: matrices of shape (..., m, n).
        rtol, rcond: the threshold, relative to the largest, up to which singular values count as zero.
        hermitian: whether `a` is Hermitian.

    Returns:
        Matrices of shape (..., n, m).

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> linalg.pinv(wnp.array([[2.0], [0.0]])).round(3)
    Array([[0.5, 0. ]], dtype=float32)
    """
    if rtol is not None and rcond is not None:
        raise ArgumentError("pinv: only one of rtol and rcond may be specified.")
    x = hermitian_part(square_matrix("pinv", a)) if hermitian else matrix("pinv", a)
    if not x.size:
        return lax.full((*x.shape[:-2], x.shape[-1], x.shape[-2]), 0, x.dtype)
    chosen = rcond if rtol is None else rtol
    default = 10.0 * max(x.shape[-2:]) * float(dtypes.finfo(real_dtype(x.dtype)).eps)
    return _pseudo_inverse(x, _tolerance(x, chosen, default))[0]


def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Solve least-squares problems: find the x of least length that minimizes |a x − b|.

    Singular values below `rcond` times the largest count as zero. Residuals are always returned unless `numpy_resid`,
    which makes them empty where NumPy does.

    Args:
        a: a matrix of shape (m, n).
        b: right-hand sides, of shape (m,) or (m, k).
        rcond: the threshold, relative to the largest, below which singular values count as zero.
        numpy_resid: whether residuals are empty where NumPy's are.

    Returns:
        A tuple of the solution, the sums of squared residuals, the rank and the singular values.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> x, *_ = linalg.lstsq(wnp.array([[1.0], [1.0]]), wnp.array([1.0, 3.0]))
    >>> x.round(3)
    Array([2.], dtype=float32)
    """
    a, b = inexact("lstsq", a, b)
    if a.ndim != 2 or b.ndim not in (1, 2):
        raise ArgumentTypeError(f"lstsq takes a matrix and one of rank 1 or 2, got shapes {a.shape} and {b.shape}.")
    rows, columns = a.shape
    if b.shape[0] != rows:
        raise ArgumentError(f"Leading dimensions of input arrays must match, got shapes {a.shape} and {b.shape}.")
    right = lax.reshape(b, (rows, 1)) if b.ndim == 1 else b
    real = real_dtype(a.dtype)
    eps, integer = float(dtypes.finfo(real).eps), dtypes.default_int_dtype()
    if not a.size:
        shape = (columns, right.shape[1])
        x, s, rank = lax.full(shape, 0, a.dtype), lax.full((0,), 0, real), lax.full((), 0, integer)
    else:
        limit = (
            eps * max(rows, columns)
            if rcond is None
            else (eps if isinstance(rcond, (int, float)) and rcond < 0 else rcond)
        )
        tolerance = _tolerance(a, limit, eps)
        inverse, s = _pseudo_inverse(a, tolerance)
        limits = multiply(tolerance, lax.index_in_dim(s, 0, 0, keepdims=False))
        counted = logical_and(greater_equal(s, limits), greater(s, scalar(0, s)))
        rank = sum_(counted, dtype=integer)
        x = matmul(inverse, right)
    if numpy_resid and (rows <= columns or _known_rank(rank) < columns):
        residuals = lax.full((0,), 0, real)
    else:
        residuals = sum_(lax.square(absolute(lax.sub(right, matmul(a, x)))), axis=0)
    return lax.reshape(x, (columns,)) if b.ndim == 1 else x, residuals, rank, s


def _known_rank(rank: Array) -> int:
    return int(
        concrete_or_error(
            rank,
            "lstsq with numpy_resid=True returns residuals of a size that depends on the rank.",
            "leave numpy_resid out, or call it outside of jit",
        )
    )


def matrix_power(a: ArrayLike, n: int) -> Array:
    """Multiply square matrices by themselves n times; a negative n is a power of the inverse."""
    (x,) = ensure_arrays("matrix_power", a)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ArgumentTypeError(f"matrix_power takes arrays of shape [..., n, n], got {x.shape}.")
    try:
        n = index(n)
    except TypeError:
        raise ArgumentTypeError(f"exponent must be an integer, got {n}.") from None
    if n < 0:
        x, n = inv(x), -n
    result = None
    while n:
        if n & 1:
            result = x if result is None else matmul_broadcast(result, x)
        n >>= 1
        if n:
            x = matmul_broadcast(x, x)
    return identity_like(x) if result is None else result


def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Array:
    """Count the singular values above `rtol` times the largest, or above `tol` itself."""
    if rtol is not None and tol is not None:
        raise ArgumentError("matrix_rank: only one of rtol and tol may be specified.")
    (x,) = inexact("matrix_rank", M)
    if x.ndim < 2:
        return lax.convert_element_type(any_(not_equal(x, scalar(0, x))), np.dtype(np.int32))
    s = absolute(eigvalsh(x)) if hermitian else svdvals(x)
    if tol is not None:
        limit = _tolerance(x, tol, 0.0)
    else:
        default = max(x.shape[-2:]) * float(dtypes.finfo(s.dtype).eps)
        limit = multiply(max_(s, axis=-1, initial=0), _tolerance(x, rtol, default))
    return sum_(greater(s, lax.reshape(limit, (*limit.shape, 1))), axis=-1, dtype=dtypes.default_int_dtype())


def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """Invert the linear map from the last axes to the first `ind` ones."""
    (x,) = ensure_arrays("tensorinv", a)
    ind = index(ind)
    if ind <= 0:
        raise ArgumentError(f"ind must be a positive integer; got ind={ind}")
    first, last = x.shape[:ind], x.shape[ind:]
    if math.prod(first) != math.prod(last):
        raise ArgumentError(
            "tensorinv is only possible when the product of the first `ind` dimensions equals that of the remaining "
            f"dimensions; got shape {x.shape} with ind={ind}."
        )
    return lax.reshape(inv(lax.reshape(x, (math.prod(first), math.prod(last)))), (*last, *first))


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: tuple[int, ...] | None = None) -> Array:
    """Solve tensordot(a, x, x.ndim) = b for x; `axes` of a are moved to its end first."""
    x, y = inexact("tensorsolve", a, b)
    if axes is not None:
        moved = [canonicalize_axis(i, x.ndim, "tensorsolve") for i in axes]
        x = lax.transpose(x, [*(i for i in range(x.ndim) if i not in moved), *moved])
    shape = x.shape[y.ndim :]
    if math.prod(x.shape) != math.prod(shape) ** 2 or math.prod(shape) != y.size:
        raise ArgumentError(
            "After moving axes to end, leading shape of a must match shape of b. "
            f"got a.shape={x.shape}, b.shape={y.shape}"
        )
    solved = solve(lax.reshape(x, (y.size, math.prod(shape))), lax.reshape(y, (y.size,)))
    return lax.reshape(solved, shape)
