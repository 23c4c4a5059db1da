"""Reductions of the kinds row, column and all: any number of them over one space, and what is computed before and
after.

Results are of the full space (what is reduced) or of its free axes. Reductions that need the results of others make
further passes over the same row (see `row.py`). How a single pass is parallelized follows from the shape alone:

* enough rows or columns: one kernel, vectors along the last axis;
* few of them, and long: blocks of the reduced axis have partial results, which a second kernel combines in order;
* long columns side by side: rows are read as they lie in memory, and accumulators are an array that stays in cache;
  threads of a GPU have some columns each, and read some rows at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.compiler.emit.emission import Emission, Fusion, KernelWriter, storage
from weft.compiler.emit.reductions.reduction_space import (
    ENOUGH_ITERATIONS,
    LEAST_GROUP,
    MEDIUM_WORK,
    MOST_BLOCKS,
    STREAMED_WORK,
    AxisIndices,
    CollapsedAxis,
    ReductionSchedule,
    ReductionSpace,
    collapse,
    free_nest,
    group_block,
    group_schedule,
    register_lanes,
    schedule,
    should_split,
    size_of_axes,
    split_block,
    width_for,
)
from weft.compiler.emit.reductions.row import Passes
from weft.compiler.emit.values import expand
from weft.compiler.fuse.classify import classify
from weft.compiler.kernel.ir import Index, LoopKind, Value
from weft.ir.jaxpr import Equation
from weft.primitives.families import Reduction

# Binary operation that combines the lanes of a reduction.
LANE_OPERATIONS = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "and", "or": "or", "xor": "xor"}
# Rows that go into an array of accumulators together, and elements of such an array.
GROUP, TILE = 8, 2048
# Threads of a GPU that have some columns of a block of rows each, where the work for an element is light, and where it
# is not: the rows that one reads at once, how many of them keep it busy, and the least rows of a block.
LIGHT_COLUMNS, HEAVY_COLUMNS = (8, 1 << 16, 32), (4, 1 << 17, 16)
# Partial results of a column from which a group of threads adds them, and its lanes.
LEAST_TOGETHER, TOGETHER_LANES = 64, 128


@dataclass(frozen=True)
class Hero:
    """Reduction in a fusion: its equation and the dtypes of its operand and accumulator."""

    equation: Equation
    primitive: Reduction
    exact: np.dtype[Any]
    wide: np.dtype[Any]

    @staticmethod
    def of(equation: Equation) -> Hero:
        """Describe the reduction of an equation."""
        primitive = equation.primitive
        if not isinstance(primitive, Reduction):
            raise InternalError(f"The hero must be a reduction; got `{primitive.name}`.")
        exact = storage(equation.invars[0])
        return Hero(equation, primitive, exact, dtypes.accumulation_dtype(exact))

    @property
    def result(self) -> Any:
        """The value that it defines."""
        return self.equation.outvars[0]

    def neutral(self, empty: bool) -> np.ndarray:
        """Return the initial value of accumulators. It is the result of an empty reduction, where it must be
        representable in the exact dtype.
        """
        found = self.primitive.initial(self.exact) if empty else self.primitive.neutral(self.wide)
        return np.asarray(found).astype(self.wide)


class Reductions:
    """Reductions of a fusion and the space they reduce."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        assert fusion.hero is not None
        properties = classify(fusion.hero, fusion.target)
        if properties.full is None or properties.reduced is None:
            raise InternalError(f"`{fusion.hero.primitive.name}` is no reduction.", stage="emit")
        self.full: tuple[int, ...] = tuple(properties.full)
        self.heroes = [Hero.of(e) for e in fusion.jaxpr.eqns if classify(e, fusion.target).full is not None]
        self.passes = Passes(fusion.jaxpr, [h.equation for h in self.heroes], self.full)
        self.empty = 0 in [self.full[d] for d in properties.reduced]
        self.space = collapse(fusion, self.full, properties.reduced, self._emit_trial)
        self.lanes = register_lanes(fusion)
        self.rows = size_of_axes(self.space.free)
        self.length = size_of_axes(self.space.reduced)

    def plan(self, space: ReductionSpace) -> ReductionSchedule:
        """Choose how loops over a space of these reductions are bound to lanes."""
        most = self.fusion.target.group_lanes
        return group_schedule(space, most, self.passes.count) if most else schedule(space, self.lanes)

    def position(self, block: Index, indices: dict[CollapsedAxis, Index], apart: int = 0) -> Index:
        """Return the offset of the partial result of a block of rows: side by side with the others of the block, or
        with those of the same row if rows are `apart`.
        """
        free = self.space.free_position(indices)
        return free * apart + block if apart else block * self.rows + free

    def _emit_trial(self, writer: KernelWriter, full: Any, free: Any) -> None:
        values = writer.values
        for hero in self.heroes:
            values.overrides[hero.result] = writer.k.constant(0, hero.exact)
        for hero in self.heroes:
            operand = hero.equation.invars[0]
            values.at(operand, expand(operand, full))
        for v in self.fusion.jaxpr.outvars:
            index = full if self.passes.is_full(v) else free
            writer.store(v, index, values.at(v, expand(v, index)))

    # -- one pass --------------------------------------------------------------------------------------------------

    def starts(self, writer: KernelWriter, heroes: Sequence[Hero]) -> list[Value]:
        """Return the accumulators before the first element."""
        return [writer.k.constant(hero.neutral(self.empty), hero.wide) for hero in heroes]

    def step(
        self,
        writer: KernelWriter,
        pass_index: int,
        heroes: Sequence[Hero],
        accumulators: Sequence[Value],
        indices: AxisIndices,
    ) -> list[Value]:
        """Combine one element of the full space into the accumulators; store the results that are known by now."""
        k, values = writer.k, writer.values
        index = self.space.full_index(writer.k, indices)
        with self.passes.reuse_stored(writer, pass_index, index):
            combined = []
            for hero, accumulator in zip(heroes, accumulators, strict=True):
                operand = hero.equation.invars[0]
                element = k.scalars.convert(values.at(operand, expand(operand, index)), hero.wide)
                combined.append(hero.primitive.combine(k.scalars, accumulator, element))
            self.passes.store(writer, pass_index, index)
        return combined

    def read(self, writer: KernelWriter, heroes: Sequence[Hero], indices: AxisIndices) -> None:
        """Compute what reductions read of an element, before others are stored."""
        index = self.space.full_index(writer.k, indices)
        for hero in heroes:
            operand = hero.equation.invars[0]
            writer.values.at(operand, expand(operand, index))

    def store_free(self, writer: KernelWriter, indices: AxisIndices) -> None:
        """Write the results that have the free axes only, when all reductions are known."""
        index = self.space.free_index(writer.k, indices)
        results = [v for v in self.fusion.jaxpr.outvars if not self.passes.is_full(v)]
        values = [writer.values.at(v, expand(v, index)) for v in results]
        for v, value in zip(results, values, strict=True):
            writer.store(v, index, value)

    def set_results(self, writer: KernelWriter, heroes: Sequence[Hero], totals: Sequence[Value]) -> None:
        """Define the results of reductions as the totals."""
        for hero, total in zip(heroes, totals, strict=True):
            writer.values.overrides[hero.result] = writer.k.scalars.convert(total, hero.exact)

    def clear_results(self, writer: KernelWriter) -> None:
        """Invalidate the results of reductions, which are valid at one free index only."""
        for hero in self.heroes:
            writer.values.overrides.pop(hero.result, None)


