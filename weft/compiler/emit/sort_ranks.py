"""Sorting of short rows by ranks: every element goes to the place whose number is that of the elements before it.

The work grows with the square of the length, but it is all in lanes and without a branch.
"""

from __future__ import annotations

from weft.base import dtypes
from weft.compiler.emit.emission import Writer
from weft.compiler.emit.sort_rows import Row, Task, divided
from weft.compiler.emit.sort_words import stage_dtype
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, Kind, Value

RANK = dtypes.int32


def emit_ranks(task: Task) -> None:
    """A kernel that sorts rows by ranks."""
    writer = task.fusion.writer("sort_ranks")
    if task.rows.inner >= writer.lanes:
        _across(task, writer)
    else:
        _along(task, writer)


def _along(task: Task, writer: Writer) -> None:
    """Lanes along the row: each has one element, and all elements are compared with it."""
    k, rows, length = writer.k, task.rows, task.rows.length
    stages = task.stages
    words = [task.fusion.new_scratch(stage_dtype(s), rows.blocks * length) for s in stages]
    width = 1
    while width < min(length, 4 * writer.lanes):
        width *= 2
    with rows.each(k) as (block, row):
        with k.loop(length, kind=Kind.LANES, width=width) as i:
            for number, stage in zip(words, stages, strict=True):
                k.store(writer.scratch(number), block * length + i, task.word(writer, stage, row, i))
        with k.loop(length, kind=Kind.LANES, width=width) as i:
            own = [k.load(writer.scratch(number), block * length + i) for number in words]
            place = k.position(i, RANK)
            with k.loop(length, carries=[k.constant(0, RANK)]) as (j, (count,)):
                others = [k.load(writer.scratch(number), block * length + j) for number in words]
                earlier = k.compute("lt", k.position(j, RANK), place)
                (rank,) = k.carry(_counted(k, count, _before(k, others, own, earlier)))
            task.deliver(writer, row, rank, i, _taken(task, k, rank))


def _across(task: Task, writer: Writer) -> None:
    """Lanes across rows that lie side by side."""
    k, rows, length, width = writer.k, task.rows, task.rows.length, writer.lanes
    stages = task.stages
    pieces = -(-rows.inner // width)
    words = [task.fusion.new_scratch(stage_dtype(s), rows.outer * pieces * length * width) for s in stages]
    with k.loop(rows.outer * pieces, kind=Kind.THREADS) as block:
        outer, piece = divided(k, Index.of(block), pieces)
        limit = None if pieces * width == rows.inner else Index(rows.inner) - piece * width
        with k.loop(width, kind=Kind.LANES, width=width, limit=limit) as lane:
            row: Row = lambda size: outer * (size * rows.inner) + piece * width + lane  # noqa: E731
            place = block * (length * width) + lane
            with k.loop(length) as i:
                for number, stage in zip(words, stages, strict=True):
                    k.store(writer.scratch(number), place + i * width, task.word(writer, stage, row, i))
            with k.loop(length) as i:
                own = [k.load(writer.scratch(number), place + i * width) for number in words]
                rank = k.constant(0, RANK)
                # Those that stand before it, and those after.
                for first, bound, earlier in ((Index(), Index.of(i), True), (i + 1, Index(length - 1) - i, False)):
                    with k.loop(length, limit=bound, carries=[rank]) as (j, (count,)):
                        others = [k.load(writer.scratch(number), place + (first + j) * width) for number in words]
                        (rank,) = k.carry(_counted(k, count, _before(k, others, own, earlier)))
                task.deliver(writer, row, rank, i, _taken(task, k, rank))


def _before(k: KernelBuilder, others: list[Value], own: list[Value], earlier: Value | bool) -> Value:
    """Whether an element comes before another one; of equal ones, the one that stands earlier."""
    *upper, last = range(len(own))
    if isinstance(earlier, bool):
        holds = k.compute("le" if earlier else "lt", others[last], own[last])
    else:
        less, not_greater = (k.compute(op, others[last], own[last]) for op in ("lt", "le"))
        holds = k.compute("select_n", earlier, less, not_greater)
    for stage in reversed(upper):
        less, same = (k.compute(op, others[stage], own[stage]) for op in ("lt", "eq"))
        holds = k.compute("or", less, k.compute("and", same, holds))
    return holds


def _counted(k: KernelBuilder, count: Value, holds: Value) -> Value:
    return k.compute("add", count, k.scalars.convert(holds, RANK))


def _taken(task: Task, k: KernelBuilder, rank: Value) -> Value | None:
    """Whether an element of a rank is among those that are taken; None if all are."""
    if task.taken == task.rows.length:
        return None
    return k.compute("lt", rank, k.constant(task.taken, RANK))
