"""What the emitters of folds share: the space that is folded as loops see it, and the nest of loops over it.

Dimensions that every access runs through together are one axis of loops: so a sum over an image is one long loop. They
are found by writing a trial kernel with a loop for each dimension and looking at the indices in it. What is decided by
the bounds of an index (that a pad is never reached, that a quotient is known) is decided in the real kernels as in the
trial: there too an index has an entry for each dimension, with its bounds (`KernelBuilder.unravel`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.compiler.emit.emission import Fusion, Writer, storage
from weft.compiler.emit.values import MultiIndex
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Compute, Index, Loop, LoopKind, Statement
from weft.compiler.kernel.merge import advance_together, indices_of
from weft.compiler.kernel.operations import weight_of

# Elements that one turn of a loop over threads should work on at least.
THREAD_WORK = 16384
# Turns of a loop over threads that are enough to share out.
ENOUGH_TURNS = 16
# Elements of a full space from which on partial results pay, and from which on columns are read row by row.
SPLIT_WORK, STREAMED_WORK = 131072, 262144
# Partial results of one fold: enough to share out, few enough to fold again.
MOST_BLOCKS = 128
# Weight of the work for an element up to which it pays to have four (two) registers of accumulators.
LIGHT_WORK, MEDIUM_WORK = 6, 14


@dataclass(frozen=True)
class CollapsedAxis:
    """A run of dimensions of the full space that loops see as one: the first of them, and the sizes of all."""

    first: int
    sizes: tuple[int, ...]
    folded: bool

    @property
    def size(self) -> int:
        """The number of its elements."""
        return math.prod(self.sizes)


AxisIndices = Mapping[CollapsedAxis, Index]


@dataclass(frozen=True)
class Space:
    """The axes of a full space, in the order of memory; `weight` is the work for one element."""

    axes: tuple[CollapsedAxis, ...]
    weight: float

    @property
    def kept(self) -> tuple[CollapsedAxis, ...]:
        """The axes that results of folds have."""
        return tuple(a for a in self.axes if not a.folded)

    @property
    def folded(self) -> tuple[CollapsedAxis, ...]:
        """The axes that are folded."""
        return tuple(a for a in self.axes if a.folded)

    def full_index(self, k: KernelBuilder, places: AxisIndices) -> MultiIndex:
        """An index of the full space, with an entry for each dimension."""
        return _index(k, self.axes, places)

    def kept_index(self, k: KernelBuilder, places: AxisIndices) -> MultiIndex:
        """An index of the space that is kept."""
        return _index(k, self.kept, places)

    def kept_position(self, places: AxisIndices) -> Index:
        """The position in a flat array of the kept space."""
        total = Index()
        for axis in self.kept:
            total = total * axis.size + places[axis]
        return total


def _index(k: KernelBuilder, axes: Sequence[CollapsedAxis], places: AxisIndices) -> MultiIndex:
    return tuple(i for axis in axes for i in k.unravel(places[axis], axis.sizes))


def size_of_axes(axes: Sequence[CollapsedAxis]) -> int:
    """The number of indices of some axes."""
    return int(np.prod([a.size for a in axes], dtype=np.int64))


def collapsed(
    fusion: Fusion, full: Sequence[int], folded: Sequence[int], ask: Callable[[Writer, MultiIndex, MultiIndex], None]
) -> Space:
    """The axes of a full space of which the dimensions `folded` go. `ask` asks a writer for all values that the kernels
    compute, given an index of the full space and one of the kept space."""
    writer = Writer(fusion, "trial")
    with ExitStack() as stack:
        variables = [stack.enter_context(writer.k.loop(d)) for d in full]
        places = [Index.of(v) for v in variables]
        ask(writer, tuple(places), tuple(p for d, p in enumerate(places) if d not in folded))
    kernel = writer.k.finish()
    indices = list(indices_of(kernel.body))
    axes: list[CollapsedAxis] = []
    for dimension, size in enumerate(full):
        here = CollapsedAxis(dimension, (size,), dimension in folded)
        before = axes[-1] if axes else None
        joined = before is not None and before.folded == here.folded
        if joined and advance_together(indices, variables[dimension - 1], variables[dimension], size):
            axes[-1] = CollapsedAxis(axes[-1].first, (*axes[-1].sizes, size), here.folded)
        else:
            axes.append(here)
    return Space(tuple(axes), _weight(kernel.body))


def _weight(body: Sequence[Statement]) -> float:
    """The work in the innermost loop."""
    inner = next((s for s in body if isinstance(s, Loop)), None)
    if inner is not None:
        return _weight(inner.body)
    return sum(weight_of(s.op) for s in body if isinstance(s, Compute))


# ---------------------------------------------------------------------------------------------------------- widths


def register_lanes(fusion: Fusion, besides: Any = None) -> int:
    """How many elements fit a register in the widest type that is computed with, results of one equation aside."""
    sizes = [storage(v).itemsize for e in fusion.jaxpr.eqns if e is not besides for v in e.outvars]
    sizes += [storage(v).itemsize for v in fusion.jaxpr.invars if v.aval.shape]  # type: ignore[attr-defined]
    return max(1, fusion.target.vector_bytes // max(4, min(max(sizes, default=4), 8)))


def width_for(size: int, lanes: int, weight: float) -> int:
    """How many lanes go together along an axis: several registers where the work is light, so that sums do not wait for
    each other, but not many more than there are elements."""
    most = 4 if weight <= LIGHT_WORK else 2 if weight <= MEDIUM_WORK else 1
    width = lanes * most
    # A vector that is not whole takes as long as one that is.
    while width > lanes and size < 8 * width and -(-size // width) * width > -(-size // (width // 2)) * (width // 2):
        width //= 2
    while width > lanes and size <= width // 2:
        width //= 2
    return width


# ----------------------------------------------------------------------------------------------------------- nests


@dataclass(frozen=True)
class Schedule:
    """How loops over a space are bound: `lanes` is the axis along which vectors of `width` elements go."""

    lanes: CollapsedAxis | None
    width: int


def schedule(space: Space, lanes: int) -> Schedule:
    """Vectors go along the last axis, unless it is much shorter than a register: then rows are taken side by side."""
    if not space.axes:
        return Schedule(None, 1)
    chosen, kept = space.axes[-1], space.kept
    if chosen.folded and chosen.size * 4 < lanes * 3 and kept and kept[-1].size > chosen.size:
        chosen = kept[-1]
    elif not chosen.folded and chosen.size * 2 < lanes and size_of_axes(space.folded) < 4 * lanes:
        chosen = max(kept, key=lambda a: a.size)
    return Schedule(chosen, width_for(chosen.size, lanes, space.weight))


@contextmanager
def kept_nest(
    k: KernelBuilder, space: Space, plan: Schedule, work: int, threads: bool = True
) -> Iterator[dict[CollapsedAxis, Index]]:
    """Loops over the kept axes; gives the places. One of them is over threads (unless a loop over them is open),
    outermost: the first that has enough turns, or the longest. If vectors go along a kept axis it is innermost, and if
    no other can be shared out, cut into blocks over threads. `work` is what there is to do for one kept index."""
    lanes = plan.lanes if plan.lanes is not None and not plan.lanes.folded else None
    others = [a for a in space.kept if a is not lanes]
    shared: CollapsedAxis | None = None
    if threads:
        longest = max(others, key=lambda a: a.size, default=None)
        shared = next((a for a in others if a.size >= ENOUGH_TURNS), longest)
    first, limit, length = Index(), None, 0 if lanes is None else lanes.size
    places: dict[CollapsedAxis, Index] = {}
    with ExitStack() as stack:
        if lanes is not None and threads:
            block = thread_block(plan.width, work)
            blocks = -(-length // block)
            if blocks > 1 and (shared is None or (shared.size < ENOUGH_TURNS and blocks > shared.size)):
                shared = None
                first = Index.of(stack.enter_context(k.loop(blocks, kind=LoopKind.THREADS))) * block
                limit = None if length % block == 0 else Index(length) - first
                length = block
        for axis in ([] if shared is None else [shared]) + [a for a in others if a is not shared]:
            kind = LoopKind.THREADS if axis is shared else LoopKind.SERIAL
            places[axis] = Index.of(stack.enter_context(k.loop(axis.size, kind=kind)))
        if lanes is not None:
            place = stack.enter_context(k.loop(length, kind=LoopKind.LANES, width=plan.width, limit=limit))
            places[lanes] = first + place
        yield places


def thread_block(width: int, work: int) -> int:
    """How many elements of a vectorised axis make enough work for a turn of a loop over threads, in whole vectors."""
    return max(1, -(-THREAD_WORK // (max(1, work) * width))) * width


def should_split(space: Space, plan: Schedule) -> bool:
    """Whether what is folded should be cut into blocks with partial results: the turns that the loop over threads of
    `kept_nest` has are few and long."""
    length, rows = size_of_axes(space.folded), size_of_axes(space.kept)
    sizes = [a.size for a in space.kept if a is not plan.lanes]
    if plan.lanes is not None and not plan.lanes.folded:
        sizes.append(-(-plan.lanes.size // thread_block(plan.width, length)))
    turns = max(sizes, default=1)
    return rows * length >= max(SPLIT_WORK, 2 * THREAD_WORK * turns) and turns < ENOUGH_TURNS


def split_block(axis: CollapsedAxis, plan: Schedule, work: int) -> int:
    """The size of the blocks into which a folded axis is cut for partial results; `work` is what there is to do for one
    place on it. In whole vectors if they go along it."""
    step = plan.width if axis is plan.lanes else 1
    least = -(-2 * THREAD_WORK // max(1, work))
    return -(-max(least, -(-axis.size // MOST_BLOCKS)) // step) * step
