"""Many scalars scattered into a large array, by several threads.

The array is split into parts, each small enough for a cache. Blocks of the updates count how many go to each part; from
these counts each block knows where to put its updates, in their order, so that those of one part are contiguous. Parts
are then updated independently. Updates of one element keep their order, and nothing depends on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.emit.emission import Fusion, KernelWriter
from weft.compiler.emit.values import MultiIndex, row_major
from weft.compiler.kernel.ir import Index, LoopKind, Value

if TYPE_CHECKING:
    from weft.compiler.emit.maps.scatter import ScatterKernel

# Updates and bytes of an array from which partitioning pays off: smaller arrays are in a cache anyway.
LEAST, LARGE = 1 << 17, 3 << 20
# Blocks of updates that threads share; parts of the array: their bytes, and how many there are at most. Updates and
# offsets are written to two lines for each part, and with many more of these caches lose them before they are full.
BLOCKS, PART, MOST = 16, 1 << 17, 32
COUNT = dtypes.uint32
# Bytes of a cache line.
LINE = 64


def fits_split(scattering: ScatterKernel) -> bool:
    """Return whether updates are single elements, many of them, that may go anywhere in a large array."""
    params, size = scattering.hero.params, math.prod(scattering.shape)
    if params["unique_indices"] or params["indices_are_sorted"] or scattering.pairs:
        return False
    many = [n for n in scattering.many if n != 1]
    single = all(n == 1 for n in scattering.sizes)
    large = size * scattering.wide.itemsize >= LARGE and size < 1 << 31
    return single and large and LEAST <= math.prod(many) < 1 << 31 and many[0] >= BLOCKS


@dataclass(frozen=True)
class ScatterSplit:
    """How updates are partitioned: an offset >> `shift` is its part. Scratch: `counts` has the counts of blocks,
    `starts` where the updates of parts begin, `ranks` the rank of an update among those of its block and part,
    `offsets` and `updates` the partitioned updates."""

    fusion: Fusion
    make_scattering: Callable[[KernelWriter], ScatterKernel]
    shift: int
    parts: int
    counts: int
    starts: int
    ranks: int
    offsets: int
    updates: int

    def written_by(self, name: str) -> ScatterKernel:
        """Start the next kernel; return the scatter as seen by it."""
        return self.make_scattering(self.fusion.writer(name, final=True))


def emit_split(fusion: Fusion, make_scattering: Callable[[KernelWriter], ScatterKernel]) -> None:
    """Emit kernels that count, scan the counts, partition the updates and apply them. `make_scattering` returns the
    scatter as seen by one kernel."""
    some = make_scattering(KernelWriter(fusion, "none"))
    size, many = math.prod(some.shape), math.prod(some.many)
    shift = max((PART // some.wide.itemsize).bit_length() - 1, (size - 1).bit_length() - (MOST.bit_length() - 1))
    parts = (size - 1 >> shift) + 1
    split = ScatterSplit(
        fusion,
        make_scattering,
        shift,
        parts,
        fusion.new_scratch(COUNT, BLOCKS * (parts + 1)),
        fusion.new_scratch(COUNT, parts + 1),
        fusion.new_scratch(COUNT, many),
        fusion.new_scratch(dtypes.uint32, many),
        fusion.new_scratch(fusion.kernel_dtype(some.updates), many),
    )
    _count(split)
    _scan_counts(split)
    _partition_updates(split)
    _update(split)


def _over_block(scattering: ScatterKernel, block: Index, visit: Callable[[MultiIndex], None]) -> None:
    """Write loops over the updates of a block, in their order."""
    k, many = scattering.k, scattering.many
    shared = next(e for e, size in enumerate(many) if size != 1)
    length = -(-many[shared] // BLOCKS)
    begin = block * length
    limit = None if length * BLOCKS == many[shared] else Index(many[shared]) - begin
    with ExitStack() as stack:
        index = []
        for e, size in enumerate(many):
            if e == shared:
                index.append(begin + stack.enter_context(k.loop(length, limit=limit)))
            else:
                index.append(Index() if size == 1 else Index.of(stack.enter_context(k.loop(size))))
        visit(tuple(index))


def _target(split: ScatterSplit, scattering: ScatterKernel, index: MultiIndex) -> tuple[Value, Index]:
    """Return the offset of an update in the array and its part. Updates out of bounds have the last part to
    themselves.
    """
    k = scattering.k
    begin, inside = scattering.start(index)
    offset = k.scalars.convert(k.position(scattering.offset(index, {}, begin)), dtypes.uint32)
    part = k.compute("shift_right_logical", offset, k.constant(split.shift, offset.dtype))
    if inside is not None:
        part = k.compute("select_n", inside, k.constant(split.parts, part.dtype), part)
    return offset, Index.of(part)


def _count(split: ScatterSplit) -> None:
    """Emit the kernel that counts each block's updates of each part, and for each update those before it in the same
    part. So no later kernel waits for a value that it stored to know where to store next.
    """
    scattering = split.written_by("scatter_count")
    k, writer = scattering.k, scattering.writer
    counts, ranks = writer.scratch(split.counts), writer.scratch(split.ranks)
    one, none = k.constant(1, COUNT), k.constant(0, COUNT)
    with k.loop(BLOCKS, kind=LoopKind.THREADS) as block:
        own = block * (split.parts + 1)
        with k.loop(split.parts + 1, kind=LoopKind.LANES, width=scattering.width) as part:
            k.store(counts, own + part, none)

        def visit(index: MultiIndex) -> None:
            _, part = _target(split, scattering, index)
            before = k.load(counts, own + part)
            k.store(counts, own + part, k.compute("add", before, one))
            k.store(ranks, row_major(scattering.many, index), before)

        _over_block(scattering, Index.of(block), visit)
        if scattering.flags_outside:
            scattering.set_flag(k.compute("ne", k.load(counts, own + split.parts), none))


def _scan_counts(split: ScatterSplit) -> None:
    """Emit the kernel that computes where each block puts its first update of each part, and where parts begin."""
    scattering = split.written_by("scatter_scan")
    k, writer = scattering.k, scattering.writer
    counts, starts = writer.scratch(split.counts), writer.scratch(split.starts)
    with k.loop(split.parts + 1, carries=[k.constant(0, COUNT)]) as (part, (total,)):
        k.store(starts, part, total)
        with k.loop(BLOCKS, carries=[total]) as (block, (begin,)):
            at = block * (split.parts + 1) + part
            held = k.load(counts, at)
            k.store(counts, at, begin)
            (begin,) = k.carry(k.compute("add", begin, held))
        k.carry(begin)


def _partition_updates(split: ScatterSplit) -> None:
    """Write the updates of each part, and their offsets, one after the other."""
    scattering = split.written_by("scatter_partition")
    k, writer = scattering.k, scattering.writer
    counts, ranks = (writer.scratch_input(n) for n in (split.counts, split.ranks))
    offsets, updates = (writer.scratch(n) for n in (split.offsets, split.updates))
    with k.loop(BLOCKS, kind=LoopKind.THREADS) as block:

        def visit(index: MultiIndex) -> None:
            offset, part = _target(split, scattering, index)
            update = scattering.update(index, {})
            first = k.load(counts, block * (split.parts + 1) + part)
            target = Index.of(k.compute("add", first, k.load(ranks, row_major(scattering.many, index))))
            for buffer, value in ((offsets, offset), (updates, update)):
                k.prefetch(buffer, target + LINE // buffer.dtype.itemsize)
                k.store(buffer, target, value)

        _over_block(scattering, Index.of(block), visit)


def _update(split: ScatterSplit) -> None:
    """Apply the updates of each part, in their order."""
    scattering = split.written_by("scatter")
    k, writer = scattering.k, scattering.writer
    starts, offsets, updates = (writer.scratch_input(n) for n in (split.starts, split.offsets, split.updates))
    with k.loop(split.parts, kind=LoopKind.THREADS) as part:
        begin = k.load(starts, part)
        size = k.compute("sub", k.load(starts, part + 1), begin)
        with k.loop(updates.size, limit=Index.of(size)) as i:
            offset = Index.of(k.load(offsets, Index.of(begin) + i))
            scattering.combine(offset, k.load(updates, Index.of(begin) + i))
