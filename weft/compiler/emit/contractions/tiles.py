"""Contractions of bfloat16 and of bytes by tile registers (x86's AMX), the sums of 32 x 32 elements in registers.

There are two ways. One kernel packs both operands, and another one multiplies chunks of K that stay in the second
cache. Or there is one kernel, whose tasks load tiles of the left operand from where it is, and pack a panel of the
right one before they multiply all their rows with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.emit.contractions.contraction_loops import ContractionAxis, store_at
from weft.compiler.emit.contractions.microkernel import unravel
from weft.compiler.emit.contractions.tile_matrices import Matrices
from weft.compiler.emit.contractions.tile_packing import PackedOperand, pack
from weft.compiler.emit.emission import Fusion
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import TILE_BYTES, TILE_ROW_BYTES, TILE_ROWS, Buffer, Index, LoopKind, TileMatmul

# The most results of a task, and the least number of tasks; bytes of operands that a task reuses from the second cache,
# and the least tiles along K of such a chunk.
MOST_TASK, TASKS = 512 * 512, 96
CHUNK_BYTES, LEAST_CHUNK = 768 << 10, 8
# Tasks that pack: bytes of the left operand and of a panel of the right one, which stay in the second cache, and the
# most rows. ENOUGH_TASKS: pairs of a number of tasks and the least multiplications of each (every task packs a panel,
# so smaller tasks should be fewer). From MANY_TASKS on each task gets several panels.
LEFT_BYTES, PANEL_BYTES, MOST_ROWS = 1 << 20, 1 << 19, 512
ENOUGH_TASKS, MANY_TASKS = ((32, 1 << 22), (16, 1 << 20)), 64
# Up to this product of bytes one task is quicker than several, whose results would travel between caches.
ONE_TASK = 1 << 22
# Bytes of all panels of a task, up to which it packs all of them first: then what an epilogue computes is written row
# by row, and not in columns of one cache line, whose rows are pages apart.
SMALL_PANELS = 64 << 10
# Cost of another kernel launch, in packed bytes: a separate packing kernel writes to memory, and the next one reads it.
LAUNCH_BYTES, PACKED_BEFORE = 4 << 20, 4


@dataclass(frozen=True)
class TileSchedule:
    """Work of one iteration of the loop over threads: blocks of tiles along each side, and tiles along K per chunk;
    `chunks` chunks cover K."""

    blocks: tuple[int, int]
    chunk: int
    chunks: int


def schedule(m: Matrices, others: int) -> TileSchedule:
    """Choose the largest tasks that are still enough to share, since a task reads its operands from beyond the second
    cache. Tasks are nearly square; a chunk of K stays in that cache.
    """
    sides = [m.panels(operand) // m.tiles(operand) for operand in (m.left, m.right)]
    elements = [m.tiles(operand) * TILE_ROWS for operand in (m.left, m.right)]
    task = [1, 1]

    def tasks(blocks: Sequence[int]) -> int:
        return others * prod(-(-side // block) for side, block in zip(sides, blocks, strict=True))

    while True:
        grown = [[2 * task[0], task[1]], [task[0], 2 * task[1]]]
        grown.sort(key=lambda blocks: abs(blocks[0] * elements[0] - blocks[1] * elements[1]))
        fitting = [
            blocks
            for blocks in grown
            if all(block < 2 * side for block, side in zip(blocks, sides, strict=True))
            and blocks[0] * elements[0] * blocks[1] * elements[1] <= MOST_TASK
            and tasks(blocks) >= TASKS
        ]
        if not fitting:
            break
        task = fitting[0]
    row_bytes = sum(block * size for block, size in zip(task, elements, strict=True)) * TILE_ROW_BYTES
    chunk = max(LEAST_CHUNK, CHUNK_BYTES // row_bytes)
    chunks = -(-m.steps // chunk)
    return TileSchedule((min(task[0], sides[0]), min(task[1], sides[1])), -(-m.steps // chunks), chunks)


def packing_schedule(m: Matrices, others: int) -> TileSchedule | None:
    """Choose a schedule of tasks that pack panels of the right operand themselves; return None if packing everything
    beforehand is cheaper. A task has as many rows as stay in the cache, or fewer to get enough tasks.
    """
    itemsize, length = m.left.dtype.itemsize, m.steps * m.row
    sides = [m.panels(operand) // m.tiles(operand) for operand in (m.left, m.right)]
    sizes = [m.tiles(operand) * TILE_ROWS for operand in (m.left, m.right)]
    block_bytes = [size * length * itemsize for size in sizes]
    if not m.loads_left or block_bytes[1] > PANEL_BYTES:
        return None
    if others == 1 and prod(sides) * prod(sizes) * length * itemsize <= ONE_TASK:
        return TileSchedule((sides[0], sides[1]), m.steps, 1)
    rows = max(1, min(sides[0], LEFT_BYTES // block_bytes[0], MOST_ROWS // sizes[0]))
    for enough, multiplications in ENOUGH_TASKS:
        least = max(1, multiplications // (prod(sizes) * length))
        while others * -(-sides[0] // rows) * sides[1] < enough and rows >= 2 * least:
            rows = -(-rows // 2)
    tasks_of_rows, columns = others * -(-sides[0] // rows), 1
    while columns < sides[1] and tasks_of_rows * -(-sides[1] // (2 * columns)) >= MANY_TASKS:
        columns = min(2 * columns, sides[1])
    of_left, of_right = (
        prod(a.size for a in operand.leading) * side * size
        for operand, side, size in zip((m.left, m.right), sides, block_bytes, strict=True)
    )
    packed_here = tasks_of_rows * sides[1] * block_bytes[1]
    # Computed operands are packed first, so that they are computed once.
    if packed_here > PACKED_BEFORE * (of_left + of_right) + LAUNCH_BYTES or (
        m.right.access.work and packed_here > of_right
    ):
        return None
    return TileSchedule((rows, columns), m.steps, 1)


def emit_matrices_by_tiles(fusion: Fusion, m: Matrices) -> None:
    """Emit the kernels: one that multiplies and computes the epilogue, and one before it that packs, if it does not."""
    leading = tuple(a for a in m.contraction.free if a not in (m.left.across, m.right.across))
    others = prod(a.size for a in leading)
    if (plan := packing_schedule(m, others)) is not None:
        _Multiply(fusion, m, plan, None, leading).write()
        return
    plan = schedule(m, others)
    packed = pack(fusion, m, plan.chunk * plan.chunks)
    _Multiply(fusion, m, plan, packed, leading).write()


def _ravel(axes: Sequence[ContractionAxis], indices: dict[ContractionAxis, Index]) -> Index:
    """Combine the indices along several axes into one row-major index."""
    total = Index()
    for axis in axes:
        total = total * axis.size + indices[axis]
    return total


class _Multiply:
    """Kernel that multiplies tiles. Sums are in memory of each task: of one block if K is not split, else of the
    whole task. If no operand is `packed`, a task packs its panels of the right operand into its own memory."""

    def __init__(
        self,
        fusion: Fusion,
        m: Matrices,
        plan: TileSchedule,
        packed: Sequence[int] | None,
        leading: Sequence[ContractionAxis],
    ) -> None:
        self.m, self.plan, self.leading = m, plan, leading
        self.operands = (m.left, m.right)
        self.writer = fusion.writer("tiles", final=True)
        self.k: KernelBuilder = self.writer.k
        self.together = [m.tiles(operand) for operand in self.operands]
        self.sides = [m.panels(operand) // count for operand, count in zip(self.operands, self.together, strict=True)]
        self.sizes = [count * TILE_ROWS for count in self.together]
        self.counts = [
            *(a.size for a in leading),
            *(-(-side // block) for side, block in zip(self.sides, plan.blocks, strict=True)),
        ]
        self.stride = self.sizes[1] * (plan.blocks[1] if plan.chunks > 1 else 1)
        self.area = self.stride * self.sizes[0] * (plan.blocks[0] if plan.chunks > 1 else 1)
        self.stores_tiles = self.results_are_sums(fusion)
        tile = TILE_BYTES // m.left.dtype.itemsize
        self.panel = plan.chunk * plan.chunks * tile
        self.packing: PackedOperand | None = None
        # Blocks of columns that a packing task packs before it multiplies.
        self.panels_before = 1
        if packed is None:
            source = m.left.access.source
            assert source is not None
            self.packing = PackedOperand(self.writer, m, m.right, m.steps)
            panels = self.together[1] * self.panel
            if not self.stores_tiles and panels * plan.blocks[1] * m.left.dtype.itemsize <= SMALL_PANELS:
                self.panels_before = plan.blocks[1]
                self.stride *= self.panels_before
                self.area *= self.panels_before
            own = fusion.new_scratch(self.packing.dtype, prod(self.counts) * self.panels_before * panels)
            self.left: Buffer = self.writer.argument(source.argument)
            self.right: Buffer = self.writer.scratch(own)
            # Elements between rows, and between tiles along K.
            self.left_strides = source.strides[m.left.across], m.row
        else:
            self.left, self.right = (self.writer.scratch_input(scratch) for scratch in packed)
            self.left_strides = m.row, tile
        if self.stores_tiles:
            self.sums: Buffer = self.writer.result(fusion.jaxpr.outvars[0])
            self.stride = m.contraction.result_strides()[m.left.across]
        else:
            sums = fusion.new_scratch(self.sum_dtype, prod(self.counts) * self.area)
            self.sums = self.writer.scratch(sums)
        self.at: dict[ContractionAxis, Index] = {}
        self.task = self.first_row = self.first_column = Index()

    @property
    def sum_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.m.left.dtype == dtypes.bfloat16 else np.int32)

    def results_are_sums(self, fusion: Fusion) -> bool:
        """Return whether tiles of sums are the result: no epilogue, and only whole blocks."""
        contraction, hero = self.m.contraction, fusion.hero
        assert hero is not None
        strides = contraction.result_strides()
        return (
            tuple(fusion.jaxpr.outvars) == tuple(hero.outvars)
            and contraction.exact == contraction.compute == self.sum_dtype
            and strides[self.m.right.across] == 1
            and all(o.across.size % size == 0 for o, size in zip(self.operands, self.sizes, strict=True))
        )

    def write(self) -> None:
        k, plan = self.k, self.plan
        with k.loop(prod(self.counts), kind=LoopKind.THREADS) as task:
            self.task = Index.of(task)
            *indices, row, column = unravel(k, self.task, self.counts)
            self.at = dict(zip(self.leading, indices, strict=True))
            self.first_row, self.first_column = row * plan.blocks[0], column * plan.blocks[1]
            if self.packing is not None:
                self.pack_and_multiply(self.packing)
                return
            if plan.chunks == 1:
                with self.blocks() as (row, column):
                    self.multiply(row, column, Index(), accumulate=False)
                    self.finish(row, column)
                return
            with self.blocks() as (row, column):
                self.multiply(row, column, Index(), accumulate=False)
            with k.loop(plan.chunks, start=1) as chunk, self.blocks() as (row, column):
                self.multiply(row, column, Index.of(chunk), accumulate=True)
            with self.blocks() as (row, column):
                self.finish(row, column)

    def pack_and_multiply(self, packing: PackedOperand) -> None:
        """Pack a panel of the right operand and multiply all blocks of rows by it, panel by panel; or pack all panels
        first, then go through the blocks of rows.
        """
        leading = {axis: self.at[axis] for axis in self.m.right.leading}
        count = self.together[1]

        def pack(column: Index) -> None:
            packing.panel(self.right, self.panel_offset(column), leading, (self.first_column + column) * count, count)

        if self.panels_before > 1:
            with self.columns() as column:
                pack(column)
            with self.rows() as row:
                with self.columns() as column:
                    self.multiply(row, column, Index(), accumulate=False)
                self.finish(row, Index(), self.panels_before)
            return
        with self.columns() as column:
            pack(column)
            with self.rows() as row:
                self.multiply(row, column, Index(), accumulate=False)
                self.finish(row, column)

    def panel_offset(self, column: Index) -> Index:
        """Return the offset at which a task has packed a block of columns."""
        panels = self.together[1] * self.panel
        return self.task * (self.panels_before * panels) + (column * panels if self.panels_before > 1 else 0)

    @contextmanager
    def blocks(self) -> Iterator[tuple[Index, Index]]:
        """Open loops over the blocks of a task; yield their indices in it."""
        with self.columns() as column, self.rows() as row:
            yield row, column

    @contextmanager
    def rows(self) -> Iterator[Index]:
        with self.k.loop(self.plan.blocks[0], limit=self.end(0, self.first_row)) as row:
            yield Index.of(row)

    @contextmanager
    def columns(self) -> Iterator[Index]:
        with self.k.loop(self.plan.blocks[1], limit=self.end(1, self.first_column)) as column:
            yield Index.of(column)

    def end(self, side: int, first: Index) -> Index | None:
        """Return the number of blocks left from the first one of a task, or None where tasks fill the side."""
        return Index(self.sides[side]) - first if self.sides[side] % self.plan.blocks[side] else None

    def corner(self, row: Index, column: Index) -> Index:
        """Return the offset of the sums of a block."""
        if self.stores_tiles:
            firsts = (self.first_row + row) * self.sizes[0], (self.first_column + column) * self.sizes[1]
            return self.m.contraction.result_offset(
                {**self.at, self.m.left.across: firsts[0], self.m.right.across: firsts[1]}
            )
        inside = row * (self.sizes[0] * self.stride) if self.plan.chunks > 1 else Index()
        if self.plan.chunks > 1 or self.panels_before > 1:
            inside = inside + column * self.sizes[1]
        return self.task * self.area + inside

    def multiply(self, row: Index, column: Index, chunk: Index, accumulate: bool) -> None:
        """Multiply a block of tiles over a chunk of K."""
        m, plan = self.m, self.plan
        tile = TILE_BYTES // m.left.dtype.itemsize
        blocks = self.first_row + row, self.first_column + column
        packed = [
            (_ravel(operand.leading, self.at) * m.panels(operand) + block * count) * self.panel
            + chunk * (plan.chunk * tile)
            for operand, block, count in zip(self.operands, blocks, self.together, strict=True)
        ]
        left, right, left_stride = packed[0], packed[1], self.panel
        if self.packing is not None:
            source = m.left.access.source
            assert source is not None
            left = source.index({**self.at, m.left.across: blocks[0] * self.sizes[0]})
            right, left_stride = self.panel_offset(column), TILE_ROWS * self.left_strides[0]
        self.k.matmul(
            TileMatmul(
                self.sums, self.corner(row, column), self.stride,
                self.left, left, left_stride, *self.left_strides,
                self.right, right, self.panel,
                self.together[0], self.together[1], plan.chunk, (m.left.dtype, m.right.dtype), accumulate,
            )
        )  # fmt: skip

    def finish(self, row: Index, column: Index, blocks: int = 1) -> None:
        """Write the results of `blocks` adjacent blocks row by row, unless tiles are stored directly."""
        if self.stores_tiles:
            return
        k, m = self.k, self.m
        firsts = (self.first_row + row) * self.sizes[0], (self.first_column + column) * self.sizes[1]
        ends = [
            Index(operand.across.size) - first if operand.across.size % (size * count) else None
            for operand, first, size, count in zip(self.operands, firsts, self.sizes, (1, blocks), strict=True)
        ]
        with k.loop(self.sizes[0], limit=ends[0]) as i:
            with k.loop(blocks * self.sizes[1], kind=LoopKind.LANES, width=self.sizes[1], limit=ends[1]) as j:
                indices = {**self.at, m.left.across: firsts[0] + i, m.right.across: firsts[1] + j}
                total = k.load(self.sums, self.corner(row, column) + i * self.stride + j)
                store_at(self.writer, m.contraction, m.contraction.result_index(indices), total)
