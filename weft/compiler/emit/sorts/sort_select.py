"""Selection of a few first elements of rows, without sorting the rows.

Every lane holds the first of the elements that it has seen, in order. An element and its index are one word, so that
all words differ and the earlier of equal elements is less. If each lane holds as many as are selected, they contain all
results; if it holds fewer, they yield a bound: no later word can be one of the first. The row is read again for the
words up to the bound, and these are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base import dtypes
from weft.compiler.emit.emission import KernelWriter
from weft.compiler.emit.sorts.sort_encoding import stage_bits
from weft.compiler.emit.sorts.sort_radix import choose_radix, sort_scratch
from weft.compiler.emit.sorts.sort_rows import Row, SortTask
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, LoopKind, Value

WORD = dtypes.int64  # with the highest bit flipped, since not every machine has the lesser of two unsigned numbers
_LAST = 2**63 - 1  # behind every element
INDEX_BITS = 32
# Words that all lanes hold together if they cannot hold all selected ones: enough for `MORE`.
COLLECTED, MORE = 128, 96
# Elements that are compared with the bound at once.
SCANNED = 256


def fits_selection(task: SortTask) -> bool:
    """Return whether an element and its index fit one word."""
    return stage_bits(task.stages[0]) <= 64 - INDEX_BITS and task.rows.length < 2**INDEX_BITS


def emit_selection(task: SortTask) -> None:
    """Emit a kernel that finds the first `selected` elements of rows."""
    writer = task.fusion.writer("select")
    if task.rows.inner >= writer.lanes:
        _across(task, writer)
    else:
        _along(task, writer)


def _along(task: SortTask, writer: KernelWriter) -> None:
    """Select with lanes along the row, then merge the lanes one element at a time."""
    k, rows = writer.k, task.rows
    width = max(1, task.fusion.target.vector_bytes // 8)
    with rows.each(k) as (_, row):
        found = _best_per_lane(task, writer, row, task.selected, width)
        with k.loop(task.selected, carries=found) as (n, best):
            first, following = _first(k, best, width)
            task.store_results(writer, row, n, _get_index(k, first))
            k.carry(*following)


def _best_per_lane(task: SortTask, writer: KernelWriter, row: Row, count: int, width: int) -> tuple[Value, ...]:
    """Find the first `count` words that each lane sees, in order."""
    k = writer.k
    last = k.constant(_LAST, WORD)
    with k.loop(task.rows.length, kind=LoopKind.LANES, width=width, carries=[last] * count) as (i, best):
        found = k.carry(*_insert(k, best, _word_with_index(task, writer, row, i)))
    return found


def _first(k: KernelBuilder, best: Sequence[Value], width: int) -> tuple[Value, list[Value]]:
    """Remove the first word of all lanes; return it and the remaining words of the lanes."""
    first = k.reduce_lanes("min", best[0], width)
    selected = k.compute("eq", best[0], first)
    following = [*best[1:], k.constant(_LAST, WORD)]
    return first, [k.compute("select_n", selected, a, b) for a, b in zip(best, following, strict=True)]


def _across(task: SortTask, writer: KernelWriter) -> None:
    """Select with lanes across adjacent rows."""
    k, rows = writer.k, task.rows
    last = k.constant(_LAST, WORD)
    with rows.across(k, writer.lanes) as (_, row):
        with k.loop(rows.length, carries=[last] * task.selected) as (i, best):
            found = k.carry(*_insert(k, best, _word_with_index(task, writer, row, i)))
        for n, word in enumerate(found):
            task.store_results(writer, row, n, _get_index(k, word))


# -------------------------------------------------------------------------------------------------------- a few more


def emit_threshold(task: SortTask) -> None:
    """Emit a kernel that finds the first `selected` elements of rows, more than lanes can hold."""
    writer = task.fusion.writer("select_more")
    k, rows = writer.k, task.rows
    radix = choose_radix(task, writer)
    cells = task.fusion.new_scratch(dtypes.int64, rows.blocks)
    # In several registers, so that a lane need not hold many.
    width = max(1, 4 * task.fusion.target.vector_bytes // 8)
    with rows.each(k) as (block, row):
        found = _best_per_lane(task, writer, row, -(-COLLECTED // width), width)
        with k.loop(task.selected, carries=[*found, k.constant(_LAST, WORD)]) as (_, (*best, _)):
            first, following = _first(k, best, width)
            *_, bound = k.carry(*following, first)
        size = _collect(task, writer, row, bound, radix.base(block), radix.word_scratch[0], (cells, block))
        sort_scratch(radix, block, row, Index.of(size))


def _collect(
    task: SortTask,
    writer: KernelWriter,
    row: Row,
    bound: Value,
    base: Index,
    word_scratch: int,
    cell: tuple[int, Index],
) -> Value:
    """Write the words that are not behind a bound, and return how many there are. Most blocks of a row have none."""
    k, length, width = writer.k, task.rows.length, writer.lanes
    buffer, size = writer.scratch(word_scratch), writer.scratch(cell[0])
    k.store(size, cell[1], k.constant(0, dtypes.int64))
    with k.loop(-(-length // SCANNED)) as piece:
        limit = None if length % SCANNED == 0 else Index(length) - piece * SCANNED
        start = piece * SCANNED
        with k.loop(SCANNED, kind=LoopKind.LANES, width=width, limit=limit, carries=[k.constant(_LAST, WORD)]) as (
            i,
            (least,),
        ):
            (found,) = k.carry(k.compute("min", least, _word_with_index(task, writer, row, start + i)))
        with k.when(k.compute("le", k.reduce_lanes("min", found, width), bound)):
            with k.loop(SCANNED, limit=limit, carries=[k.load(size, cell[1])]) as (i, (count,)):
                word = _word_with_index(task, writer, row, start + i)
                holds = k.compute("le", word, bound)
                k.store(buffer, base + count, _flip(k, word), holds)
                (count,) = k.carry(k.compute("add", count, k.scalars.convert(holds, dtypes.int64)))
            k.store(size, cell[1], count)
    return k.load(size, cell[1])


# -------------------------------------------------------------------------------------------------------------- words


def _word_with_index(task: SortTask, writer: KernelWriter, row: Row, i: Any) -> Value:
    """Return the word of an element with its index in the low bits, the highest bit flipped."""
    k, s = writer.k, writer.k.scalars
    (stage,) = task.stages
    word = s.bitcast(s.convert(task.word(writer, stage, row, i), dtypes.uint64), WORD)
    shifted = s.shift_left(word, s.constant(INDEX_BITS, WORD))
    return s.xor(getattr(s, "or")(shifted, k.position(i)), s.constant(-(2**63), WORD))


def _flip(k: KernelBuilder, word: Value) -> Value:
    """Flip the highest bit of a word back, for radix sort."""
    return k.scalars.bitcast(k.compute("xor", word, k.constant(-(2**63), WORD)), dtypes.uint64)


def _get_index(k: KernelBuilder, word: Value) -> Value:
    return k.compute("and", word, k.constant(2**INDEX_BITS - 1, WORD))


def _insert(k: KernelBuilder, best: tuple[Value, ...], word: Value) -> list[Value]:
    """Insert a word into sorted words, dropping the last."""
    result = []
    for one in best:
        result.append(k.compute("min", one, word))
        word = k.compute("max", one, word)
    return result