Step = Callable[[Sequence[Value], dict[CollapsedAxis, Index]], list[Value]]


def reduce_loops(
    writer: KernelWriter,
    heroes: Sequence[Hero],
    starts: Sequence[Value],
    axes: Sequence[CollapsedAxis],
    plan: ReductionSchedule,
    indices: AxisIndices,
    step: Step,
    part: tuple[CollapsedAxis, Index, int] | None = None,
) -> list[Value]:
    """Emit loops over reduced axes; return the accumulators, with lanes combined if vectors went along one of the
    axes. With `part`, only a block of its axis is visited: (axis, first index, size).
    """
    k = writer.k

    def inner(level: int, accumulators: Sequence[Value], indices: dict[CollapsedAxis, Index]) -> list[Value]:
        if level == len(axes):
            return step(accumulators, indices)
        axis = axes[level]
        first, size, limit = Index(), axis.size, None
        if part is not None and part[0] is axis:
            _, first, size = part
            limit = None if axis.size % size == 0 else Index(axis.size) - first
        lanes = axis is plan.lanes
        kind, width = (LoopKind.LANES, plan.width) if lanes else (LoopKind.SERIAL, 1)
        with k.loop(size, kind=kind, width=width, carries=accumulators, limit=limit) as opened:
            i, inside = opened if accumulators else (opened, ())
            finals = inner(level + 1, inside, {**indices, axis: first + i})
            if accumulators:
                finals = list(k.carry(*finals))
        return finals

    totals = inner(0, starts, dict(indices))
    if plan.lanes is None or not plan.lanes.reduced:
        return totals
    return [
        k.reduce_lanes(LANE_OPERATIONS[hero.primitive.combine_name], total, plan.width)
        for hero, total in zip(heroes, totals, strict=True)
    ]


