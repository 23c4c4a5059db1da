"""The kernels of a sum of products: loops over threads, panels and tiles around a tile of sums in registers.

    for threads over free axes, blocks of tiles, panels:
        for lanes of a panel:
            for tiles of a block:
                for the depth: each sum of the tile += left * right
                write the tile

A tile at the edge has a body of its own, in a loop that runs once or not at all. Lanes at the edge are masked where the
machine can do that, and have a body of their own elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.compiler.emit.contractions.packing import packed
from weft.compiler.emit.contractions.products import (
    ContractionAxis,
    Factor,
    Products,
    Spot,
    access,
    finish,
    fold_of,
    joined,
    multiply_add,
    product_of,
    store_at,
    sum_dtype,
)
from weft.compiler.emit.contractions.tiling import Plan, candidates, lanes_of, same_bits
from weft.compiler.emit.emission import Fusion
from weft.compiler.emit.in_place import pointwise_pairs
from weft.compiler.emit.maps.loop import nest
from weft.compiler.emit.values import row_major
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, LoopKind, Value
from weft.ir.primitive import weight_of

# Rows of tiles that one turn of a loop over threads takes: enough that a panel is read from the first cache.
BLOCK_ROWS = 48
# Sums of so few terms, and tiles of so many fused sums, are written without a loop.
UNROLLED_TERMS, UNROLLED_SUMS = 4, 36

Offsets = tuple[tuple[ContractionAxis, int], ...]


def emit_products(fusion: Fusion, products: Products) -> None:
    """Write the kernels of a sum of products, with what follows it in the fusion."""
    if not product_of(products.shape):
        return
    left, right = (access(fusion, factor, products.axes) for factor in (products.left, products.right))
    plans = same_bits(candidates(products, left, right, fusion.target))
    fusion.schedules = len(plans)
    chosen = plans[min(fusion.schedule, len(plans) - 1)]
    factors = [
        packed(fusion, products, chosen, factor, found) if copy else factor
        for factor, found, copy in zip((products.left, products.right), (left, right), chosen.packed, strict=True)
    ]
    if chosen.cut is None and not _ends_apart(fusion, products, chosen):
        _Kernel(fusion, products, chosen, factors[0], factors[1]).write()
        return
    count = 1 if chosen.cut is None else chosen.cut.parts
    parts = fusion.new_scratch(sum_dtype(products.compute), count * product_of(products.shape))
    _Kernel(fusion, products, chosen, factors[0], factors[1], parts).write()
    if chosen.cut is None or chosen.cut.parts > 1:
        _join_parts(fusion, products, count, parts)


def copies_along(fusion: Fusion, products: Products, name: str) -> bool:
    """Whether the right factor would be copied so that lanes along the axis of this name lie side by side."""
    left, right = (access(fusion, factor, products.axes) for factor in (products.left, products.right))
    first = candidates(products, left, right, fusion.target, most=1)[0]
    return first.packed[1] and not first.folded and first.lanes is not None and first.lanes.name == name


def _ends_apart(fusion: Fusion, products: Products, chosen: Plan) -> bool:
    """Whether what follows the sums has a kernel of its own: where they are folded from lanes it would be done one by
    one, which expensive work should not be."""
    lanes = fusion.target.vector_bytes // products.exact.itemsize
    if not (chosen.folded or chosen.lanes is None) or not products.whole or product_of(products.shape) < lanes:
        return False
    assert fusion.hero is not None
    known: set[Any] = set(fusion.hero.outvars)
    weight = 0.0
    for equation in fusion.jaxpr.eqns:
        if any(a in known for a in equation.invars):
            known.update(equation.outvars)
            weight += weight_of(equation)
    return weight > fusion.target.fusion.cheap_weight


def result_pairs(fusion: Fusion) -> list[tuple[int, int]]:
    """Arguments that follow a sum of products at its own index, and whose memory the result may take."""
    return pointwise_pairs(fusion.jaxpr) if len(fusion.jaxpr.outvars) == 1 else []


def _join_parts(fusion: Fusion, products: Products, count: int, number: int) -> None:
    """A kernel that adds the sums of all parts, in order, and goes on from there."""
    writer = fusion.writer("join")
    size = product_of(products.shape)

    def body(index: tuple[Index, ...]) -> None:
        given = iter(index)
        full = tuple(Index() if d == 1 else next(given) for d in products.shape)
        total: Value | None = None
        for part in range(count):
            place = row_major(products.shape, full) + part * size
            value = writer.k.load(writer.scratch_input(number), place)
            total = value if total is None else joined(writer, total, value, products.compute)
        assert total is not None
        store_at(writer, products, full, total)

    nest(writer.k, [d for d in products.shape if d != 1], writer.lanes, body)


@dataclass(frozen=True)
class _Level:
    """A loop around the tiles: its number of turns, and where a turn is."""

    count: int
    enter: Callable[[Spot, Index], Spot]
    limit: Callable[[Spot], Index | None] = lambda spot: None


class _Kernel:
    """One kernel while it is written."""

    def __init__(
        self, fusion: Fusion, products: Products, chosen: Plan, left: Factor, right: Factor, parts: int | None = None
    ) -> None:
        # Merging would make one long loop over lanes of panels that threads are to share.
        self.writer = fusion.writer("products", final=True)
        self.k: KernelBuilder = self.writer.k
        self.products, self.plan, self.left, self.right = products, chosen, left, right
        self.parts, self.cut = parts, chosen.cut
        self.dtype = sum_dtype(products.compute)
        self.target = fusion.target
        self.free_lanes = None if chosen.folded else chosen.lanes
        # The first tile may have an edge; a second one divides its axis.
        self.tile: ContractionAxis | None = None
        self.height, self.whole, self.edge = 1, 1, 0
        if chosen.tiles:
            self.tile, self.height = chosen.tiles[0]
            self.whole, self.edge = divmod(self.tile.size, self.height)
        self.block = self.tiles_of_block()
        self.blocks = max(1, -(-self.whole // self.block))
        lanes = self.free_lanes
        self.panels = -(-lanes.size // chosen.width) if lanes is not None else 1
        self.group = min(chosen.blocks.panels, self.panels) if chosen.blocks is not None else 1
        # Where the loops are: the place of a block, of a part and of a chunk of the depth.
        self.at_block = Index()
        self.at_part = Index()
        self.at_chunk: dict[ContractionAxis, Index] = {}
        # 1 in the last chunk, else 0.
        self.last = Index()

    def tiles_of_block(self) -> int:
        """Tiles that go together: all, if there is little work or enough else to share it by."""
        if self.plan.blocks is not None:
            return max(1, min(self.plan.blocks.tiles, self.whole))
        if self.products.multiplications < self.target.matmul.shared_work or self.cut is not None:
            return self.whole
        tiled = {axis for axis, _ in self.plan.tiles}
        others = product_of(a.size for a in self.products.free if a not in tiled and a is not self.free_lanes)
        if others >= self.target.matmul.tasks:
            return self.whole
        wanted = max(1, BLOCK_ROWS // self.height)
        blocks = -(-self.whole // wanted)
        return -(-self.whole // blocks)

    # -- the loops around --------------------------------------------------------------------------------------------

    def write(self) -> None:
        levels = self.levels()
        shared: list[_Level] = []
        # Parts of the depth are shared alone, so that what they read is in the cache for all else.
        enough = self.target.matmul.tasks if self.cut is None or self.cut.parts < 4 else 2
        while levels and product_of(level.count for level in shared) < enough:
            shared.append(levels.pop(0))
        counts = [level.count for level in shared]
        with ExitStack() as stack:
            turn = Index()
            if product_of(counts) > 1:
                turn = Index.of(stack.enter_context(self.k.loop(product_of(counts), kind=LoopKind.THREADS)))
            spot = Spot({})
            for level, index in zip(shared, unravelled(self.k, turn, counts), strict=True):
                spot = level.enter(spot, index)
            self.chunks(stack)
            for level in levels:
                index, limit = Index(), level.limit(spot)
                if level.count > 1:
                    index = Index.of(stack.enter_context(self.k.loop(level.count, limit=limit)))
                spot = level.enter(spot, index)
            self.panel(spot)

    def levels(self) -> list[_Level]:
        """The loops around a panel of tiles, outermost first."""
        levels: list[_Level] = []
        if self.cut is not None and self.cut.parts > 1:
            levels.append(_Level(self.cut.parts, self.enter_part))
        tiled = {axis for axis, _ in self.plan.tiles}
        for axis in self.products.free:
            if axis not in tiled and axis is not self.free_lanes:
                levels.append(_Level(axis.size, lambda spot, i, axis=axis: spot.at(axis, i)))  # type: ignore[misc]
        for axis, height in self.plan.tiles[1:]:
            levels.append(
                _Level(axis.size // height, lambda spot, i, a=axis, h=height: spot.at(a, i * h))  # type: ignore[misc]
            )
        levels.append(_Level(self.blocks, self.enter_block))
        if self.free_lanes is not None:
            panels, group = self.panels, self.group
            levels.append(_Level(-(-panels // group), lambda spot, i: Spot(spot.places, i * group, spot.lane)))

            def left(spot: Spot) -> Index | None:
                return Index(panels) - spot.panel if panels % group else None

            if group > 1:
                levels.append(_Level(group, lambda spot, i: Spot(spot.places, spot.panel + i, spot.lane), left))
        return levels

    def enter_part(self, spot: Spot, index: Index) -> Spot:
        self.at_part = index
        return spot

    def enter_block(self, spot: Spot, index: Index) -> Spot:
        self.at_block = index
        return spot

    def chunks(self, stack: ExitStack) -> None:
        """The loops over chunks of the depth, where it is cut; they stand around all tiles, which go on summing."""
        if self.cut is None or self.parts is None:
            return
        depth, ends = self.plan.depth, []
        for position, axis in enumerate(depth[: self.cut.axis + 1]):
            first = position == 0
            count = self.cut.length if first else axis.size
            chunk = self.cut.chunk if position == self.cut.axis else 1
            if count <= chunk:
                continue
            start = self.at_part * self.cut.length if first else Index()
            uneven = first and axis.size % self.cut.length
            limit = Index(axis.size) - start if uneven else None
            turn = stack.enter_context(self.k.loop(count, step=chunk, limit=limit))
            self.at_chunk[axis] = Index.of(turn)
            if self.cut.parts == 1:
                ends.append(self.k.compute("ge", self.k.position(turn + chunk), self.k.constant(count, "int64")))
        if ends:
            last = ends[0]
            for end in ends[1:]:
                last = self.k.compute("and", last, end)
            self.last = Index.of(self.k.scalars.convert(last, np.dtype(np.int64)))

    # -- one panel ---------------------------------------------------------------------------------------------------

    def panel(self, spot: Spot) -> None:
        """All lanes of a panel, whole or at the edge."""
        axis, width = self.free_lanes, self.plan.width
        if axis is None:
            self.tiles(spot)
            return
        whole, rest = divmod(axis.size, width)
        if not rest or self.target.masks:
            limit = Index(axis.size) - spot.panel * width if rest else None
            self.lanes(spot, axis, width, limit)
            return
        if not whole:
            self.pieces(spot, axis, rest)
            return
        at_edge = self.k.compute("ge", self.k.position(spot.panel), self.k.constant(whole, "int64"))
        with self.k.when(self.k.compute("not", at_edge)):
            self.lanes(spot, axis, width, None)
        with self.k.when(at_edge):
            self.pieces(Spot(spot.places, Index(whole)), axis, rest)

    def pieces(self, spot: Spot, axis: ContractionAxis, rest: int) -> None:
        """The lanes at the edge, without masks: full registers, then what is less than one."""
        start, register = 0, lanes_of(self.target, self.dtype)
        while start < rest:
            left = rest - start
            width = left if left < register else register << ((left // register).bit_length() - 1)
            self.lanes(spot, axis, width, None, start)
            start += width

    def lanes(self, spot: Spot, axis: ContractionAxis, width: int, limit: Index | None, start: int = 0) -> None:
        with self.k.loop(width, kind=LoopKind.LANES, width=width, limit=limit) as j:
            there = Spot(spot.places, spot.panel, j + start)
            self.tiles(there.at(axis, spot.panel * self.plan.width + start + j))

    def tiles(self, spot: Spot) -> None:
        """The tiles of a block, and the one at the edge after the last of them."""
        k, last = self.k, self.at_block - (self.blocks - 2)
        if self.tile is None:
            self.sums(spot, self.offsets(1))
            return
        if self.whole:
            first = self.at_block * self.block
            limit = Index(self.whole) - first if self.whole % self.block else None
            with ExitStack() as stack:
                turn = stack.enter_context(k.loop(self.block, limit=limit)) if self.block > 1 else Index()
                self.sums(spot.at(self.tile, (first + turn) * self.height), self.offsets(self.height))
        if self.edge:
            with ExitStack() as stack:
                if self.blocks > 1:
                    stack.enter_context(k.loop(1, limit=last))
                self.sums(spot.at(self.tile, Index(self.whole * self.height)), self.offsets(self.edge))

    def offsets(self, height: int) -> list[Offsets]:
        """The places in a tile."""
        heights = [(axis, h) for axis, h in self.plan.tiles]
        if heights:
            heights[0] = (heights[0][0], height)
        ranges = [[(axis, n) for n in range(h)] for axis, h in heights]
        return list(itertools.product(*ranges))

    # -- one tile ----------------------------------------------------------------------------------------------------

    def sums(self, spot: Spot, offsets: Sequence[Offsets]) -> None:
        """Sum all places of a tile and write them."""
        spots = [self.shifted(spot, offset) for offset in offsets]
        zero = self.k.constant(0, self.dtype)
        if self.cut is None or self.plan.folded:
            totals: Sequence[Value] = [zero] * len(spots)
        else:
            totals = [self.summed_before(there, zero) for there in spots]
        if all(axis.size for axis in self.plan.depth):
            totals = self.depth(0, spots, totals)
        if self.plan.folded:
            totals = [self.k.reduce_lanes(fold_of(self.products.compute), total, self.plan.width) for total in totals]
        if self.parts is None:
            self.finish(spots, totals)
            return
        if self.plan.folded and self.at_chunk:
            before = [self.summed_before(there, zero) for there in spots]
            totals = [joined(self.writer, b, t, self.products.compute) for b, t in zip(before, totals, strict=True)]
        if self.cut is None or self.cut.parts > 1:
            self.keep(spots, totals)
            return
        # After the last chunk the sums are what follows works on; before it they wait for the next one.
        with self.k.loop(1, limit=Index(1) - self.last):
            self.keep(spots, totals)
        with self.k.loop(1, limit=self.last):
            self.finish(spots, totals)

    def keep(self, spots: Sequence[Spot], totals: Sequence[Value]) -> None:
        """Write sums that are not all of it."""
        assert self.parts is not None
        for there, total in zip(spots, totals, strict=True):
            self.k.store(self.writer.scratch(self.parts), self.partial(there), total)

    def finish(self, spots: Sequence[Spot], totals: Sequence[Value]) -> None:
        for there, total in zip(spots, totals, strict=True):
            finish(self.writer, self.products, there.places, total)

    def shifted(self, spot: Spot, offset: Offsets) -> Spot:
        places = dict(spot.places)
        for axis, n in offset:
            places[axis] = places[axis] + n
        return Spot(places, spot.panel, spot.lane)

    def partial(self, spot: Spot) -> Index:
        """Where the sum of this part is kept."""
        return self.products.position(spot.places) + self.at_part * product_of(self.products.shape)

    def summed_before(self, spot: Spot, zero: Value) -> Value:
        """The sum of the chunks before this one."""
        assert self.parts is not None
        if not self.at_chunk:
            return zero
        turns = Index()
        for index in self.at_chunk.values():
            turns = turns + index
        begun = self.k.compute("gt", self.k.position(turns), self.k.constant(0, "int64"))
        return self.k.load(self.writer.scratch(self.parts), self.partial(spot), begun, zero)

    def depth(self, position: int, spots: Sequence[Spot], totals: Sequence[Value]) -> Sequence[Value]:
        """The sums after the loops over the depth from a position on."""
        if position == len(self.plan.depth):
            return [self.product(spot, total) for spot, total in zip(spots, totals, strict=True)]
        axis = self.plan.depth[position]
        count, start, limit = self.span(position, axis)
        if limit is None and (count == 1 or self.unrolled(position, len(totals))):
            for place in range(count):
                totals = self.depth(position + 1, [s.at(axis, start + place) for s in spots], totals)
            return totals
        lanes = self.plan.folded and axis is self.plan.lanes
        kind, width = (LoopKind.LANES, self.plan.width) if lanes else (LoopKind.SERIAL, 1)
        with self.k.loop(count, kind=kind, width=width, carries=totals, limit=limit) as (i, inside):
            there = [spot.at(axis, start + i) for spot in spots]
            return self.k.carry(*self.depth(position + 1, there, inside))

    def unrolled(self, position: int, sums: int) -> bool:
        """Whether the rest of the depth is written out: where it is short, and the tile small."""
        terms = product_of(axis.size for axis in self.plan.depth[position:])
        return not self.plan.folded and terms <= UNROLLED_TERMS and terms * sums <= UNROLLED_SUMS

    def span(self, position: int, axis: ContractionAxis) -> tuple[int, Index, Index | None]:
        """How many places of a depth axis are summed here, from where on, and what limits them at the end."""
        if self.cut is None or position > self.cut.axis:
            return axis.size, Index(), None
        start = self.at_chunk.get(axis, Index())
        end = self.cut.length if position == 0 else axis.size
        count = self.cut.chunk if position == self.cut.axis else 1
        count = end if axis not in self.at_chunk else count
        limit = Index(end) - start if end % count else None
        if position == 0:
            offset = self.at_part * self.cut.length
            start = start + offset
            if axis.size % self.cut.length:
                if limit is not None:
                    least = self.k.compute("min", self.k.position(limit), self.k.position(Index(axis.size) - start))
                    return count, start, Index.of(least)
                limit = Index(axis.size) - start
        return count, start, limit

    def product(self, spot: Spot, total: Value) -> Value:
        left, right = self.left(self.writer, spot), self.right(self.writer, spot)
        return multiply_add(self.writer, left, right, total, self.products.compute)


def unravelled(k: KernelBuilder, turn: Index, counts: Sequence[int]) -> list[Index]:
    """The places along several loops from that in all of them as one."""
    if sum(count > 1 for count in counts) <= 1:
        return [turn if count > 1 else Index() for count in counts]
    places: list[Index] = []
    rest = k.position(turn)
    for count in reversed(counts[1:]):
        size = k.constant(count, "int64")
        places.append(Index.of(k.compute("rem", rest, size)) if count > 1 else Index())
        rest = k.compute("div", rest, size) if count > 1 else rest
    return [Index.of(rest), *reversed(places)]
