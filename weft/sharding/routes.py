"""The cheapest way from one sharding of a value to another: which collectives, in which order.

A search over the states of a value (how its dimensions are split, and over which axes it is unreduced) by the time
that collectives take. So parts are sliced before they are sent, exchanged rather than gathered, and the smallest is
gathered; and small values are sent in few collectives.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from weft.base.errors import InternalError

# The axes that each dimension of a value is split over, the major one first.
Dims = tuple[tuple[Any, ...], ...]
Axes = tuple[Any, ...]
Sizes = tuple[tuple[Any, int], ...]

# What collectives take: seconds each, and bytes a second.
LATENCY, LINK = 5e-6, 5e9


class Hop(NamedTuple):
    """A collective, or a slice, over an axis: as in `Transfer`, with bytes relative to those of the whole value."""

    kind: str
    axis: Any
    dim: int = -1
    source: int = -1
    bytes: float = 0.0


class State(NamedTuple):
    """How a value is split, and the axes over which it is unreduced."""

    dims: Dims
    unreduced: Axes


def route(size: int, shape: tuple[Any, ...], src: Dims, unreduced: Axes, dst: Dims, sizes: Sizes) -> tuple[Hop, ...]:
    """The hops from one sharding to another, of a value of this whole shape and so many bytes."""
    return _route(max(size, 1).bit_length(), shape, src, unreduced, dst, sizes)


def sent_bytes(
    itemsize: int, shape: tuple[Any, ...], src: Dims, unreduced: Axes, dst: Dims, sizes: Mapping[Any, int]
) -> float:
    """What a device sends on that way."""
    size = itemsize * math.prod(shape)
    return sum(hop.bytes for hop in route(size, shape, src, unreduced, dst, tuple(sizes.items()))) * size


@functools.lru_cache(maxsize=16384)
def _route(bits: int, shape: tuple[Any, ...], src: Dims, unreduced: Axes, dst: Dims, sizes: Sizes) -> tuple[Hop, ...]:
    """The same, found once for values of about as many bytes: a number of so many bits."""
    each = LATENCY * LINK / 2**bits  # a collective takes as long as so many more bytes
    start, goal = State(src, unreduced), State(dst, ())
    counts = dict(sizes)
    axes = tuple(a for a, _ in sizes if any(a in own for own in dst))
    best: dict[State, tuple[float, int]] = {start: (0.0, 0)}
    came: dict[State, tuple[State, Hop]] = {}
    queue = [(0.0, 0, 0, start)]
    order = 0  # of states that cost the same the one that was found first goes first
    while queue:
        sent, hops, _, state = heapq.heappop(queue)
        if state == goal:
            break
        if (sent, hops) > best[state]:
            continue
        for hop, after in hops_from(state, goal, shape, counts, axes):
            cost = (sent + hop.bytes + (each if hop.bytes else 0.0), hops + 1)
            if after not in best or cost < best[after]:
                best[after], came[after] = cost, (state, hop)
                order += 1
                heapq.heappush(queue, (*cost, order, after))
    if goal not in best:
        raise InternalError(f"Nothing that is split as {src} can be split as {dst} over {dict(sizes)}.")
    way: list[Hop] = []
    state = goal
    while state != start:
        state, hop = came[state]
        way.append(hop)
    return tuple(reversed(way))


def hops_from(
    state: State, goal: State, shape: tuple[Any, ...], counts: dict[Any, int], axes: Axes
) -> Iterator[tuple[Hop, State]]:
    """The collectives that a value can go through next, and what it is then. A dimension may be split over one more
    axis where that is even, or where the goal is split so."""
    dims, unreduced = state
    local = 1.0 / math.prod([counts[a] for own in dims for a in own])

    def can_be(d: int, own: Axes) -> bool:
        if own == goal.dims[d][: len(own)]:
            return True
        return isinstance(shape[d], int) and shape[d] % math.prod([counts[a] for a in own]) == 0

    def with_axes(d: int, own: Axes, of: Dims = dims) -> Dims:
        return (*of[:d], own, *of[d + 1 :])

    for axis in unreduced:
        n, rest = counts[axis], tuple(a for a in unreduced if a != axis)
        for d, own in enumerate(dims):
            if can_be(d, (*own, axis)):
                after = State(with_axes(d, (*own, axis)), rest)
                yield Hop("reduce_scatter", axis, d, bytes=local * (n - 1) / n), after
        yield Hop("psum", axis, bytes=2 * local * (n - 1) / n), State(dims, rest)
    for d, own in enumerate(dims):
        for axis in axes:
            if axis not in unreduced and not any(axis in other for other in dims) and can_be(d, (*own, axis)):
                yield Hop("slice", axis, d), State(with_axes(d, (*own, axis)), unreduced)
    for d, own in enumerate(dims):
        if not own:
            continue
        axis, n, less = own[-1], counts[own[-1]], with_axes(d, own[:-1])
        for e, other in enumerate(dims):
            if e != d and can_be(e, (*other, axis)):
                after = State(with_axes(e, (*other, axis), less), unreduced)
                yield Hop("all_to_all", axis, e, d, local * (n - 1) / n), after
        yield Hop("all_gather", axis, d, bytes=local * (n - 1)), State(less, unreduced)
