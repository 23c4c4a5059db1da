"""Determinants and their logarithms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft import lax
from weft.api.custom import custom_jvp
from weft.base.errors import ArgumentError
from weft.lax import linalg as lax_linalg
from weft.numpy.argument_docs import document
from weft.numpy.linalg.inputs import square_matrix
from weft.primitives.elementwise.scalar import is_complex
from weft.primitives.linalg.lu import solve
from weft.primitives.linalg.matrix import (
    adjoint,
    as_dtype,
    as_rows,
    diagonal,
    flip,
    identity_like,
    matmul,
    part,
    real_part,
    rows_and_columns,
    scalar,
    take_rows,
    zeros_like,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


class SlogdetResult(NamedTuple):
    """Sign and log magnitude of a determinant, which is sign * exp(logabsdet)."""

    sign: Array
    logabsdet: Array


def _parity(pivots: Any, like: Any) -> Any:
    """Return 1 or -1: the determinant of the permutation by the row swaps."""
    rank = len(pivots.shape)
    moved = lax.ne(pivots, lax.broadcasted_iota(np.int32, pivots.shape, rank - 1))
    count = lax.reduce_sum(lax.convert_element_type(moved, np.int32), (rank - 1,))
    odd = lax.rem(count, np.asarray(2, np.int32))
    return lax.sub(scalar(1, like), lax.mul(scalar(2, like), lax.convert_element_type(odd, like.dtype)))


def _trace(x: Any) -> Any:
    return lax.reduce_sum(diagonal(x), (len(x.shape) - 2,))


@custom_jvp
def _slogdet(x: Any) -> tuple[Any, Any]:
    factors, pivots, _ = lax_linalg.lu(x)
    values = diagonal(factors)
    axis = len(values.shape) - 1
    sign = lax.mul(_parity(pivots, x), lax.reduce_prod(lax.sign(values), (axis,)))
    return sign, lax.reduce_sum(lax.log(lax.abs(values)), (axis,))


@_slogdet.defjvp
def _slogdet_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (change,) = primals, tangents
    sign, logarithm = _slogdet(x)
    relative = _trace(solve(x, change))
    if not is_complex(x):
        return (sign, logarithm), (zeros_like(sign), relative)
    growth = real_part(relative)
    rotation = lax.sub(relative, as_dtype(growth, relative.dtype))
    return (sign, logarithm), (lax.mul(sign, rotation), growth)


def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """Compute the sign of the determinant and the logarithm of its magnitude, which does not overflow.

    `method` may be "lu" or "qr"; both compute the same, by elimination.

    Args:
        a: square matrices of shape (..., n, n).
        method: None, "lu" or "qr".

    Returns:
        A named tuple of `sign` and `logabsdet`, each of shape (...).

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> sign, logarithm = linalg.slogdet(wnp.array([[2.0, 0.0], [0.0, 0.5]]))
    >>> sign, logarithm
    (Array(1., dtype=float32), Array(0., dtype=float32))
    """
    if method not in (None, "lu", "qr"):
        raise ArgumentError(f"Unknown slogdet method {method!r}; it is 'lu' or 'qr'.")
    x = square_matrix("slogdet", a)
    return SlogdetResult(*_slogdet(x))


def _element(x: Any, row: int, column: int) -> Any:
    found = part(part(x, (row, row + 1), -2), (column, column + 1), -1)
    return lax.reshape(found, found.shape[:-2])


def _det_small(x: Any) -> Any:
    """Compute the determinant of matrices up to 3x3 as a polynomial, which has all its derivatives everywhere."""
    size = x.shape[-1]
    if size == 0:
        return lax.full(x.shape[:-2], 1, x.dtype)
    e = [[_element(x, i, j) for j in range(size)] for i in range(size)]
    if size == 1:
        return e[0][0]

    def minor(i: int, j: int, k: int, m: int) -> Any:
        return lax.sub(lax.mul(e[i][k], e[j][m]), lax.mul(e[i][m], e[j][k]))

    if size == 2:
        return minor(0, 1, 0, 1)
    first = lax.mul(e[0][0], minor(1, 2, 1, 2))
    second = lax.mul(e[0][1], minor(1, 2, 0, 2))
    return lax.add(lax.sub(first, second), lax.mul(e[0][2], minor(1, 2, 0, 1)))


@custom_jvp
def _det(x: Any) -> Any:
    factors, pivots, _ = lax_linalg.lu(x)
    values = diagonal(factors)
    return lax.mul(_parity(pivots, x), lax.reduce_prod(values, (len(values.shape) - 1,)))


@_det.defjvp
def _det_jvp(primals: Any, tangents: Any) -> Any:
    """Return the derivative tr(adj(x) dx), which exists everywhere: the adjugate is a polynomial in the elements."""
    (x,), (change,) = primals, tangents
    rank = len(x.shape)
    return _det(x), lax.reduce_sum(lax.mul(flip(_adjugate(x)), change), (rank - 2, rank - 1))


@custom_jvp
def _adjugate(x: Any) -> Any:
    """Compute the adjugate, which times `x` is det(x) times the identity, for sizes of at least 2."""
    factors, pivots, permutation = lax_linalg.lu(x)
    plain = _adjugate_of_factors(factors, pivots, permutation)
    # Only the last pivot may be zero. If an earlier one is, a reflection Q of the columns makes it the last, unless x
    # lacks two dimensions. adj(x) = adj(Q)⁻¹ adj(x Q), where adj(Q) = -Q.
    deficient = _has_zero_before_last(factors)

    def reflect(x: Any, plain: Any) -> Any:
        factors, pivots, permutation = lax_linalg.lu(_reflect(x))
        mixed = lax.neg(flip(_reflect(flip(_adjugate_of_factors(factors, pivots, permutation)))))
        mixed = lax.select_n(_broadcast_batch(_has_zero_before_last(factors), x.shape), mixed, zeros_like(x))
        return lax.select_n(_broadcast_batch(deficient, x.shape), plain, mixed)

    any_deficient = lax.reduce_or(deficient, tuple(range(len(deficient.shape))))
    return lax.cond(any_deficient, reflect, lambda x, plain: plain, x, plain)


def _has_zero_before_last(factors: Any) -> Any:
    values = part(diagonal(factors), (0, factors.shape[-1] - 1), -1)
    return lax.reduce_or(lax.eq(values, scalar(0, values)), (len(values.shape) - 1,))


def _reflect(x: Any) -> Any:
    """Multiply `x` by a fixed reflection I - 2 v vᵀ, whose v is unlikely to be special for any input."""
    size = x.shape[-1]
    v = np.sin(1 + np.sqrt(2) * np.arange(size, dtype=np.float64) ** 2)
    v = (v / np.sqrt(np.sum(v * v))).astype(x.dtype)
    column = lax.broadcast_in_dim(v, (*x.shape[:-2], size, 1), (len(x.shape) - 2,))
    row = lax.broadcast_in_dim(v, (*x.shape[:-2], 1, size), (len(x.shape) - 1,))
    return lax.sub(x, lax.mul(scalar(2, x), matmul(matmul(x, column), row)))


def _adjugate_of_factors(factors: Any, pivots: Any, permutation: Any) -> Any:
    """Compute the adjugate of L U without a division by the last pivot, which is zero for rank deficiency one."""
    shape, size = factors.shape, factors.shape[-1]
    values = diagonal(factors)
    axis = len(values.shape) - 1
    before_last = lax.reduce_prod(part(values, (0, size - 1), -1), (axis,))
    identity = identity_like(factors)
    y = lax_linalg.triangular_solve(
        factors, take_rows(identity, permutation), left_side=True, lower=True, unit_diagonal=True
    )
    # With U = [[A, c], [0, u]]: adj(U) y = det(A) [A⁻¹ (u y₁ − c y₂), y₂], all in one triangular system.
    _, columns = rows_and_columns(shape)
    is_last = lax.eq(columns, np.asarray(size - 1, np.int32))
    system = lax.select_n(is_last, factors, identity)
    column = part(factors, (size - 1, size), -1)
    unit = part(identity, (size - 1, size), -1)
    pivot = lax.reduce_sum(part(values, (size - 1, size), -1), (axis,))
    right = lax.add(
        lax.mul(_broadcast_batch(pivot, shape), y), matmul(lax.sub(unit, column), part(y, (size - 1, size), -2))
    )
    solved = lax_linalg.triangular_solve(system, lax.mul(_broadcast_batch(before_last, shape), right), left_side=True)
    return lax.mul(_broadcast_batch(_parity(pivots, factors), shape), solved)


@_adjugate.defjvp
def _adjugate_jvp(primals: Any, tangents: Any) -> Any:
    """Compute the derivative in the basis of the singular vectors, where x is diagonal."""
    (x,), (change,) = primals, tangents
    u, s, vh = lax_linalg.svd(x, full_matrices=False)
    changed = matmul(matmul(adjoint(u), change), adjoint(vh))
    rest = as_dtype(_products_without_two(s), x.dtype)
    identity = identity_like(x)
    # Only products of all but two singular values occur: adj(S + E) is to first order -Eᵢⱼ times all values but two,
    # and on the diagonal the sum of such products with the other Eₖₖ.
    total = lax.reduce_sum(lax.mul(rest, as_rows(diagonal(changed), x.shape)), (len(x.shape) - 1,))
    inner = lax.sub(lax.mul(identity, as_rows(total, x.shape)), lax.mul(changed, rest))
    sign = _broadcast_batch(_det(matmul(u, vh)), x.shape)
    return _adjugate(x), lax.mul(sign, matmul(matmul(adjoint(vh), inner), adjoint(u)))


def _products_without_two(s: Any) -> Any:
    """For each pair of distinct indices, multiply all other elements of the last axis; 0 on the diagonal.
    diagonal."""
    rank, size = len(s.shape), s.shape[-1]
    shape = (*s.shape, size)
    rows, columns = rows_and_columns(shape)
    upper = lax.lt(rows, columns)
    values = lax.broadcast_in_dim(s, shape, (*range(rank - 1), rank))
    one = lax.full_like(values, 1)
    between = _exclusive(lax.cumprod(lax.select_n(upper, one, values), rank), rank, False)
    before = _exclusive(lax.cumprod(s, rank - 1), rank - 1, False)
    after = _exclusive(lax.cumprod(s, rank - 1, reverse=True), rank - 1, True)
    product = lax.mul(between, lax.broadcast_in_dim(before, shape, tuple(range(rank))))
    product = lax.mul(product, lax.broadcast_in_dim(after, shape, (*range(rank - 1), rank)))
    product = lax.select_n(upper, zeros_like(product), product)
    return lax.add(product, flip(product))


def _exclusive(products: Any, axis: int, reverse: bool) -> Any:
    """Make cumulative products exclusive: shift them by one position, with 1 at the open end."""
    padding = [(0, 0, 0)] * len(products.shape)
    padding[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
    return lax.pad(products, scalar(1, products), padding)


def _broadcast_batch(x: Any, shape: Any) -> Any:
    """Broadcast one number for each matrix over its elements."""
    return lax.broadcast_in_dim(x, shape, tuple(range(len(shape) - 2)))


@document("An array of shape (...).", a="square matrices of shape (..., n, n).")
def det(a: ArrayLike) -> Array:
    """Compute the determinant, with a derivative also where the matrix is singular.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> linalg.det(wnp.array([[1.0, 2.0], [3.0, 4.0]])).round(3)
    Array(-2., dtype=float32)
    """
    x = square_matrix("det", a)
    return _det_small(x) if x.shape[-1] <= 3 else _det(x)