# -------------------------------------------------------------------------------------------------------- the kernels


def emit_reduction(fusion: Fusion) -> Emission:
    """Emit the kernels of a fusion of reductions."""
    reductions = Reductions(fusion)
    plan = reductions.plan(reductions.space)
    single = reductions.passes.count == 1
    if fusion.target.group_lanes:
        axis = max(reductions.space.reduced, key=lambda a: a.size, default=None)
        block = 0 if axis is None else group_block(reductions.space, plan, axis, fusion.target)
        if single and _has_columns(reductions.space):
            _emit_columns(reductions)
        elif single and axis is not None and block < axis.size:
            _emit_split(reductions, plan, block)
        else:
            _emit_whole(reductions, plan)
    elif single and _streams(reductions, plan):
        _emit_streaming(reductions, plan)
    elif single and should_split(reductions.space, plan):
        axis = max(reductions.space.reduced, key=lambda a: a.size)
        _emit_split(reductions, plan, split_block(axis, plan, reductions.rows * reductions.length // axis.size))
    else:
        _emit_whole(reductions, plan)
    return fusion.finish(in_place=reductions.passes.in_place())


def _emit_whole(reductions: Reductions, plan: ReductionSchedule) -> None:
    """Emit one kernel: all passes for each free index."""
    writer = reductions.fusion.writer("reduction", final=True)
    space, passes = reductions.space, reductions.passes
    with free_nest(writer.k, space, plan, reductions.length) as indices:
        for pass_index in range(passes.count):
            heroes = [h for h in reductions.heroes if passes.level(h.equation.invars[0]) == pass_index]

            def step(
                accumulators: Sequence[Value],
                at: dict[CollapsedAxis, Index],
                pass_index: int = pass_index,
                heroes: Any = heroes,
            ) -> Any:
                return reductions.step(writer, pass_index, heroes, accumulators, at)

            starts = reductions.starts(writer, heroes)
            inner = _row_plan(reductions, plan, passes.weight(pass_index))
            reductions.set_results(
                writer, heroes, reduce_loops(writer, heroes, starts, space.reduced, inner, indices, step)
            )
        reductions.store_free(writer, indices)
        reductions.clear_results(writer)


def _row_plan(reductions: Reductions, plan: ReductionSchedule, weight: float) -> ReductionSchedule:
    """Choose the vectors of one pass along a row: as many registers as the work of the pass allows."""
    if plan.lanes is None or not plan.lanes.reduced or reductions.fusion.target.group_lanes:
        return plan
    return ReductionSchedule(plan.lanes, width_for(plan.lanes.size, reductions.lanes, weight))


def _emit_split(reductions: Reductions, plan: ReductionSchedule, block: int) -> None:
    """Emit a kernel with blocks of the longest reduced axis over threads, and one that combines their results."""
    space, heroes = reductions.space, reductions.heroes
    axis = max(space.reduced, key=lambda a: a.size)
    blocks = -(-axis.size // block)
    partial = [reductions.fusion.new_scratch(h.wide, blocks * reductions.rows) for h in heroes]
    writer = reductions.fusion.writer("partial_reduction", final=True)
    k = writer.k
    with k.loop(blocks, kind=LoopKind.THREADS) as b, free_nest(k, space, plan, 0, threads=False) as indices:

        def visit(accumulators: Sequence[Value], at: dict[CollapsedAxis, Index]) -> list[Value]:
            return reductions.step(writer, 0, heroes, accumulators, at)

        part = (axis, Index.of(b) * block, block)
        starts = reductions.starts(writer, heroes)
        totals = reduce_loops(writer, heroes, starts, space.reduced, plan, indices, visit, part)
        for scratch, total in zip(partial, totals, strict=True):
            k.store(writer.scratch(scratch), reductions.position(Index.of(b), indices), total)
    _emit_final(reductions, partial, blocks)


def _has_columns(space: ReductionSpace) -> bool:
    """Return whether columns lie side by side and are reduced along one axis."""
    return len(space.reduced) == 1 and not space.axes[-1].reduced and space.axes[-1].size >= LEAST_GROUP


def _emit_columns(reductions: Reductions) -> None:
    """Emit a kernel whose threads reduce a few columns of a block of rows each; a second kernel combines several
    blocks."""
    space, heroes, target = reductions.space, reductions.heroes, reductions.fusion.target
    (axis,), columns = space.reduced, space.axes[-1]
    others = [a for a in space.free if a is not columns]
    most, threads, least = LIGHT_COLUMNS if reductions.passes.weight(0) <= MEDIUM_WORK else HEAVY_COLUMNS
    together = math.gcd(most, axis.size)
    wanted = -(-threads * target.thread_lanes // reductions.rows)
    block = max(together, min(axis.size, max(least, axis.size // wanted)) // together * together)
    blocks = -(-axis.size // block)
    # Groups of threads add the results of blocks, so those of one column are contiguous, in whole vectors.
    apart = -(-blocks // target.thread_lanes) * target.thread_lanes if blocks >= LEAST_TOGETHER else 0
    size = (apart or blocks) * reductions.rows
    partial = [reductions.fusion.new_scratch(h.wide, size) for h in heroes if blocks > 1]
    writer = reductions.fusion.writer("partial_columns" if partial else "columns", final=True)
    k = writer.k
    with ExitStack() as stack:
        piece = Index.of(stack.enter_context(k.loop(blocks, kind=LoopKind.THREADS)))
        indices = {a: Index.of(stack.enter_context(k.loop(a.size))) for a in others}
        lanes = k.loop(columns.size, kind=LoopKind.LANES, width=target.thread_lanes)
        indices[columns] = Index.of(stack.enter_context(lanes))
        row = piece * block
        rest = None if axis.size % block == 0 else Index(axis.size) - row
        starts = reductions.starts(writer, heroes)
        with k.loop(block, step=together, carries=starts, limit=rest) as (r, totals):
            rows = [{**indices, axis: row + r + n} for n in range(together)]
            for at in rows:
                reductions.read(writer, heroes, at)
            for at in rows:
                totals = reductions.step(writer, 0, heroes, totals, at)
            totals = k.carry(*totals)
        for scratch, total in zip(partial, totals, strict=False):
            k.store(writer.scratch(scratch), reductions.position(piece, indices, apart), total)
        if not partial:
            reductions.set_results(writer, heroes, totals)
            reductions.store_free(writer, indices)
            reductions.clear_results(writer)
    if partial:
        _emit_final(reductions, partial, blocks, apart)


def _streams(reductions: Reductions, plan: ReductionSchedule) -> bool:
    """Return whether accumulators should be an array in memory: for long columns side by side, more than fit
    registers.
    """
    lanes, reduced = plan.lanes, reductions.space.reduced
    if lanes is None or lanes.reduced or len(reduced) != 1 or lanes is not reductions.space.axes[-1]:
        return False
    return (
        reductions.rows * reductions.length >= STREAMED_WORK
        and reductions.length >= 8 * GROUP
        and lanes.size > plan.width
    )


def _emit_streaming(reductions: Reductions, plan: ReductionSchedule) -> None:
    """Read rows in the order of memory, a group of them into each vector of accumulators while that is in registers.
    Blocks of rows have accumulators of their own if there are too few columns to share.
    """
    space, heroes, lanes = reductions.space, reductions.heroes, plan.lanes
    assert lanes is not None
    (axis,) = space.reduced
    others = [a for a in space.free if a is not lanes]
    tile = min(TILE, lanes.size)
    tiles = -(-lanes.size // tile)
    pieces = tiles * size_of_axes(others)
    wanted = 1 if pieces >= ENOUGH_ITERATIONS else min(-(-MOST_BLOCKS // (2 * pieces)), -(-axis.size // (4 * GROUP)))
    block = -(-axis.size // (wanted * GROUP)) * GROUP
    blocks = -(-axis.size // block)
    partial = [reductions.fusion.new_scratch(h.wide, blocks * reductions.rows) for h in heroes]
    writer = reductions.fusion.writer("partial_columns", final=True)
    k = writer.k
    sizes: list[tuple[Any, int]] = [("block", blocks), ("tile", tiles), *((a, a.size) for a in others)]
    sizes.sort(key=lambda pair: -pair[1])  # the longest over threads
    with ExitStack() as stack:
        at: dict[Any, Index] = {}
        for level, (what, size) in enumerate(sizes):
            kind = LoopKind.SERIAL if level else LoopKind.THREADS
            at[what] = Index.of(stack.enter_context(k.loop(size, kind=kind)))
        piece = at.pop("block")
        row, first = piece * block, at.pop("tile") * tile
        columns = None if lanes.size % tile == 0 else Index(lanes.size) - first
        rows = None if axis.size % block == 0 else Index(axis.size) - row

        def position(i: Index) -> Index:
            return piece * reductions.rows + space.free_position({**at, lanes: first + i})

        def store(i: Index, values: Sequence[Value]) -> None:
            for scratch, value in zip(partial, values, strict=True):
                k.store(writer.scratch(scratch), position(i), value)

        with k.loop(tile, kind=LoopKind.LANES, width=plan.width, limit=columns) as i:
            store(i, reductions.starts(writer, heroes))
        with (
            k.loop(block, step=GROUP, limit=rows) as group,
            k.loop(tile, kind=LoopKind.LANES, width=plan.width, limit=columns) as i,
        ):
            before = [k.load(writer.scratch(scratch), position(i)) for scratch in partial]
            rest = None if rows is None else rows - group
            with k.loop(GROUP, carries=before, limit=rest) as (r, inside):
                indices = {**at, lanes: first + i, axis: row + group + r}
                totals = k.carry(*reductions.step(writer, 0, heroes, inside, indices))
            store(i, totals)
    _emit_final(reductions, partial, blocks)


def _emit_final(reductions: Reductions, partial: Sequence[int], blocks: int, apart: int = 0) -> None:
    """Emit the second kernel: combine the partial results of blocks in order, and compute the rest from the totals.
    Partial results of a block lie side by side, or, if rows are `apart`, those of a row.
    """
    writer = reductions.fusion.writer("final_reduction", final=True)
    k, heroes = writer.k, reductions.heroes
    axis = CollapsedAxis(-1, (blocks,), reduced=True)
    space = ReductionSpace((axis, *reductions.space.free), 1.0)
    plan = reductions.plan(space)
    if plan.lanes is None and reductions.fusion.target.group_lanes and blocks >= LEAST_TOGETHER:
        plan = ReductionSchedule(axis, TOGETHER_LANES)
    with free_nest(k, space, plan, blocks) as indices:

        def step(accumulators: Sequence[Value], at: dict[CollapsedAxis, Index]) -> list[Value]:
            position = reductions.position(at[axis], at, apart)
            elements = [k.load(writer.scratch_input(scratch), position) for scratch in partial]
            return [
                hero.primitive.combine(k.scalars, accumulator, element)
                for hero, accumulator, element in zip(heroes, accumulators, elements, strict=True)
            ]

        starts = reductions.starts(writer, heroes)
        reductions.set_results(writer, heroes, reduce_loops(writer, heroes, starts, [axis], plan, indices, step))
        reductions.store_free(writer, indices)
        reductions.clear_results(writer)
