"""Definitions of factorizations by loops over rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import lax
from weft.compiler.target.stablehlo import linalg
from weft.compiler.target.stablehlo.loops import (
    column,
    for_each,
    ramp,
    row,
    times,
    where,
    with_column,
    with_row,
)
from weft.export.onnx.table import define
from weft.primitives.linalg.matrix import conjugate, flip

for _name, _definition in linalg.DEFINITIONS.items():
    define(_name)(_definition)


@define("cholesky")
def define_cholesky(x: Any) -> Any:
    """Factorize column by column; a matrix that is not positive definite has nan for its factor."""
    return x if 0 in x.shape else for_each(_factorize, (2,), x)[0]


def _factorize(x: Any) -> list[Any]:
    size = x.shape[0]

    def step(j: Any, factor: Any) -> Any:
        rest = column(x, j) - times(conjugate(row(factor, j)), flip(factor))
        at = ramp(size) == j
        pivot = lax.sqrt(lax.reduce_sum(where(at, lax.real(rest) if _is_complex(x) else rest, 0.0), axes=(0,)))
        pivot = pivot.astype(x.dtype)
        return with_column(factor, j, where(at, pivot, where(ramp(size) > j, rest / pivot, 0.0)))

    factor = lax.fori_loop(0, size, step, lax.full_like(x, 0))
    wrong = lax.reduce_or(factor != factor, axes=(0, 1))
    rows, columns = (lax.broadcasted_iota(np.int32, x.shape, axis) for axis in (0, 1))
    return [where((rows >= columns) & wrong, lax.full_like(x, np.nan), factor)]


def _is_complex(x: Any) -> bool:
    return np.dtype(x.dtype).kind == "c"


@define("triangular_solve")
def define_triangular_solve(
    a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool
) -> Any:
    """Substitute row by row. What is right of a matrix is left of its transpose."""
    if 0 in b.shape or 0 in a.shape:
        return b
    if conjugate_a:
        a = conjugate(a)
    if transpose_a == left_side:
        a, lower = flip(a), not lower

    def solve(a: Any, b: Any) -> list[Any]:
        return [_substitute(a, b, lower, unit_diagonal)]

    if left_side:
        return for_each(solve, (2, 2), a, b)[0]
    return flip(for_each(solve, (2, 2), a, flip(b))[0])


def _substitute(a: Any, b: Any, lower: bool, unit_diagonal: bool) -> Any:
    """Solve for one matrix. Rows that are not known yet are zero, so that they add nothing."""
    size = a.shape[0]

    def step(n: Any, x: Any) -> Any:
        i = n if lower else size - 1 - n
        own = row(a, i)
        rest = row(b, i) - times(own, x)
        if not unit_diagonal:
            rest = rest / times(own, where(ramp(size) == i, lax.full_like(own, 1), 0.0))
        return with_row(x, i, rest)

    return lax.fori_loop(0, size, step, lax.full_like(b, 0))
