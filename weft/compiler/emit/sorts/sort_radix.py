"""Radix sort of rows: from the last digit to the first, each pass keeps the order of elements whose digit is equal.

Each pass moves words from one half of the scratch to the other and, with them, the index of the element or, if there is
just one other operand of at most 32 bits, its element itself. A word of 32 bits and what goes with it are one integer
of 64. A digit that is the same in all elements needs no pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.emit.emission import KernelWriter, storage
from weft.compiler.emit.sorts.sort_encoding import (
    SortField,
    SortOrder,
    as_uint32,
    decode,
    fits_word,
    from_uint32,
    is_negative_zero,
    stage_bits,
    stage_dtype,
)
from weft.compiler.emit.sorts.sort_rows import Row, SortTask
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Buffer, Index, LoopKind, Value

INT64 = dtypes.int64
# Rows up to this long have indices of 32 bits.
NARROW = 2**32 - 1
# Rows at least this long are worth more buckets, for fewer passes.
LONG = 1 << 15
NONE = Index()
# Slice of a row: its first element, its most elements, and the rest of the row if that may be shorter.
Range = tuple[Index, int, Index | None]
# Elements that are moved together.
TOGETHER = 2
# Bytes of a cache line.
LINE = 64


@dataclass(frozen=True)
class Radix:
    """How rows are sorted. `payload`: what moves with the words ("" for nothing, "index", "element"); `combined`: it is
    in the lower half of the words themselves; `size`: how many there are, if fewer than a row has elements; `bits`: by
    how many of the lowest bits words are sorted at most, if not by all, and `rounds` by how many digits. `far`: buckets
    are not in a cache, and too many for the hardware prefetcher."""

    task: SortTask
    writer: KernelWriter
    payload: str
    combined: bool
    digit: int
    word_scratch: tuple[int, ...]
    counts: int
    size: Index | None = None
    bits: int | None = None
    rounds: Index | None = None
    far: bool = False

    @property
    def k(self) -> KernelBuilder:
        return self.writer.k

    @property
    def length(self) -> int:
        return self.task.rows.length

    @property
    def count(self) -> np.dtype[Any]:
        """The dtype that counts elements and says where they come from."""
        return self.task.fusion.scratch[self.counts].dtype

    @property
    def buckets(self) -> int:
        return 1 << self.digit

    @property
    def payload_operand(self) -> Any:
        """The operand that moves with the words."""
        return next((source for _, source in self.task.results if source is not self.task.keys[0]), None)

    def buffers(self) -> list[Buffer]:
        return [self.writer.scratch(n) for n in self.word_scratch]

    def passes(self, stage: Sequence[SortField]) -> int:
        return -(-(self.bits or stage_bits(stage)) // self.digit)

    def base(self, block: Index) -> Index:
        """Return the offset in scratch of a row's words."""
        return block * (2 * self.length)

    def table(self, block: Index) -> Index:
        """Return the offset in scratch of a row's counts."""
        return block * (max(map(self.passes, self.task.stages)) << self.digit)


def emit_radix(task: SortTask) -> None:
    """Emit a kernel that sorts rows of any length."""
    radix = choose_radix(task, task.fusion.writer("sort_radix"))
    with task.rows.each(radix.k) as (block, row):
        _sort_row(radix, block, row)


