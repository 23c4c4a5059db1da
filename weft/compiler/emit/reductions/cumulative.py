"""Cumulative operations (prefix scans) along an axis. Hero: a `Cumulative`.

If vectors go along the axis, the lanes of each are scanned in steps of 1, 2, 4, ... lanes, and what came before is
combined with them. Else they go along another axis, and the scan is a loop. Few and long rows are split into blocks, in
three kernels: the totals of the blocks, the prefix of each block, and the blocks themselves. Long columns side by side
are read in the order of memory, with an array of accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields
from typing import Any

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.emit.emission import Emission, Fusion, KernelWriter, storage
from weft.compiler.emit.maps.loop import nest
from weft.compiler.emit.reductions.checked_scan import CheckedScan, Summary, whole_chunks
from weft.compiler.emit.reductions.reduction_space import (
    ENOUGH_ITERATIONS,
    STREAMED_WORK,
    AxisIndices,
    CollapsedAxis,
    ReductionSchedule,
    collapse,
    free_nest,
    group_block,
    group_schedule,
    register_lanes,
    schedule,
    should_split,
    size_of_axes,
    split_block,
)
from weft.compiler.emit.reductions.row import Passes
from weft.compiler.emit.values import MultiIndex, expand, get_space
from weft.compiler.kernel.ir import Index, LoopKind, Value
from weft.primitives.reduction.cumulative import Cumulative

# Columns of a tile where accumulators are an array.
TILE = 1024
# Fewest rows of a block.
LEAST_ROWS = 32
# Blocks of a row for groups of threads, where each combines the totals of all before it; and of products, where one
# group does that for all blocks.
MOST_GROUP_BLOCKS, MOST_CHECKED_BLOCKS = 4096, 256
# Summary of a block of products.
SUMMARY = len(fields(Summary))


class Scan:
    """Hero of a fusion, its space, and one step of its scan."""

    def __init__(self, fusion: Fusion) -> None:
        hero = fusion.hero
        assert hero is not None
        if not isinstance(hero.primitive, Cumulative):
            raise InternalError(f"`{hero.primitive.name}` is no cumulative operation.", stage="emit")
        self.fusion, self.hero, self.primitive = fusion, hero, hero.primitive
        (self.operand,) = hero.invars
        self.exact = storage(self.operand)
        self.wide = dtypes.accumulation_dtype(self.exact)
        shape: Any = self.operand.aval.shape  # type: ignore[attr-defined]
        axis = hero.params["axis"]
        self.reverse: bool = hero.params["reverse"]
        self.full = get_space(self.operand)
        reduced = [sum(d != 1 for d in shape[:axis])] if shape[axis] != 1 else []
        self.space = collapse(fusion, self.full, reduced, self._emit_trial)
        self.axis = next(iter(self.space.reduced), None)
        self.lanes = register_lanes(fusion)
        self.rows = size_of_axes(self.space.free)
        # The lanes of a group of threads, on targets that have them; and those of a vector along the axis.
        self.group = 0 if self.primitive.operation is None else fusion.target.scan_lanes
        self.width = self.group or self.lanes
        # Products of floats: vectors and blocks are checked (`CheckedScan`).
        self.checked = self.primitive.needs_order and dtypes.kind(self.wide) == "f"
        # Checked products and logarithms of complex numbers have no exact neutral element.
        self.no_neutral = dtypes.kind(self.wide) == "c" and not self.primitive.complex_neutral

    def _emit_trial(self, writer: KernelWriter, full: Any, free: Any) -> None:
        writer.values.at(self.operand, expand(self.operand, full))
        writer.values.overrides[self.hero.outvars[0]] = writer.k.constant(0, self.exact)
        writer.store_results(full)

    # -- one element -----------------------------------------------------------------------------------------------

    def neutral(self, writer: KernelWriter) -> Value:
        """Return the neutral element; for sums it is -0, which preserves the sign of a zero."""
        return writer.k.constant(self.primitive.neutral(self.wide), self.wide)

    def combine(self, writer: KernelWriter, left: Value, right: Value) -> Value:
        result: Value = self.primitive.emit(writer.k.scalars, left, right)
        return result

    def index(self, writer: KernelWriter, indices: AxisIndices) -> MultiIndex:
        """Return the index of an element whose index along the axis is counted in the order of the scan."""
        assert self.axis is not None
        if self.reverse:
            indices = {**indices, self.axis: Index(self.axis.size - 1) - indices[self.axis]}
        return self.space.full_index(writer.k, indices)

    def element(self, writer: KernelWriter, index: MultiIndex) -> Value:
        value = writer.values.at(self.operand, expand(self.operand, index))
        return writer.k.scalars.convert(value, self.wide)

    def store(self, writer: KernelWriter, index: MultiIndex, total: Value) -> None:
        result = self.hero.outvars[0]
        writer.values.overrides[result] = writer.k.scalars.convert(total, self.exact)
        writer.store_results(index)
        del writer.values.overrides[result]

    # -- one row ---------------------------------------------------------------------------------------------------

    def serial(
        self,
        writer: KernelWriter,
        indices: AxisIndices,
        start: Value,
        part: tuple[Index, int] | None = None,
        stored: bool = True,
    ) -> Value:
        """Scan in a loop along the axis or a block of it; return the last result."""
        k, axis = writer.k, self.axis
        assert axis is not None
        first, size = part or (Index(), axis.size)
        limit = None if axis.size % size == 0 else Index(axis.size) - first
        with k.loop(size, carries=[start], limit=limit) as (i, (before,)):
            at = first + i
            index = self.index(writer, {**indices, axis: at})
            value = self.element(writer, index)
            total = self.combine(writer, before, value)
            if self.no_neutral:
                begins = k.scalars.eq(k.position(at), k.constant(0, dtypes.int64))
                total = k.scalars.select_n(begins, total, value)
            if stored:
                self.store(writer, index, total)
            (last,) = k.carry(total)
        return last

    def write_scan(
        self, writer: KernelWriter, indices: AxisIndices, start: Value, part: tuple[Index, int] | None = None
    ) -> None:
        """Scan with vectors along the axis or a block of it."""
        k, axis, width = writer.k, self.axis, self.width
        assert axis is not None
        if self.checked:
            CheckedScan(self, writer).write_scan(indices, start, part)
            return
        first, size = part or (Index(), axis.size)
        limit = None if axis.size % size == 0 else Index(axis.size) - first
        with k.loop(size, kind=LoopKind.LANES, width=width, carries=[start], limit=limit) as (i, (before,)):
            index = self.index(writer, {**indices, axis: first + i})
            lanes = self.prefixes(writer, self.element(writer, index), i)
            self.store(writer, index, self.combine(writer, before, lanes))
            k.carry(self.combine(writer, before, k.last(lanes)))

    def prefixes(self, writer: KernelWriter, lanes: Value, position: Any) -> Value:
        """Scan the lanes of one vector; `position` is the variable of the loop over lanes."""
        k, width, step = writer.k, self.width, 1
        while step < width:
            if self.primitive.operation is None:
                # Logarithms of the neutral element are slow, so the first lanes are combined with themselves and
                # dropped.
                lane = k.compute("and", k.position(position, dtypes.int32), k.constant(width - 1, dtypes.int32))
                takes = k.scalars.ge(lane, k.constant(step, dtypes.int32))
                both = self.combine(writer, k.shift(lanes, step, lanes), lanes)
                lanes = k.scalars.select_n(takes, lanes, both)
            else:
                lanes = self.combine(writer, k.shift(lanes, step, self.neutral(writer)), lanes)
            step *= 2
        return lanes

    def total(
        self, writer: KernelWriter, indices: AxisIndices, plan: ReductionSchedule, first: Index, size: int
    ) -> Value:
        """Combine all elements of a block along the axis. Order does not matter, so each lane has an accumulator."""
        k, axis = writer.k, self.axis
        assert axis is not None
        width = plan.width if plan.lanes is axis else 1
        kind = LoopKind.LANES if plan.lanes is axis else LoopKind.SERIAL
        with k.loop(size, kind=kind, width=width, carries=[self.neutral(writer)]) as (i, (before,)):
            value = self.element(writer, self.index(writer, {**indices, axis: first + i}))
            (total,) = k.carry(self.combine(writer, before, value))
        if width == 1:
            return total
        if self.primitive.operation is not None:
            return k.reduce_lanes(self.primitive.operation, total, width)
        while width > 2:
            width //= 2
            halves = [k.shuffle([total], range(start, start + width)) for start in (0, width)]
            total = self.combine(writer, *halves)
        return k.reduce_lanes("max", self.combine(writer, total, k.shuffle([total], (1, 0))), 2)  # both lanes are equal


# -------------------------------------------------------------------------------------------------------- the kernels


def emit_cumulative(fusion: Fusion) -> Emission:
    """Emit the kernels of a fusion with a cumulative operation, whose results all have the same space."""
    scan = Scan(fusion)
    space, axis = scan.space, scan.axis
    passes = Passes(fusion.jaxpr, [scan.hero], scan.full)
    # Recomputed chunks are read again.
    in_place = () if scan.checked else passes.in_place()
    if axis is None or 0 in scan.full:
        _emit_copy(scan)
        return fusion.finish(in_place=in_place)
    if scan.group and not scan.no_neutral:
        _emit_by_groups(scan)
        return fusion.finish(in_place=in_place)
    plan = schedule(space, scan.lanes)
    if scan.no_neutral and plan.lanes is axis:
        last = next(iter(reversed(space.free)), None)
        plan = ReductionSchedule(last, 1 if last is None else scan.lanes)
    if _streams(scan, plan) and not (scan.checked and _count_stream_blocks(scan, plan) > 1):
        _emit_streaming(scan, plan)
    elif should_split(space, plan) and not scan.no_neutral:
        _emit_split(scan, plan)
    else:
        writer = fusion.writer("cumulative", final=True)
        with free_nest(writer.k, space, plan, axis.size) as indices:
            start = scan.neutral(writer)
            (scan.write_scan if plan.lanes is axis else scan.serial)(writer, indices, start)
    return fusion.finish(in_place=in_place)


def _emit_copy(scan: Scan) -> None:
    """Emit a scan along an axis of at most one element: a copy, or nothing."""
    writer = scan.fusion.writer("cumulative")

    def body(index: MultiIndex) -> None:
        scan.store(writer, index, scan.element(writer, index))

    nest(writer.k, scan.full, writer.lanes, body)


def _emit_split(scan: Scan, plan: ReductionSchedule) -> None:
    """Emit three kernels: the totals of all blocks but the last, the prefix of each block, and the blocks."""
    fusion, space, axis, rows = scan.fusion, scan.space, scan.axis, scan.rows
    assert axis is not None
    along = plan.lanes is axis
    block = split_block(axis, plan, rows)
    if scan.checked and along:
        block = whole_chunks(scan, block)
    blocks = -(-axis.size // block)
    before = [fusion.new_scratch(scan.wide, blocks * rows) for _ in range(SUMMARY if scan.checked else 1)]
    scan_row = scan.write_scan if along else scan.serial
    writer = fusion.writer("block_totals", final=True)
    k = writer.k
    with k.loop(blocks - 1, kind=LoopKind.THREADS) as b, free_nest(k, space, plan, 0, threads=False) as indices:
        _store_totals(scan, writer, indices, plan, before, Index.of(b), block, 1)
    scalar = ReductionSchedule(None, 1)
    _emit_before(scan, scalar if along or scan.checked else plan, before, blocks, block, along)
    writer = fusion.writer("cumulative_blocks", final=True)
    k = writer.k
    with k.loop(blocks, kind=LoopKind.THREADS) as b, free_nest(k, space, plan, 0, threads=False) as indices:
        start = k.load(writer.scratch_input(before[0]), Index.of(b) * rows + space.free_position(indices))
        scan_row(writer, indices, start, (Index.of(b) * block, block))


def _store_totals(
    scan: Scan,
    writer: KernelWriter,
    indices: AxisIndices,
    plan: ReductionSchedule,
    scratch: Sequence[int],
    block_index: Index,
    block: int,
    further: int,
) -> None:
    """Store what all elements of a block are together, `further` blocks after it."""
    k, offset = writer.k, (block_index + further) * scan.rows + scan.space.free_position(indices)
    first = block_index * block
    if scan.checked:
        values = CheckedScan(scan, writer).summary(indices, plan.lanes is scan.axis, first, block).values
    else:
        values = [scan.total(writer, indices, plan, first, block)]
    for buffer, value in zip(scratch, values, strict=True):
        k.store(writer.scratch(buffer), offset, value)


def _emit_by_groups(scan: Scan) -> None:
    """Emit one kernel; for few rows, one for the totals of blocks and one for the blocks, each combining the totals
    before it.
    """
    fusion, space, axis, rows = scan.fusion, scan.space, scan.axis, scan.rows
    assert axis is not None
    plan = group_schedule(space, scan.group)
    along, scan.width = plan.lanes is axis, plan.width
    scan_row = scan.write_scan if along else scan.serial
    most = MOST_CHECKED_BLOCKS if scan.checked else MOST_GROUP_BLOCKS
    block = group_block(space, plan, axis, fusion.target, most)
    if scan.checked and along and block < axis.size:
        block = min(axis.size, whole_chunks(scan, block))
    if block == axis.size:
        writer = fusion.writer("cumulative", final=True)
        with free_nest(writer.k, space, plan, axis.size) as indices:
            scan_row(writer, indices, scan.neutral(writer))
        return
    blocks = -(-axis.size // block)
    if scan.checked:
        _emit_checked_groups(scan, plan, block, blocks)
        return
    totals = fusion.new_scratch(scan.wide, (blocks - 1) * rows)
    writer = fusion.writer("block_totals", final=True)
    k = writer.k
    with k.loop((blocks - 1) * rows, kind=LoopKind.THREADS) as thread:
        before, indices = _block_and_row(scan, writer, thread, blocks - 1)
        _store_totals(scan, writer, indices, plan, [totals], before, block, 0)
    writer = fusion.writer("cumulative_blocks", final=True)
    k = writer.k
    with k.loop(blocks * rows, kind=LoopKind.THREADS) as thread:
        before, indices = _block_and_row(scan, writer, thread, blocks)
        kind, width = (LoopKind.LANES, plan.width) if along else (LoopKind.SERIAL, 1)
        with k.loop(blocks, kind=kind, width=width, carries=[scan.neutral(writer)], limit=before) as (i, (so_far,)):
            total = k.load(writer.scratch_input(totals), Index.of(i) * rows + space.free_position(indices))
            (start,) = k.carry(scan.combine(writer, so_far, total))
        if along:
            assert scan.primitive.operation is not None
            start = k.reduce_lanes(scan.primitive.operation, start, width)
        scan_row(writer, indices, start, (before * block, block))


def _emit_checked_groups(scan: Scan, plan: ReductionSchedule, block: int, blocks: int) -> None:
    """Emit the three kernels of `_emit_split` for groups of threads."""
    fusion, rows, along = scan.fusion, scan.rows, plan.lanes is scan.axis
    scratch = [fusion.new_scratch(scan.wide, blocks * rows) for _ in range(SUMMARY)]
    writer = fusion.writer("block_totals", final=True)
    with writer.k.loop((blocks - 1) * rows, kind=LoopKind.THREADS) as thread:
        before, indices = _block_and_row(scan, writer, thread, blocks - 1)
        _store_totals(scan, writer, indices, plan, scratch, before, block, 1)
    writer = fusion.writer("block_prefixes", final=True)
    with writer.k.loop(rows, kind=LoopKind.THREADS) as thread:
        _, indices = _block_and_row(scan, writer, thread, 1)
        _scan_totals(scan, writer, indices, scratch, blocks, block, along)
    writer = fusion.writer("cumulative_blocks", final=True)
    with writer.k.loop(blocks * rows, kind=LoopKind.THREADS) as thread:
        before, indices = _block_and_row(scan, writer, thread, blocks)
        offset = before * rows + scan.space.free_position(indices)
        start = writer.k.load(writer.scratch_input(scratch[0]), offset)
        (scan.write_scan if along else scan.serial)(writer, indices, start, (before * block, block))


def _block_and_row(
    scan: Scan, writer: KernelWriter, thread: Any, blocks: int
) -> tuple[Index, dict[CollapsedAxis, Index]]:
    """Split an iteration over all blocks of all rows into the block and the indices of its row."""
    free = scan.space.free
    block, *row = writer.k.digits(Index.of(thread), [blocks, *(a.size for a in free)])
    return block, dict(zip(free, row, strict=True))


def _emit_before(
    scan: Scan, plan: ReductionSchedule, scratch: Sequence[int], blocks: int, block: int = 0, along: bool = False
) -> None:
    """Emit the kernel that scans the totals of blocks, each stored one block further, into the prefix of each block."""
    writer = scan.fusion.writer("block_prefixes", final=True)
    with free_nest(writer.k, scan.space, plan, blocks) as indices:
        _scan_totals(scan, writer, indices, scratch, blocks, block, along)


def _scan_totals(
    scan: Scan, writer: KernelWriter, indices: AxisIndices, scratch: Sequence[int], blocks: int, block: int, along: bool
) -> None:
    """Scan the totals of one row's blocks into their prefixes."""
    k, before, position = writer.k, scratch[0], scan.space.free_position(indices)
    k.store(writer.scratch(before), position, scan.neutral(writer))
    with k.loop(blocks - 1, carries=[scan.neutral(writer)]) as (b, (so_far,)):
        offset = (Index.of(b) + 1) * scan.rows + position
        total = k.load(writer.scratch(before), offset)
        if scan.checked:
            others = [k.load(writer.scratch_input(buffer), offset) for buffer in scratch[1:]]
            part = Index.of(b) * block, block
            total = CheckedScan(scan, writer).after(so_far, Summary(total, *others), indices, along, part)
        else:
            total = scan.combine(writer, so_far, total)
        k.store(writer.scratch(before), offset, total)
        k.carry(total)


