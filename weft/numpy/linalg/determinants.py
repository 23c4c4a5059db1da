"""Determinants and their logarithms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft import lax
from weft.api.custom import custom_jvp
from weft.base.errors import ArgumentError
from weft.lax import linalg as lax_linalg
from weft.numpy.linalg.inputs import square_matrix
from weft.ops.linalg_lu import solve
from weft.ops.matrix import (
    as_dtype,
    diagonal,
    identity_like,
    is_complex,
    matmul,
    part,
    real_part,
    rows_and_columns,
    scalar,
    take_rows,
    zeros_like,
)
from weft.trace.array import Array


class SlogdetResult(NamedTuple):
    """The determinant as sign * exp(logabsdet)."""

    sign: Array
    logabsdet: Array


def _parity(pivots: Any, like: Any) -> Any:
    """1 or -1: the determinant of the permutation that row exchanges amount to."""
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
    turning = lax.sub(relative, as_dtype(growth, relative.dtype))
    return (sign, logarithm), (lax.mul(sign, turning), growth)


def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its absolute value, which does not overflow.

    `method` may be "lu" or "qr"; both name the same numbers, which are computed by elimination.
    """
    if method not in (None, "lu", "qr"):
        raise ArgumentError(f"Unknown slogdet method {method!r}; it is 'lu' or 'qr'.")
    x = square_matrix("slogdet", a)
    return SlogdetResult(*_slogdet(x))


def _element(x: Any, row: int, column: int) -> Any:
    found = part(part(x, (row, row + 1), -2), (column, column + 1), -1)
    return lax.reshape(found, found.shape[:-2])


def _det_small(x: Any) -> Any:
    """The determinant of matrices up to 3x3 as a polynomial, which has all its derivatives everywhere."""
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
    """The derivative is tr(adj(x) dx). The adjugate is made without dividing by the last pivot, which is the one that
    is zero when a matrix lacks one dimension: there the derivative is finite though the inverse is not."""
    (x,), (change,) = primals, tangents
    size = x.shape[-1]
    factors, pivots, permutation = lax_linalg.lu(x)
    values = diagonal(factors)
    axis = len(values.shape) - 1
    before_last = lax.reduce_prod(part(values, (0, size - 1), -1), (axis,))
    y = lax_linalg.triangular_solve(
        factors, take_rows(change, permutation), left_side=True, lower=True, unit_diagonal=True
    )
    # With U = [[A, c], [0, u]]: adj(U) y = det(A) [A⁻¹ (u y₁ − c y₂), y₂], all in one triangular system.
    shape = x.shape
    _, columns = rows_and_columns(shape)
    is_last = lax.eq(columns, np.asarray(size - 1, np.int32))
    system = lax.select_n(is_last, factors, identity_like(factors))
    column = part(factors, (size - 1, size), -1)
    unit = part(identity_like(factors), (size - 1, size), -1)
    pivot = lax.reduce_sum(part(values, (size - 1, size), -1), (axis,))
    right = lax.add(lax.mul(_spread(pivot, shape), y), matmul(lax.sub(unit, column), part(y, (size - 1, size), -2)))
    solved = lax_linalg.triangular_solve(system, lax.mul(_spread(before_last, shape), right), left_side=True)
    return _det(x), lax.mul(_parity(pivots, x), _trace(solved))


def _spread(x: Any, shape: Any) -> Any:
    """One number for each matrix, repeated over its elements."""
    return lax.broadcast_in_dim(x, shape, tuple(range(len(shape) - 2)))


def det(a: Any) -> Array:
    """The determinant. It has its derivative also where the matrix is singular."""
    x = square_matrix("det", a)
    return _det_small(x) if x.shape[-1] <= 3 else _det(x)
