"""The kernels of a contraction: loops over threads, panels and tiles around a tile of sums in registers.

    for threads over free axes, blocks of tiles, panels:
        for lanes of a panel:
            for tiles of a block:
                for K: each sum of the tile += left * right
                write the tile

A tile at the edge has a body of its own, in a loop that runs once or not at all. Lanes at the edge are masked where the
machine has masks, and have a body of their own elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from math import prod
from typing import Any

import numpy as np

from weft.base.dataclass import dataclass
from weft.compiler.emit.contractions.contraction_loops import (
    ContractionAxis,
    ContractionLoops,
    Coordinates,
    OperandReader,
    access,
    add_sums,
    divides,
    finish,
    may_be_several,
    multiply_add,
    store_at,
    sum_dtype,
    sum_operation,
)
from weft.compiler.emit.contractions.packing import pack
from weft.compiler.emit.contractions.symbolic_plan import is_symbolic, symbolic_plan
from weft.compiler.emit.contractions.tiling import TilingPlan, candidates, reference_plan, same_bits, storage_lanes
from weft.compiler.emit.emission import Fusion
from weft.compiler.emit.in_place import pointwise_pairs
from weft.compiler.emit.maps.loop import nest
from weft.compiler.emit.values import row_major
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Buffer, Index, LoopKind, Value
from weft.indexing.dimension import ceil_divide, definitely_less_equal
from weft.indexing.expression import Expression, Integer, maximum
from weft.ir.rules.compilation import element_cost

# Rows of tiles per iteration of a loop over threads: enough that a panel is loaded from L1.
BLOCK_ROWS = 48
# Sums of at most UNROLLED_TERMS terms are unrolled, in tiles with at most UNROLLED_SUMS multiply-adds in all.
UNROLLED_TERMS, UNROLLED_SUMS = 4, 36

# Candidate schedules of a contraction.
MOST_SCHEDULES = 8

# Weight of an epilogue per element, in additions, from which the rows of a tile are a loop.
LONG_EPILOGUE = 12

# Symbolic sizes from which multiples of a panel's width have separate kernels, without masks.
WORTH_WHOLE_PANELS = 256

Offsets = tuple[tuple[ContractionAxis, int], ...]


def emit_contraction_kernels(fusion: Fusion, contraction: ContractionLoops) -> None:
    """Emit the kernels of a contraction, with the epilogue that the fusion has."""
    if not prod(contraction.shape):
        return
    left, right = (access(fusion, operand, contraction.axes) for operand in (contraction.left, contraction.right))
    if is_symbolic(contraction, (left, right)):
        plans = [symbolic_plan(contraction, (left, right), fusion.target)]
    else:
        most = MOST_SCHEDULES if fusion.schedule else 1  # only measurements ask for schedules other than the first
        plans = same_bits(candidates(contraction, left, right, fusion.target, most))
    fusion.schedules = len(plans)
    chosen = plans[min(fusion.schedule, len(plans) - 1)]
    operands = [
        pack(fusion, contraction, chosen, operand, found) if copy else operand
        for operand, found, copy in zip(
            (contraction.left, contraction.right), (left, right), chosen.packed, strict=True
        )
    ]
    if chosen.split_k is None and not _separate_epilogue(fusion, contraction, chosen):
        _Kernel(fusion, contraction, chosen, operands[0], operands[1]).write()
        return
    count = 1 if chosen.split_k is None else chosen.split_k.parts
    parts = fusion.new_scratch(sum_dtype(contraction.compute), count * prod(contraction.shape))
    _Kernel(fusion, contraction, chosen, operands[0], operands[1], parts).write()
    if chosen.split_k is None or chosen.split_k.parts > 1:
        add_parts(fusion, contraction, count, parts)


def copies_along(fusion: Fusion, contraction: ContractionLoops, name: str) -> bool:
    """Return whether the right operand would be copied so that lanes along the named axis are contiguous."""
    left, right = (access(fusion, operand, contraction.axes) for operand in (contraction.left, contraction.right))
    if is_symbolic(contraction, (left, right)):
        first = symbolic_plan(contraction, (left, right), fusion.target)
    else:
        first = reference_plan(contraction, left, right, fusion.target)
    return first.packed[1] and not first.lanes_along_k and first.lanes is not None and first.lanes.name == name


def _separate_epilogue(fusion: Fusion, contraction: ContractionLoops, chosen: TilingPlan) -> bool:
    """Return whether the epilogue gets a kernel of its own: where sums are reduced from lanes it would run on
    scalars, which is slow for expensive work.
    """
    lanes = fusion.target.vector_bytes // contraction.exact.itemsize
    if not (chosen.lanes_along_k or chosen.lanes is None) or not contraction.whole or prod(contraction.shape) < lanes:
        return False
    return _epilogue_weight(fusion) > fusion.target.fusion.cheap_weight


def _epilogue_weight(fusion: Fusion) -> float:
    """Return the weight of computing one element of everything that depends on the sums, in additions."""
    assert fusion.hero is not None
    known: set[Any] = set(fusion.hero.outvars)
    weight = 0.0
    for equation in fusion.jaxpr.eqns:
        if any(a in known for a in equation.invars):
            known.update(equation.outvars)
            weight += element_cost(equation)
    return weight


def result_pairs(fusion: Fusion) -> list[tuple[int, int]]:
    """Return pairs (argument, result) of the epilogue that may share memory: the argument is read at the index of
    the result."""
    return pointwise_pairs(fusion.jaxpr) if len(fusion.jaxpr.outvars) == 1 else []


def add_parts(fusion: Fusion, contraction: ContractionLoops, count: int, scratch: int) -> None:
    """Emit a kernel that adds the sums of all parts in order and computes the epilogue. `scratch` holds the parts one
    after the other, each laid out as the result.
    """
    writer = fusion.writer("contraction_sum")
    size = prod(contraction.shape)

    def body(index: tuple[Index, ...]) -> None:
        rest = iter(index)
        full = tuple(Index() if d == 1 else next(rest) for d in contraction.shape)
        total: Value | None = None
        for part in range(count):
            offset = row_major(contraction.shape, full) + part * size
            value = writer.k.load(writer.scratch_input(scratch), offset)
            total = value if total is None else add_sums(writer, total, value, contraction.compute)
        assert total is not None
        store_at(writer, contraction, full, total)

    nest(writer.k, [d for d in contraction.shape if d != 1], writer.lanes, body)


@dataclass(frozen=True)
class _Level:
    """Loop around the tiles: its iterations, and the coordinates in one."""

    count: int
    enter: Callable[[Coordinates, Index], Coordinates]
    limit: Callable[[Coordinates], Index | None] = lambda coords: None


class _Kernel:
    """One kernel under construction."""

    def __init__(
        self,
        fusion: Fusion,
        contraction: ContractionLoops,
        chosen: TilingPlan,
        left: OperandReader,
        right: OperandReader,
        parts: int | None = None,
    ) -> None:
        # Merging would turn panels, which threads share, into one long loop over lanes.
        self.writer = fusion.writer("contraction", final=True)
        self.k: KernelBuilder = self.writer.k
        self.contraction, self.plan, self.left, self.right = contraction, chosen, left, right
        self.parts, self.split_k = parts, chosen.split_k
        self.dtype = sum_dtype(contraction.compute)
        self.target = fusion.target
        self.free_lanes = None if chosen.lanes_along_k else chosen.lanes
        # The first tile may have an edge; a second one divides its axis.
        self.tile: ContractionAxis | None = None
        self.height = 1
        self.whole: Any = 1
        self.edge: Any = 0
        if chosen.tiles:
            self.tile, self.height = chosen.tiles[0]
            self.whole, self.edge = divmod(self.tile.size, self.height)
        self.block = self.tiles_of_block()
        self.blocks: Any = 1 if self.block is self.whole else maximum(1, ceil_divide(self.whole, self.block))
        lanes = self.free_lanes
        self.panels = -(-lanes.size // chosen.width) if lanes is not None else 1
        self.group = min(chosen.blocks.panels, self.panels) if chosen.blocks is not None else 1
        # Sums of a tile, row by row, for an epilogue whose code would be too large if repeated per row.
        self.rows: Buffer | None = None
        if lanes is not None and len(chosen.tiles) == 1 and not fusion.target.grid_bytes:
            if self.height > 1 and _epilogue_weight(fusion) >= LONG_EPILOGUE:
                self.rows = self.k.local("rows", self.dtype, self.height * chosen.width)
        # Current indices of the block, the part and the chunk of K.
        self.at_block = Index()
        self.at_part = Index()
        self.at_chunk: dict[ContractionAxis, Index] = {}
        # 1 in the last chunk, else 0.
        self.last = Index()

    def tiles_of_block(self) -> Any:
        """Return the tiles of a block: all if there is little work, or if other axes give threads enough to share."""
        if self.plan.blocks is not None and not isinstance(self.whole, Expression):
            return max(1, min(self.plan.blocks.tiles, self.whole))
        if isinstance(self.whole, Expression):
            return self.whole if self.plan.blocks is None else self.plan.blocks.tiles
        if self.contraction.multiplications < self.target.matmul.shared_work or self.split_k is not None:
            return self.whole
        tiled = {axis for axis, _ in self.plan.tiles}
        others = prod(a.size for a in self.contraction.free if a not in tiled and a is not self.free_lanes)
        if others >= self.target.matmul.tasks:
            return self.whole
        wanted = max(1, BLOCK_ROWS // self.height)
        blocks = -(-self.whole // wanted)
        return -(-self.whole // blocks)

    # -- the loops around --------------------------------------------------------------------------------------------

    def write(self) -> None:
        levels = self.levels()
        shared: list[_Level] = []
        # Only parts of K are shared, so that their operands stay in the cache for the inner loops.
        enough = self.target.matmul.tasks if self.split_k is None or self.split_k.parts < 4 else 2
        while levels and not self.suffices(prod(level.count for level in shared), enough):
            shared.append(levels.pop(0))
        counts = [level.count for level in shared]
        with ExitStack() as stack:
            task = Index()
            if may_be_several(prod(counts)):
                task = Index.of(stack.enter_context(self.k.loop(prod(counts), kind=LoopKind.THREADS)))
            coords = Coordinates({})
            for level, index in zip(shared, unravel(self.k, task, counts), strict=True):
                coords = level.enter(coords, index)
            self.chunks(stack)
            for level in levels:
                index, limit = Index(), level.limit(coords)
                if may_be_several(level.count):
                    index = Index.of(stack.enter_context(self.k.loop(level.count, limit=limit)))
                coords = level.enter(coords, index)
            self.panel(coords)

    def suffices(self, count: Integer, enough: int) -> bool:
        """Return whether `count` iterations are enough to share. If that depends on symbolic sizes, more loops are
        shared, which costs little; but not loops inside chunks of K, which reread what stays in the cache.
        """
        return definitely_less_equal(enough, count) if self.split_k is None else count >= enough

    def levels(self) -> list[_Level]:
        """List the loops around a panel of tiles, outermost first."""
        levels: list[_Level] = []
        if self.split_k is not None and self.split_k.parts > 1:
            levels.append(_Level(self.split_k.parts, self.enter_part))
        tiled = {axis for axis, _ in self.plan.tiles}
        for axis in self.contraction.free:
            if axis not in tiled and axis is not self.free_lanes:
                levels.append(_Level(axis.size, lambda coords, i, axis=axis: coords.at(axis, i)))  # type: ignore[misc]
        for axis, height in self.plan.tiles[1:]:
            levels.append(
                _Level(axis.size // height, lambda coords, i, a=axis, h=height: coords.at(a, i * h))  # type: ignore[misc]
            )
        levels.append(_Level(self.blocks, self.enter_block))
        if self.free_lanes is not None:
            panels, group = self.panels, self.group
            levels.append(
                _Level(-(-panels // group), lambda coords, i: Coordinates(coords.indices, i * group, coords.lane))
            )

            def left(coords: Coordinates) -> Index | None:
                return None if divides(group, panels) else Index(panels) - coords.panel

            if group > 1:
                levels.append(
                    _Level(group, lambda coords, i: Coordinates(coords.indices, coords.panel + i, coords.lane), left)
                )
        return levels

    def enter_part(self, coords: Coordinates, index: Index) -> Coordinates:
        self.at_part = index
        return coords

    def enter_block(self, coords: Coordinates, index: Index) -> Coordinates:
        self.at_block = index
        return coords

    def chunks(self, stack: ExitStack) -> None:
        """Open the loops over chunks of K, if it is split. They enclose all tiles, which continue their sums."""
        if self.split_k is None or self.parts is None:
            return
        k_axes, ends = self.plan.k_axes, []
        for position, axis in enumerate(k_axes[: self.split_k.axis + 1]):
            first = position == 0
            count = self.split_k.length if first else axis.size
            chunk = self.split_k.chunk if position == self.split_k.axis else 1
            if count <= chunk:
                continue
            start = self.at_part * self.split_k.length if first else Index()
            uneven = first and axis.size % self.split_k.length
            limit = Index(axis.size) - start if uneven else None
            begin = stack.enter_context(self.k.loop(count, step=chunk, limit=limit))
            self.at_chunk[axis] = Index.of(begin)
            if self.split_k.parts == 1:
                ends.append(self.k.compute("ge", self.k.position(begin + chunk), self.k.constant(count, "int64")))
        if ends:
            last = ends[0]
            for end in ends[1:]:
                last = self.k.compute("and", last, end)
            self.last = Index.of(self.k.scalars.convert(last, np.dtype(np.int64)))

    # -- one panel ---------------------------------------------------------------------------------------------------

    def panel(self, coords: Coordinates) -> None:
        """Emit the lanes of a panel, whole or at the edge."""
        axis, width = self.free_lanes, self.plan.width
        if axis is None:
            self.tiles(coords)
            return
        if self.target.masks:
            limit = None if self.fills_panels(axis) else Index(axis.size) - coords.panel * width
            self.lanes(coords, axis, width, limit)
            return
        whole, rest = divmod(axis.size, width)
        if not rest:
            self.lanes(coords, axis, width, None)
            return
        if not whole:
            self.pieces(coords, axis, rest)
            return
        at_edge = self.k.compute("ge", self.k.position(coords.panel), self.k.constant(whole, "int64"))
        with self.k.when(self.k.compute("not", at_edge)):
            self.lanes(coords, axis, width, None)
        with self.k.when(at_edge):
            self.pieces(Coordinates(coords.indices, Index(whole)), axis, rest)

    def fills_panels(self, axis: ContractionAxis) -> bool:
        """Return whether no lanes are left over. Small symbolic sizes always use masks: kernels of their own would
        gain less than they take to compile.
        """
        if isinstance(axis.size, Expression) and axis.size < WORTH_WHOLE_PANELS:
            return False
        return not axis.size % self.plan.width

    def pieces(self, coords: Coordinates, axis: ContractionAxis, rest: Integer) -> None:
        """Emit the lanes at the edge without masks: full registers, then the remainder. A symbolic remainder is a
        sequence of powers of two, each with a condition.
        """
        if isinstance(rest, Expression):
            width = 1 << (self.plan.width - 1).bit_length() >> 1
            while width:
                there = self.k.constant(rest // width % 2, "int64")
                with self.k.when(self.k.compute("gt", there, self.k.constant(0, "int64"))):
                    self.lanes(coords, axis, width, None, rest // (2 * width) * (2 * width))
                width //= 2
            return
        start, register = 0, storage_lanes(self.target, self.dtype)
        while start < rest:
            left = rest - start
            width = left if left < register else register << ((left // register).bit_length() - 1)
            self.lanes(coords, axis, width, None, start)
            start += width

    def lanes(
        self, coords: Coordinates, axis: ContractionAxis, width: int, limit: Index | None, start: Integer = 0
    ) -> None:
        with self.k.loop(width, kind=LoopKind.LANES, width=width, limit=limit) as j:
            there = Coordinates(coords.indices, coords.panel, j + start)
            self.tiles(there.at(axis, coords.panel * self.plan.width + start + j))

    def tiles(self, coords: Coordinates) -> None:
        """Emit the tiles of a block, then the tile at the edge."""
        k, last = self.k, self.at_block - (self.blocks - 2)
        if self.tile is None:
            self.sums(coords, self.offsets(1))
            return
        if isinstance(self.whole, Expression) or self.whole:
            first = self.at_block * self.block
            limit = None if divides(self.block, self.whole) else Index(self.whole) - first
            with ExitStack() as stack:
                one = not isinstance(self.block, Expression) and self.block == 1
                i = Index() if one else stack.enter_context(k.loop(self.block, limit=limit))
                self.sums(coords.at(self.tile, (first + i) * self.height), self.offsets(self.height))
        for rows, start, count in self.edges():
            with ExitStack() as stack:
                if may_be_several(self.blocks):
                    stack.enter_context(k.loop(1, limit=last))
                if isinstance(count, Expression):
                    stack.enter_context(k.loop(count))
                self.sums(coords.at(self.tile, Index(start)), self.offsets(rows))

    def edges(self) -> Iterator[tuple[int, Integer, Integer]]:
        """Yield (rows, start, count) of the tiles at the edge, where count 0 means absent. A symbolic size has one
        candidate for each power of two.
        """
        first, height = self.whole * self.height, self.height
        if not isinstance(self.edge, Expression):
            if self.edge:
                yield self.edge, first, 1
            return
        rows = 1 << (height - 1).bit_length() >> 1
        while rows:
            count = self.edge // rows % 2
            if isinstance(count, Expression) or count:  # an even size has no tile of one row
                yield rows, first + self.edge // (2 * rows) * (2 * rows), count
            rows //= 2

    def offsets(self, height: int) -> list[Offsets]:
        """List the offsets of a tile's elements along its axes."""
        heights = [(axis, h) for axis, h in self.plan.tiles]
        if heights:
            heights[0] = (heights[0][0], height)
        ranges = [[(axis, n) for n in range(h)] for axis, h in heights]
        return list(itertools.product(*ranges))

    # -- one tile ----------------------------------------------------------------------------------------------------

    def sums(self, coords: Coordinates, offsets: Sequence[Offsets]) -> None:
        """Compute all sums of a tile and write them."""
        tile_coords = [self.shift(coords, offset) for offset in offsets]
        zero = self.k.constant(0, self.dtype)
        if self.split_k is None or self.plan.lanes_along_k:
            totals: Sequence[Value] = [zero] * len(tile_coords)
        else:
            totals = [self.load_partial_sum(there, zero) for there in tile_coords]
        if all(axis.size for axis in self.plan.k_axes):
            totals = self.reduce_k(0, tile_coords, totals)
        if self.plan.lanes_along_k:
            totals = [
                self.k.reduce_lanes(sum_operation(self.contraction.compute), total, self.plan.width) for total in totals
            ]
        if self.parts is None:
            self.finish(coords, tile_coords, totals)
            return
        if self.plan.lanes_along_k and self.at_chunk:
            before = [self.load_partial_sum(there, zero) for there in tile_coords]
            totals = [
                add_sums(self.writer, b, t, self.contraction.compute) for b, t in zip(before, totals, strict=True)
            ]
        if self.split_k is None or self.split_k.parts > 1:
            self.store_partial(tile_coords, totals)
            return
        # After the last chunk the epilogue works on the sums; before it they wait for the next one.
        with self.k.loop(1, limit=Index(1) - self.last):
            self.store_partial(tile_coords, totals)
        with self.k.loop(1, limit=self.last):
            self.finish(coords, tile_coords, totals)

    def store_partial(self, tile_coords: Sequence[Coordinates], totals: Sequence[Value]) -> None:
        """Write partial sums."""
        assert self.parts is not None
        for there, total in zip(tile_coords, totals, strict=True):
            self.k.store(self.writer.scratch(self.parts), self.partial_offset(there), total)

    def finish(self, coords: Coordinates, tile_coords: Sequence[Coordinates], totals: Sequence[Value]) -> None:
        """Compute the epilogue of a tile and write the results."""
        if self.rows is None or len(totals) == 1:
            for there, total in zip(tile_coords, totals, strict=True):
                finish(self.writer, self.contraction, there.indices, total)
            return
        assert self.tile is not None
        for row, total in enumerate(totals):
            self.k.store(self.rows, coords.lane + row * self.plan.width, total)
        with self.k.loop(len(totals)) as i:
            there = coords.at(self.tile, coords.indices[self.tile] + i)
            total = self.k.load(self.rows, coords.lane + i * self.plan.width)
            finish(self.writer, self.contraction, there.indices, total)

    def shift(self, coords: Coordinates, offset: Offsets) -> Coordinates:
        indices = dict(coords.indices)
        for axis, n in offset:
            indices[axis] = indices[axis] + n
        return Coordinates(indices, coords.panel, coords.lane)

    def partial_offset(self, coords: Coordinates) -> Index:
        """Return the offset at which the sum of the current part is stored."""
        return self.contraction.result_offset(coords.indices) + self.at_part * prod(self.contraction.shape)

    def load_partial_sum(self, coords: Coordinates, zero: Value) -> Value:
        """Load the sum of the chunks before the current one, `zero` at the first chunk."""
        assert self.parts is not None
        if not self.at_chunk:
            return zero
        begun_at = Index()
        for index in self.at_chunk.values():
            begun_at = begun_at + index
        begun = self.k.compute("gt", self.k.position(begun_at), self.k.constant(0, "int64"))
        return self.k.load(self.writer.scratch(self.parts), self.partial_offset(coords), begun, zero)

    def reduce_k(self, position: int, tile_coords: Sequence[Coordinates], totals: Sequence[Value]) -> Sequence[Value]:
        """Emit the loops over the axes of K from `position` on; return the sums."""
        if position == len(self.plan.k_axes):
            return [self.multiply_add(coords, total) for coords, total in zip(tile_coords, totals, strict=True)]
        axis = self.plan.k_axes[position]
        count, start, limit = self.span(position, axis)
        if limit is None and (count == 1 or self.is_unrolled(position, len(totals))):
            for i in range(count):
                totals = self.reduce_k(position + 1, [s.at(axis, start + i) for s in tile_coords], totals)
            return totals
        lanes = self.plan.lanes_along_k and axis is self.plan.lanes
        kind, width = (LoopKind.LANES, self.plan.width) if lanes else (LoopKind.SERIAL, 1)
        with self.k.loop(count, kind=kind, width=width, carries=totals, limit=limit) as (i, inside):
            there = [coords.at(axis, start + i) for coords in tile_coords]
            return self.k.carry(*self.reduce_k(position + 1, there, inside))

    def is_unrolled(self, position: int, sums: int) -> bool:
        """Return whether the rest of K is unrolled: it is short, and the tile is small."""
        terms = prod(axis.size for axis in self.plan.k_axes[position:])
        return not self.plan.lanes_along_k and terms <= UNROLLED_TERMS and terms * sums <= UNROLLED_SUMS

    def span(self, position: int, axis: ContractionAxis) -> tuple[int, Index, Index | None]:
        """Return (count, start, limit) of the loop along an axis of K in the current chunk and part."""
        if self.split_k is None or position > self.split_k.axis:
            return axis.size, Index(), None
        start = self.at_chunk.get(axis, Index())
        end = self.split_k.length if position == 0 else axis.size
        count = self.split_k.chunk if position == self.split_k.axis else 1
        count = end if axis not in self.at_chunk else count
        limit = Index(end) - start if end % count else None
        if position == 0:
            offset = self.at_part * self.split_k.length
            start = start + offset
            if axis.size % self.split_k.length:
                if limit is not None:
                    least = self.k.compute("min", self.k.position(limit), self.k.position(Index(axis.size) - start))
                    return count, start, Index.of(least)
                limit = Index(axis.size) - start
        return count, start, limit

    def multiply_add(self, coords: Coordinates, total: Value) -> Value:
        left, right = self.left(self.writer, coords), self.right(self.writer, coords)
        return multiply_add(self.writer, left, right, total, self.contraction.compute)


def unravel(k: KernelBuilder, flat: Index, counts: Sequence[int]) -> list[Index]:
    """Unravel the flat index of a loop into indices below `counts`."""
    several = [may_be_several(count) for count in counts]
    if sum(several) <= 1:
        return [flat if loops else Index() for loops in several]
    indices: list[Index] = []
    rest = k.position(flat)
    for count, loops in zip(reversed(counts[1:]), reversed(several[1:]), strict=True):
        size = k.constant(count, "int64")
        indices.append(Index.of(k.compute("rem", rest, size)) if loops else Index())
        rest = k.compute("div", rest, size) if loops else rest
    return [Index.of(rest), *reversed(indices)]
