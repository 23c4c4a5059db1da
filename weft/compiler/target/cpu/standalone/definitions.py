"""Factorizations and Fourier transforms by other operations, for libraries without LAPACK.

Kernels compute factorizations of small matrices in lanes; others are loops over kernels, as for StableHLO. A Fourier
transform is a product with a constant matrix, up to `MOST_LENGTH` terms; `split_transforms` splits longer ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.passes.decompose import decompose, stage_definition
from weft.compiler.passes.inline import inline
from weft.compiler.passes.split_transforms import split_transforms
from weft.compiler.rewrite import everywhere, rename_operands
from weft.compiler.target.stablehlo import linalg
from weft.compiler.target.stablehlo.loops import (
    column,
    fill,
    for_each,
    iterate,
    ramp,
    row,
    times,
    where,
    with_column,
    with_row,
)
from weft.compiler.target.target import Target
from weft.ir.fusing import UNFUSED
from weft.ir.inline import collect_constants, copy_equations
from weft.ir.jaxpr import Atom, Equation, Jaxpr, subjaxprs
from weft.ir.registry import is_builtin
from weft.primitives.contraction.contract import dot_general
from weft.primitives.elementwise.complex import complex as complex_, imag, real
from weft.primitives.elementwise.exponential import sqrt
from weft.primitives.linalg.fft import FftType
from weft.primitives.linalg.matrix import EXACT, as_dtype, conjugate, flip, real_part, zeros_like
from weft.primitives.movement.shape import transpose
from weft.primitives.reduction.reduce import reduce_sum

# The longest transform that is one product: its matrix is a constant of the library.
MOST_LENGTH = 512


def with_own_definitions(jaxpr: Jaxpr, target: Target, lapack: bool = False) -> Jaxpr:
    """Replace factorizations, unless there is `lapack`, and Fourier transforms by definitions, where they have no
    kernels; return the same jaxpr if it has none of these."""
    simple = decompose(split_transforms(inline(jaxpr)))
    names = ("fft",) if lapack else tuple(DEFINITIONS)
    return _define(simple, target, names) if _has_one(simple, names) else jaxpr


def _has_one(jaxpr: Jaxpr, names: tuple[str, ...]) -> bool:
    return any(
        e.primitive.name in names or any(_has_one(inner, names) for inner in subjaxprs(e.params)) for e in jaxpr.eqns
    )


def _define(jaxpr: Jaxpr, target: Target, names: tuple[str, ...]) -> Jaxpr:
    @everywhere
    def define(jaxpr: Jaxpr, target: Target) -> Jaxpr:
        equations: list[Equation] = []
        renamed: dict[Any, Atom] = {}
        constants = collect_constants(jaxpr)
        for equation in jaxpr.eqns:
            equation = rename_operands(equation, renamed) if renamed else equation
            definition = _find_definition(equation, target) if equation.primitive.name in names else None
            if definition is None:
                equations.append(equation)
                continue
            # Definitions use others. This does not go through the memo of definitions, which other targets share.
            body = define(stage_definition(definition, [a.aval for a in equation.invars], equation), target)
            results = copy_equations(body, equation, equation.invars, equations, constants)
            renamed.update(zip(equation.outvars, results, strict=True))
        if not renamed:
            return jaxpr
        return jaxpr.replace(
            constvars=[v for v, _ in constants.values()],
            consts=[c for _, c in constants.values()],
            eqns=equations,
            outvars=[renamed.get(a, a) for a in jaxpr.outvars],
        )

    return define(jaxpr, target)


def _find_definition(equation: Equation, target: Target) -> Callable[..., Any] | None:
    primitive = equation.primitive
    found = DEFINITIONS.get(primitive.name) if is_builtin(primitive) else None
    if found is None or primitive.fusion(equation, target) is not UNFUSED:
        return None
    if found is fft and max(equation.params["fft_lengths"]) > MOST_LENGTH:
        return None
    return found


# -------------------------------------------------------------------------------------------------- factorizations


def cholesky(x: Any) -> Any:
    """Define `cholesky` column by column; a matrix that is not positive definite has nan for its factor."""
    return x if 0 in x.shape else for_each(_factorize, (2,), x)[0]


def _factorize(x: Any) -> list[Any]:
    size = x.shape[0]

    def step(j: Any, lower: Any, x: Any) -> list[Any]:
        left = column(x, j) - times(conjugate(row(lower, j)), flip(lower))
        is_pivot = ramp(size) == j
        pivot = as_dtype(sqrt(reduce_sum(where(is_pivot, real_part(left), 0.0), axes=(0,))), x.dtype)
        below = where(ramp(size) > j, left / fill(pivot, left.shape), 0.0)
        return [with_column(lower, j, where(is_pivot, fill(pivot, left.shape), below)), x]

    lower, _ = iterate(size, step, zeros_like(x), x)
    # A nan of any column spreads to the triangle, not above it.
    lost = fill(reduce_sum(lower - lower, axes=(0, 1)), x.shape)
    return [where(np.tri(size, dtype=bool), lower + lost, 0.0)]


def triangular_solve(
    a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool
) -> Any:
    """Define `triangular_solve` row by row. From the right it is the same with transposes."""
    if 0 in b.shape:
        return b
    a = conjugate(a) if conjugate_a else a
    if transpose_a == left_side:
        a, lower = flip(a), not lower

    def solve(a: Any, b: Any) -> list[Any]:
        size = a.shape[0]

        def step(n: Any, x: Any, a: Any, b: Any) -> list[Any]:
            i = n if lower else size - 1 - n
            # Rows that are not solved yet are zero, so the product has solved ones only.
            rest = row(b, i) - times(row(a, i), x)
            if unit_diagonal:
                return [with_row(x, i, rest), a, b]
            pivot = reduce_sum(where(ramp(size) == i, row(a, i), 0.0), axes=(0,))
            return [with_row(x, i, rest / fill(pivot, rest.shape)), a, b]

        return iterate(size, step, zeros_like(b), a, b)[:1]

    if left_side:
        return for_each(solve, (2, 2), a, b)[0]
    return flip(for_each(solve, (2, 2), a, flip(b))[0])


# ------------------------------------------------------------------------------------------------------- transforms


def fft(x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> Any:
    """Define `fft` axis by axis, as products with constant matrices."""
    first = len(x.shape) - len(fft_lengths)
    axes = range(first, len(x.shape))
    kind = FftType(fft_type)
    dtype = dtypes.to_complex_dtype(x.dtype)
    if kind is FftType.RFFT:
        matrix = _roots(fft_lengths[-1], -1, dtype)[:, : fft_lengths[-1] // 2 + 1]
        x = complex_(_along(x, axes[-1], matrix.real), _along(x, axes[-1], matrix.imag))
        axes = axes[:-1]
    inverse = kind in (FftType.IFFT, FftType.IRFFT)
    for axis in axes[:-1] if kind is FftType.IRFFT else axes:
        size = x.shape[axis]
        x = _along(x, axis, _roots(size, 1, dtype) / size if inverse else _roots(size, -1, dtype))
    return _real_inverse(x, axes[-1], fft_lengths[-1], dtype) if kind is FftType.IRFFT else x


def _real_inverse(x: Any, axis: int, length: int, dtype: Any) -> Any:
    """Transform half of the spectrum of a real signal back; numbers but the ends stand for two."""
    half = length // 2 + 1
    twice = np.where((np.arange(half) == 0) | (2 * np.arange(half) == length), 1, 2) / length
    matrix = _roots(length, 1, np.complex128)[:half] * twice[:, None]
    parts = dtypes.to_real_dtype(dtype)
    return _along(real(x), axis, matrix.real.astype(parts)) - _along(imag(x), axis, matrix.imag.astype(parts))


def _roots(size: int, sign: int, dtype: Any) -> np.ndarray:
    """Return the matrix of a transform, whose exponents are reduced before they are rounded."""
    exponents = np.outer(np.arange(size), np.arange(size)) % size
    matrix: np.ndarray = np.exp(sign * 2j * np.pi * exponents / size).astype(dtype)
    return matrix


def _along(x: Any, axis: int, matrix: np.ndarray) -> Any:
    """Multiply along an axis."""
    matrix = np.ascontiguousarray(matrix.astype(x.dtype))
    dimensions = (((axis,), (0,)), ((), ()))
    out = dot_general(x, matrix, dimension_numbers=dimensions, precision=EXACT, preferred_element_type=None)
    last = len(x.shape) - 1
    order = [*range(axis), last, *range(axis, last)]
    return out if axis == last else transpose(out, permutation=tuple(order))


DEFINITIONS: dict[str, Callable[..., Any]] = {
    **linalg.DEFINITIONS,
    "cholesky": cholesky,
    "fft": fft,
    "triangular_solve": triangular_solve,
}
