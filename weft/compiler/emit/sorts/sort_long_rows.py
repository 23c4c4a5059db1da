"""Radix sort of long rows by groups of threads, three kernels for each digit of eight bits.

Tiles of a row count their digits; sums of these counts say where each tile puts its first element with each digit; then
each tile sorts its elements by the digit in local memory and writes them, those of one digit side by side. The first
digit is that of the operands themselves, and after the last one results are written.

What moves with the words is what `sort_radix.py` moves. Zeros and nans that words do not tell apart are written again
from the operand at the end, if there are any.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.emit.emission import Fusion, KernelWriter, storage
from weft.compiler.emit.sorts.sort_encoding import (
    SortField,
    as_uint32,
    decode,
    from_uint32,
    is_negative_zero,
    stage_bits,
    stage_dtype,
)
from weft.compiler.emit.sorts.sort_radix import choose_payload
from weft.compiler.emit.sorts.sort_rows import Row, SortRows, SortTask, get_row
from weft.compiler.emit.sorts.sort_tiles import ABOVE, INT32, UINT32, UINT64, TileRanks
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Buffer, Index, LoopKind, Value, Variable

# Lanes of a tile, and elements of each: of at most eight bytes that move together, and of more.
LANES, ELEMENTS, ELEMENTS_OF_LONG = 256, 16, 8
# Lanes that add up counts of tiles at least.
LEAST_SUMS = 128
DIGIT = 8
BUCKETS = 1 << DIGIT
# Classes of elements that are counted where words lose information: those below zero, zeros, NaNs, and zeros or NaNs
# other than 0.
BELOW, ZERO, NAN, SPECIAL = range(4)


@dataclass(frozen=True)
class Pass:
    """One digit: its stage of words, its bit offset there, and whether it is the first of the stage and of all."""

    stage: list[SortField]
    shift: int
    first: bool
    first_of_all: bool


def emit_long_rows(task: SortTask) -> None:
    """Emit kernels that sort rows of any length."""
    TaskRows(task).emit()


class LongRows(ABC):
    """Kernels that sort rows by words, which carry an index or an element of 32 bits (`payload`). Passes alternate
    between the two `halves` of scratch memory. Subclasses define the words and the use of sorted ones."""

    def __init__(self, fusion: Fusion, rows: SortRows, stages: list[list[SortField]], payload: str) -> None:
        self.fusion, self.rows, self.stages, self.payload = fusion, rows, stages, payload
        self.combined = bool(payload) and len(stages) == 1 and stage_bits(stages[0]) <= 32
        word = UINT64 if self.combined or len(stages) > 1 else stage_dtype(stages[0])
        self.dtypes: list[np.dtype[Any]] = [word] if self.combined or not payload else [word, UINT32]
        self.elements = ELEMENTS if sum(d.itemsize for d in self.dtypes) <= 8 else ELEMENTS_OF_LONG
        self.tile = LANES * self.elements
        self.tiles = -(-rows.length // self.tile)
        self.whole = rows.length % self.tile == 0
        self.passes = [
            Pass(stage, shift, shift == 0, shift == 0 and n == 0)
            for n, stage in enumerate(reversed(stages))
            for shift in range(0, stage_bits(stage), DIGIT)
        ]
        halves = min(2, len(self.passes) - 1)
        size = rows.count * rows.length
        self.halves = [[fusion.new_scratch(dtype, size) for dtype in self.dtypes] for _ in range(halves)]
        self.counts = fusion.new_scratch(UINT32, rows.count * BUCKETS * self.tiles)
        self.totals = fusion.new_scratch(UINT32, rows.count * BUCKETS)
        self.has_specials = False
        self.special_counts = self.special_totals = -1

    @abstractmethod
    def word(self, writer: KernelWriter, stage: list[SortField], row: Row, i: Index) -> Value:
        """Return the word of an element of a row."""

    def other(self, writer: KernelWriter, row: Row, i: Index) -> Value:
        """Return the payload of a word: its index by default."""
        return writer.k.scalars.convert(writer.k.position(i), UINT32)

    @abstractmethod
    def store_sorted(
        self, writer: KernelWriter, row: Row, at: Value, word: Value, other: Value | None, condition: Value | None
    ) -> None:
        """Store a word at its index in the sorted row, where a condition holds."""

    def specials_at(self, writer: KernelWriter, row: Row, i: Index) -> list[Value]:
        """Return whether an element is below zero, a zero, a NaN, or something that words do not encode; only for
        rows that have specials.
        """
        return []

    def emit(self) -> None:
        """Emit all kernels."""
        for n, own in enumerate(self.passes):
            source = self.halves[(n - 1) % 2] if n else []
            self.emit_count(own, source)
            self.emit_sums(self.counts, self.totals, self.rows.count * BUCKETS)
            self.emit_scatter(own, source, self.halves[n % 2] if n + 1 < len(self.passes) else None)

    # -- elements --------------------------------------------------------------------------------------------------

    def split_iteration(self, k: KernelBuilder, thread: Variable) -> tuple[Index, Index]:
        """Split an iteration over all tiles into the row and the tile."""
        if self.rows.count == 1:
            return Index(), Index.of(thread)
        row, tile = k.digits(Index.of(thread), (self.rows.count, self.tiles))
        return row, tile

    def moving(self, writer: KernelWriter, own: Pass, source: list[int], row: Row, r: Index, i: Index) -> list[Value]:
        """Return the values that move from an index of a row: the word and its payload."""
        k, s = writer.k, writer.k.scalars
        if own.first_of_all:
            word = s.convert(self.word(writer, own.stage, row, i), self.dtypes[0])
            if not self.payload:
                return [word]
            other = self.other(writer, row, i)
            if not self.combined:
                return [word, other]
            return [getattr(s, "or")(s.shift_left(word, s.constant(32, word.dtype)), s.convert(other, word.dtype))]
        loaded = [k.load(writer.scratch_input(scratch), r * self.rows.length + i) for scratch in source]
        if own.first:
            loaded[0] = s.convert(self.word(writer, own.stage, row, Index.of(loaded[1])), self.dtypes[0])
        return loaded

    def digit(self, k: KernelBuilder, own: Pass, word: Value) -> Value:
        """Extract the digit of a word."""
        s, dtype = k.scalars, word.dtype
        shifted = s.shift_right_logical(word, s.constant(own.shift + (32 if self.combined else 0), dtype))
        return s.convert(getattr(s, "and")(shifted, s.constant(BUCKETS - 1, dtype)), UINT32)

    # -- kernels ---------------------------------------------------------------------------------------------------

    def emit_count(self, own: Pass, source: list[int]) -> None:
        """Emit the kernel that counts each digit in each tile; in the first pass also the special elements."""
        writer = self.fusion.writer("sort_count", final=True)
        k, s, rows = writer.k, writer.k.scalars, self.rows
        width = self.fusion.target.group_lanes
        table, zero, one = k.local("digits", UINT32, BUCKETS), k.constant(0, UINT32), k.constant(1, UINT32)
        special = self.has_specials and own.first_of_all
        # Where tiles are whole, elements are in registers before the first is counted.
        held = k.local("held", self.dtypes[0], self.tile) if self.whole else None
        with k.loop(rows.count * self.tiles, kind=LoopKind.THREADS) as thread:
            r, tile = self.split_iteration(k, thread)
            row = get_row(k, rows, r)
            with k.loop(BUCKETS, kind=LoopKind.LANES, width=width) as digit:
                k.store(table, digit, zero)
            limit = None if self.whole else Index(rows.length) - tile * self.tile
            carries = [zero] * 4 if special else []
            totals: tuple[Value, ...] = ()
            with k.loop(self.tile, kind=LoopKind.LANES, width=width, limit=limit, carries=carries) as opened:
                i, inside = opened if special else (opened, ())
                at = tile * self.tile + i
                word, *_ = self.moving(writer, own, source, row, r, at)
                if held is not None:
                    k.store(held, i, word)
                else:
                    k.accumulate(table, self.digit(k, own, word), one)
                if special:
                    found = self.specials_at(writer, row, at)
                    totals = k.carry(*(s.add(a, s.convert(b, UINT32)) for a, b in zip(inside, found, strict=True)))
            if held is not None:
                with k.loop(self.tile, kind=LoopKind.LANES, width=width) as i:
                    k.accumulate(table, self.digit(k, own, k.load(held, i)), one)
            with k.loop(BUCKETS, kind=LoopKind.LANES, width=width) as digit:
                at = (r * BUCKETS + digit) * self.tiles + tile
                k.store(writer.scratch(self.counts), at, k.load(table, digit))
            for n, total in enumerate(totals):
                at = (r * 4 + n) * self.tiles + tile
                k.store(writer.scratch(self.special_counts), at, k.reduce_lanes("add", total, width))

    def emit_sums(self, counts: int, totals: int, count: int) -> None:
        """Emit the kernel that sums each of `count` counters over the tiles: exclusive prefixes, and the total. Each
        lane has consecutive tiles, and lanes add up each other's sums.
        """
        writer = self.fusion.writer("sort_sums", final=True)
        k, s, width = writer.k, writer.k.scalars, LEAST_SUMS
        while width < min(self.tiles, self.fusion.target.group_lanes):
            width *= 2
        each = -(-self.tiles // width)
        zero, buffer = k.constant(0, UINT32), writer.scratch(counts)
        sums = [k.local(f"sums{n}", UINT32, width) for n in range(2)]

        def over() -> Any:
            return k.loop(width, kind=LoopKind.LANES, width=width)

        def own(i: Variable, j: Variable) -> tuple[Index, Value | None]:
            """Return the j-th tile of a lane, and the condition that it exists (None: always)."""
            at, inside = i * each + j, None
            if each * width != self.tiles:
                inside = k.compute("lt", k.position(at, INT32), k.constant(self.tiles, INT32))
            return digit * self.tiles + at, inside

        with k.loop(count, kind=LoopKind.THREADS) as digit:
            with over() as i:
                with k.loop(each, carries=[zero]) as (j, (so_far,)):
                    at, inside = own(i, j)
                    held = k.load(buffer, at, inside, None if inside is None else zero)
                    (total,) = k.carry(s.add(so_far, held))
                k.store(sums[0], i, total)
            step = 1
            while step < width:
                with over() as i:
                    far = k.compute("ge", k.position(i, INT32), k.constant(step, INT32))
                    before = k.load(sums[0], i - step, far, zero)
                    k.store(sums[1], i, s.add(k.load(sums[0], i), before))
                sums, step = sums[::-1], 2 * step
            with over() as i:
                later = k.compute("ge", k.position(i, INT32), k.constant(1, INT32))
                with k.loop(each, carries=[k.load(sums[0], i - 1, later, zero)]) as (j, (so_far,)):
                    at, inside = own(i, j)
                    held = k.load(buffer, at, inside, None if inside is None else zero)
                    k.store(buffer, at, so_far, inside)
                    k.carry(s.add(so_far, held))
            k.store(writer.scratch(totals), digit, k.load(sums[0], width - 1))

    def emit_scatter(self, own: Pass, source: list[int], target: list[int] | None) -> None:
        """Emit the kernel that writes each tile in the order of its digits: to scratch, or without `target` to the
        results.
        """
        writer = self.fusion.writer("sort_scatter", final=True)
        k, s, rows, length = writer.k, writer.k.scalars, self.rows, self.rows.length
        ranks = TileRanks(k, LANES, self.elements, DIGIT, UINT64)
        # Elements of each lane, in registers only, and the tile in its new order.
        held = [k.local(f"held{n}", dtype, self.tile) for n, dtype in enumerate(self.dtypes)]
        tiles = [k.local(f"tile{n}", dtype, self.tile) for n, dtype in enumerate(self.dtypes)]
        starts = k.local("starts", UINT32, BUCKETS)
        counts, totals = writer.scratch_input(self.counts), writer.scratch_input(self.totals)
        with k.loop(rows.count * self.tiles, kind=LoopKind.THREADS) as thread:
            r, tile = self.split_iteration(k, thread)
            row = get_row(k, rows, r)
            # All elements are read before the first is ranked, so that threads wait for memory once.
            with ranks.over(self.tile) as i:
                at, inside = tile * self.tile + ranks.element(i)[1], None
                if not self.whole:
                    # Words beyond the end sort last and are not written.
                    position, last = k.position(at, INT32), k.constant(length - 1, INT32)
                    at, inside = Index.of(k.compute("min", position, last)), k.compute("le", position, last)
                found = self.moving(writer, own, source, row, r, at)
                if inside is not None:
                    most = k.constant((1 << 8 * self.dtypes[0].itemsize) - 1, self.dtypes[0])
                    found[0] = k.compute("select_n", inside, most, found[0])
                for buffer, value in zip(held, found, strict=True):
                    k.store(buffer, i, value)
            ranks.rank(lambda i, _: self.digit(k, own, k.load(held[0], i)))
            ranks.add_up(lambda digit: k.load(totals, r * BUCKETS + digit))
            with ranks.over(BUCKETS) as digit:
                # Destination of the elements of a digit minus their index in the tile.
                before = ranks.before(digit)
                above = s.convert(s.shift_right_logical(before, s.constant(ABOVE, UINT64)), UINT32)
                start = s.add(above, k.load(counts, (r * BUCKETS + digit) * self.tiles + tile))
                k.store(starts, digit, s.sub(start, s.convert(before, UINT32)))
            with ranks.over(self.tile) as i:
                values = [k.load(buffer, i) for buffer in held]
                position = ranks.index(i, self.digit(k, own, values[0]))
                for buffer, value in zip(tiles, values, strict=True):
                    k.store(buffer, position, value)
            with ranks.over(self.tile) as i:
                values = [k.load(buffer, i) for buffer in tiles]
                start = k.load(starts, self.digit(k, own, values[0]))
                to = s.add(start, s.convert(k.position(i, INT32), UINT32))
                inside = None if self.whole else k.compute("lt", to, k.constant(length, UINT32))
                if target is None:
                    self.store_apart(writer, row, to, values, inside)
                else:
                    for scratch, value in zip(target, values, strict=True):
                        k.store(writer.scratch(scratch), r * length + to, value, inside)

    def store_apart(self, writer: KernelWriter, row: Row, at: Value, values: list[Value], inside: Value | None) -> None:
        """Store a sorted word, split into its key and its payload."""
        s, word, other = writer.k.scalars, values[0], values[-1] if self.payload else None
        if self.combined:
            other = s.convert(word, UINT32)
            word = s.shift_right_logical(word, s.constant(32, word.dtype))
        self.store_sorted(writer, row, at, word, other, inside)


class TaskRows(LongRows):
    """Kernels of a sort, or of a selection of the k largest."""

    def __init__(self, task: SortTask) -> None:
        super().__init__(task.fusion, task.rows, task.stages, choose_payload(task))
        self.task = task
        self.wanted = [v for v, source in task.results if source is task.keys[0]]
        is_float = dtypes.kind(storage(task.keys[0])) == "f"
        self.has_specials = self.payload != "index" and is_float and bool(self.wanted)
        if self.has_specials:
            self.special_counts = self.fusion.new_scratch(UINT32, self.rows.count * 4 * self.tiles)
            self.special_totals = self.fusion.new_scratch(UINT32, self.rows.count * 4)

    def emit(self) -> None:
        super().emit()
        if self.has_specials:
            self.emit_sums(self.special_counts, self.special_totals, self.rows.count * 4)
            self.emit_specials()

    def word(self, writer: KernelWriter, stage: list[SortField], row: Row, i: Index) -> Value:
        return self.task.word(writer, stage, row, i)

    def other(self, writer: KernelWriter, row: Row, i: Index) -> Value:
        if self.payload == "index":
            return super().other(writer, row, i)
        operand = next(o for _, o in self.task.results if o is not self.task.keys[0])
        return as_uint32(writer.k.scalars, self.task.element(writer, operand, row, i))

    def specials_at(self, writer: KernelWriter, row: Row, i: Index) -> list[Value]:
        return self.classify_special(writer.k, self.task.element(writer, self.task.keys[0], row, i))

    def classify_special(self, k: KernelBuilder, x: Value) -> list[Value]:
        """Classify an element as `specials_at` does."""
        s, zero = k.scalars, k.constant(0, x.dtype)
        nan = s.ne(x, x)
        return [s.lt(x, zero), s.eq(x, zero), nan, getattr(s, "or")(nan, is_negative_zero(s, x))]

    def store_sorted(
        self, writer: KernelWriter, row: Row, at: Value, word: Value, other: Value | None, condition: Value | None
    ) -> None:
        """Write the results at an index of a row, if that is one of those that are selected."""
        k, s, task = writer.k, writer.k.scalars, self.task
        if task.selected < task.rows.length:
            condition = k.compute("lt", at, k.constant(task.selected, UINT32))
        if self.payload == "index":
            assert other is not None
            if condition is not None:
                # Elements beyond the end do not exist.
                other = k.compute("min", other, k.constant(task.rows.length - 1, UINT32))
            task.store_results(writer, row, at, other, condition)
            return
        for v, source in task.results:
            if source is task.keys[0]:
                value = decode(s, s.convert(word, stage_dtype(task.stages[0])), storage(v))
            else:
                assert other is not None
                value = from_uint32(s, other, storage(v))
            task.store(writer, v, row, at, value, condition)

    def in_tile(self, k: KernelBuilder, counts: Buffer, totals: Buffer, i: Index, tile: Index) -> Value:
        """Return the count of a digit in a tile, from the prefix sums."""
        following = k.compute("lt", k.position(tile + 1), k.constant(self.tiles, dtypes.int64))
        after = k.load(counts, i * self.tiles + tile + 1, following, k.load(totals, i))
        return k.compute("sub", after, k.load(counts, i * self.tiles + tile))

    def emit_specials(self) -> None:
        """Write zeros and nans again from the operand, in their order, if there are some that words do not tell."""
        writer = self.fusion.writer("sort_specials", final=True)
        k, s, task, rows = writer.k, writer.k.scalars, self.task, self.task.rows
        counts, totals = writer.scratch_input(self.special_counts), writer.scratch_input(self.special_totals)
        ranks = TileRanks(k, LANES, self.elements, 2)
        bits = storage(task.keys[0])
        held = k.local("held", bits, self.tile)
        kinds, starts = k.local("kinds", UINT32, self.tile), k.local("starts", UINT32, ranks.entries)
        none = k.constant(2, UINT32)
        with k.loop(rows.count * self.tiles, kind=LoopKind.THREADS) as thread:
            r, tile = self.split_iteration(k, thread)
            row = get_row(k, rows, r)

            def get_digit(i: Variable, element: Index) -> Value:
                """Return 0 for zeros, 1 for NaNs, 2 for others."""
                position, last = k.position(tile * self.tile + element, INT32), k.constant(rows.length - 1, INT32)
                x = task.element(writer, task.keys[0], row, Index.of(k.compute("min", position, last)))
                _, zero, nan, _ = self.classify_special(k, x)
                kind = k.compute("select_n", zero, none, k.constant(0, UINT32))
                kind = k.compute("select_n", nan, kind, k.constant(1, UINT32))
                kind = k.compute("select_n", k.compute("le", position, last), none, kind)
                k.store(held, i, x)
                k.store(kinds, i, kind)
                return kind

            here = [self.in_tile(k, counts, totals, r * 4 + n, tile) for n in (ZERO, NAN)]
            some = k.compute("ne", s.add(*here), k.constant(0, UINT32))
            found = k.compute("ne", k.load(totals, r * 4 + SPECIAL), k.constant(0, UINT32))
            with k.when(k.compute("and", found, some)):
                ranks.rank(get_digit)
                ranks.add_up()
                # Destinations in the row of zeros, and of NaNs, which follow the zeros of the tile.
                zeros = s.add(k.load(totals, r * 4 + BELOW), k.load(counts, (r * 4 + ZERO) * self.tiles + tile))
                nans = s.sub(k.constant(rows.length, UINT32), k.load(totals, r * 4 + NAN))
                nans = s.add(nans, k.load(counts, (r * 4 + NAN) * self.tiles + tile))
                with ranks.over(ranks.entries) as digit:
                    is_zero = k.compute("eq", k.position(digit, INT32), k.constant(0, INT32))
                    k.store(starts, digit, s.sub(s.select_n(is_zero, nans, zeros), ranks.before(digit)))
                with ranks.over(self.tile) as i:
                    kind = k.load(kinds, i)
                    to = s.add(ranks.index(i, kind), k.load(starts, kind))
                    for v in self.wanted:
                        task.store(writer, v, row, to, k.load(held, i), k.compute("lt", kind, none))
