"""Definitions of matrix factorizations by loops over other operations, for compilers without LAPACK.

LU uses partial pivoting, QR, Hessenberg and tridiagonal forms elementary reflectors, with LAPACK's signs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compiler.target.stablehlo.loops import (
    INT32,
    beyond,
    column,
    element,
    exchange,
    fill,
    for_each,
    iterate,
    outer,
    ramp,
    row,
    square_size,
    times,
    where,
    with_column,
    with_element,
    with_row,
)
from weft.ir.primitive import lookup
from weft.primitives.elementwise.arithmetic import abs as abs_
from weft.primitives.elementwise.exponential import sqrt
from weft.primitives.elementwise.scalar import is_complex
from weft.primitives.linalg.matrix import (
    as_dtype,
    conjugate,
    diagonal,
    flip,
    hermitian_from,
    part,
    real_part,
    resize,
    take_rows,
    triangle,
    zeros_like,
)
from weft.primitives.linalg.reflectors import householder_product
from weft.primitives.linalg.triangular import triangular_solve
from weft.primitives.movement.shape import rev
from weft.primitives.movement.sort import sort
from weft.primitives.reduction.reduce_extrema import argmax

# ----------------------------------------------------------------------------------------------------------- with LU


def lu(x: Any) -> list[Any]:
    """Define `lu` by elimination with partial pivoting."""
    return for_each(_eliminate, (2,), x)


def _eliminate(x: Any) -> list[Any]:
    rows, columns = x.shape
    count = min(rows, columns)

    def step(j: Any, a: Any, pivots: Any, order: Any) -> list[Any]:
        values = column(a, j)
        parts = [real_part(values), lookup("imag")(values)] if is_complex(values) else [values]
        size = abs_(parts[0]) if len(parts) == 1 else abs_(parts[0]) + abs_(parts[1])
        chosen = argmax(where(ramp(rows) >= j, size, -1.0), axes=(0,), index_dtype=INT32)
        a, order = exchange(a, j, chosen), exchange(order, j, chosen)
        pivot = element(row(a, j), j)
        zero = pivot == 0
        values, below = column(a, j), beyond(rows, j)
        ratio = values / fill(where(zero, 1, pivot), values.shape)
        values = where(below & ~fill(zero, below.shape), ratio, values)
        right = where(beyond(columns, j), row(a, j), 0)
        a = with_column(a - outer(where(below, values, 0), right), j, values)
        return [a, with_element(pivots, j, chosen), order]

    return iterate(count, step, x, fill(np.int32(0), (count,)), ramp(rows)) if x.size else [x, ramp(count), ramp(rows)]


def lu_pivots_to_permutation(pivots: Any, *, permutation_size: int) -> Any:
    """Define `lu_pivots_to_permutation` by exchanges."""

    def single(pivots: Any) -> list[Any]:
        def step(i: Any, order: Any, pivots: Any) -> list[Any]:
            other = element(pivots, i)
            inside = (other >= np.int32(-permutation_size)) & (other < np.int32(permutation_size))
            other = where(other < 0, other + np.int32(permutation_size), other)
            return [exchange(order, i, where(inside, other, i)), pivots]

        return iterate(pivots.shape[0], step, ramp(permutation_size), pivots)[:1]

    return for_each(single, (1,), pivots)[0]


def linear_solve(a: Any, factors: Any, permutation: Any, b: Any, *, transposed: bool) -> Any:
    """Define `linear_solve` by triangular systems with the factors."""
    plain = {"left_side": True, "conjugate_a": False, "transpose_a": transposed}
    lower = {"lower": True, "unit_diagonal": True, **plain}
    upper = {"lower": False, "unit_diagonal": False, **plain}
    size = a.shape[-1]
    if transposed:
        x = triangular_solve(factors, triangular_solve(factors, b, **upper), **lower)
        # Row permutation[i] of the result is row i of x.
        index = lookup("iota")(dtype=INT32, shape=permutation.shape, dimension=len(permutation.shape) - 1)
        inverse = sort(permutation, index, dimension=len(permutation.shape) - 1, is_stable=True, num_keys=1)[1]
        return take_rows(x, inverse)
    rows = where(permutation < 0, permutation + np.int32(size), permutation)
    rows = lookup("clamp")(np.int32(0), rows, np.int32(max(size - 1, 0)))
    return triangular_solve(factors, triangular_solve(factors, take_rows(b, rows), **lower), **upper)


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any) -> Any:
    """Define `tridiagonal_solve` by elimination with exchanges of neighbouring rows."""
    return for_each(_solve_tridiagonal, (1, 1, 1, 2), dl, d, du, b)[0]


def _solve_tridiagonal(dl: Any, d: Any, du: Any, b: Any) -> list[Any]:
    size = d.shape[0]
    if not b.size:
        return [b]
    magnitude = (lambda v: abs_(real_part(v)) + abs_(lookup("imag")(v))) if is_complex(d) else abs_

    def forward(i: Any, dl: Any, d: Any, du: Any, second: Any, b: Any) -> list[Any]:
        after = i + np.int32(1)
        pivot, low = element(d, i), element(dl, after)
        upper, next_diagonal, next_upper = element(du, i), element(d, after), element(du, after)
        keeps = magnitude(pivot) >= magnitude(low)
        first, other = where(keeps, pivot, low), where(keeps, low, pivot)
        factor = other / first
        upper, below = where(keeps, upper, next_diagonal), where(keeps, next_diagonal, upper)
        beside, further = where(keeps, 0, next_upper), where(keeps, next_upper, 0)
        top, bottom = row(b, i), row(b, after)
        keep_row = fill(keeps, top.shape)
        top, bottom = where(keep_row, top, bottom), where(keep_row, bottom, top)
        d = with_element(with_element(d, i, first), after, below - factor * upper)
        du = with_element(with_element(du, i, upper), after, further - factor * beside)
        b = with_row(with_row(b, i, top), after, bottom - fill(factor, top.shape) * top)
        return [dl, d, du, with_element(second, i, beside), b]

    last = np.zeros((), d.dtype)
    du = with_element(du, np.int32(size - 1), last)
    _, d, du, second, b = iterate(size - 1, forward, dl, d, du, zeros_like(du), b)

    def backward(k: Any, d: Any, du: Any, second: Any, b: Any) -> list[Any]:
        i = np.int32(size - 1) - k
        shape = (b.shape[1],)
        # Beyond the end, indices are clamped, and the factors there are zero.
        known = fill(element(du, i), shape) * row(b, i + np.int32(1))
        known = known + fill(element(second, i), shape) * row(b, i + np.int32(2))
        return [d, du, second, with_row(b, i, (row(b, i) - known) / fill(element(d, i), shape))]

    return iterate(size, backward, d, du, second, b)[3:]


# ------------------------------------------------------------------------------------------------------- reflectors


def reflector(x: Any, start: Any) -> tuple[Any, Any, Any]:
    """Return v, tau and beta such that 1 - conj(tau) v vᴴ maps the elements of x from `start` on to beta and zeros.

    The first of these elements of v is 1; all before are zero.
    """
    below = where(beyond(x.shape[0], start), x, 0)
    alpha = element(x, start)
    rest = square_size(below)
    beta = sqrt(square_size(fill(alpha, (1,))) + rest)
    beta = where(real_part(alpha) >= 0, -beta, beta)
    imaginary = lookup("imag")(alpha) if is_complex(alpha) else None
    unchanged = (rest == 0) if imaginary is None else (rest == 0) & (imaginary == 0)
    beta = as_dtype(where(unchanged, real_part(alpha), beta), x.dtype)
    safe = where(unchanged, 1, beta)
    tau = where(unchanged, 0, (safe - alpha) / safe)
    scale = where(unchanged, 1, alpha - safe)
    v = with_element(where(unchanged, 0, below / fill(scale, below.shape)), start, np.ones((), x.dtype))
    return v, tau, beta


def geqrf(x: Any) -> list[Any]:
    """Define `geqrf` by one reflector for each column."""
    return for_each(_triangularize, (2,), x)


def _triangularize(x: Any) -> list[Any]:
    rows, columns = x.shape
    count = min(rows, columns)

    def step(j: Any, a: Any, taus: Any) -> list[Any]:
        v, tau, beta = reflector(column(a, j), j)
        return [_reflect_column(a, v, tau, beta, j, j), with_element(taus, j, tau)]

    return iterate(count, step, x, fill(np.zeros((), x.dtype), (count,)))


def _reflect_column(a: Any, v: Any, tau: Any, beta: Any, j: Any, start: Any) -> Any:
    """Reflect the columns after j, and store v below beta in column j."""
    rows, columns = a.shape
    image = where(beyond(columns, j), times(conjugate(v), a), 0)
    values = where(beyond(rows, start), v, column(a, j))
    changed = a - outer(v * fill(conjugate(tau), v.shape), image)
    return with_column(changed, j, with_element(values, start, beta))


def qr(x: Any, *, pivoting: bool, full_matrices: bool) -> list[Any]:
    """Define `qr` by reflectors, with pivoting of the columns that are longest."""
    *_, rows, columns = x.shape
    inner = rows if full_matrices else min(rows, columns)
    if 0 in x.shape:
        q = identity((*x.shape[:-2], rows, inner), x.dtype)
        r = fill(np.zeros((), x.dtype), (*x.shape[:-2], inner, columns))
        order = lookup("iota")(dtype=INT32, shape=(*x.shape[:-2], columns), dimension=len(x.shape) - 2)
        return [q, r, order] if pivoting else [q, r]
    a, taus, *order = for_each(_triangularize_by_length, (2,), x) if pivoting else geqrf(x)
    r = triangle(part(a, (0, inner), -2), lower=False)
    q = householder_product(resize(a, rows, inner), taus)
    return [q, r, *order]


def identity(shape: Any, dtype: Any) -> Any:
    """Return matrices with ones on their diagonals."""
    rank = len(shape)
    indices = [lookup("iota")(dtype=INT32, shape=tuple(shape), dimension=rank - 2 + i) for i in range(2)]
    return as_dtype(indices[0] == indices[1], dtype)


def _triangularize_by_length(x: Any) -> list[Any]:
    rows, columns = x.shape
    count = min(rows, columns)

    def step(j: Any, a: Any, taus: Any, order: Any) -> list[Any]:
        inside = fill_rows(beyond(rows, j - np.int32(1)), a.shape)
        lengths = where(beyond(columns, j - np.int32(1)), square_size(where(inside, a, 0)), -1.0)
        chosen = argmax(lengths, axes=(0,), index_dtype=INT32)
        first, second = column(a, j), column(a, chosen)
        a = with_column(with_column(a, j, second), chosen, first)
        v, tau, beta = reflector(column(a, j), j)
        return [_reflect_column(a, v, tau, beta, j, j), with_element(taus, j, tau), exchange(order, j, chosen)]

    return iterate(count, step, x, fill(np.zeros((), x.dtype), (count,)), ramp(columns))


def fill_rows(vector: Any, shape: Any) -> Any:
    """Broadcast a vector with an element for each row of a matrix."""
    return lookup("broadcast_in_dim")(vector, shape=tuple(shape), broadcast_dimensions=(0,))


def hessenberg(x: Any) -> list[Any]:
    """Define `hessenberg` by reflectors on both sides."""

    def single(x: Any) -> list[Any]:
        size = x.shape[0]

        def step(j: Any, a: Any, taus: Any) -> list[Any]:
            v, tau, beta = reflector(column(a, j), j + np.int32(1))
            # From the right it changes the columns that the reflector is for, which are all after j.
            image = times(v, flip(a))
            a = a - outer(image * fill(tau, image.shape), conjugate(v))
            return [_reflect_column(a, v, tau, beta, j, j + np.int32(1)), with_element(taus, j, tau)]

        return iterate(size - 1, step, x, fill(np.zeros((), x.dtype), (size - 1,)))

    return for_each(single, (2,), x)


def tridiagonal(x: Any, *, lower: bool) -> list[Any]:
    """Define `tridiagonal` by reflectors on both sides of a Hermitian matrix."""
    if not lower:
        # Of rows and columns in reverse order, the upper triangle is the lower one.
        axes = (len(x.shape) - 2, len(x.shape) - 1)
        a, d, e, taus = tridiagonal(rev(x, dimensions=axes), lower=True)
        last = (len(d.shape) - 1,)
        return [rev(a, dimensions=axes), rev(d, dimensions=last), rev(e, dimensions=last), rev(taus, dimensions=last)]
    a, taus = hessenberg(hermitian_from(x, lower=True))
    values = triangle(a, lower=True)
    values = values + triangle(x, lower=False, offset=1)
    return [values, real_part(diagonal(a)), real_part(diagonal(a, -1)), taus]
