"""Folds of the kinds row, column and all: any number of reductions over one space, and what is made before and of them.

Results are of the full space (what was folded) or of the kept one. Reductions that need the results of others make
further passes over the same row (see `row.py`). How a single pass is shared out follows from the shape alone:

* enough rows or columns: one kernel, vectors along the last axis;
* few of them, and long: blocks of what is folded give partial results, which a second kernel folds in order;
* long columns side by side: rows are read as they lie in memory, and accumulators are an array that stays in cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.emit.emission import Emission, Fusion, Writer, storage
from weft.compiler.emit.reductions.folding import (
    ENOUGH_TURNS,
    MOST_BLOCKS,
    STREAMED_WORK,
    AxisIndices,
    CollapsedAxis,
    Schedule,
    Space,
    collapsed,
    kept_nest,
    register_lanes,
    schedule,
    should_split,
    size_of_axes,
    split_block,
    width_for,
)
from weft.compiler.emit.reductions.row import Passes
from weft.compiler.emit.values import expanded
from weft.compiler.fuse.classify import classify
from weft.compiler.kernel.ir import Index, LoopKind, Value
from weft.ir.jaxpr import Equation
from weft.primitives.families import Reduction

# The binary operation by which lanes of a reduction are folded.
FOLDS = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "and", "or": "or", "xor": "xor"}
# Rows that go into an array of accumulators together, and elements of such an array.
GROUP, TILE = 8, 2048


@dataclass(frozen=True)
class Hero:
    """A reduction in a fusion: its equation and the dtypes it is given and accumulates in."""

    equation: Equation
    card: Reduction
    exact: np.dtype[Any]
    wide: np.dtype[Any]

    @staticmethod
    def of(equation: Equation) -> Hero:
        """The reduction of an equation."""
        card = equation.primitive
        if not isinstance(card, Reduction):
            raise InternalError(f"`{card.name}` is no reduction.")
        exact = storage(equation.invars[0])
        return Hero(equation, card, exact, dtypes.accumulation_dtype(exact))

    @property
    def result(self) -> Any:
        """The value that it gives."""
        return self.equation.outvars[0]

    def neutral(self, empty: bool) -> np.ndarray:
        """What the fold starts from. Of nothing it is the result, so that it must be a number of the exact dtype."""
        found = self.card.initial(self.exact) if empty else self.card.neutral(self.wide)
        return np.asarray(found).astype(self.wide)


class Folds:
    """The reductions of a fusion and the space they fold."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        assert fusion.hero is not None
        properties = classify(fusion.hero, fusion.target)
        if properties.full is None or properties.reduced is None:
            raise InternalError(f"`{fusion.hero.primitive.name}` folds nothing.", stage="emit")
        self.full: tuple[int, ...] = tuple(properties.full)
        self.heroes = [Hero.of(e) for e in fusion.jaxpr.eqns if classify(e, fusion.target).full is not None]
        self.passes = Passes(fusion.jaxpr, [h.equation for h in self.heroes], self.full)
        self.empty = 0 in [self.full[d] for d in properties.reduced]
        self.space = collapsed(fusion, self.full, properties.reduced, self._ask)
        self.lanes = register_lanes(fusion)
        self.rows = size_of_axes(self.space.kept)
        self.length = size_of_axes(self.space.folded)

    def _ask(self, writer: Writer, full: Any, kept: Any) -> None:
        values = writer.values
        for hero in self.heroes:
            values.overrides[hero.result] = writer.k.constant(0, hero.exact)
        for hero in self.heroes:
            operand = hero.equation.invars[0]
            values.at(operand, expanded(operand, full))
        for v in self.fusion.jaxpr.outvars:
            index = full if self.passes.is_full(v) else kept
            writer.store(v, index, values.at(v, expanded(v, index)))

    # -- one pass --------------------------------------------------------------------------------------------------

    def starts(self, writer: Writer, heroes: Sequence[Hero]) -> list[Value]:
        """The accumulators before anything was folded."""
        return [writer.k.constant(hero.neutral(self.empty), hero.wide) for hero in heroes]

    def step(
        self, writer: Writer, number: int, heroes: Sequence[Hero], accumulators: Sequence[Value], places: AxisIndices
    ) -> list[Value]:
        """One element of the full space: accumulators after it; results that are known by now are stored."""
        k, values = writer.k, writer.values
        index = self.space.full_index(writer.k, places)
        with self.passes.kept_values(writer, number, index):
            made = []
            for hero, accumulator in zip(heroes, accumulators, strict=True):
                operand = hero.equation.invars[0]
                element = k.scalars.convert(values.at(operand, expanded(operand, index)), hero.wide)
                made.append(hero.card.combine(k.scalars, accumulator, element))
            self.passes.store(writer, number, index)
        return made

    def store_kept(self, writer: Writer, places: AxisIndices) -> None:
        """Write the results of the kept space, when all folds are known."""
        index = self.space.kept_index(writer.k, places)
        results = [v for v in self.fusion.jaxpr.outvars if not self.passes.is_full(v)]
        made = [writer.values.at(v, expanded(v, index)) for v in results]
        for v, value in zip(results, made, strict=True):
            writer.store(v, index, value)

    def know(self, writer: Writer, heroes: Sequence[Hero], totals: Sequence[Value]) -> None:
        """Let results of reductions be what was accumulated."""
        for hero, total in zip(heroes, totals, strict=True):
            writer.values.overrides[hero.result] = writer.k.scalars.convert(total, hero.exact)

    def forget(self, writer: Writer) -> None:
        """Results of reductions are known at one kept index only."""
        for hero in self.heroes:
            writer.values.overrides.pop(hero.result, None)


