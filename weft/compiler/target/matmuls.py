"""Contractions as matmuls: which axes become rows, columns and the contracting dimension (K), and which become loops.

A contraction is a matmul if the axes of each of these kinds can be traversed with one stride. Batch axes need not be:
they, and free axes that are not adjacent, become loops around the matmul. Where the memory layout does not allow that,
an operand has to be transposed first. Libraries of CPUs and GPUs read matrices in the same way, so all targets share
this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.compiler.target.library_call import get_arrays
from weft.ir.jaxpr import Equation
from weft.primitives.contraction.contract import free_axes

# Matmuls with fewer multiplications than this, inside of loops over free axes, are slower than a transposition.
LEAST_INNER = 128**3

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Dimension:
    """Axes traversed as one: the size, and strides in lhs, rhs and the result (0: the array does not have the axes)."""

    size: int
    lhs: int
    rhs: int
    out: int


@dataclass(frozen=True)
class StridedMatmul:
    """C[i, j] = sum of A[i, k] B[k, j], inside of `loops`."""

    rows: Dimension
    columns: Dimension
    summed: Dimension
    loops: tuple[Dimension, ...]

    @property
    def inner(self) -> int:
        """Number of multiplications in one matmul."""
        return self.rows.size * self.columns.size * self.summed.size


ONE = Dimension(1, 0, 0, 0)


def merge_dimensions(dimensions: Sequence[Dimension]) -> list[Dimension]:
    """Merge adjacent dimensions that can be traversed with one stride, and drop those of size 1."""
    groups: list[Dimension] = []
    for d in dimensions:
        if d.size == 1:
            continue
        last = groups[-1] if groups else None
        if last and (last.lhs, last.rhs, last.out) == (d.lhs * d.size, d.rhs * d.size, d.out * d.size):
            groups[-1] = Dimension(last.size * d.size, d.lhs, d.rhs, d.out)
        else:
            groups.append(d)
    return groups


def get_strides(shape: Sequence[int]) -> list[int]:
    """Return the strides of a dense row-major array, in elements."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def leading_stride(rows: int, columns: int, row_stride: int, column_stride: int) -> tuple[bool, int] | None:
    """Return how BLAS reads a matrix: whether it is transposed (column-major) and its leading stride. None if neither
    its rows nor its columns are contiguous."""
    if column_stride == 1 or columns == 1:
        return False, row_stride if rows > 1 else columns
    if row_stride == 1 or rows == 1:
        return True, column_stride
    return None


class PermutedOperands:
    """Contraction with permuted operands: `lhs` and `rhs` have the order of their axes in memory."""

    def __init__(self, equation: Equation, lhs: Axes, rhs: Axes) -> None:
        left, right = get_arrays(equation.invars)
        (lhs_summed, rhs_summed), (lhs_batch, rhs_batch) = equation.params["dimension_numbers"]
        lhs_free, rhs_free = free_axes(len(left.shape), len(right.shape), equation.params["dimension_numbers"])
        out = get_strides(get_arrays(equation.outvars)[0].shape)
        at_lhs, at_rhs = _place(left.shape, lhs), _place(right.shape, rhs)
        rows_from, columns_from = len(lhs_batch), len(lhs_batch) + len(lhs_free)
        self.batch = [
            Dimension(left.shape[i], at_lhs[i], at_rhs[j], out[n])
            for n, (i, j) in enumerate(zip(lhs_batch, rhs_batch, strict=True))
        ]
        self.rows = [Dimension(left.shape[i], at_lhs[i], 0, out[rows_from + n]) for n, i in enumerate(lhs_free)]
        self.columns = [Dimension(right.shape[j], 0, at_rhs[j], out[columns_from + n]) for n, j in enumerate(rhs_free)]
        # The order of the contracting axes is free: that of the lhs in memory, or that of the rhs.
        self.summed = [
            Dimension(left.shape[i], at_lhs[i], at_rhs[j], 0) for i, j in zip(lhs_summed, rhs_summed, strict=True)
        ]

    def matmul(self) -> StridedMatmul | None:
        """Return the largest matmul that the layouts allow, or None."""
        orders = [sorted(self.summed, key=lambda d: -d.lhs), sorted(self.summed, key=lambda d: -d.rhs)]
        summed = min((merge_dimensions(order) for order in orders), key=len)
        if len(summed) > 1:
            return None
        rows, columns = merge_dimensions(self.rows), merge_dimensions(self.columns)
        total = summed[0] if summed else ONE
        # The columns of the result must be contiguous, so they are the last group.
        right = columns[-1] if columns else ONE
        if leading_stride(total.size, right.size, total.rhs, right.rhs) is None:
            return None
        good = [d for d in rows or [ONE] if leading_stride(d.size, total.size, d.lhs, total.lhs) is not None]
        if not good:
            return None
        left = max(good, key=lambda d: d.size)
        around = [d for d in rows if d is not left] + [d for d in columns if d is not right]
        return StridedMatmul(left, right, total, (*merge_dimensions(self.batch), *around))


