"""Planning of a contraction: the axis of lanes, the tile in registers, the operands that are packed first.

A plan is chosen by estimated cycles from shapes and strides alone, so that equal jaxprs have equal code:

- lanes along a free axis: a tile of `height` rows along a second free axis by `width` lanes is summed in registers;
- lanes along an axis of K: a tile of rows along up to two free axes; each sum is reduced over lanes at the end.

An operand that would be gathered or computed repeatedly is first packed into scratch memory in the order in which it is
read. If few results have long sums, K is split: into parts, which threads sum independently, and into chunks, whose
operands stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import inf, log2, prod
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.memo import cached_property
from weft.compiler.emit.contractions.contraction_loops import (
    ContractionAxis,
    ContractionLoops,
    OperandAccess,
    sum_dtype,
)
from weft.compiler.target.target import Target


@dataclass(frozen=True)
class SplitK:
    """Split of K. Parts are `length` long along the first axis of K; chunks run over the axes before `axis` one by
    one, and over `axis` by `chunk` elements."""

    parts: int
    length: int
    axis: int
    chunk: int


@dataclass(frozen=True)
class Blocks:
    """Work of one iteration of the loop over threads: `tiles` along the first tiled axis by `panels` of lanes."""

    tiles: int
    panels: int


class TilingPlan(NamedTuple):
    """Loops of a contraction. Without `lanes` sums are scalars; with `lanes_along_k`, lanes are reduced in the end."""

    lanes: ContractionAxis | None
    width: int
    tiles: tuple[tuple[ContractionAxis, int], ...]
    packed: tuple[bool, bool]
    k_axes: tuple[ContractionAxis, ...]
    lanes_along_k: bool = False
    split_k: SplitK | None = None
    blocks: Blocks | None = None
    cycles: float = 0.0


def storage_lanes(target: Target, dtype: np.dtype[Any]) -> int:
    """Return how many elements one register holds in their storage form. `Target.lanes` counts short floats as
    computed; the parts of complex numbers have separate registers.
    """
    size = dtype.itemsize // (2 if dtypes.kind(dtype) == "c" else 1)
    return max(1, target.vector_bytes // size)


def accumulators(target: Target, dtype: np.dtype[Any]) -> int:
    """Return how many scalars or vectors can be summed in registers, with some left for operands."""
    return target.accumulators // 2 if dtypes.kind(dtype) == "c" else target.accumulators


def fits(target: Target, dtype: np.dtype[Any], height: int, vectors: int) -> bool:
    """Return whether a tile of sums fits the registers, together with one row of an operand and a scalar of the
    other.
    """
    parts = 2 if dtypes.kind(dtype) == "c" else 1
    row = vectors if height > 1 else 2  # what only one sum reads needs no register of its own
    needed = (height * vectors + row + 1) * parts
    return height * vectors <= accumulators(target, dtype) and needed <= target.vector_registers


@lru_cache(maxsize=256)
def heights_that_fit(target: Target, dtype: np.dtype[Any], vectors: int) -> tuple[int, ...]:
    """Return the numbers of rows that a tile of `vectors` vectors may have."""
    return tuple(h for h in target.matmul.heights if fits(target, dtype, h, vectors))


def count_panels(needed: int, vectors: int) -> int:
    """Return the number of panels of `vectors` vectors that cover `needed` vectors."""
    return -(-needed // vectors)


def candidates(
    contraction: ContractionLoops, left: OperandAccess, right: OperandAccess, target: Target, most: int
) -> list[TilingPlan]:
    """Yield plans for every axis of the results that lanes could run along; plans above `limit` cycles may be left
    out."""
    chooser = _chooser(contraction, left, right, target)
    return [chooser.complete(p) for p in chooser.quickest(most)]


def reference_plan(
    contraction: ContractionLoops, left: OperandAccess, right: OperandAccess, target: Target
) -> TilingPlan:
    """Return the plan that determines the order of sums of a contraction."""
    return _chooser(contraction, left, right, target).reference


_cycles, _size = attrgetter("cycles"), attrgetter("size")


def _chain(plan: TilingPlan) -> tuple[Any, ...]:
    """Return the order of sums except for the parts of K."""
    return plan.k_axes, (plan.lanes, plan.width) if plan.lanes_along_k else None


def order_of_sums(plan: TilingPlan) -> tuple[Any, ...]:
    """Return what the bits of a result depend on: the order of the axes of K, lanes along them that are reduced in
    the end, and the parts that are summed separately.
    """
    along_k = (plan.lanes, plan.width) if plan.lanes_along_k else None
    return (
        plan.k_axes,
        along_k,
        (plan.split_k.parts, plan.split_k.length) if plan.split_k and plan.split_k.parts > 1 else None,
    )


def same_bits(plans: Sequence[TilingPlan]) -> list[TilingPlan]:
    """Filter the plans that compute the same bits as the first one."""
    return [p for p in plans if order_of_sums(p) == order_of_sums(plans[0])]


def _chooser(contraction: ContractionLoops, left: OperandAccess, right: OperandAccess, target: Target) -> Chooser:
    strides = contraction.result_strides()
    return Chooser(
        contraction.free, contraction.k_axes, strides, (left, right), contraction.compute, contraction.whole, target
    )


class Chooser:
    """Enumeration of plans with their estimated cycles."""

    def __init__(
        self,
        free: tuple[ContractionAxis, ...],
        k_axes: tuple[ContractionAxis, ...],
        result: dict[ContractionAxis, Any],
        operands: tuple[OperandAccess, OperandAccess],
        compute: np.dtype[Any],
        is_whole: bool,
        target: Target,
    ) -> None:
        self.free, self.result, self.operands, self.is_whole, self.target = free, result, operands, is_whole, target
        # The strides of each operand, by axis.
        self.strides = first, second = operands[0].strides, operands[1].strides
        self.k_axes = k_axes
        if len(k_axes) > 1:
            self.k_axes = tuple(sorted(k_axes, key=lambda a: -(first.get(a, 0) + second.get(a, 0))))
        self.costs = costs = target.matmul
        self.dtype = sum_dtype(compute)
        self.itemsize = self.dtype.itemsize
        # Cycles of one complex multiply-add against those of a real one.
        self.scale = 4.0 if dtypes.kind(self.dtype) == "c" else 1.0
        self.lanes = storage_lanes(target, self.dtype)
        self.terms = self.sums = 1
        self.elements = [1, 1]
        # Number of sums that use each element of an operand.
        self.uses = [1, 1]
        for a in k_axes:
            self.terms *= a.size
        for a in free:
            self.sums *= a.size
        # For each operand, whether steps along K map to few L1 sets, and whether they touch more pages than the L1 DTLB
        # holds.
        self.set_conflicts, self.misses_tlb = [False, False], [False, False]
        for n, strides in enumerate(self.strides):
            for a in free:
                if strides.get(a, 0) == 0:
                    self.uses[n] *= a.size
                if a in strides:
                    self.elements[n] *= a.size
            for a in k_axes:
                if a in strides:
                    self.elements[n] *= a.size
            if self.k_axes and (apart := strides.get(self.k_axes[-1], 0) * self.itemsize):
                rows = self.k_axes[-1].size
                self.set_conflicts[n] = apart % costs.conflict_stride == 0 and rows > costs.conflict_rows
                self.misses_tlb[n] = apart >= costs.page_stride and rows > costs.page_rows

    def quickest(self, most: int) -> list[TilingPlan]:
        """Return plans with the order of sums of the reference plan, fewest cycles first."""
        reference = self.reference
        chain = _chain(reference)
        # The reference plan is one of them, so a caller that wants one plan can skip all slower ones.
        limit = reference.cycles if most == 1 else inf
        plans = self.all_along_k(limit) if reference.lanes_along_k else self.candidates(limit)
        return sorted([p for p in plans if _chain(p) == chain], key=_cycles)[:most] or [reference]

    def candidates(self, limit: float = inf) -> Iterator[TilingPlan]:
        """Plans for every axis of the results that lanes could run along; those that take more cycles than a limit may
        be left out."""
        yield self.scalar()
        free = along = [a for a in self.free if a.size > 1]
        if len(free) > 3:
            # Lanes should read or write contiguously; other axes are worth a look only if no axis is contiguous.
            along = [a for a in free if a.size >= self.lanes and self.is_contiguous(a)] or free
        for axis in along:
            others: list[ContractionAxis | None] = [a for a in free if a is not axis]
            for tile in others or [None]:
                yield from self.tile_plans(axis, tile, self.tile_sizes(axis, tile), limit)

    def all_along_k(self, limit: float = inf) -> Iterator[TilingPlan]:
        """Yield plans with lanes along K; plans above `limit` cycles may be left out."""
        # Lower bound: each sum needs its multiplications and a reduction of lanes.
        least = self.terms * self.scale / (2 * self.lanes) + 8.0 + 2.0 * log2(self.lanes)
        if self.sums * least > limit:
            return
        for axis in self.k_axes:
            if axis.size >= self.lanes:
                yield from self.along_k(axis, limit)

    def is_contiguous(self, axis: ContractionAxis) -> bool:
        """Return whether lanes along an axis would read or write contiguous elements."""
        return bool(self.result[axis] == 1) or any([strides.get(axis, 0) == 1 for strides in self.strides])

    @cached_property
    def reference(self) -> TilingPlan:
        """The plan whose order of sums all have: the one with the fewest cycles of a few that differ in the axis of
        lanes, each with tiles as large as registers allow."""
        tiled: list[TilingPlan] = []
        free = [a for a in self.free if a.size > 1]
        for axis in [a for a in free if self.is_contiguous(a)] or free:
            others = [a for a in free if a is not axis]
            # Rows that only one operand has are read again in the next tile, others are not.
            first, second = self.strides
            alone = [a for a in others if not (first.get(a, 0) and second.get(a, 0))] or others
            tile = max(alone, key=_size, default=None)
            tiled += self.tile_plans(
                axis, tile, self.largest_tile(axis, tile), min([p.cycles for p in tiled], default=inf)
            )
        # The first of equally fast plans wins.
        limit = min([p.cycles for p in tiled], default=inf)
        return min([self.scalar(), *self.all_along_k(limit), *tiled], key=_cycles)

    def largest_tile(self, axis: ContractionAxis, tile: ContractionAxis | None) -> list[tuple[int, int]]:
        """Return (rows, vectors) of the largest tile, with at most as many rows as the axis has; empty if none fits."""
        costs, needed = self.costs, -(-axis.size // self.lanes)
        most = costs.masked_vectors if tile else costs.vectors[-1]
        for vectors in reversed(costs.vectors):
            long = vectors >= 2 * needed or (not self.target.masks and vectors * self.lanes > axis.size)
            if vectors == 1 or (vectors <= most and not long and fits(self.target, self.dtype, 1, vectors)):
                rows, heights = tile.size if tile else 1, heights_that_fit(self.target, self.dtype, vectors)
                return [(next((h for h in reversed(heights) if h <= rows), 1), vectors)]
        return []

    def scalar(self) -> TilingPlan:
        """Return the plan that computes one element at a time, for contractions too small for anything else."""
        cycles = self.sums * (self.terms * 4.0 + 4.0)
        return TilingPlan(None, 1, (), (False, False), self.k_axes, cycles=cycles)

    # -- operands --------------------------------------------------------------------------------------------------

    def choose_copy(self, n: int, axis: ContractionAxis, repeats: float, beside: int) -> tuple[bool, float]:
        """Decide whether to copy an operand first; also return the cycles of the copy or of reading it in place.

        `repeats` is how often the loops, whose lanes are along `axis`, read each element; `beside` is how many
        vectors or scalars of it one iteration of the innermost loop reads.
        """
        costs = self.costs
        operand, strides, elements, repeats = self.operands[n], self.strides[n], self.elements[n], max(repeats, 1.0)
        stride, size = strides.get(axis, 0), elements * self.itemsize
        vector, strided = stride != 0, stride > 1
        lanes = self.lanes if vector else 1
        again = operand.work / lanes + (costs.gather_lane if strided else 0.0)
        if vector:
            again += costs.unaligned / lanes if self.is_unaligned(n, axis) else 0.0
        elif self.set_conflicts[n]:
            again += costs.unaligned if size > 2 * costs.second_cache else costs.set_conflict
        if self.misses_tlb[n]:
            page = (costs.tlb_miss_vector if vector else costs.tlb_miss_scalar) + (
                costs.far_tlb_miss if size > costs.beyond_caches else 0.0
            )
            again += page / (beside * lanes)
        once = (
            operand.work / self.lanes
            + costs.copy
            + (costs.far_copy * self.itemsize if size > costs.beyond_caches else 0.0)
        )
        last = axis if vector or not self.k_axes else self.k_axes[-1]
        if strides.get(last, 0) > 1:
            once += costs.transposed_lane if self.transposes(operand, last) else costs.gather_lane
        direct, copied = again * elements * repeats, once * elements + costs.another_kernel
        return (True, copied) if copied < direct else (False, direct)

    def transposes(self, operand: OperandAccess, last: ContractionAxis) -> bool:
        """Return whether a copy with another last axis can be built from squares transposed in registers."""
        inner = next((a for a, stride in operand.strides.items() if stride == 1), None)
        simple = self.itemsize in (4, 8) and dtypes.kind(self.dtype) != "c"
        return simple and inner is not None and min(inner.size, last.size) >= self.lanes

    def is_unaligned(self, n: int, axis: ContractionAxis) -> bool:
        """Return whether vectors of an operand straddle cache lines, or are evicted by set conflicts."""
        if self.set_conflicts[n]:
            return True
        return any([s % self.lanes for a, s in self.strides[n].items() if a is not axis])

    # -- lanes along a free axis -------------------------------------------------------------------------------------

    def tile_sizes(self, axis: ContractionAxis, tile: ContractionAxis | None) -> Iterator[tuple[int, int]]:
        """Yield the possible (rows along `tile`, vectors along `axis`) of a tile."""
        costs = self.costs
        needed = -(-axis.size // self.lanes)
        for height in costs.heights if tile else (1,):
            if tile and height > tile.size:
                break
            for vectors in costs.vectors:
                if vectors > 1 and (
                    vectors >= 2 * needed or (not self.target.masks and vectors * self.lanes > axis.size)
                ):
                    break
                if not fits(self.target, self.dtype, height, vectors):
                    break
                # The last of several panels is masked, and there are few registers for masks.
                if (
                    vectors > costs.masked_vectors
                    and count_panels(needed, vectors) > 1
                    and axis.size % (vectors * self.lanes)
                ):
                    continue
                yield height, vectors

    def tile_plans(
        self,
        axis: ContractionAxis,
        tile: ContractionAxis | None,
        sizes: Iterable[tuple[int, int]],
        limit: float = inf,
    ) -> Iterator[TilingPlan]:
        """Yield plans for two axes with tiles of the given sizes; plans above `limit` cycles may be left out."""
        costs = self.costs
        needed = -(-axis.size // self.lanes)
        rest = self.sums // (axis.size * (tile.size if tile else 1))
        wide = [strides.get(axis, 0) != 0 for strides in self.strides]
        per_row = [False, False]
        apart = 0
        if tile is not None:
            along = [strides.get(tile, 0) for strides in self.strides]
            per_row, apart = [stride != 0 for stride in along], max(self.result[tile], *along)
        penalty = 1.1 if apart > costs.far else 1.02 if apart > costs.near else 1.0
        store = 1.0
        if self.result[axis] != 1:
            store = self.lanes * (costs.far_scatter_lane if self.result[axis] > costs.near // 4 else costs.scatter_lane)
        around = 10.0 if self.terms > costs.short_sum else 4.0
        for height, vectors in sizes:
            step = self.step(height, vectors, wide, per_row)
            streams = self.terms * vectors * self.target.vector_bytes > costs.first_cache
            step += costs.second_cache_load * vectors if streams else 0.0
            whole, left_over = divmod(tile.size if tile else 1, height)
            ends = self.step(left_over, vectors, wide, per_row) if left_over else 0.0
            one = whole * step + ends
            panels = count_panels(needed, vectors)
            cycles = rest * panels * (self.terms * one + (whole + bool(left_over)) * around)
            cycles += rest * panels * vectors * (tile.size if tile else 1) * (1.0 + store)
            # An edge needs a second body, which matters less the more tiles there are.
            cycles *= (1.0 + 0.06 / (1 + whole // 32) if left_over else 1.0) * penalty
            cycles *= 1.1 if axis.size % (vectors * self.lanes) else 1.0
            if cycles > limit:
                continue
            packed = []
            for n in (0, 1):
                together = (1 if per_row[n] else height) * (1 if wide[n] else vectors * self.lanes)
                beside = vectors if wide[n] else height if per_row[n] else 1
                copy, extra = self.choose_copy(n, axis, self.uses[n] / together, beside)
                packed.append(copy)
                cycles += extra
            tiles = ((tile, height),) if tile is not None else ()
            width = vectors * self.lanes
            width = width if self.target.masks else min(width, axis.size)
            yield TilingPlan(axis, width, tiles, (packed[0], packed[1]), self.k_axes, cycles=cycles)

    def step(self, height: int, vectors: int, wide: list[bool], per_row: list[bool]) -> float:
        """Estimate the cycles of one iteration of the innermost loop, the maximum of its bounds: multiply-adds,
        loads, and instructions in total."""
        costs = self.costs
        loads, shown = 0, 0.0
        for w, r in zip(wide, per_row, strict=True):
            count = (vectors if w else 1) * (height if r else 1)
            loads, shown = loads + count, shown + count * (costs.load if w else costs.broadcast)
        sums = height * vectors
        scale = self.scale
        # Long sums are bound by latency unless there are enough of them.
        waiting = 8 if self.terms > costs.short_sum else 2
        return max(scale * max(sums, waiting) / 2, loads / 2, (scale * sums + loads + 3) / 4.5) + shown

    # -- lanes along K -----------------------------------------------------------------------------------------------

    def along_k(self, axis: ContractionAxis, limit: float = inf) -> Iterator[TilingPlan]:
        """Yield plans with lanes along `axis` of K, for a tile of rows along one axis of each operand. A
        matrix-vector product has rows of one operand only and may take more of them, which keeps the core busy for
        short rows. Plans above `limit` cycles may be left out."""
        costs = self.costs
        tiles: list[tuple[ContractionAxis, int]] = []
        heights: list[int] = []
        budget = min(16, accumulators(self.target, self.dtype))
        for mine, other in (self.strides, self.strides[::-1]):
            own = [a for a in self.free if mine.get(a, 0) and not other.get(a, 0) and a.size > 1]
            best = max(own, key=_size, default=None)
            most = budget // prod(heights)
            height = next(h for h in (4, 3, 2, 1) if h <= most and best.size % h == 0) if best else 1
            heights.append(height)
            if best is not None and height > 1:
                tiles.append((best, height))
        sums = prod(heights)
        registers = next(r for r in (4, 2, 1) if r == 1 or (sums * r <= budget and r * self.lanes <= axis.size))
        yield from self.plan_sums(axis, tiles, heights, registers, limit)
        single = [a for a in self.free if a.size > 1]
        if len(single) == 1 and single[0].size >= 2 * costs.vector_rows <= 2 * budget:
            of_left = self.strides[0].get(single[0], 0) != 0
            yield from self.plan_sums(
                axis,
                [(single[0], costs.vector_rows)],
                [costs.vector_rows, 1] if of_left else [1, costs.vector_rows],
                1,
                limit,
            )

    def plan_sums(
        self,
        axis: ContractionAxis,
        tiles: list[tuple[ContractionAxis, int]],
        heights: list[int],
        registers: int,
        limit: float,
    ) -> Iterator[TilingPlan]:
        """Yield the plan for a tile of sums along K with `registers` registers for each sum, if it is within the
        limit.
        """
        costs = self.costs
        sums = prod(heights)
        iterations = -(-axis.size // (registers * self.lanes)) * (self.terms // axis.size)
        step = max(self.scale * max(sums * registers, 8) / 2, sum(heights) * registers / 2)
        size = self.itemsize
        for n, height in enumerate(heights):
            # The first tile's operand is read as a whole for every row of the other one.
            passing = self.elements[n] if tiles and self.strides[n].get(tiles[0][0], 0) else self.terms * height
            step += (
                height
                * registers
                * (costs.far_load if passing * size > costs.second_cache else costs.second_cache_load)
            )
        reduction = sums * (8.0 + 2.0 * log2(registers * self.lanes))
        cycles = self.sums / sums * (iterations * step + reduction + 10.0)
        if cycles > limit:
            return
        packed = []
        for n, height in enumerate(reversed(heights)):
            copy, extra = self.choose_copy(n, axis, self.uses[n] / height, max(1, heights[n] * registers))
            packed.append(copy)
            cycles += extra
        width = 1 << (registers * self.lanes).bit_length() - 1
        k_axes = (*(a for a in self.k_axes if a is not axis), axis)
        yield TilingPlan(axis, width, tuple(tiles), (packed[0], packed[1]), k_axes, lanes_along_k=True, cycles=cycles)

    def streams(self, best: TilingPlan) -> bool:
        """Return whether a vector is multiplied with rows from beyond the cache that are longer than a panel. Then
        few rows at a time are streamed from end to end, and the sums stay in the cache.
        """
        costs = self.costs
        if best.lanes_along_k or best.lanes is None or len(best.k_axes) != 1 or prod(h for _, h in best.tiles) != 1:
            return False
        matrix = max(self.elements) * self.itemsize
        first, second = self.strides
        rows = max(first.get(best.lanes, 0), second.get(best.lanes, 0)) == 1 and self.sums == best.lanes.size
        return (
            rows
            and best.lanes.size > best.width
            and matrix > costs.second_cache
            and self.terms >= 2 * costs.streamed_rows
        )

    # -- blocks, and splitting K ------------------------------------------------------------------------------------

    def complete(self, best: TilingPlan) -> TilingPlan:
        """Complete a plan with its blocks and the split of K."""
        best = best._replace(split_k=self.choose_split_k(best))
        return best._replace(blocks=self.blocks(best))

    def blocks(self, best: TilingPlan) -> Blocks | None:
        """Choose blocks as large as the cache allows while there are enough to share; return None if something else
        is shared, or there is too little work.
        """
        costs = self.costs
        if best.lanes_along_k or best.lanes is None or not best.tiles or self.terms * self.sums < costs.shared_work:
            return None
        if best.split_k is not None and best.split_k.parts > 1:
            return None
        (tile, height), *_ = best.tiles
        around = self.sums // (tile.size * best.lanes.size)
        if around >= costs.most_tasks:
            return None
        wanted = min(costs.most_tasks, max(costs.tasks, self.terms * self.sums // costs.shared_work // 4))
        rows, panels = max(1, tile.size // height), -(-best.lanes.size // best.width)
        split_k, k_axes = best.split_k, best.k_axes
        if (
            split_k is None
            and self.result[best.lanes] == 1
            and self.terms <= costs.short_k
            and self.sums * self.dtype.itemsize > costs.beyond_caches
            and self.terms * panels * best.width * self.dtype.itemsize <= costs.row_bytes
        ):
            return Blocks(max(1, min(costs.row_tiles, around * rows // wanted)), panels)
        chunk = self.terms if split_k is None else split_k.chunk * prod(a.size for a in k_axes[split_k.axis + 1 :])
        tiles = max(1, min(rows, costs.block_bytes // max(1, chunk * height * self.dtype.itemsize)))
        tiles, group = _even(rows, tiles), _even(panels, min(panels, costs.block_panels))
        while around * -(-rows // tiles) * -(-panels // group) < wanted and (tiles > costs.least_tiles or group > 1):
            if group > 1 and group * best.width >= tiles * height:
                group = _even(panels, group // 2)
            elif tiles > costs.least_tiles:
                tiles = _even(rows, max(costs.least_tiles, tiles // 2))
            else:
                group = _even(panels, group // 2)
        return Blocks(tiles, group)

    def reads_conflict(self, best: TilingPlan) -> bool:
        """Return whether vectors are read in place from rows that fall into few sets of the cache or lie on a page
        each.
        """
        lanes = best.lanes
        assert lanes is not None
        return any(
            strides.get(lanes, 0) and not copied and (self.set_conflicts[n] or self.misses_tlb[n])
            for n, (strides, copied) in enumerate(zip(self.strides, best.packed, strict=True))
        )

    def choose_split_k(self, best: TilingPlan) -> SplitK | None:
        """Split K where threads would have too little to share, or where operands leave the cache."""
        costs = self.costs
        if not best.k_axes or best.lanes is None or not self.is_whole:
            return None
        if self.streams(self.reference):
            parts = min(costs.tasks, self.terms // costs.streamed_rows)
            length = -(-self.terms // (parts * costs.streamed_rows)) * costs.streamed_rows
            return SplitK(-(-self.terms // length), length, 0, costs.streamed_rows)
        if self.terms * self.sums < costs.shared_work:
            return None
        size = self.dtype.itemsize
        first = best.k_axes[0]
        rows = not best.lanes_along_k and any(axis.size > height for axis, height in best.tiles)
        far = rows and self.terms * best.width * size > costs.panel_bytes
        conflict = rows and len(best.k_axes) == 1 and self.reads_conflict(best)
        parts, length, _ = self.parts
        if conflict and parts == 1:
            return SplitK(1, first.size, 0, costs.conflict_chunk)
        if parts == 1 and not far:
            return None
        if not far:
            return SplitK(parts, length, 0, length) if parts > 1 else None
        return self.split_chunks(best, parts, length)

    @cached_property
    def parts(self) -> tuple[int, int, int]:
        """Into how many parts the first axis of K is split for threads, how long each is, and how many were wanted: as
        the reference plan wants it, since bits depend on it."""
        best, costs, size = self.reference, self.costs, self.dtype.itemsize
        first, parts = best.k_axes[0], 1
        iterations = self.sums / prod(h for _, h in best.tiles)
        iterations = iterations if best.lanes_along_k else iterations / best.width
        few = iterations < costs.tasks and self.terms >= 4 * costs.tasks
        rows = not best.lanes_along_k and any(axis.size > height for axis, height in best.tiles)
        far = rows and self.terms * best.width * size > costs.panel_bytes
        conflict = rows and len(best.k_axes) == 1 and self.reads_conflict(best)
        if few or (far and not conflict and self.sums * size <= costs.second_cache):
            least = best.width * 4 if best.lanes_along_k and best.lanes is first else 1
            parts = max(1, min(costs.tasks, first.size // least))
        length = part_length(first.size, parts, best)
        return -(-first.size // length), length, parts

    def split_chunks(self, best: TilingPlan, parts: int, length: int) -> SplitK:
        """Split parts of K into chunks such that a panel stays in the cache."""
        costs, size = self.costs, self.dtype.itemsize
        inside, position = 1, len(best.k_axes) - 1
        # A part is summed by one thread through one panel; else a panel is used by one block at a time.
        room = costs.first_cache if parts > 1 else costs.panel_bytes
        while position > 0 and inside * best.k_axes[position].size * best.width * size <= room:
            inside *= best.k_axes[position].size
            position -= 1
        whole = length if position == 0 else best.k_axes[position].size
        chunk = max(1, min(whole, room // (inside * best.width * size)))
        chunk = -(-whole // -(-whole // chunk))
        return SplitK(parts, length, position, chunk)


def part_length(size: Any, parts: int, plan: TilingPlan) -> Any:
    """Return the length of each of `parts` parts of the first axis of K, in whole vectors if it has the lanes."""
    length = -(-size // parts)
    if plan.lanes_along_k and plan.lanes is plan.k_axes[0]:
        length = -(-length // plan.width) * plan.width
    return length


def _even(size: int, most: int) -> int:
    """Return the size of equal pieces of `size`, at most `most`."""
    return -(-size // -(-size // max(1, most)))
