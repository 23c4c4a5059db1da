"""Tridiagonal systems that may be singular, by elimination with swaps of neighbouring rows."""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.lax.bits import eq, ge
from weft.lax.control_flow import scan
from weft.lax.elementwise import abs as absolute, div, max, mul, select, sub
from weft.lax.reductions import reduce_max
from weft.lax.shape import broadcast_in_dim, concatenate, expand_dims, full_like
from weft.lax.slicing import index_in_dim, slice_in_dim
from weft.primitives.linalg.matrix import as_dtype, scalar
from weft.primitives.movement.shape import move_axis

Row = tuple[Any, Any, Any, Any]  # the three elements from the diagonal on, and the right hand sides


def solve_perturbed(dl: Any, d: Any, du: Any, b: Any) -> Any:
    """Solve T x = b, for diagonals of shape (..., n) and b of shape (..., n, k).

    A pivot of exactly zero is replaced by the precision of the dtype times the largest element of T.
    """
    if 0 in b.shape:
        return b
    axis = d.ndim - 1
    limits = dtypes.finfo(dtypes.to_real_dtype(d.dtype))
    used = (slice_in_dim(dl, 1, None, axis=axis), d, slice_in_dim(du, 0, -1, axis=axis))
    largest = full_like(index_in_dim(absolute(d), 0, axis, keepdims=False), 0)
    for part in used:
        if part.shape[axis]:
            largest = max(largest, reduce_max(absolute(part), (axis,)))
    least = as_dtype(max(mul(largest, scalar(limits.eps, largest)), scalar(limits.tiny, largest)), d.dtype)

    def pivot(value: Any) -> Any:
        return select(eq(value, scalar(0, value)), least, value)

    def eliminate(row: Row, following: Row) -> tuple[Row, Row]:
        """Perform one step of Gaussian elimination; return the remainder of the other row, and the final row of U."""
        stays = ge(absolute(row[0]), absolute(following[0]))
        chosen, other = _chosen(stays, row, following), _chosen(stays, following, row)
        chosen = (pivot(chosen[0]), *chosen[1:])
        factor = div(other[0], chosen[0])
        first, second, right = (
            sub(other[i], mul(expand_dims(factor, (axis,)) if i == 3 else factor, chosen[i])) for i in (1, 2, 3)
        )
        return (first, second, full_like(second, 0), right), chosen

    lines = [move_axis(x, axis, 0) for x in (dl, d, du, b)]
    start = tuple(index_in_dim(x, 0, 0, keepdims=False) for x in lines)
    current: Row = (start[1], start[2], full_like(start[1], 0), start[3])
    rest = tuple(slice_in_dim(x, 1, None, axis=0) for x in lines)
    last, upper = scan(eliminate, current, rest)

    def substitute(known: tuple[Any, Any], row: Row) -> tuple[tuple[Any, Any], Any]:
        """Compute the unknowns of one row of U from the two that follow."""
        diagonal, first, second, right = row
        for element, value in zip((first, second), known, strict=True):
            right = sub(right, mul(expand_dims(element, (axis,)), value))
        found = div(right, expand_dims(diagonal, (axis,)))
        return (found, known[0]), found

    nothing = full_like(last[3], 0)
    carry, end = substitute((nothing, nothing), (pivot(last[0]), *last[1:]))
    _, found = scan(substitute, carry, upper, reverse=True)
    return move_axis(concatenate([found, expand_dims(end, (0,))], 0), 0, axis)


def _chosen(condition: Any, yes: Row, no: Row) -> Row:
    many = broadcast_in_dim(condition, yes[3].shape, tuple(range(condition.ndim)))
    first, second, third = (select(condition, x, y) for x, y in zip(yes[:3], no[:3], strict=True))
    return first, second, third, select(many, yes[3], no[3])