def _streams(scan: Scan, plan: ReductionSchedule) -> bool:
    """Return whether accumulators should be an array in memory: for long columns side by side."""
    lanes, axis = plan.lanes, scan.axis
    if lanes is None or lanes is axis or axis is None or lanes is not scan.space.axes[-1] or scan.no_neutral:
        return False
    return scan.rows * axis.size >= STREAMED_WORK and axis.size >= 64 and lanes.size > plan.width


def _count_stream_blocks(scan: Scan, plan: ReductionSchedule) -> int:
    """Return the number of blocks of rows that gives threads enough to do."""
    axis, lanes = scan.axis, plan.lanes
    assert axis is not None and lanes is not None
    pieces = scan.rows // lanes.size * -(-lanes.size // min(TILE, lanes.size))
    if pieces >= ENOUGH_ITERATIONS // 2:
        return 1
    return max(1, min(-(-ENOUGH_ITERATIONS // pieces), axis.size // LEAST_ROWS))


def _emit_streaming(scan: Scan, plan: ReductionSchedule) -> None:
    """Emit a scan that reads rows in the order of memory; the accumulators of a tile of columns stay in cache. If
    there are few tiles, rows are split into blocks, in three kernels as in `_emit_split`."""
    axis, lanes = scan.axis, plan.lanes
    assert axis is not None and lanes is not None
    tile, blocks = min(TILE, lanes.size), _count_stream_blocks(scan, plan)
    block = -(-axis.size // blocks)
    blocks = -(-axis.size // block)
    scratch = scan.fusion.new_scratch(scan.wide, blocks * scan.rows)
    if blocks > 1:
        writer = scan.fusion.writer("block_totals", final=True)
        _write_rows(scan, plan, writer, scratch, range(1, blocks), block, tile, store=False)
        _emit_before(scan, plan, [scratch], blocks)
    writer = scan.fusion.writer("cumulative_blocks", final=True)
    _write_rows(scan, plan, writer, scratch, range(blocks), block, tile, store=True)


def _write_rows(
    scan: Scan,
    plan: ReductionSchedule,
    writer: KernelWriter,
    scratch: int,
    wanted: range,
    block: int,
    tile: int,
    store: bool,
) -> None:
    """Write loops over blocks of rows, with separate accumulators. With `store`, the blocks are the `wanted` ones
    and continue from the accumulators if there are several; else they are the blocks before them, from the neutral
    element."""
    space, axis, lanes, k = scan.space, scan.axis, plan.lanes, writer.k
    assert axis is not None and lanes is not None
    others = [(a, a.size) for a in space.free if a is not lanes]
    sizes: list[tuple[Any, int]] = [("block", len(wanted)), ("tile", -(-lanes.size // tile)), *others]
    sizes.sort(key=lambda pair: -pair[1])  # the longest over threads
    with ExitStack() as stack:
        at: dict[Any, Index] = {}
        for level, (what, size) in enumerate(sizes):
            kind = LoopKind.SERIAL if level else LoopKind.THREADS
            at[what] = Index.of(stack.enter_context(k.loop(size, kind=kind)))
        b, first = at.pop("block"), at.pop("tile") * tile
        columns = None if lanes.size % tile == 0 else Index(lanes.size) - first
        row = b * block
        limit = None if axis.size % block == 0 or not store else Index(axis.size) - row

        def position(indices: AxisIndices) -> Index:
            return (b + wanted.start) * scan.rows + space.free_position(indices)

        if not store or len(wanted) == 1:
            with k.loop(tile, kind=LoopKind.LANES, width=plan.width, limit=columns) as i:
                offset = position({**at, lanes: first + i})
                k.store(writer.scratch(scratch), offset, scan.neutral(writer))
        with (
            k.loop(block, limit=limit) as r,
            k.loop(tile, kind=LoopKind.LANES, width=plan.width, limit=columns) as i,
        ):
            indices = {**at, lanes: first + i, axis: row + r}
            offset, index = position(indices), scan.index(writer, indices)
            before = k.load(writer.scratch(scratch), offset)
            total = scan.combine(writer, before, scan.element(writer, index))
            k.store(writer.scratch(scratch), offset, total)
            if store:
                scan.store(writer, index, total)
