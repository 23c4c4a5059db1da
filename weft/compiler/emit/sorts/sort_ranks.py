"""Sort of short rows by ranks: the index of an element is the number of elements before it.

The work grows with the square of the length, but is vectorized and without branches. If there is room, the low bits of
a word hold the index of its element, so that no two words are equal and the sort is stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.emission import KernelWriter
from weft.compiler.emit.sorts.sort_encoding import stage_bits, stage_dtype
from weft.compiler.emit.sorts.sort_rows import Row, SortTask, get_row
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Buffer, Index, LoopKind, Value, Variable

INT32 = dtypes.int32


def emit_ranks(task: SortTask) -> None:
    """Emit a kernel that sorts rows by ranks."""
    writer = task.fusion.writer("sort_ranks")
    ranks = Ranks(task, writer)
    if task.fusion.target.group_lanes:
        ranks.by_groups()
    elif task.rows.inner >= writer.lanes:
        ranks.across()
    else:
        ranks.along()


class Ranks:
    """Writer of a kernel. `dtypes` are those of the columns of words in scratch, the most significant first."""

    def __init__(self, task: SortTask, writer: KernelWriter) -> None:
        self.task, self.writer = task, writer
        self.stages = task.stages
        self.dtypes: list[np.dtype[Any]] = [stage_dtype(stage) for stage in self.stages]
        # Words with indices are positive as signed integers, which every machine compares in one instruction.
        self.index_bits = (task.rows.length - 1).bit_length()
        bits = stage_bits(self.stages[-1]) + self.index_bits
        self.combined = bits < 64
        if self.combined:
            self.dtypes[-1] = dtypes.int32 if bits < 32 else dtypes.int64
        self.rank = dtypes.int64 if self.combined and self.dtypes[-1] == dtypes.int64 else INT32

    @property
    def k(self) -> KernelBuilder:
        return self.writer.k

    def along(self) -> None:
        """Rank with lanes along the row: each lane has one element, which is compared with all elements."""
        k, rows, length = self.k, self.task.rows, self.task.rows.length
        columns = self.columns(rows.blocks * length)
        width = 1
        while width < min(length, 4 * self.writer.lanes):
            width *= 2
        with rows.each(k) as (block, row):
            with k.loop(length, kind=LoopKind.LANES, width=width) as i:
                self.write(columns, block * length + i, row, i, i)
            with k.loop(length, kind=LoopKind.LANES, width=width) as i:
                own = self.read(columns, block * length + i, i)
                with k.loop(length, carries=[k.constant(0, self.rank)]) as (j, (count,)):
                    (rank,) = k.carry(self.count_earlier(count, self.read(columns, block * length + j, j), own))
                self.task.store_results(self.writer, row, rank, i, self.is_selected(rank))

    def across(self) -> None:
        """Rank with lanes across adjacent rows."""
        k, rows, length, width = self.k, self.task.rows, self.task.rows.length, self.writer.lanes
        columns = self.columns(rows.pieces(width) * length * width)
        with rows.across(k, width) as (base, row):
            with k.loop(length) as i:
                self.write(columns, base + i * width, row, i, i)
            with k.loop(length) as i:
                own = self.read(columns, base + i * width, i)
                with k.loop(length, carries=[k.constant(0, self.rank)]) as (j, (count,)):
                    (rank,) = k.carry(self.count_earlier(count, self.read(columns, base + j * width, j), own))
                self.task.store_results(self.writer, row, rank, i, self.is_selected(rank))

    def by_groups(self) -> None:
        """Rank with lanes along some rows, each padded to a power of two of lanes, and words in local memory. Rows
        that fill their lanes and are contiguous are read as one."""
        k, rows, width = self.k, self.task.rows, self.task.fusion.target.scan_lanes
        room = 1 << self.index_bits
        each = width // room
        columns = [k.local(f"words{n}", dtype, width) for n, dtype in enumerate(self.dtypes)]
        whole = room == rows.length and rows.count % each == 0
        with k.loop(-(-rows.count // each), kind=LoopKind.THREADS) as piece:
            first = piece * each
            with k.loop(width, kind=LoopKind.LANES, width=width) as lane:
                row, i, _ = self.in_lane(first, lane, whole)
                if whole and rows.inner == 1:
                    self.write(columns, Index.of(lane), get_row(k, rows, first), lane, i)
                else:
                    self.write(columns, Index.of(lane), row, i, i)
            with k.loop(width, kind=LoopKind.LANES, width=width) as lane:
                row, i, inside = self.in_lane(first, lane, whole)
                own = self.read(columns, Index.of(lane), i)
                start = Index.of(k.compute("and", k.position(lane, INT32), k.constant(-room, INT32)))
                with k.loop(rows.length, carries=[k.constant(0, self.rank)]) as (j, (count,)):
                    (rank,) = k.carry(self.count_earlier(count, self.read(columns, start + j, j), own))
                conditions = [c for c in (self.is_selected(rank), inside) if c is not None]
                selected = (
                    conditions[0] if len(conditions) == 1 else k.compute("and", *conditions) if conditions else None
                )
                self.task.store_results(self.writer, row, rank, i, selected)

    def in_lane(self, first: Index, lane: Variable, whole: bool) -> tuple[Row, Index, Value | None]:
        """Return the row and the element of a lane, and the condition that it exists (None: all do). Lanes past the
        end read the last element.
        """
        k, rows = self.k, self.task.rows
        at = k.position(lane, INT32)
        i = k.compute("and", at, k.constant((1 << self.index_bits) - 1, INT32))
        row = k.position(first + k.compute("shift_right_logical", at, k.constant(self.index_bits, INT32)))
        if whole:
            return get_row(k, rows, Index.of(row)), Index.of(i), None
        last_row, last = k.constant(rows.count - 1, row.dtype), k.constant(rows.length - 1, INT32)
        inside = k.compute("and", k.compute("le", row, last_row), k.compute("le", i, last))
        row, i = k.compute("min", row, last_row), k.compute("min", i, last)
        return get_row(k, rows, Index.of(row)), Index.of(i), inside

    def columns(self, size: int) -> list[Buffer]:
        """Allocate scratch for the words of `size` elements."""
        return [self.writer.scratch(self.task.fusion.new_scratch(dtype, size)) for dtype in self.dtypes]

    def write(self, columns: Sequence[Buffer], at: Index, row: Row, i: Any, index: Any) -> None:
        """Store the words of an element and its index in the row to scratch memory."""
        k, s = self.k, self.k.scalars
        for buffer, stage, dtype in zip(columns, self.stages, self.dtypes, strict=True):
            word = s.convert(self.task.word(self.writer, stage, row, i), dtype)
            if self.combined and stage is self.stages[-1]:
                shifted = s.shift_left(word, s.constant(self.index_bits, dtype))
                word = getattr(s, "or")(shifted, s.convert(k.position(index, INT32), dtype))
            k.store(buffer, at, word)

    def read(self, columns: Sequence[Buffer], at: Index, i: Any) -> list[Value]:
        """Load the words of an element; no two elements have all words equal."""
        parts = [self.k.load(buffer, at) for buffer in columns]
        return parts if self.combined else [*parts, self.k.position(i, INT32)]

    def count_earlier(self, count: Value, others: Sequence[Value], own: Sequence[Value]) -> Value:
        """Increment a count if another element comes before the own one."""
        k = self.k
        *upper, last = zip(others, own, strict=True)
        before = k.compute("lt", *last)
        for pair in reversed(upper):
            same = k.compute("and", k.compute("eq", *pair), before)
            before = k.compute("or", k.compute("lt", *pair), same)
        return k.compute("add", count, k.scalars.convert(before, self.rank))

    def is_selected(self, rank: Value) -> Value | None:
        """Return whether an element of this rank is among those selected, or None if all are."""
        if self.task.selected == self.task.rows.length:
            return None
        return self.k.compute("lt", rank, self.k.constant(self.task.selected, self.rank))
