"""Exchange of boxes of an array between processes: each receives only the elements that it lacks.

An array is split into boxes, each owned by one or several processes; each process wants other boxes. All processes know
both, so each computes by itself what it sends and receives, in one message between any two processes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.runtime.processes.transport import Message
from weft.runtime.processes.world import World, together

Box = tuple[tuple[int, int], ...]  # start and end in each dimension


class Piece(NamedTuple):
    """Elements in `box` of the array, contained in the box `source` of process `sender`, that another process wants."""

    box: Box
    source: Box
    sender: int


def slice_box(index: Sequence[slice], shape: Sequence[int]) -> Box:
    """Return the box of an array that slices select."""
    return tuple(s.indices(size)[:2] for s, size in zip(index, shape, strict=True))


def box_size(box: Box) -> int:
    """Return the number of elements of a box."""
    return math.prod(max(0, end - start) for start, end in box)


def _common(a: Box, b: Box) -> Box:
    return tuple((max(s, t), min(e, f)) for (s, e), (t, f) in zip(a, b, strict=True))


def pieces(owners: Mapping[Box, Sequence[int]], wanted: Sequence[Box], rank: int) -> list[Piece]:
    """Return the pieces that make up the boxes that process `rank` wants, each once.

    `owners` has the processes that own each box. A process is its own sender if it can be; otherwise the owners take
    turns.
    """
    found: dict[Box, Piece] = {}
    for box in dict.fromkeys(wanted):
        for source, processes in owners.items():
            common = _common(box, source)
            if box_size(common) and common not in found:
                sender = rank if rank in processes else processes[rank % len(processes)]
                found[common] = Piece(common, source, sender)
    return list(found.values())


def exchange_boxes(
    parts: Mapping[Box, np.ndarray],
    owners: Mapping[Box, Sequence[int]],
    wanted: Mapping[int, Sequence[Box]],
    dtype: Any,
    what: str,
    line: str | None = None,
    world: World | None = None,
) -> list[np.ndarray]:
    """Exchange boxes, and return those that this process wants.

    `parts` are the boxes that it has, and `wanted` those that each process wants. All of them call it together.
    `world` is the current one by default.
    """
    ranks = sorted({*wanted, *(p for processes in owners.values() for p in processes)})
    with together(ranks, what, line=line, world=world) as world:
        rank = world.rank
        tag = world.data_tag(0)
        received: dict[Box, np.ndarray] = {}
        buffers: list[np.ndarray] = []  # kept alive until all messages have ended
        sends, receives = [], []
        for peer in ranks:
            if peer == rank:
                continue
            out = [p for p in pieces(owners, wanted.get(peer, ()), peer) if p.sender == rank]
            if out:
                packed = np.concatenate([_cut(parts[p.source], p.source, p.box).ravel() for p in out])
                buffers.append(packed)
                sends.append(Message(peer, tag, packed.ctypes.data, packed.nbytes))
        own = pieces(owners, wanted.get(rank, ()), rank)
        for peer in ranks:
            into = [p for p in own if p.sender == peer != rank]
            if into:
                sizes = [box_size(p.box) for p in into]
                packed = np.empty(sum(sizes), dtype)
                buffers.append(packed)
                receives.append(Message(peer, tag, packed.ctypes.data, packed.nbytes))
                for p, flat in zip(into, np.split(packed, np.cumsum(sizes)[:-1]), strict=True):
                    received[p.box] = flat.reshape([end - start for start, end in p.box])
        if sends or receives:
            peers = sorted({m.peer for m in (*sends, *receives)})
            world.wait(world.transport.start(sends, receives), peers, what)
    results: dict[Box, np.ndarray] = {}
    for box in wanted.get(rank, ()):
        if box not in results:
            results[box] = np.empty([max(0, end - start) for start, end in box], dtype)
            for p in own:
                common = _common(box, p.box)
                if box_size(common):
                    value = received.get(p.box)
                    from_here = _cut(parts[p.source], p.source, common) if value is None else _cut(value, p.box, common)
                    _cut(results[box], box, common)[...] = from_here
    return [results[box] for box in wanted.get(rank, ())]


def _cut(value: np.ndarray, box: Box, part: Box) -> np.ndarray:
    """Return the part of a box's elements that is in another box."""
    return value[tuple(slice(s - start, e - start) for (s, e), (start, _) in zip(part, box, strict=True))]
