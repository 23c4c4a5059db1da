"""Sorting of short rows by ranks: the index of every element is the number of elements before it.

The work grows with the square of the length, but it is vectorized and without branches. The index of an element is in
the low bits of its word, if there is room, so that no two words are equal and equal elements keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.emission import Writer
from weft.compiler.emit.sorts.sort_encoding import stage_bits, stage_dtype
from weft.compiler.emit.sorts.sort_rows import Row, Task
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, LoopKind, Value


def emit_ranks(task: Task) -> None:
    """A kernel that sorts rows by ranks."""
    writer = task.fusion.writer("sort_ranks")
    ranks = Ranks(task, writer)
    if task.rows.inner >= writer.lanes:
        ranks.across()
    else:
        ranks.along()


class Ranks:
    """Writes a kernel. `dtypes` are those of the columns of words in scratch, the most significant first."""

    def __init__(self, task: Task, writer: Writer) -> None:
        self.task, self.writer = task, writer
        self.stages = task.stages
        self.dtypes: list[np.dtype[Any]] = [stage_dtype(stage) for stage in self.stages]
        # Words with indices are positive as signed integers, which every machine compares in one instruction.
        self.index_bits = (task.rows.length - 1).bit_length()
        bits = stage_bits(self.stages[-1]) + self.index_bits
        self.combined = bits < 64
        if self.combined:
            self.dtypes[-1] = dtypes.int32 if bits < 32 else dtypes.int64
        self.rank = dtypes.int64 if self.combined and self.dtypes[-1] == dtypes.int64 else dtypes.int32

    @property
    def k(self) -> KernelBuilder:
        return self.writer.k

    def along(self) -> None:
        """Lanes along the row: each has one element, and all elements are compared with it."""
        k, rows, length = self.k, self.task.rows, self.task.rows.length
        columns = [self.task.fusion.new_scratch(dtype, rows.blocks * length) for dtype in self.dtypes]
        width = 1
        while width < min(length, 4 * self.writer.lanes):
            width *= 2
        with rows.each(k) as (block, row):
            with k.loop(length, kind=LoopKind.LANES, width=width) as i:
                self.write(columns, block * length + i, row, i)
            with k.loop(length, kind=LoopKind.LANES, width=width) as i:
                own = self.read(columns, block * length + i, i)
                with k.loop(length, carries=[k.constant(0, self.rank)]) as (j, (count,)):
                    (rank,) = k.carry(self.counted(count, self.read(columns, block * length + j, j), own))
                self.task.store_results(self.writer, row, rank, i, self.taken(rank))

    def across(self) -> None:
        """Lanes across rows that lie side by side."""
        k, rows, length, width = self.k, self.task.rows, self.task.rows.length, self.writer.lanes
        size = rows.pieces(width) * length * width
        columns = [self.task.fusion.new_scratch(dtype, size) for dtype in self.dtypes]
        with rows.across(k, width) as (base, row):
            with k.loop(length) as i:
                self.write(columns, base + i * width, row, i)
            with k.loop(length) as i:
                own = self.read(columns, base + i * width, i)
                with k.loop(length, carries=[k.constant(0, self.rank)]) as (j, (count,)):
                    (rank,) = k.carry(self.counted(count, self.read(columns, base + j * width, j), own))
                self.task.store_results(self.writer, row, rank, i, self.taken(rank))

    def write(self, columns: Sequence[int], at: Index, row: Row, i: Any) -> None:
        """Put the words of an element into scratch."""
        k, s = self.k, self.k.scalars
        for scratch, stage, dtype in zip(columns, self.stages, self.dtypes, strict=True):
            word = s.convert(self.task.word(self.writer, stage, row, i), dtype)
            if self.combined and stage is self.stages[-1]:
                shifted = s.shift_left(word, s.constant(self.index_bits, dtype))
                word = getattr(s, "or")(shifted, s.convert(k.position(i, dtypes.int32), dtype))
            k.store(self.writer.scratch(scratch), at, word)

    def read(self, columns: Sequence[int], at: Index, i: Any) -> list[Value]:
        """The words of an element, all of which are equal only for the element itself."""
        parts = [self.k.load(self.writer.scratch(scratch), at) for scratch in columns]
        return parts if self.combined else [*parts, self.k.position(i, dtypes.int32)]

    def counted(self, count: Value, others: Sequence[Value], own: Sequence[Value]) -> Value:
        """The count plus one if another element comes before the own one."""
        k = self.k
        *upper, last = zip(others, own, strict=True)
        before = k.compute("lt", *last)
        for pair in reversed(upper):
            same = k.compute("and", k.compute("eq", *pair), before)
            before = k.compute("or", k.compute("lt", *pair), same)
        return k.compute("add", count, k.scalars.convert(before, self.rank))

    def taken(self, rank: Value) -> Value | None:
        """Whether an element of a rank is among those that are taken; None if all are."""
        if self.task.taken == self.task.rows.length:
            return None
        return self.k.compute("lt", rank, self.k.constant(self.task.taken, self.rank))