Step = Callable[[Sequence[Value], dict[CollapsedAxis, Index]], list[Value]]


def fold_loops(
    writer: Writer,
    heroes: Sequence[Hero],
    starts: Sequence[Value],
    axes: Sequence[CollapsedAxis],
    plan: Schedule,
    places: AxisIndices,
    step: Step,
    cut: tuple[CollapsedAxis, Index, int] | None = None,
) -> list[Value]:
    """The accumulators after loops over folded axes, with lanes folded where vectors went along one of them. Of the
    axis of a `cut` only a block is visited: so many elements from an index on."""
    k = writer.k

    def inner(number: int, accumulators: Sequence[Value], places: dict[CollapsedAxis, Index]) -> list[Value]:
        if number == len(axes):
            return step(accumulators, places)
        axis = axes[number]
        first, size, limit = Index(), axis.size, None
        if cut is not None and cut[0] is axis:
            _, first, size = cut
            limit = None if axis.size % size == 0 else Index(axis.size) - first
        lanes = axis is plan.lanes
        kind, width = (LoopKind.LANES, plan.width) if lanes else (LoopKind.SERIAL, 1)
        with k.loop(size, kind=kind, width=width, carries=accumulators, limit=limit) as opened:
            i, inside = opened if accumulators else (opened, ())
            finals = inner(number + 1, inside, {**places, axis: first + i})
            if accumulators:
                finals = list(k.carry(*finals))
        return finals

    totals = inner(0, starts, dict(places))
    if plan.lanes is None or not plan.lanes.folded:
        return totals
    return [
        k.reduce_lanes(FOLDS[hero.card.combine_name], total, plan.width)
        for hero, total in zip(heroes, totals, strict=True)
    ]


# -------------------------------------------------------------------------------------------------------- the kernels


def emit_reduction(fusion: Fusion) -> Emission:
    """The kernels of a fusion of reductions."""
    folds = Folds(fusion)
    plan = schedule(folds.space, folds.lanes)
    single = folds.passes.count == 1
    if single and _streams(folds, plan):
        _emit_streamed(folds, plan)
    elif single and should_split(folds.space, plan):
        _emit_split(folds, plan)
    else:
        _emit_whole(folds, plan)
    return fusion.finish(in_place=folds.passes.in_place())


def _emit_whole(folds: Folds, plan: Schedule) -> None:
    """One kernel: all passes for each kept index."""
    writer = folds.fusion.writer("reduction", final=True)
    space, passes = folds.space, folds.passes
    with kept_nest(writer.k, space, plan, folds.length) as places:
        for number in range(passes.count):
            heroes = [h for h in folds.heroes if passes.level(h.equation.invars[0]) == number]

            def step(
                accumulators: Sequence[Value],
                at: dict[CollapsedAxis, Index],
                number: int = number,
                heroes: Any = heroes,
            ) -> Any:
                return folds.step(writer, number, heroes, accumulators, at)

            starts = folds.starts(writer, heroes)
            inner = _row_plan(folds, plan, passes.weight(number))
            folds.know(writer, heroes, fold_loops(writer, heroes, starts, space.folded, inner, places, step))
        folds.store_kept(writer, places)
        folds.forget(writer)


def _row_plan(folds: Folds, plan: Schedule, weight: float) -> Schedule:
    """The vectors of one pass along a row: as many registers as its own work allows."""
    if plan.lanes is None or not plan.lanes.folded:
        return plan
    return Schedule(plan.lanes, width_for(plan.lanes.size, folds.lanes, weight))


