"""A few of the first elements of rows, found while a row is read once.

Every lane keeps the first of the elements that it has seen, in order. An element and its place are one word, so that
none are equal and of equal elements the earlier one is less.
"""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.compiler.emit.emission import Writer
from weft.compiler.emit.sort_rows import Row, Task, divided
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, Kind, Value

WORD = dtypes.uint64
_LAST = 2**64 - 1  # behind every element
PLACE_BITS = 32


def emit_selection(task: Task) -> None:
    """A kernel that finds the first `taken` elements of rows, whose words have at most 32 bits."""
    writer = task.fusion.writer("select")
    if task.rows.inner >= writer.lanes:
        _across(task, writer)
    else:
        _along(task, writer)


def _along(task: Task, writer: Writer) -> None:
    """Lanes along the row, and then the first of all lanes, one after the other."""
    k, rows = writer.k, task.rows
    width = max(1, task.fusion.vector_bytes // 8)
    last = k.constant(_LAST, WORD)
    with rows.each(k) as (_, row):
        with k.loop(rows.length, kind=Kind.LANES, width=width, carries=[last] * task.taken) as (i, kept):
            found = k.carry(*_inserted(k, kept, _with_place(task, writer, row, i)))
        with k.loop(task.taken, carries=found) as (n, kept):
            first = k.fold("min", kept[0], width)
            task.deliver(writer, row, n, _place(k, first))
            taken = k.compute("eq", kept[0], first)
            following = [*kept[1:], last]
            k.carry(*(k.compute("select_n", taken, a, b) for a, b in zip(kept, following, strict=True)))


def _across(task: Task, writer: Writer) -> None:
    """Lanes across rows that lie side by side."""
    k, rows, width = writer.k, task.rows, writer.lanes
    pieces = -(-rows.inner // width)
    last = k.constant(_LAST, WORD)
    with k.loop(rows.outer * pieces, kind=Kind.THREADS) as block:
        outer, piece = divided(k, Index.of(block), pieces)
        limit = None if pieces * width == rows.inner else Index(rows.inner) - piece * width
        with k.loop(width, kind=Kind.LANES, width=width, limit=limit) as lane:
            row: Row = lambda size: outer * (size * rows.inner) + piece * width + lane  # noqa: E731
            with k.loop(rows.length, carries=[last] * task.taken) as (i, kept):
                found = k.carry(*_inserted(k, kept, _with_place(task, writer, row, i)))
            for number, word in enumerate(found):
                task.deliver(writer, row, number, _place(k, word))


def _with_place(task: Task, writer: Writer, row: Row, i: Any) -> Value:
    """The word of an element, and below it its place."""
    k = writer.k
    (stage,) = task.stages
    word = k.scalars.convert(task.word(writer, stage, row, i), WORD)
    place = k.scalars.convert(k.position(i, dtypes.int64), WORD)
    return k.compute("or", k.compute("shift_left", word, k.constant(PLACE_BITS, WORD)), place)


def _place(k: KernelBuilder, word: Value) -> Value:
    return k.scalars.convert(k.compute("and", word, k.constant(2**PLACE_BITS - 1, WORD)), dtypes.int64)


def _inserted(k: KernelBuilder, kept: tuple[Value, ...], word: Value) -> list[Value]:
    """Words in order with another one among them; the last falls out."""
    made = []
    for one in kept:
        made.append(k.compute("min", one, word))
        word = k.compute("max", one, word)
    return made
