"""Parts of an array from processes that have them to processes that want them: each is sent only what it lacks.

An array is split into boxes, each of which one or several processes have; what a process wants are other boxes. All
know both, so each computes by itself what it sends and receives, and there is one message between two processes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.runtime.processes.transport import Message
from weft.runtime.processes.world import World, together

Box = tuple[tuple[int, int], ...]  # for each dimension where it begins and ends


class Piece(NamedTuple):
    """Elements in `box` that one process has, in its part `source`, and another one wants."""

    box: Box
    source: Box
    sender: int


def box_of(index: Sequence[slice], shape: Sequence[int]) -> Box:
    """The box that slices cut out of an array."""
    return tuple(s.indices(size)[:2] for s, size in zip(index, shape, strict=True))


def size_of(box: Box) -> int:
    """How many elements a box has."""
    return math.prod(max(0, end - start) for start, end in box)


def _common(a: Box, b: Box) -> Box:
    return tuple((max(s, t), min(e, f)) for (s, e), (t, f) in zip(a, b, strict=True))


def pieces(owners: Mapping[Box, Sequence[int]], wanted: Sequence[Box], rank: int) -> list[Piece]:
    """Of what boxes that process `rank` wants consist, each piece once. `owners` has the processes of each part. What
    it has itself it takes from there; else processes that have the same take turns."""
    found: dict[Box, Piece] = {}
    for box in dict.fromkeys(wanted):
        for source, processes in owners.items():
            common = _common(box, source)
            if size_of(common) and common not in found:
                sender = rank if rank in processes else processes[rank % len(processes)]
                found[common] = Piece(common, source, sender)
    return list(found.values())


def moved(
    parts: Mapping[Box, np.ndarray],
    owners: Mapping[Box, Sequence[int]],
    wanted: Mapping[int, Sequence[Box]],
    dtype: Any,
    what: str,
    line: str | None = None,
    world: World | None = None,
) -> list[np.ndarray]:
    """The boxes that this process wants. `parts` are those that it has, and `wanted` what each process wants; all of
    them call it together. `world` is the current one by default."""
    ranks = sorted({*wanted, *(p for processes in owners.values() for p in processes)})
    with together(ranks, what, line=line, world=world) as world:
        rank = world.rank
        tag = world.data_tag(0)
        received: dict[Box, np.ndarray] = {}
        buffers: list[np.ndarray] = []  # what is sent and received stays until the end
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
                sizes = [size_of(p.box) for p in into]
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
                if size_of(common):
                    value = received.get(p.box)
                    from_here = _cut(parts[p.source], p.source, common) if value is None else _cut(value, p.box, common)
                    _cut(results[box], box, common)[...] = from_here
    return [results[box] for box in wanted.get(rank, ())]


def _cut(value: np.ndarray, box: Box, part: Box) -> np.ndarray:
    """A part of what is in a box, by its own box."""
    return value[tuple(slice(s - start, e - start) for (s, e), (start, _) in zip(part, box, strict=True))]
