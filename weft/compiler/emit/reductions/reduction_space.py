"""What the emitters of reductions share: the collapsed axes of the iteration space, and the nest of loops over them.

Dimensions that every access runs through together are collapsed into one axis: so a sum over an image is one long loop.
They are found by emitting a trial kernel with a loop for each dimension and looking at its indices. What is decided by
the bounds of an index (that a pad is never reached, that a quotient is known) is decided in the real kernels as in the
trial: there too an index has an entry for each dimension, with its bounds (`KernelBuilder.unravel`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from weft.base.dataclass import dataclass
from weft.compiler.emit.emission import Fusion, KernelWriter, storage
from weft.compiler.emit.values import MultiIndex
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Compute, Index, Loop, LoopKind, Statement
from weft.compiler.kernel.merge import advance_together, collect_indices
from weft.compiler.kernel.operations import operation_weight
from weft.compiler.target.target import Target

# Fewest elements per iteration of a loop over threads.
THREAD_WORK = 16384
# Iterations of a loop over threads that are enough to balance the load.
ENOUGH_ITERATIONS = 16
# Elements of a full space from which on partial results pay, and from which on columns are read row by row.
SPLIT_WORK, STREAMED_WORK = 131072, 262144
# Partial results of one reduction: enough to balance the load, few enough to reduce again.
MOST_BLOCKS = 128
# Groups of threads: the shortest rows that have one, the threads that keep a GPU busy, and for partial results of a
# reduction their greatest number and the least rows of each.
LEAST_GROUP, ENOUGH_THREADS, MOST_GROUP_BLOCKS, LEAST_ROWS = 32, 1 << 17, 1024, 32
# A row consists of vectors of whole groups if groups of at least this many lanes divide it.
LEAST_WHOLE_GROUP = 128
# Rows of this length that are read in several passes have groups of LONG_ROW_LANES lanes.
LONG_ROW, LONG_ROW_LANES = 1 << 15, 2048
# Weight of the work for an element up to which it pays to have four (two) registers of accumulators.
LIGHT_WORK, MEDIUM_WORK = 6, 14


@dataclass(frozen=True)
class CollapsedAxis:
    """Run of dimensions of the full space that one loop covers: the first of them, and the sizes of all."""

    first: int
    sizes: tuple[int, ...]
    reduced: bool

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.sizes)


AxisIndices = Mapping[CollapsedAxis, Index]


@dataclass(frozen=True)
class ReductionSpace:
    """Axes of a full space, in the order of memory; `weight` is the work per element."""

    axes: tuple[CollapsedAxis, ...]
    weight: float

    @property
    def free(self) -> tuple[CollapsedAxis, ...]:
        """The axes that results of reductions have."""
        return tuple(a for a in self.axes if not a.reduced)

    @property
    def reduced(self) -> tuple[CollapsedAxis, ...]:
        """The axes that are reduced."""
        return tuple(a for a in self.axes if a.reduced)

    def full_index(self, k: KernelBuilder, indices: AxisIndices) -> MultiIndex:
        """Return the index of the full space, with an entry for each dimension, for indices along the axes."""
        return _index(k, self.axes, indices)

    def free_index(self, k: KernelBuilder, indices: AxisIndices) -> MultiIndex:
        """Return the index of the free dimensions for indices along the free axes."""
        return _index(k, self.free, indices)

    def free_position(self, indices: AxisIndices) -> Index:
        """Return the offset in a flat array over the free axes."""
        total = Index()
        for axis in self.free:
            total = total * axis.size + indices[axis]
        return total


def _index(k: KernelBuilder, axes: Sequence[CollapsedAxis], indices: AxisIndices) -> MultiIndex:
    return tuple(i for axis in axes for i in k.unravel(indices[axis], axis.sizes))


def size_of_axes(axes: Sequence[CollapsedAxis]) -> int:
    """Return the number of elements of a space over some axes."""
    return math.prod(a.size for a in axes)


def collapse(
    fusion: Fusion,
    full: Sequence[int],
    reduced: Sequence[int],
    emit_trial: Callable[[KernelWriter, MultiIndex, MultiIndex], None],
) -> ReductionSpace:
    """Collapse the dimensions of a full space to axes, where the dimensions `reduced` are reduced. `emit_trial` emits
    all values that the kernels compute, at an index of the full space and one of the free dimensions.
    """
    writer = KernelWriter(fusion, "trial")
    with ExitStack() as stack:
        variables = [stack.enter_context(writer.k.loop(d)) for d in full]
        positions = [Index.of(v) for v in variables]
        emit_trial(writer, tuple(positions), tuple(p for d, p in enumerate(positions) if d not in reduced))
    kernel = writer.k.finish()
    indices = list(collect_indices(kernel.body))
    axes: list[CollapsedAxis] = []
    for dimension, size in enumerate(full):
        here = CollapsedAxis(dimension, (size,), dimension in reduced)
        before = axes[-1] if axes else None
        adjacent = before is not None and before.reduced == here.reduced
        if adjacent and advance_together(indices, variables[dimension - 1], variables[dimension], size):
            axes[-1] = CollapsedAxis(axes[-1].first, (*axes[-1].sizes, size), here.reduced)
        else:
            axes.append(here)
    return ReductionSpace(tuple(axes), _weight(kernel.body))


def _weight(body: Sequence[Statement]) -> float:
    """Return the weight of the work in the innermost loop."""
    inner = next((s for s in body if isinstance(s, Loop)), None)
    if inner is not None:
        return _weight(inner.body)
    return sum(operation_weight(s.op) for s in body if isinstance(s, Compute))


# ---------------------------------------------------------------------------------------------------------- widths


def register_lanes(fusion: Fusion, besides: Any = None) -> int:
    """Return how many elements of the widest computed type fit a register, ignoring the results of equation
    `besides`.
    """
    sizes = [storage(v).itemsize for e in fusion.jaxpr.eqns if e is not besides for v in e.outvars]
    sizes += [storage(v).itemsize for v in fusion.jaxpr.invars if v.aval.shape]  # type: ignore[attr-defined]
    return max(1, fusion.target.vector_bytes // max(4, min(max(sizes, default=4), 8)))


def width_for(size: int, lanes: int, weight: float) -> int:
    """Return the lanes of a vector along an axis: several registers where the work is light, so that sums do not wait
    for each other, but not many more lanes than elements.
    """
    most = 4 if weight <= LIGHT_WORK else 2 if weight <= MEDIUM_WORK else 1
    width = lanes * most
    # A partial vector takes as long as a full one.
    while width > lanes and size < 8 * width and -(-size // width) * width > -(-size // (width // 2)) * (width // 2):
        width //= 2
    while width > lanes and size <= width // 2:
        width //= 2
    return width


# ----------------------------------------------------------------------------------------------------------- nests


@dataclass(frozen=True)
class ReductionSchedule:
    """Binding of loops: `lanes` is the axis along which vectors of `width` elements run."""

    lanes: CollapsedAxis | None
    width: int


def schedule(space: ReductionSpace, lanes: int) -> ReductionSchedule:
    """Choose the lanes of a reduction: along the last axis, unless it is much shorter than a register; then across
    rows."""
    if not space.axes:
        return ReductionSchedule(None, 1)
    chosen, free = space.axes[-1], space.free
    if chosen.reduced and chosen.size * 4 < lanes * 3 and free and free[-1].size > chosen.size:
        chosen = free[-1]
    elif not chosen.reduced and chosen.size * 2 < lanes and size_of_axes(space.reduced) < 4 * lanes:
        chosen = max(free, key=lambda a: a.size)
    return ReductionSchedule(chosen, width_for(chosen.size, lanes, space.weight))


def group_schedule(space: ReductionSpace, most: int, passes: int = 1) -> ReductionSchedule:
    """Choose the lanes of a group of threads, at most `most`: along the last axis if that is reduced and long
    enough; else one thread per index of the free axes. Long rows that are read in several passes have more lanes, so
    that all rows in flight stay in cache."""
    last = space.axes[-1] if space.axes else None
    if last is None or not last.reduced or (last.size < LEAST_GROUP and space.free):
        return ReductionSchedule(None, 1)
    if passes > 1 and last.size >= LONG_ROW:
        return ReductionSchedule(last, LONG_ROW_LANES)
    width = min(most, max(LEAST_GROUP, 1 << (last.size - 1).bit_length()))
    whole = math.gcd(last.size, most)
    return ReductionSchedule(last, whole if min(width, LEAST_WHOLE_GROUP) <= whole < width else width)


def group_block(
    space: ReductionSpace, plan: ReductionSchedule, axis: CollapsedAxis, target: Target, most: int = MOST_GROUP_BLOCKS
) -> int:
    """Return the size of the blocks, at most `most` of them, into which a reduced axis is split for partial results
    so that there are enough threads; the whole axis if there are enough anyway.
    """
    each = 1 if plan.lanes is None else plan.width // target.thread_lanes
    wanted = min(most, -(-ENOUGH_THREADS // max(1, size_of_axes(space.free) * each)))
    # A row covers all reduced axes.
    others = max(1, size_of_axes(space.reduced) // max(1, axis.size))
    step, least = (plan.width, 4 * plan.width) if axis is plan.lanes else (1, -(-LEAST_ROWS // others))
    block = max(least, -(-axis.size // wanted))
    return min(axis.size, -(-block // step) * step)


@contextmanager
def free_nest(
    k: KernelBuilder, space: ReductionSpace, plan: ReductionSchedule, work: int, threads: bool = True
) -> Iterator[dict[CollapsedAxis, Index]]:
    """Open loops over the free axes and yield the indices. One loop is over threads (unless such a loop is open),
    outermost: the first with enough iterations, or the longest. A free axis with lanes is innermost, and split into
    blocks over threads if no other axis can be shared. `work` is the work for one free index."""
    lanes = plan.lanes if plan.lanes is not None and not plan.lanes.reduced else None
    others = [a for a in space.free if a is not lanes]
    shared: CollapsedAxis | None = None
    if threads:
        longest = max(others, key=lambda a: a.size, default=None)
        shared = next((a for a in others if a.size >= ENOUGH_ITERATIONS), longest)
    first, limit, length = Index(), None, 0 if lanes is None else lanes.size
    indices: dict[CollapsedAxis, Index] = {}
    with ExitStack() as stack:
        if lanes is not None and threads:
            block = thread_block(plan.width, work)
            blocks = -(-length // block)
            if blocks > 1 and (shared is None or (shared.size < ENOUGH_ITERATIONS and blocks > shared.size)):
                shared = None
                first = Index.of(stack.enter_context(k.loop(blocks, kind=LoopKind.THREADS))) * block
                limit = None if length % block == 0 else Index(length) - first
                length = block
        for axis in ([] if shared is None else [shared]) + [a for a in others if a is not shared]:
            kind = LoopKind.THREADS if axis is shared else LoopKind.SERIAL
            indices[axis] = Index.of(stack.enter_context(k.loop(axis.size, kind=kind)))
        if lanes is not None:
            lane = stack.enter_context(k.loop(length, kind=LoopKind.LANES, width=plan.width, limit=limit))
            indices[lanes] = first + lane
        yield indices


def thread_block(width: int, work: int) -> int:
    """Return how many elements of a vectorised axis make enough work for an iteration of a loop over threads, in
    whole vectors.
    """
    return max(1, -(-THREAD_WORK // (max(1, work) * width))) * width


def should_split(space: ReductionSpace, plan: ReductionSchedule) -> bool:
    """Return whether the reduced axes should be split into blocks with partial results: if the loop over threads of
    `free_nest` has few and long iterations.
    """
    length, rows = size_of_axes(space.reduced), size_of_axes(space.free)
    sizes = [a.size for a in space.free if a is not plan.lanes]
    if plan.lanes is not None and not plan.lanes.reduced:
        sizes.append(-(-plan.lanes.size // thread_block(plan.width, length)))
    iterations = max(sizes, default=1)
    return rows * length >= max(SPLIT_WORK, 2 * THREAD_WORK * iterations) and iterations < ENOUGH_ITERATIONS


def split_block(axis: CollapsedAxis, plan: ReductionSchedule, work: int) -> int:
    """Return the size of the blocks into which a reduced axis is split for partial results, in whole vectors if they
    go along it; `work` is the work for one index on it.
    """
    step = plan.width if axis is plan.lanes else 1
    least = -(-2 * THREAD_WORK // max(1, work))
    return -(-max(least, -(-axis.size // MOST_BLOCKS)) // step) * step
