"""Contractions by groups of threads with local memory.

A group has a tile of the result: some rows, and as many columns as it has lanes. Each of its teams sums one slice of K
into local memory; then some teams add the partial sums pairwise and compute the epilogue. So few results keep many
threads busy, every element of the right operand is read once for all rows of a tile, and there is one kernel.
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
    add_sums,
    finish,
    multiply_add,
    sum_dtype,
)
from weft.compiler.emit.contractions.symbolic_plan import is_symbolic
from weft.compiler.emit.emission import Fusion, KernelWriter
from weft.compiler.kernel.ir import Index, LoopKind, Value

# Columns of a tile (the lanes of a team), and its most rows.
COLUMNS, MOST_ROWS = 32, 4
# Most and fewest slices of K, fewest terms of each, and most terms that are loaded at once.
MOST_PARTS, LEAST_PARTS, LEAST_TERMS, MOST_AT_ONCE = 32, 4, 4, 8
# Threads that keep a GPU busy: more tiles need fewer slices of K.
ENOUGH_THREADS = 1 << 16
# Other kernels compute shorter sums and results with fewer columns.
SHORTEST = 8


@dataclass(frozen=True)
class GroupPlan:
    """Axis of columns, axis of rows with the rows of a tile, and the length and number of slices of K."""

    columns: ContractionAxis
    rows: ContractionAxis | None
    count: int
    terms: int
    parts: int


def group_plan(fusion: Fusion, contraction: ContractionLoops) -> GroupPlan | None:
    """Plan a contraction by groups of threads; return None if the target or the shape does not suit it."""
    if not fusion.target.group_lanes or not contraction.free or not math.prod(contraction.shape):
        return None
    found = [access(fusion, operand, contraction.axes) for operand in (contraction.left, contraction.right)]
    if is_symbolic(contraction, (found[0], found[1])) or dtypes.kind(contraction.compute) not in "fiu":
        return None
    columns, k = contraction.free[-1], math.prod(axis.size for axis in contraction.k_axes)
    if columns.size < SHORTEST or k < SHORTEST or not found[1].stride(columns):
        return None
    rows = _rows(contraction, found, columns)
    count = 1 if rows is None else math.gcd(MOST_ROWS, rows.size)
    tiles = math.prod(axis.size for axis in contraction.free) // columns.size // count * -(-columns.size // COLUMNS)
    team = COLUMNS // fusion.target.thread_lanes
    parts = max(LEAST_PARTS, min(MOST_PARTS, ENOUGH_THREADS // (tiles * team)))
    terms = max(LEAST_TERMS, -(-k // parts))
    return GroupPlan(columns, rows, count, terms, -(-k // terms))


def _rows(
    contraction: ContractionLoops, found: list[OperandAccess], columns: ContractionAxis
) -> ContractionAxis | None:
    """Return the longest free axis that only the left operand depends on."""
    left, right = found
    axes = [axis for axis in contraction.free if axis is not columns and left.stride(axis) and not right.stride(axis)]
    return max(axes, key=lambda axis: axis.size, default=None)


def emit_contraction_by_groups(fusion: Fusion, contraction: ContractionLoops, plan: GroupPlan) -> None:
    """Emit the one kernel of a contraction, with the epilogue that the fusion has."""
    writer = fusion.writer("contraction", final=True)
    k, columns = writer.k, plan.columns
    partial = k.local("partial", sum_dtype(contraction.compute), plan.parts * plan.count * COLUMNS)
    others = [axis for axis in contraction.free if axis not in (columns, plan.rows)]
    counts = [axis.size for axis in others]
    if plan.rows is not None:
        counts.append(plan.rows.size // plan.count)
    counts.append(-(-columns.size // COLUMNS))
    with k.loop(math.prod(counts), kind=LoopKind.THREADS) as tile:
        *outer, last = k.digits(Index.of(tile), counts)
        first = dict(zip(others, outer, strict=False)) | {columns: last * COLUMNS}
        if plan.rows is not None:
            first[plan.rows] = outer[-1] * plan.count
        length = min(COLUMNS, columns.size)
        limit = None if columns.size % length == 0 else Index(columns.size) - first[columns]

        def element(row: Index | int, lane: Index) -> dict[ContractionAxis, Index]:
            """Return the indices along the free axes of an element of the tile."""
            found = {**first, columns: first[columns] + lane}
            return found if plan.rows is None else {**found, plan.rows: first[plan.rows] + row}

        def offset(part: Index | int, row: Index | int) -> Index:
            """Return the offset in local memory of the sums of one part."""
            return (Index.of(part) * plan.count + row) * COLUMNS

        with (
            k.loop(plan.parts) as part,
            k.loop(length, kind=LoopKind.LANES, width=COLUMNS, limit=limit) as lane,
        ):
            at = [element(row, Index.of(lane)) for row in range(plan.count)]
            for row, total in enumerate(_sums(writer, contraction, plan, Index.of(part), at)):
                k.store(partial, offset(part, row) + lane, total)
        with (
            k.loop(plan.count) as row,
            k.loop(length, kind=LoopKind.LANES, width=COLUMNS, limit=limit) as lane,
        ):
            sums = [k.load(partial, offset(n, Index.of(row)) + lane) for n in range(plan.parts)]
            while len(sums) > 1:  # neighbours, so that sums do not wait for one another
                pairs = zip(sums[::2], sums[1::2], strict=False)
                added = [add_sums(writer, a, b, contraction.compute) for a, b in pairs]
                sums = added + sums[len(added) * 2 :]
            finish(writer, contraction, element(Index.of(row), Index.of(lane)), sums[0])


def _sums(
    writer: KernelWriter,
    contraction: ContractionLoops,
    plan: GroupPlan,
    part: Index,
    at: list[dict[ContractionAxis, Index]],
) -> tuple[Value, ...]:
    """Sum over one part of K for each element of the tile."""
    k, sizes = writer.k, [axis.size for axis in contraction.k_axes]
    left_over = math.prod(sizes) % plan.terms
    at_once = 1 if left_over else max(n for n in range(1, MOST_AT_ONCE + 1) if plan.terms % n == 0)
    limit = Index(math.prod(sizes)) - part * plan.terms if left_over else None
    zeros = [k.constant(0, sum_dtype(contraction.compute)) for _ in at]
    with k.loop(plan.terms, step=at_once, limit=limit, carries=zeros) as (term, inside):
        totals = list(inside)
        for n in range(at_once):
            digits = k.digits(part * plan.terms + term + n, sizes)
            terms = dict(zip(contraction.k_axes, digits, strict=True))
            right = contraction.right(writer, Coordinates({**at[0], **terms}))
            for row, indices in enumerate(at):
                left = contraction.left(writer, Coordinates({**indices, **terms}))
                totals[row] = multiply_add(writer, left, right, totals[row], contraction.compute)
        return k.carry(*totals)
