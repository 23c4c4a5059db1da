"""A few of the first elements of rows, without sorting all of them.

Every lane keeps the first of the elements that it has seen, in order. An element and its place are one word, so that
none are equal and of equal elements the earlier one is less. If lanes keep as many as are wanted, they have them all;
if they keep fewer, what they have says behind which word no element can be one of the first. The row is read again for
those that are not behind it, and these are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base import dtypes
from weft.compiler.emit.emission import Writer
from weft.compiler.emit.sorts.sort_radix import radix_of, sort_words
from weft.compiler.emit.sorts.sort_rows import Row, Task
from weft.compiler.emit.sorts.sort_words import stage_bits
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, LoopKind, Value

WORD = dtypes.int64  # with the highest bit flipped, since not every machine has the lesser of two unsigned numbers
_LAST = 2**63 - 1  # behind every element
PLACE_BITS = 32
# Lanes keep so many words together if they do not keep all that are wanted: enough for `MORE`.
KEPT, MORE = 128, 96
# Elements that are looked at together for a word that is not behind a bound.
SCANNED = 256


def fits_selection(task: Task) -> bool:
    """Whether an element and its place fit one word."""
    return stage_bits(task.stages[0]) <= 64 - PLACE_BITS and task.rows.length < 2**PLACE_BITS


def emit_selection(task: Task) -> None:
    """A kernel that finds the first `taken` elements of rows."""
    writer = task.fusion.writer("select")
    if task.rows.inner >= writer.lanes:
        _across(task, writer)
    else:
        _along(task, writer)


def _along(task: Task, writer: Writer) -> None:
    """Lanes along the row, and then the first of all lanes, one after the other."""
    k, rows = writer.k, task.rows
    width = max(1, task.fusion.target.vector_bytes // 8)
    with rows.each(k) as (_, row):
        found = _kept(task, writer, row, task.taken, width)
        with k.loop(task.taken, carries=found) as (n, kept):
            first, following = _first(k, kept, width)
            task.deliver(writer, row, n, _place(k, first))
            k.carry(*following)


def _kept(task: Task, writer: Writer, row: Row, count: int, width: int) -> tuple[Value, ...]:
    """The first `count` words that each lane sees, in order."""
    k = writer.k
    last = k.constant(_LAST, WORD)
    with k.loop(task.rows.length, kind=LoopKind.LANES, width=width, carries=[last] * count) as (i, kept):
        found = k.carry(*_inserted(k, kept, _with_place(task, writer, row, i)))
    return found


def _first(k: KernelBuilder, kept: Sequence[Value], width: int) -> tuple[Value, list[Value]]:
    """The first word of all lanes, and what the lanes keep without it."""
    first = k.reduce_lanes("min", kept[0], width)
    taken = k.compute("eq", kept[0], first)
    following = [*kept[1:], k.constant(_LAST, WORD)]
    return first, [k.compute("select_n", taken, a, b) for a, b in zip(kept, following, strict=True)]


def _across(task: Task, writer: Writer) -> None:
    """Lanes across rows that lie side by side."""
    k, rows = writer.k, task.rows
    last = k.constant(_LAST, WORD)
    with rows.beside(k, writer.lanes) as (_, row):
        with k.loop(rows.length, carries=[last] * task.taken) as (i, kept):
            found = k.carry(*_inserted(k, kept, _with_place(task, writer, row, i)))
        for number, word in enumerate(found):
            task.deliver(writer, row, number, _place(k, word))


# -------------------------------------------------------------------------------------------------------- a few more


def emit_threshold(task: Task) -> None:
    """A kernel that finds the first `taken` elements of rows, more than lanes can keep."""
    writer = task.fusion.writer("select_more")
    k, rows = writer.k, task.rows
    radix = radix_of(task, writer)
    cells = task.fusion.new_scratch(dtypes.int64, rows.blocks)
    # In several registers, so that lanes need not keep many.
    width = max(1, 4 * task.fusion.target.vector_bytes // 8)
    with rows.each(k) as (block, row):
        found = _kept(task, writer, row, -(-KEPT // width), width)
        with k.loop(task.taken, carries=[*found, k.constant(_LAST, WORD)]) as (_, (*kept, _)):
            first, following = _first(k, kept, width)
            *_, bound = k.carry(*following, first)
        size = _collect(task, writer, row, bound, radix.place(block), radix.words[0], (cells, block))
        sort_words(radix, block, row, Index.of(size))


def _collect(
    task: Task, writer: Writer, row: Row, bound: Value, place: Index, words: int, cell: tuple[int, Index]
) -> Value:
    """Write the words that are not behind a bound, and give how many there are. Most blocks of a row have none."""
    k, length, width = writer.k, task.rows.length, writer.lanes
    buffer, size = writer.scratch(words), writer.scratch(cell[0])
    k.store(size, cell[1], k.constant(0, dtypes.int64))
    with k.loop(-(-length // SCANNED)) as piece:
        limit = None if length % SCANNED == 0 else Index(length) - piece * SCANNED
        start = piece * SCANNED
        with k.loop(SCANNED, kind=LoopKind.LANES, width=width, limit=limit, carries=[k.constant(_LAST, WORD)]) as (
            i,
            (least,),
        ):
            (found,) = k.carry(k.compute("min", least, _with_place(task, writer, row, start + i)))
        with k.when(k.compute("le", k.reduce_lanes("min", found, width), bound)):
            with k.loop(SCANNED, limit=limit, carries=[k.load(size, cell[1])]) as (i, (count,)):
                word = _with_place(task, writer, row, start + i)
                holds = k.compute("le", word, bound)
                k.store(buffer, place + count, _flipped(k, word), holds)
                (count,) = k.carry(k.compute("add", count, k.scalars.convert(holds, dtypes.int64)))
            k.store(size, cell[1], count)
    return k.load(size, cell[1])


# -------------------------------------------------------------------------------------------------------------- words


def _with_place(task: Task, writer: Writer, row: Row, i: Any) -> Value:
    """The word of an element, and below it its place; the highest bit flipped."""
    k, s = writer.k, writer.k.scalars
    (stage,) = task.stages
    word = s.bitcast(s.convert(task.word(writer, stage, row, i), dtypes.uint64), WORD)
    shifted = s.shift_left(word, s.constant(PLACE_BITS, WORD))
    return s.xor(getattr(s, "or")(shifted, k.position(i)), s.constant(-(2**63), WORD))


def _flipped(k: KernelBuilder, word: Value) -> Value:
    """A word as radix sort wants it."""
    return k.scalars.bitcast(k.compute("xor", word, k.constant(-(2**63), WORD)), dtypes.uint64)


def _place(k: KernelBuilder, word: Value) -> Value:
    return k.compute("and", word, k.constant(2**PLACE_BITS - 1, WORD))


def _inserted(k: KernelBuilder, kept: tuple[Value, ...], word: Value) -> list[Value]:
    """Words in order with another one among them; the last falls out."""
    made = []
    for one in kept:
        made.append(k.compute("min", one, word))
        word = k.compute("max", one, word)
    return made
