"""Resharding routes: the cheapest sequence of collectives from one sharding of a value to another.

It is a shortest-path search over the states of a value (the axes of each dimension, and the axes over which it is
unreduced) by the time of collectives. So shards are sliced before they are sent, exchanged rather than gathered, and
the smallest is gathered; and small values are sent in few collectives.

If a dimension splits evenly, a shard over some axes is the concatenation of shards over one axis more; otherwise it
need not be (`nests`). Then the dimension is gathered over all its axes, or sliced over several, in hops that belong
together.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from weft.base.errors import InternalError

# The axes that each dimension of a value is split over, the major one first.
Dims = tuple[tuple[Any, ...], ...]
Axes = tuple[Any, ...]
Sizes = tuple[tuple[Any, int], ...]

# Cost model of collectives: seconds each, and bytes a second.
LATENCY, LINK = 5e-6, 5e9


class Hop(NamedTuple):
    """Collective, or slice, over an axis: as in `Transfer`, with the number of elements that a device sends."""

    kind: str
    axis: Any
    dim: int = -1
    source: int = -1
    elements: float = 0.0
    multiple: int = 1
    inner: bool = False


class State(NamedTuple):
    """Axes of each dimension of a value, and axes over which it is unreduced."""

    dims: Dims
    unreduced: Axes


def nests(size: int, axes: Axes, axis: Any, counts: Mapping[Any, int]) -> bool:
    """Return whether the shards of a dimension over some axes are concatenations of its shards over one axis more.

    For five elements over two axes of size two they are not: 3 and 2 elements against 2, 2, 1 and 0.
    """
    major = math.prod([counts[a] for a in axes])
    return major == 1 or -(-size // major) == counts[axis] * -(-size // (major * counts[axis]))


def local_elements(shape: Sequence[int], dims: Dims, counts: Mapping[Any, int]) -> int:
    """Return the number of elements of a shard; dimensions that do not split evenly are rounded up."""
    sizes = zip(shape, dims, strict=True)
    return math.prod([-(-size // math.prod([counts[a] for a in axes])) if axes else size for size, axes in sizes])


def route(size: int, shape: tuple[int, ...], src: Dims, unreduced: Axes, dst: Dims, sizes: Sizes) -> tuple[Hop, ...]:
    """Return the cheapest hops between two shardings of a value with this global shape and size in bytes."""
    return _route(max(size, 1).bit_length(), shape, src, unreduced, dst, sizes)


def sent_bytes(
    itemsize: int, shape: tuple[int, ...], src: Dims, unreduced: Axes, dst: Dims, sizes: Mapping[Any, int]
) -> float:
    """Return the bytes that a device sends on the cheapest route."""
    hops = route(itemsize * math.prod(shape), shape, src, unreduced, dst, tuple(sizes.items()))
    return itemsize * sum(hop.elements for hop in hops)


@functools.lru_cache(maxsize=16384)
def _route(bits: int, shape: tuple[int, ...], src: Dims, unreduced: Axes, dst: Dims, sizes: Sizes) -> tuple[Hop, ...]:
    """Search the route. It is cached by the bit length of the size, since it hardly depends on it."""
    each = LATENCY * LINK / 2**bits * math.prod(shape)  # the latency of a collective, in elements
    start, goal = State(src, unreduced), State(dst, ())
    counts = dict(sizes)
    axes = tuple(a for a, _ in sizes if any(a in own for own in dst))
    best: dict[State, tuple[float, int]] = {start: (0.0, 0)}
    came: dict[State, tuple[State, tuple[Hop, ...]]] = {}
    queue = [(0.0, 0, 0, start)]
    order = 0  # among states of equal cost, the one found first goes first
    while queue:
        sent, hops, _, state = heapq.heappop(queue)
        if state == goal:
            break
        if (sent, hops) > best[state]:
            continue
        for together, after in hops_from(state, goal, shape, counts, axes):
            cost = (sent + sum(h.elements + (each if h.elements else 0.0) for h in together), hops + len(together))
            if after not in best or cost < best[after]:
                best[after], came[after] = cost, (state, together)
                order += 1
                heapq.heappush(queue, (*cost, order, after))
    if goal not in best:
        raise InternalError(f"No route of collectives leads from {src} to {dst} over {dict(sizes)}: it must exist.")
    way: list[Hop] = []
    state = goal
    while state != start:
        state, together = came[state]
        way += reversed(together)
    return tuple(reversed(way))


def hops_from(
    state: State, goal: State, shape: tuple[int, ...], counts: dict[Any, int], axes: Axes
) -> Iterator[tuple[tuple[Hop, ...], State]]:
    """Yield the possible next hops of a value, and its state after them.

    A dimension may be split over one more axis if that is even, or if the goal is split in this way.
    """
    dims, unreduced = state
    local = local_elements(shape, dims, counts)

    def can_be(d: int, own: Axes) -> bool:
        if not nests(shape[d], own[:-1], own[-1], counts):
            return False
        if own == goal.dims[d][: len(own)]:
            return True
        return shape[d] % math.prod([counts[a] for a in own]) == 0

    def with_axes(d: int, own: Axes, of: Dims = dims) -> Dims:
        return (*of[:d], own, *of[d + 1 :])

    for axis in unreduced:
        n, rest = counts[axis], tuple(a for a in unreduced if a != axis)
        for d, own in enumerate(dims):
            if can_be(d, (*own, axis)):
                after = State(with_axes(d, (*own, axis)), rest)
                size = local_elements(shape, after.dims, counts)
                yield (Hop("reduce_scatter", axis, d, elements=size * (n - 1)),), after
        yield (Hop("psum", axis, elements=2 * local * (n - 1) / n),), State(dims, rest)
    free = [a for a in axes if a not in unreduced and not any(a in other for other in dims)]
    for d, own in enumerate(dims):
        for axis in free:
            if can_be(d, (*own, axis)):
                yield (Hop("slice", axis, d, multiple=counts[axis]),), State(with_axes(d, (*own, axis)), unreduced)
        for k in range(2, len(goal.dims[d]) + 1 if not own else 0):
            several = goal.dims[d][:k]
            if set(several) <= set(free) and not nests(shape[d], several[:-1], several[-1], counts):
                yield slice_hops(d, several, counts), State(with_axes(d, several), unreduced)
    for d, own in enumerate(dims):
        if not own:
            continue
        axis, n, less = own[-1], counts[own[-1]], with_axes(d, own[:-1])
        if not nests(shape[d], own[:-1], axis, counts):
            yield gather_hops(d, own, shape[d], local, counts), State(with_axes(d, ()), unreduced)
            continue
        for e, other in enumerate(dims):
            if e != d and can_be(e, (*other, axis)):
                after = State(with_axes(e, (*other, axis), less), unreduced)
                size = local_elements(shape, with_axes(e, (*other, axis)), counts)
                yield (Hop("all_to_all", axis, e, d, size * (n - 1)),), after
        yield (Hop("all_gather", axis, d, elements=local * (n - 1)),), State(less, unreduced)


def slice_hops(d: int, axes: Axes, counts: Mapping[Any, int]) -> tuple[Hop, ...]:
    """Return the hops that slice a whole dimension over several axes at once."""
    last = len(axes) - 1
    multiple = lambda k: math.prod([counts[a] for a in axes[k:]])
    return tuple(Hop("slice", a, d, multiple=multiple(k), inner=k < last) for k, a in enumerate(axes))


def gather_hops(d: int, axes: Axes, size: int, local: int, counts: Mapping[Any, int]) -> tuple[Hop, ...]:
    """Return the hops that gather a dimension over all its axes at once; a device has `local` elements of the value."""
    hops: list[Hop] = []
    part = -(-size // math.prod([counts[a] for a in axes]))
    for a in reversed(axes):
        hops.append(Hop("all_gather", a, d, elements=local * (counts[a] - 1), inner=a is not axes[0]))
        longer = min(part * counts[a], size)
        local, part = local // part * longer, longer
    return tuple(hops)
