"""Contractions of many short sums by single threads of a GPU: batches of small matrices.

A thread has a tile of a few rows and columns of the result in registers and reads its operands in place: the threads of
one matrix are adjacent, so all but one of them hit the cache. Threads neither exchange values nor wait for each other,
and sums are in the order of K.
"""

from __future__ import annotations

import math

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.emit.contractions.contraction_loops import (
    ContractionAxis,
    ContractionLoops,
    Coordinates,
    OperandAccess,
    access,
    finish,
    multiply_add,
    sum_dtype,
)
from weft.compiler.emit.contractions.symbolic_plan import is_symbolic
from weft.compiler.emit.emission import Fusion, KernelWriter
from weft.compiler.kernel.ir import Index, LoopKind, Value
from weft.ir.rules.compilation import element_cost

# Most rows and columns of a tile, and terms of a sum that are loaded at once.
MOST_ROWS, MOST_COLUMNS, MOST_TERMS = 4, 4, 16
# Taller tiles, for which the right operand is read less often, with fewer terms.
TALL_ROWS, TALL_TERMS = 8, 4
# From this row size on, neighbouring threads read different cache lines, one at a time.
LINE_BYTES = 96
# Fewest results of a tile, longest sum, and threads that keep a GPU busy without sharing sums.
LEAST_RESULTS, LONGEST, LEAST_THREADS = 4, 64, 1 << 15
# Most weight of prologue and epilogue, in additions: their code is repeated for each result of a tile.
HEAVIEST = 48


@dataclass(frozen=True)
class ThreadPlan:
    """Axes of a tile and its length along each, and the number of terms of K that are loaded at once."""

    tile: dict[ContractionAxis, int]
    terms: int


def thread_plan(fusion: Fusion, contraction: ContractionLoops) -> ThreadPlan | None:
    """Plan a contraction by single threads; return None if the target or the shape does not suit it."""
    if not fusion.target.grid_bytes or not contraction.free or not math.prod(contraction.shape):
        return None
    found = [access(fusion, operand, contraction.axes) for operand in (contraction.left, contraction.right)]
    if is_symbolic(contraction, (found[0], found[1])) or dtypes.kind(contraction.compute) not in "fiu":
        return None
    k = math.prod(axis.size for axis in contraction.k_axes)
    rows, columns = _own_axis(contraction, *found), _own_axis(contraction, *reversed(found))
    around = sum(element_cost(equation) for equation in fusion.jaxpr.eqns if equation is not fusion.hero)
    if k > LONGEST or rows is None or columns is None or around > HEAVIEST:
        return None
    # Elements of 64 bits: half as many are loaded at once.
    bits, along = dtypes.itemsize_bits(contraction.compute), [found[1].stride(axis) for axis in contraction.k_axes]
    tall = k * bits >= 8 * LINE_BYTES and (bits == 64 or 1 in along)
    most_rows, most_terms = (TALL_ROWS, TALL_TERMS) if tall else (MOST_ROWS, MOST_TERMS)
    tile = {rows: _divisor(rows.size, most_rows), columns: _divisor(columns.size, MOST_COLUMNS)}
    results = math.prod(tile.values())
    if results < LEAST_RESULTS or math.prod(axis.size for axis in contraction.free) < LEAST_THREADS * results:
        return None
    return ThreadPlan(tile, _divisor(k, most_terms))


def _own_axis(contraction: ContractionLoops, mine: OperandAccess, other: OperandAccess) -> ContractionAxis | None:
    """Return the last free axis that only the first operand depends on."""
    return next((a for a in reversed(contraction.free) if mine.stride(a) and not other.stride(a)), None)


def _divisor(size: int, most: int) -> int:
    """Return the largest divisor of `size` that is at most `most`."""
    return next(n for n in range(most, 0, -1) if size % n == 0)


def emit_contraction_by_threads(fusion: Fusion, contraction: ContractionLoops, plan: ThreadPlan) -> None:
    """Emit the one kernel of a contraction, with the epilogue that the fusion has."""
    writer = fusion.writer("contraction", final=True)
    k = writer.k
    counts = [axis.size // plan.tile.get(axis, 1) for axis in contraction.free]
    with k.loop(math.prod(counts), kind=LoopKind.THREADS) as thread:
        digits = k.digits(Index.of(thread), counts)
        first = {axis: i * plan.tile.get(axis, 1) for axis, i in zip(contraction.free, digits, strict=True)}
        rows, columns = ([first | {axis: first[axis] + n} for n in range(count)] for axis, count in plan.tile.items())
        column_axis = list(plan.tile)[1]
        elements = [row | {column_axis: column[column_axis]} for row in rows for column in columns]
        for indices, total in zip(elements, _sums(writer, contraction, plan, rows, columns), strict=True):
            finish(writer, contraction, indices, total)


def _sums(
    writer: KernelWriter,
    contraction: ContractionLoops,
    plan: ThreadPlan,
    rows: list[dict[ContractionAxis, Index]],
    columns: list[dict[ContractionAxis, Index]],
) -> tuple[Value, ...]:
    """Sum over K for each element of a tile, in row-major order."""
    k, sizes = writer.k, [axis.size for axis in contraction.k_axes]
    zeros = [k.constant(0, sum_dtype(contraction.compute)) for _ in range(len(rows) * len(columns))]
    with k.loop(math.prod(sizes), step=plan.terms, carries=zeros) as (term, inside):
        totals = list(inside)
        for n in range(plan.terms):
            terms = dict(zip(contraction.k_axes, k.digits(Index.of(term) + n, sizes), strict=True))
            left = [contraction.left(writer, Coordinates(row | terms)) for row in rows]
            right = [contraction.right(writer, Coordinates(column | terms)) for column in columns]
            pairs = [(a, b) for a in left for b in right]
            for i, (a, b) in enumerate(pairs):
                totals[i] = multiply_add(writer, a, b, totals[i], contraction.compute)
        return k.carry(*totals)