def _place(shape: Sequence[int], order: Axes) -> list[int]:
    """Return the stride of each axis if the axes lie in this order in memory."""
    strides = get_strides([shape[axis] for axis in order])
    return [strides[order.index(axis)] for axis in range(len(shape))]


def plan_as_matmul(
    equation: Equation, accepts: Callable[[StridedMatmul], bool] = lambda matmul: True
) -> tuple[StridedMatmul, tuple[Axes | None, Axes | None]]:
    """Plan a contraction as a matmul that a library `accepts`: return the matmul and the permutations of lhs and rhs
    (None: unchanged). The candidate that copies the least memory wins."""
    left, right = get_arrays(equation.invars)
    (lhs_summed, rhs_summed), (lhs_batch, rhs_batch) = equation.params["dimension_numbers"]
    lhs_free, rhs_free = free_axes(len(left.shape), len(right.shape), equation.params["dimension_numbers"])
    plain = tuple(range(len(left.shape))), tuple(range(len(right.shape)))
    operands = PermutedOperands(equation, *plain)
    candidates: list[tuple[int, Axes, Axes]] = [(0, *plain)]
    for order in _orders(lhs_summed), _orders(rhs_summed):
        lhs = (*lhs_batch, *lhs_free, *(lhs_summed[n] for n in order))
        rhs = (*rhs_batch, *(rhs_summed[n] for n in order), *rhs_free)
        candidates += [
            (left.bytes, lhs, plain[1]),
            (right.bytes, plain[0], rhs),
            (left.bytes + right.bytes, lhs, rhs),
        ]
        # Some libraries need the contracting axes of the rhs to be contiguous.
        other = (*rhs_batch, *rhs_free, *(rhs_summed[n] for n in order))
        candidates += [(right.bytes, plain[0], other), (left.bytes + right.bytes, lhs, other)]
    whole = math.prod(d.size for d in (*operands.rows, *operands.columns, *operands.summed))
    for _, lhs, rhs in sorted(candidates, key=lambda candidate: candidate[0]):
        matmul = PermutedOperands(equation, lhs, rhs).matmul()
        # Copying more memory pays off only for a matmul that would be too small otherwise.
        if matmul is not None and matmul.inner >= min(whole, LEAST_INNER) and accepts(matmul):
            return matmul, (None if lhs == plain[0] else lhs, None if rhs == plain[1] else rhs)
    raise InternalError(f"No order of axes makes {equation} a matmul.", stage="library")


def _orders(axes: Axes) -> list[int]:
    return sorted(range(len(axes)), key=axes.__getitem__)


def reading(rows: Dimension, columns: Dimension, operand: str) -> tuple[bool, int]:
    """Return `leading_stride` of an operand of a matmul, named "lhs", "rhs" or "out"; it must have one."""
    found = leading_stride(rows.size, columns.size, getattr(rows, operand), getattr(columns, operand))
    assert found is not None
    return found
