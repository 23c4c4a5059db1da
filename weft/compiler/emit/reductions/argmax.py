"""Emitter of the index of the greatest or least element along an axis. Hero: an `ArgReduce`.

An accumulator is a pair: the best element so far and its index. A later element replaces it only if it is strictly
better, so the first of equal ones stays; NaN is better than any number, and nothing is better than NaN. Lanes are
reduced in two steps: the best of all lanes, and the first index among lanes that hold it. The index starts at 0, which
is right if no element is better than the worst value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.emit.emission import Emission, Fusion, KernelWriter, storage
from weft.compiler.emit.reductions.reduction_space import (
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
)
from weft.compiler.emit.values import expand, get_space
from weft.compiler.kernel.ir import Index, LoopKind, Value
from weft.primitives.reduction.reduce_extrema import ArgReduce, greatest, least

Pair = tuple[Value, Value]
Element = Callable[[dict[CollapsedAxis, Index]], Pair]


class ArgmaxSearch:
    """Hero of a fusion, the space it searches, and the comparison of pairs."""

    def __init__(self, fusion: Fusion) -> None:
        hero = fusion.hero
        assert hero is not None
        if not isinstance(hero.primitive, ArgReduce):
            raise InternalError(f"`{hero.primitive.name}` is no argmax or argmin.", stage="emit")
        self.fusion, self.hero = fusion, hero
        self.largest = hero.primitive.largest
        (self.operand,) = hero.invars
        self.exact = storage(self.operand)
        self.wide = dtypes.accumulation_dtype(self.exact)
        shape: Any = self.operand.aval.shape  # type: ignore[attr-defined]
        (axis,) = hero.params["axes"]
        # The searched dimension among those that are not of size 1.
        reduced = [sum(d != 1 for d in shape[:axis])] if shape[axis] != 1 else []
        self.space = collapse(fusion, get_space(self.operand), reduced, self._emit_trial)
        self.index_dtype = dtypes.int32 if shape[axis] < 1 << 31 else dtypes.int64
        self.lanes = register_lanes(fusion, besides=hero)

    def plan(self, space: ReductionSpace) -> ReductionSchedule:
        """Choose how loops over a space of this search are bound to lanes."""
        most = self.fusion.target.group_lanes
        return group_schedule(space, most) if most else schedule(space, self.lanes)

    def block(self, plan: ReductionSchedule) -> int:
        """Return the size of the blocks into which the axis is split for partial results, 0 if it is not split."""
        space, target = self.space, self.fusion.target
        for axis in space.reduced:
            if target.group_lanes:
                block = group_block(space, plan, axis, target)
                return block if block < axis.size else 0
            if should_split(space, plan):
                return split_block(axis, plan, size_of_axes(space.free))
        return 0

    def _emit_trial(self, writer: KernelWriter, full: Any, free: Any) -> None:
        writer.values.at(self.operand, expand(self.operand, full))
        writer.store(self.hero.outvars[0], free, writer.k.constant(0, storage(self.hero.outvars[0])))

    def starts(self, writer: KernelWriter) -> Pair:
        k, worst = writer.k, (least if self.largest else greatest)(self.wide)
        return k.constant(worst, self.wide), k.constant(0, self.index_dtype)

    def better(self, writer: KernelWriter, new: Pair, best: Pair) -> Pair:
        """Return the better one of two pairs, the second if they are equal."""
        s = writer.k.scalars
        takes = (s.gt if self.largest else s.lt)(new[0], best[0])
        if dtypes.kind(self.wide) == "f":
            # Not (worse or equal), so that NaN is better.
            worse = (s.le if self.largest else s.ge)(new[0], best[0])
            takes = getattr(s, "and")(getattr(s, "not")(worse), s.eq(best[0], best[0]))
        return s.select_n(takes, best[0], new[0]), s.select_n(takes, best[1], new[1])

    def best_of_lanes(self, writer: KernelWriter, pair: Pair, width: int) -> Pair:
        """Reduce the lanes of a pair to the best value and the first of its indices."""
        k, s = writer.k, writer.k.scalars
        best = k.reduce_lanes("max" if self.largest else "min", pair[0], width)
        holds = s.eq(pair[0], best)
        if dtypes.kind(self.wide) == "f":
            holds = getattr(s, "or")(holds, s.ne(pair[0], pair[0]))
        beyond = k.constant(np.iinfo(self.index_dtype).max, self.index_dtype)
        return best, k.reduce_lanes("min", s.select_n(holds, beyond, pair[1]), width)

    def element(self, writer: KernelWriter) -> Element:
        """Return a reader of the pair of an element and its index."""
        (axis,) = self.space.reduced or (None,)

        def pair_at(indices: dict[CollapsedAxis, Index]) -> Pair:
            index = self.space.full_index(writer.k, indices)
            value = writer.values.at(self.operand, expand(self.operand, index))
            i = Index() if axis is None else indices[axis]
            return writer.k.scalars.convert(value, self.wide), writer.k.position(i, self.index_dtype)

        return pair_at

    def through(
        self,
        writer: KernelWriter,
        axes: Sequence[CollapsedAxis],
        plan: ReductionSchedule,
        indices: AxisIndices,
        element: Element,
        part: tuple[Index, int] | None = None,
    ) -> Pair:
        """Find the best pair along an axis or a block of it (or the only element)."""
        k = writer.k
        if not axes:
            return element(dict(indices))
        (axis,) = axes
        first, size = part or (Index(), axis.size)
        limit = None if axis.size % size == 0 else Index(axis.size) - first
        lanes = axis is plan.lanes
        kind, width = (LoopKind.LANES, plan.width) if lanes else (LoopKind.SERIAL, 1)
        with k.loop(size, kind=kind, width=width, carries=self.starts(writer), limit=limit) as (i, inside):
            better = self.better(writer, element({**indices, axis: first + i}), inside)
            best, index = k.carry(*better)
        return self.best_of_lanes(writer, (best, index), plan.width) if lanes else (best, index)

    def store(self, writer: KernelWriter, indices: AxisIndices, pair: Pair) -> None:
        result = self.hero.outvars[0]
        writer.store(
            result, self.space.free_index(writer.k, indices), writer.k.scalars.convert(pair[1], storage(result))
        )


def emit_argmax(fusion: Fusion) -> Emission:
    """Emit one kernel; for few and long rows, a kernel over blocks and one that compares their results."""
    search = ArgmaxSearch(fusion)
    space = search.space
    plan = search.plan(space)
    block = search.block(plan)
    if block:
        _emit_split(search, plan, block, size_of_axes(space.free))
        return fusion.finish()
    writer = fusion.writer("argmax", final=True)
    with free_nest(writer.k, space, plan, size_of_axes(space.reduced)) as indices:
        pair = search.through(writer, space.reduced, plan, indices, search.element(writer))
        search.store(writer, indices, pair)
    return fusion.finish()


def _emit_split(search: ArgmaxSearch, plan: ReductionSchedule, block: int, rows: int) -> None:
    space, fusion = search.space, search.fusion
    (axis,) = space.reduced
    blocks = -(-axis.size // block)
    found = [fusion.new_scratch(dtype, blocks * rows) for dtype in (search.wide, search.index_dtype)]
    writer = fusion.writer("partial_argmax", final=True)
    k = writer.k
    with k.loop(blocks, kind=LoopKind.THREADS) as b, free_nest(k, space, plan, 0, threads=False) as indices:
        part = (Index.of(b) * block, block)
        pair = search.through(writer, space.reduced, plan, indices, search.element(writer), part)
        for scratch, value in zip(found, pair, strict=True):
            k.store(writer.scratch(scratch), Index.of(b) * rows + space.free_position(indices), value)
    pieces = CollapsedAxis(-1, (blocks,), reduced=True)
    partial_space = ReductionSpace((pieces, *space.free), 1.0)
    plan = search.plan(partial_space)
    last = fusion.writer("final_argmax", final=True)

    def element(at: dict[CollapsedAxis, Index]) -> Pair:
        position = at[pieces] * rows + space.free_position(at)
        value, index = (last.k.load(last.scratch_input(scratch), position) for scratch in found)
        return value, index

    with free_nest(last.k, partial_space, plan, blocks) as indices:
        search.store(last, indices, search.through(last, [pieces], plan, indices, element))