def choose_radix(task: SortTask, writer: KernelWriter) -> Radix:
    """Choose how the rows of a task are sorted, and allocate scratch for it."""
    stages, length = task.stages, task.rows.length
    payload = choose_payload(task)
    index_dtype = dtypes.uint32 if length <= NARROW else dtypes.uint64
    other = index_dtype if payload == "index" else dtypes.uint32
    combined = bool(payload) and len(stages) == 1 and stage_bits(stages[0]) <= 32 and other == dtypes.uint32
    word = dtypes.uint64 if combined or len(stages) > 1 else stage_dtype(stages[0])
    moving: list[np.dtype[Any]] = [word] if combined or not payload else [word, other]
    digit = 11 if length >= LONG else 8
    most = max(-(-stage_bits(stage) // digit) for stage in stages)
    blocks = task.rows.blocks
    word_scratch = tuple(task.fusion.new_scratch(dtype, blocks * 2 * length) for dtype in moving)
    return Radix(
        task,
        writer,
        payload,
        combined,
        digit,
        word_scratch,
        task.fusion.new_scratch(index_dtype, blocks * most << digit),
    )


def choose_payload(task: SortTask) -> str:
    """Return what moves with the words: "index", "element" or "" for nothing."""
    if task.order is SortOrder.DESCENDING or len(task.keys) > 1 or dtypes.kind(storage(task.keys[0])) == "c":
        return "index"
    others = [source for _, source in task.results if source is not task.keys[0]]
    if not others:
        return ""
    return "element" if len(others) == 1 and fits_word(storage(others[0])) else "index"


def _sort_row(radix: Radix, block: Index, row: Row) -> None:
    k, task = radix.k, radix.task
    base, counts = radix.base(block), radix.table(block)
    half = k.constant(0, INT64)
    specials: list[Value] = []
    for number_of_stage, stage in enumerate(reversed(task.stages)):
        if number_of_stage == 0:
            specials = fill(radix, stage, row, base)
        else:
            _fill_again(radix, stage, row, base, half)
        count(radix, stage, base, half, counts)
        half = run_passes(radix, stage, base, half, counts)
    write_results(radix, row, base, half, specials)


def sort_scratch(radix: Radix, block: Index, row: Row, size: Index) -> None:
    """Sort what is in the scratch of a block, `size` words with indices, and write the first of them."""
    (stage,), few = radix.task.stages, replace(radix, size=size)
    base, counts, half = radix.base(block), radix.table(block), radix.k.constant(0, INT64)
    count(few, stage, base, half, counts)
    write_results(few, row, base, run_passes(few, stage, base, half, counts), [])


# --------------------------------------------------------------------------------------------------- words of elements


def fill(radix: Radix, stage: list[SortField], row: Row, base: Index, part: Range | None = None) -> list[Value]:
    """Write the words, of all elements or of a part. Where elements are later decoded from words alone, returns how
    many have a word below that of zero, how many are nan, and how many are nan or -0, which cannot be decoded."""
    k, task, s = radix.k, radix.task, radix.k.scalars
    width = radix.writer.lanes
    dtype = storage(task.keys[0])
    counting = has_specials(radix)
    zero = k.constant(0, radix.count)
    counts: tuple[Value, ...] = ()
    carries = [zero] * 3 if counting else ()
    first, size, limit = part or (NONE, radix.length, None)
    with k.loop(size, kind=LoopKind.LANES, width=width, carries=carries, limit=limit) as opened:
        i, inside = opened if counting else (opened, ())
        i = first + i
        word = task.word(radix.writer, stage, row, i)
        _store(radix, base + i, word, _payload_at(radix, row, i))
        if counting:
            x = task.element(radix.writer, task.keys[0], row, i)
            nought = s.constant(0, dtype)
            negative, nan = s.lt(x, nought), s.ne(x, x)
            special = getattr(s, "or")(nan, is_negative_zero(s, x))
            following = [
                s.add(a, s.convert(b, radix.count)) for a, b in zip(inside, (negative, nan, special), strict=True)
            ]
            counts = k.carry(*following)
    return [k.reduce_lanes("add", count, width) for count in counts]


def has_specials(radix: Radix) -> bool:
    """Return whether some elements cannot be decoded from their words."""
    return radix.payload != "index" and dtypes.kind(storage(radix.task.keys[0])) == "f"


def _payload_at(radix: Radix, row: Row, i: Any) -> Value | None:
    """Return the payload of an element's word."""
    k = radix.k
    match radix.payload:
        case "index":
            return k.scalars.convert(k.position(i), radix.count)
        case "element":
            return as_uint32(k.scalars, radix.task.element(radix.writer, radix.payload_operand, row, i))
    return None


def _store(radix: Radix, at: Index, word: Value, other: Value | None) -> None:
    k, s, buffers = radix.k, radix.k.scalars, radix.buffers()
    word = s.convert(word, buffers[0].dtype)
    if other is not None and radix.combined:
        shifted = s.shift_left(word, s.constant(32, word.dtype))
        word = getattr(s, "or")(shifted, s.convert(other, word.dtype))
    k.store(buffers[0], at, word)
    if other is not None and not radix.combined:
        k.store(buffers[1], at, other)


def _fill_again(radix: Radix, stage: list[SortField], row: Row, base: Index, half: Value) -> None:
    """Write the words of the next stage, in the order that the stages before have produced."""
    k = radix.k
    word_buffer, index_buffer = radix.buffers()
    with k.loop(radix.length, kind=LoopKind.LANES, width=radix.writer.lanes) as i:
        origin = k.load(index_buffer, base + half + i)
        word = radix.task.word(radix.writer, stage, row, origin)
        k.store(word_buffer, base + half + i, k.scalars.convert(word, word_buffer.dtype))


# ---------------------------------------------------------------------------------------------------------- the passes


def extract_digit(radix: Radix, word: Value, shift: Value) -> Value:
    """Extract a digit of a word, as an index."""
    s = radix.k.scalars
    mask = s.constant(radix.buckets - 1, word.dtype)
    result: Value = getattr(s, "and")(s.shift_right_logical(word, shift), mask)
    return result


def _shift(radix: Radix, stage: list[SortField], number_of_pass: Any) -> Value:
    """Return the bit offset of the digit of a pass in its word."""
    k, dtype = radix.k, radix.buffers()[0].dtype
    shift = Index.of(number_of_pass) * radix.digit + (32 if radix.combined else 0)
    if isinstance(number_of_pass, int):
        return k.constant(shift.constant, dtype)
    # The mask changes nothing, but bounds the shift by the width of the word, so that it is not checked.
    mask = k.constant(8 * dtype.itemsize - 1, dtype)
    return k.compute("and", k.scalars.convert(k.position(shift), dtype), mask)


def count(radix: Radix, stage: list[SortField], base: Index, half: Value, counts: Index) -> None:
    """Count the digits of all passes at once."""
    k, passes = radix.k, radix.passes(stage)
    table, (word_buffer, *_) = radix.writer.scratch(radix.counts), radix.buffers()
    with k.loop(passes << radix.digit, kind=LoopKind.LANES, width=radix.writer.lanes) as i:
        k.store(table, counts + i, k.constant(0, radix.count))
    one = k.constant(1, radix.count)
    with k.loop(radix.length, limit=radix.size) as i:
        word = k.load(word_buffer, base + half + i)
        for p in range(passes):
            bucket = counts + (p << radix.digit) + extract_digit(radix, word, _shift(radix, stage, p))
            k.store(table, bucket, k.compute("add", k.load(table, bucket), one))


def run_passes(radix: Radix, stage: list[SortField], base: Index, half: Value, counts: Index) -> Value:
    """Move the words, digit by digit; returns in which half they are then."""
    k, length = radix.k, radix.length
    table, buffers = radix.writer.scratch(radix.counts), radix.buffers()
    with k.loop(radix.passes(stage), carries=[half], limit=radix.rounds) as (p, (source,)):
        # As values, so that they are computed before the loops and not in them.
        own, begin = (Index.of(k.position(i)) for i in (counts + p * radix.buckets, base + source))
        shift = _shift(radix, stage, p)
        target = k.compute("sub", k.constant(length, INT64), source)
        end = Index.of(k.position(base + target))
        # All elements are in the bucket of the first one if that bucket has all of them.
        first = extract_digit(radix, k.load(buffers[0], begin), shift)
        size = k.position(Index(length) if radix.size is None else radix.size)
        differ = k.compute("ne", k.load(table, own + first), k.scalars.convert(size, radix.count))
        with k.when(differ):
            with k.loop(radix.buckets, carries=[k.constant(0, radix.count)]) as (b, (total,)):
                held = k.load(table, own + b)
                k.store(table, own + b, total)
                k.carry(k.compute("add", total, held))
            scatter_all(radix, own, shift, begin, end)
        (half,) = k.carry(k.compute("select_n", differ, source, target))
    return half


def scatter_all(radix: Radix, own: Index, shift: Value, begin: Index, end: Index) -> None:
    """Move elements to their buckets, a few together and then what is left."""
    k, whole = radix.k, radix.length // TOGETHER * TOGETHER
    limit, rest, left = None, None, Index(whole)
    if radix.size is not None:
        together = k.constant(TOGETHER, INT64)
        left = Index.of(k.compute("mul", k.compute("div", k.position(radix.size), together), together))
        limit, rest = left, radix.size - left
    with k.loop(whole, step=TOGETHER, limit=limit) as i:
        _scatter(radix, own, shift, [begin + i + n for n in range(TOGETHER)], end)
    with k.loop(TOGETHER - 1 if rest is not None else radix.length - whole, limit=rest) as i:
        _scatter(radix, own, shift, [begin + left + i], end)


def _scatter(radix: Radix, own: Index, shift: Value, positions: Sequence[Index], end: Index) -> None:
    """Move elements to the next positions of their buckets. First all positions are found, then all are written to: a
    load of a count after a store to an unknown address waits only once for all of them."""
    k, table, buffers = radix.k, radix.writer.scratch(radix.counts), radix.buffers()
    one = k.constant(1, radix.count)
    elements = [[k.load(buffer, position) for buffer in buffers] for position in positions]
    buckets = [own + extract_digit(radix, element[0], shift) for element in elements]
    targets = []
    for bucket in buckets:
        targets.append(k.load(table, bucket))
        k.store(table, bucket, k.compute("add", targets[-1], one))
    for target, element in zip(targets, elements, strict=True):
        for buffer, moving in zip(buffers, element, strict=True):
            if radix.far:
                k.prefetch(buffer, end + target + LINE // buffer.dtype.itemsize)
            k.store(buffer, end + target, moving)


# ------------------------------------------------------------------------------------------------------------- results


def write_results(radix: Radix, row: Row, base: Index, half: Value, specials: list[Value], first: Index = NONE) -> None:
    """Write the results from the sorted words: all, or `radix.size` of them from `first` on."""
    k, task, s = radix.k, radix.task, radix.k.scalars
    limit = None if first is NONE else radix.size
    with k.loop(task.selected, kind=LoopKind.LANES, width=radix.writer.lanes, limit=limit) as n:
        loaded = [k.load(buffer, base + half + n) for buffer in radix.buffers()]
        i = first + n
        word, other = loaded[0], loaded[-1]
        if radix.combined:
            other = s.convert(word, dtypes.uint32)
            word = s.shift_right_logical(word, s.constant(32, word.dtype))
        if radix.payload == "index":
            task.store_results(radix.writer, row, i, other)
            return
        for v, source in task.results:
            dtype = storage(v)
            if source is task.keys[0]:
                value = decode(s, s.convert(word, stage_dtype(task.stages[0])), dtype)
            else:
                value = from_uint32(s, other, dtype)
            task.store(radix.writer, v, row, i, value)
    wanted = [v for v, source in task.results if source is task.keys[0]]
    if specials and wanted:
        restore_specials(radix, row, specials, wanted)


def restore_specials(radix: Radix, row: Row, specials: list[Value], wanted: list[Any]) -> None:
    """Write zeros and nans again from the operand, in their order: words do not tell -0 from 0."""
    k, task, s = radix.k, radix.task, radix.k.scalars
    zeros, nans, special = specials
    one = k.constant(1, radix.count)
    with k.when(s.ne(special, k.constant(0, radix.count))):
        starts = [zeros, s.sub(k.constant(radix.length, radix.count), nans)]
        with k.loop(radix.length, carries=starts) as (i, positions):
            x = task.element(radix.writer, task.keys[0], row, i)
            following = []
            for at, holds in zip(positions, (s.eq(x, s.constant(0, x.dtype)), s.ne(x, x)), strict=True):
                for v in wanted:
                    task.store(radix.writer, v, row, at, x, holds)
                following.append(s.select_n(holds, at, s.add(at, one)))
            k.carry(*following)
