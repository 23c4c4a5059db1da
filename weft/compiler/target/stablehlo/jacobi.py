"""Definitions of eigenvectors of Hermitian matrices and of singular vectors by rotations of pairs (Jacobi's method).

Columns i and i + n/2 are a pair. A round rotates all pairs at once, so that each is orthogonal, and then passes the
columns on to other partners, as in a tournament; n - 1 rounds, a sweep, bring every column to every other one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compiler.target.stablehlo.factorizations import identity, qr
from weft.compiler.target.stablehlo.loops import INT32, fill, for_each, iterate, iterate_while, square_size, where
from weft.ir.primitive import lookup
from weft.primitives.elementwise.arithmetic import abs as abs_, sign
from weft.primitives.elementwise.exponential import sqrt
from weft.primitives.linalg.matrix import (
    adjoint,
    as_dtype,
    conjugate,
    diagonal,
    flip,
    hermitian_from,
    only_diagonal,
    part,
    real_part,
    resize,
    take_rows,
)
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.shape import rev
from weft.primitives.movement.sort import sort
from weft.primitives.reduction.reduce import reduce_sum

SWEEPS = 30


def rotations(a: Any, b: Any, d: Any) -> tuple[Any, Any]:
    """Return c and s of the rotations that make the Hermitian matrices [[a, b], [conj(b), d]] diagonal: the new first
    vector is c x - conj(s) y, the second one s x + c y."""
    size = abs_(b)
    none = size == 0
    safe = where(none, 1, size)
    tau = (d - a) / (safe + safe)
    one = fill(1, tau.shape, tau.dtype)
    t = where(none, 0, where(tau >= 0, one, -one) / (abs_(tau) + sqrt(tau * tau + one)))
    c = one / sqrt(t * t + one)
    phase = where(none, 0, b / as_dtype(safe, b.dtype))
    return c, as_dtype(t * c, b.dtype) * phase


def rotate(x: Any, c: Any, s: Any) -> Any:
    """Rotate the pairs of columns of a matrix."""
    half = x.shape[1] // 2
    first, second = part(x, (0, half), -1), part(x, (half, 2 * half), -1)
    c, s = (broadcast_rows(v, first.shape) for v in (as_dtype(c, x.dtype), s))
    return concatenate(c * first - conjugate(s) * second, s * first + c * second, dimension=1)


def broadcast_rows(vector: Any, shape: Any) -> Any:
    """Broadcast a vector with an element for each column of a matrix."""
    return lookup("broadcast_in_dim")(vector, shape=tuple(shape), broadcast_dimensions=(1,))


def next_partners(x: Any) -> Any:
    """Pass columns on: the first one stays, all others go around through both halves."""
    half = x.shape[1] // 2
    if half == 1:
        return x
    first, upper, last = part(x, (0, 1), -1), part(x, (1, half - 1), -1), part(x, (half - 1, half), -1)
    entering, lower = part(x, (half, half + 1), -1), part(x, (half + 1, 2 * half), -1)
    return concatenate(first, entering, upper, lower, last, dimension=1)


def even(size: int) -> int:
    """Return the size with which all columns have partners."""
    return size + size % 2


def is_rest_large(rest: Any, total: Any, size: int) -> Any:
    """Return whether the squares that are to become zero are more than rounding; false if they are nan."""
    return rest > total * (float(np.finfo(total.dtype).eps) ** 2 * size)


# -------------------------------------------------------------------------------------------------------- eigenvectors


def eigh(
    x: Any, *, lower: bool, sort_eigenvalues: bool, subset_by_index: Any = None, algorithm: Any = None
) -> list[Any]:
    """Define `eigh` by rotations of rows and columns."""
    start, end = subset_by_index or (0, x.shape[-1])
    if 0 in x.shape:
        return [
            x,
            lookup("broadcast_in_dim")(np.zeros((), real_part(x).dtype), shape=x.shape[:-1], broadcast_dimensions=()),
        ]
    vectors, values = for_each(_eigh, (2,), hermitian_from(x, lower))
    return [part(vectors, (start, end), -1), part(values, (start, end), -1)]


def _eigh(x: Any) -> list[Any]:
    size = x.shape[0]
    wide = even(size)
    half = wide // 2

    def round_(_: Any, a: Any, vectors: Any) -> list[Any]:
        values = real_part(diagonal(a))
        corner = part(part(a, (0, half), -2), (half, wide), -1)
        c, s = rotations(part(values, (0, half), -1), diagonal(corner), part(values, (half, wide), -1))
        a = rotate(adjoint(rotate(a, c, s)), c, s)
        return [next_partners(flip(next_partners(flip(adjoint(a))))), next_partners(rotate(vectors, c, s))]

    def sweep(count: Any, a: Any, vectors: Any) -> list[Any]:
        a, vectors = iterate(max(wide - 1, 1), round_, a, vectors)
        return [count + np.int32(1), a, vectors]

    def continues(count: Any, a: Any, vectors: Any) -> Any:
        squares = real_part(a * conjugate(a))
        total = reduce_sum(squares, axes=(0, 1))
        rest = reduce_sum(squares - only_diagonal(squares), axes=(0, 1))
        return (count < np.int32(SWEEPS)) & is_rest_large(rest, total, wide)

    start = [np.zeros((), np.int32), resize(x, wide, wide), identity((wide, wide), x.dtype)]
    _, a, vectors = iterate_while(continues, sweep, *start)
    values = part(real_part(diagonal(a)), (0, size), -1)
    index = lookup("iota")(dtype=INT32, shape=(size,), dimension=0)
    # All that is not finite makes everything nan.
    known = reduce_sum(real_part(x * conjugate(x)), axes=(0, 1)) * 0 == 0
    ordered, order = sort(values, index, dimension=0, is_stable=True, num_keys=1)
    vectors = flip(take_rows(flip(part(part(vectors, (0, size), -2), (0, size), -1)), order))
    return [where(known, vectors, np.nan), where(known, ordered, np.nan)]


# ---------------------------------------------------------------------------------------------------- singular vectors


def svd(
    x: Any, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any = None, algorithm: Any = None
) -> list[Any]:
    """Define `svd` by rotations of columns, which become orthogonal."""
    *lead, rows, columns = x.shape
    small = min(rows, columns)
    start, end = subset_by_index or (0, small)
    if 0 in x.shape:
        values = fill(np.zeros((), real_part(x).dtype), (*lead, end - start))
        left, right = (rows, columns) if full_matrices else (end - start, end - start)
        return [values, identity((*lead, rows, left), x.dtype), identity((*lead, right, columns), x.dtype)][
            : 1 + 2 * compute_uv
        ]
    tall = rows >= columns
    s, u, v = for_each(_svd if not full_matrices else _full_svd, (2,), x if tall else adjoint(x))
    left, right = (u, adjoint(v)) if tall else (v, adjoint(u))
    s = part(s, (start, end), -1)
    if not compute_uv:
        return [s]
    if (start, end) != (0, small):
        left, right = part(left, (start, end), -1), part(right, (start, end), -2)
    return [s, left, right]


def _full_svd(x: Any) -> list[Any]:
    return _svd(x, full=True)


def _svd(x: Any, full: bool = False) -> list[Any]:
    """Return singular values, left vectors and right vectors (columns) of a matrix with at least as many rows as
    columns."""
    rows, columns = x.shape
    wide = even(columns)
    half = wide // 2

    def round_(_: Any, a: Any, vectors: Any) -> list[Any]:
        first, second = part(a, (0, half), -1), part(a, (half, wide), -1)
        product = reduce_sum(conjugate(first) * second, axes=(0,))
        c, s = rotations(square_size(first), product, square_size(second))
        return [next_partners(rotate(a, c, s)), next_partners(rotate(vectors, c, s))]

    def sweep(count: Any, a: Any, vectors: Any, rest: Any) -> list[Any]:
        before = a
        a, vectors = iterate(max(wide - 1, 1), round_, a, vectors)
        change = a - before
        return [count + np.int32(1), a, vectors, reduce_sum(real_part(change * conjugate(change)), axes=(0, 1))]

    def continues(count: Any, a: Any, vectors: Any, rest: Any) -> Any:
        total = reduce_sum(real_part(a * conjugate(a)), axes=(0, 1))
        return (count < np.int32(SWEEPS)) & is_rest_large(rest, total, wide)

    infinite = np.asarray(np.inf, real_part(x).dtype)
    start = [np.zeros((), np.int32), resize(x, rows, wide), identity((wide, wide), x.dtype), infinite]
    _, a, vectors, _ = iterate_while(continues, sweep, *start)
    a, vectors = part(a, (0, columns), -1), part(part(vectors, (0, columns), -2), (0, columns), -1)
    sizes = sqrt(square_size(a))
    index = lookup("iota")(dtype=INT32, shape=(columns,), dimension=0)
    smallest, order = sort(sizes, index, dimension=0, is_stable=True, num_keys=1)
    values, order = rev(smallest, dimensions=(0,)), rev(order, dimensions=(0,))
    a, vectors = flip(take_rows(flip(a), order)), flip(take_rows(flip(vectors), order))
    # Reflectors complete the left vectors where values are zero; they leave a sign or a phase on the diagonal.
    u, r = qr(a, pivoting=False, full_matrices=full)
    phases = sign(diagonal(r))
    phases = where(phases == 0, 1, phases)
    rotated = part(u, (0, columns), -1) * broadcast_rows(phases, (rows, columns))
    u = concatenate(rotated, part(u, (columns, u.shape[1]), -1), dimension=1) if u.shape[1] > columns else rotated
    known = reduce_sum(real_part(x * conjugate(x)), axes=(0, 1)) * 0 == 0
    return [where(known, y, np.nan) for y in (values, u, vectors)]