def _emit_split(folds: Folds, plan: Schedule) -> None:
    """Blocks of the longest folded axis over threads, and a second kernel that folds what they give."""
    space, heroes = folds.space, folds.heroes
    axis = max(space.folded, key=lambda a: a.size)
    block = split_block(axis, plan, folds.rows * folds.length // axis.size)
    blocks = -(-axis.size // block)
    partial = [folds.fusion.new_scratch(h.wide, blocks * folds.rows) for h in heroes]
    writer = folds.fusion.writer("partial_reduction", final=True)
    k = writer.k
    with k.loop(blocks, kind=LoopKind.THREADS) as b, kept_nest(k, space, plan, 0, threads=False) as places:

        def visit(accumulators: Sequence[Value], at: dict[CollapsedAxis, Index]) -> list[Value]:
            return folds.step(writer, 0, heroes, accumulators, at)

        cut = (axis, Index.of(b) * block, block)
        starts = folds.starts(writer, heroes)
        totals = fold_loops(writer, heroes, starts, space.folded, plan, places, visit, cut)
        for number, total in zip(partial, totals, strict=True):
            k.store(writer.scratch(number), Index.of(b) * folds.rows + space.kept_position(places), total)
    _emit_joined(folds, partial, blocks)


def _streams(folds: Folds, plan: Schedule) -> bool:
    """Whether accumulators should be an array: long columns side by side, more of them than fit registers."""
    lanes, folded = plan.lanes, folds.space.folded
    if lanes is None or lanes.folded or len(folded) != 1 or lanes is not folds.space.axes[-1]:
        return False
    return folds.rows * folds.length >= STREAMED_WORK and folds.length >= 8 * GROUP and lanes.size > plan.width


def _emit_streamed(folds: Folds, plan: Schedule) -> None:
    """Rows are read as they lie in memory, a group of them into each vector of accumulators while that is in registers.
    Blocks of rows have accumulators of their own if there are too few columns to share out."""
    space, heroes, lanes = folds.space, folds.heroes, plan.lanes
    assert lanes is not None
    (axis,) = space.folded
    others = [a for a in space.kept if a is not lanes]
    tile = min(TILE, lanes.size)
    tiles = -(-lanes.size // tile)
    pieces = tiles * size_of_axes(others)
    wanted = 1 if pieces >= ENOUGH_TURNS else min(-(-MOST_BLOCKS // (2 * pieces)), -(-axis.size // (4 * GROUP)))
    block = -(-axis.size // (wanted * GROUP)) * GROUP
    blocks = -(-axis.size // block)
    partial = [folds.fusion.new_scratch(h.wide, blocks * folds.rows) for h in heroes]
    writer = folds.fusion.writer("partial_columns", final=True)
    k = writer.k
    sizes: list[tuple[Any, int]] = [("block", blocks), ("tile", tiles), *((a, a.size) for a in others)]
    sizes.sort(key=lambda pair: -pair[1])  # the longest over threads
    with ExitStack() as stack:
        at: dict[Any, Index] = {}
        for number, (what, size) in enumerate(sizes):
            kind = LoopKind.SERIAL if number else LoopKind.THREADS
            at[what] = Index.of(stack.enter_context(k.loop(size, kind=kind)))
        piece = at.pop("block")
        row, first = piece * block, at.pop("tile") * tile
        columns = None if lanes.size % tile == 0 else Index(lanes.size) - first
        rows = None if axis.size % block == 0 else Index(axis.size) - row

        def position(i: Index) -> Index:
            return piece * folds.rows + space.kept_position({**at, lanes: first + i})

        def store(i: Index, values: Sequence[Value]) -> None:
            for number, value in zip(partial, values, strict=True):
                k.store(writer.scratch(number), position(i), value)

        with k.loop(tile, kind=LoopKind.LANES, width=plan.width, limit=columns) as i:
            store(i, folds.starts(writer, heroes))
        with (
            k.loop(block, step=GROUP, limit=rows) as group,
            k.loop(tile, kind=LoopKind.LANES, width=plan.width, limit=columns) as i,
        ):
            before = [k.load(writer.scratch(number), position(i)) for number in partial]
            rest = None if rows is None else rows - group
            with k.loop(GROUP, carries=before, limit=rest) as (r, inside):
                places = {**at, lanes: first + i, axis: row + group + r}
                totals = k.carry(*folds.step(writer, 0, heroes, inside, places))
            store(i, totals)
    _emit_joined(folds, partial, blocks)


def _emit_joined(folds: Folds, partial: Sequence[int], blocks: int) -> None:
    """The second kernel: partial results of blocks, in order, and what is made of the totals."""
    writer = folds.fusion.writer("joined_reduction", final=True)
    k, heroes = writer.k, folds.heroes
    axis = CollapsedAxis(-1, (blocks,), folded=True)
    space = Space((axis, *folds.space.kept), 1.0)
    plan = schedule(space, folds.lanes)
    with kept_nest(k, space, plan, blocks) as places:

        def step(accumulators: Sequence[Value], at: dict[CollapsedAxis, Index]) -> list[Value]:
            position = at[axis] * folds.rows + folds.space.kept_position(at)
            elements = [k.load(writer.scratch_input(number), position) for number in partial]
            return [
                hero.card.combine(k.scalars, accumulator, element)
                for hero, accumulator, element in zip(heroes, accumulators, elements, strict=True)
            ]

        starts = folds.starts(writer, heroes)
        folds.know(writer, heroes, fold_loops(writer, heroes, starts, [axis], plan, places, step))
        folds.store_kept(writer, places)
        folds.forget(writer)
