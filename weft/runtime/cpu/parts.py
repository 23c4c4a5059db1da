"""Scatter and gather of host arrays: each element is copied once, by the calling thread."""

from __future__ import annotations

import struct
from ctypes import memmove
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.runtime.cpu import memory

if TYPE_CHECKING:
    from weft.runtime.layouts import Layout


def scatter(value: np.ndarray, layout: Layout) -> tuple[bytes, Any]:
    """Copy the shards of an array; return their addresses and allocations.

    The allocations are a list if each shard has one of its own, which a program may reuse; equal shards share one.
    """
    placements, firsts = layout.placements, layout.firsts
    count = len(placements)
    size = layout.part_bytes
    held: Any
    if size > memory.SMALL:
        distinct = sorted(set(firsts))
        blocks = memory.take_each([placements[i].memory.pool for i in distinct], size)
        if len(distinct) == count:
            held, addresses = blocks, [b.address for b in blocks]
        else:
            by_first = dict(zip(distinct, blocks, strict=True))
            # Several shards share a block, so a program has to copy a shard before it writes to it.
            held = blocks[0] if len(blocks) == 1 else tuple(by_first[i] for i in firsts)
            addresses = [by_first[i].address for i in firsts]
    else:
        stride = memory.rounded_up(size)
        first, held = placements[0].memory.allocate(stride * count)
        addresses = [first + i * stride for i in firsts]
    _copy(value, layout, addresses)
    return struct.pack(f"{count}q", *addresses), held


def _copy(value: np.ndarray, layout: Layout, addresses: list[int]) -> None:
    size = layout.part_bytes
    if layout.offsets is not None and value.flags.c_contiguous:
        source = value.__array_interface__["data"][0]
        for i, (first, offset) in enumerate(zip(layout.firsts, layout.offsets, strict=True)):
            if i == first:
                memmove(addresses[i], source + offset, size)
        return
    for i, first in enumerate(layout.firsts):
        if i == first:
            memory.view(addresses[i], layout.part_shape, layout.dtype)[...] = layout.pad_shard(value[layout.indices[i]])


def gather(addresses: bytes, layout: Layout) -> tuple[np.ndarray, Any]:
    """Copy the shards at these addresses to one read-only array; return it and its allocation."""
    size = layout.bytes
    block = None
    if size > memory.SMALL:
        block = layout.placements[0].memory.pool.take(size)
        whole = block.view(block.address, layout.shape, layout.dtype)
    else:
        whole = np.empty(layout.shape, layout.dtype)
    parts = struct.unpack(f"{len(layout.placements)}q", addresses)
    if layout.offsets is not None:
        target = whole.__array_interface__["data"][0]
        for i, (first, offset) in enumerate(zip(layout.firsts, layout.offsets, strict=True)):
            if i == first:
                memmove(target + offset, parts[i], layout.part_bytes)
    else:
        for i, first in enumerate(layout.firsts):
            if i == first:
                out = whole[layout.indices[i]]
                part = memory.view(parts[i], layout.part_shape, layout.dtype)
                out[...] = part[tuple(map(slice, out.shape))]
    whole.flags.writeable = False
    return whole, block
