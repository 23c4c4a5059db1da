"""Scatters of many windows on targets whose lanes are threads: updates are sorted by destination.

A cell is a possible position of a window. Stable radix sort brings the updates of a cell together; then one thread per
element of each cell combines them in their order. So results do not depend on the order of threads, and have the bits
of a serial loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.base import dtypes
from weft.compiler.emit.emission import Fusion, KernelWriter
from weft.compiler.emit.sorts.sort_encoding import SortField, as_uint32, fits_word, from_uint32
from weft.compiler.emit.sorts.sort_long_rows import LongRows
from weft.compiler.emit.sorts.sort_rows import Row, SortRows
from weft.compiler.emit.values import row_major
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Buffer, Index, LoopKind, Value

if TYPE_CHECKING:
    from weft.compiler.emit.maps.scatter import ScatterKernel

UINT32, UINT64 = dtypes.uint32, dtypes.uint64
# Updates from which sorting pays off.
LEAST = 1024
# Updates of a cell that are read together, and those where most cells have one or none; cells for each update up to
# which there is a thread for each of them.
TOGETHER, FEW, MOST_CELLS = 8, 4, 2


def can_sort(scattering: ScatterKernel) -> bool:
    """Return whether there are many windows, and any two of them have all elements in common or none."""
    params, count = scattering.hero.params, math.prod(scattering.many)
    indexed = scattering.dimension_numbers.scatter_dims_to_operand_dims
    if not scattering.fusion.target.group_lanes or scattering.flags_nan or not LEAST <= count < 1 << 31:
        return False
    apart = params["unique_indices"] and not scattering.clip
    alike = all(scattering.sizes[d] == 1 for d in indexed)
    return not apart and alike and math.prod(cell_shape(scattering)) < 1 << 31


def cell_dims(scattering: ScatterKernel) -> list[int]:
    """Return the dimensions in which cells differ: the indexed ones and those of batches."""
    return [*scattering.dimension_numbers.scatter_dims_to_operand_dims, *(d for d, _ in scattering.pairs)]


def cell_shape(scattering: ScatterKernel) -> list[int]:
    return [scattering.shape[d] for d in cell_dims(scattering)]


class SortedUpdates(LongRows):
    """Sort of updates by cell: the updates themselves if they are single elements of at most 32 bits, else their
    indices. `codes` is scratch for both, with the cell in the upper half; out-of-bounds updates belong to a cell
    after all others."""

    def __init__(self, fusion: Fusion, make_scattering: Callable[[KernelWriter], ScatterKernel]) -> None:
        self.make_scattering = make_scattering
        some = make_scattering(KernelWriter(fusion, "none"))
        self.cells, self.count = math.prod(cell_shape(some)), math.prod(some.many)
        single = all(size == 1 for size in some.sizes) and fits_word(fusion.kernel_dtype(some.updates))
        payload = "element" if single else "index"
        super().__init__(fusion, SortRows(1, self.count, 1), [[SortField(0, "", self.cells.bit_length())]], payload)
        self.codes = fusion.new_scratch(UINT64, self.count)

    def word(self, writer: KernelWriter, stage: list[SortField], row: Row, i: Index) -> Value:
        scattering, k = self.make_scattering(writer), writer.k
        many = k.digits(i, scattering.many)
        begin, inside = scattering.start(many)
        found = {**begin, **{d: many[e] for d, e in scattering.pairs}}
        at = row_major(cell_shape(scattering), [Index.of(found[d]) for d in cell_dims(scattering)])
        cell = k.scalars.convert(k.position(at), UINT32)
        return cell if inside is None else k.compute("select_n", inside, k.constant(self.cells, UINT32), cell)

    def other(self, writer: KernelWriter, row: Row, i: Index) -> Value:
        if self.payload == "index":
            return super().other(writer, row, i)
        scattering = self.make_scattering(writer)
        return as_uint32(writer.k.scalars, scattering.update(writer.k.digits(i, scattering.many), {}))

    def store_sorted(
        self, writer: KernelWriter, row: Row, at: Value, word: Value, other: Value | None, condition: Value | None
    ) -> None:
        k, s = writer.k, writer.k.scalars
        assert other is not None
        upper = s.shift_left(s.convert(word, UINT64), s.constant(32, UINT64))
        k.store(writer.scratch(self.codes), at, getattr(s, "or")(upper, s.convert(other, UINT64)), condition)


def emit_by_sorting(fusion: Fusion, make_scattering: Callable[[KernelWriter], ScatterKernel]) -> None:
    """Emit kernels that sort updates and apply them. `make_scattering` returns the scatter as seen by one kernel."""
    updates = SortedUpdates(fusion, make_scattering)
    updates.emit()
    if make_scattering(KernelWriter(fusion, "none")).flags_outside:
        _flag_outside(updates)
    if updates.cells <= MOST_CELLS * updates.count:
        _apply_by_cells(updates)
    else:
        _apply_by_updates(updates)


def _flag_outside(updates: SortedUpdates) -> None:
    """Set the flag if the last of the sorted updates is out of bounds."""
    writer = updates.fusion.writer("scatter_flag", final=True)
    k = writer.k
    last = _cell(k, k.load(writer.scratch_input(updates.codes), updates.count - 1))
    updates.make_scattering(writer).set_flag(k.compute("ge", last, k.constant(updates.cells, UINT32)))


def _apply_by_cells(updates: SortedUpdates) -> None:
    """Find the first update of each cell, then combine updates with one thread for each element of each cell."""
    fusion, cells, count = updates.fusion, updates.cells, updates.count
    starts = fusion.new_scratch(UINT32, cells + 1)
    writer = fusion.writer("scatter_starts", final=True)
    k = writer.k
    with k.loop(cells + 1, kind=LoopKind.THREADS) as i:
        cell = k.scalars.convert(k.position(i), UINT32)
        begin = _find_first(k, writer.scratch_input(updates.codes), cell, k.constant(0, UINT32), count)
        k.store(writer.scratch(starts), i, begin)
    applied = UpdateKernel(updates, "scatter")
    k = applied.k
    with k.loop(cells * applied.size, kind=LoopKind.THREADS) as i:
        at, inner = applied.split(Index.of(i), cells)
        table = applied.writer.scratch_input(starts)
        begin = k.load(table, at)
        size = k.compute("sub", k.load(table, at + 1), begin)
        with k.when(k.compute("gt", size, k.constant(0, UINT32))):
            cell = k.scalars.convert(k.position(at), UINT32)
            applied.combine(cell, begin, size, inner)


def _apply_by_updates(updates: SortedUpdates) -> None:
    """Combine updates with one thread for each element of each update; only the thread of a cell's first update
    works. A few updates are combined at once, the rest (mostly none) in a loop.
    """
    count, applied = updates.count, UpdateKernel(updates, "scatter")
    k, codes = applied.k, applied.codes
    with k.loop(count * applied.size, kind=LoopKind.THREADS) as i:
        at, inner = applied.split(Index.of(i), count)
        own = k.scalars.convert(k.position(at), UINT32)
        cell = _cell(k, k.load(codes, at))
        before = k.compute("max", own, k.constant(1, UINT32))
        differs = k.compute("ne", _cell(k, k.load(codes, Index.of(before) - 1)), cell)
        first = k.compute("or", differs, k.compute("eq", own, k.constant(0, UINT32)))
        inside = k.compute("lt", cell, k.constant(updates.cells, UINT32))
        with k.when(k.compute("and", first, inside)):
            size, more = k.constant(1, UINT32), k.constant(True, dtypes.bool_)
            for n in range(1, FEW + 1):
                next_one = k.compute("min", k.scalars.convert(k.position(at + n), UINT32), applied.last)
                same = k.compute("eq", _cell(k, k.load(codes, Index.of(next_one))), cell)
                new = k.compute("gt", next_one, k.scalars.convert(k.position(at + (n - 1)), UINT32))
                more = k.compute("and", more, k.compute("and", same, new))
                if n < FEW:
                    size = k.compute("add", size, k.scalars.convert(more, UINT32))
            applied.combine(cell, own, size, inner, few=True)
            with k.when(more):
                rest = k.compute("add", own, k.constant(FEW, UINT32))
                end = _find_first(k, codes, k.compute("add", cell, k.constant(1, UINT32)), rest, count)
                applied.combine(cell, rest, k.compute("sub", end, rest), inner)


class UpdateKernel:
    """Kernel that combines updates with elements, for windows of `size` elements."""

    def __init__(self, updates: SortedUpdates, name: str) -> None:
        self.writer = updates.fusion.writer(name, final=True)
        self.k, self.scattering = self.writer.k, updates.make_scattering(self.writer)
        self.updates = updates
        self.codes = self.writer.scratch_input(updates.codes)
        self.last = self.k.constant(updates.count - 1, UINT32)
        self.count = updates.count
        self.dims = [d for d in self.scattering.window_dims if self.scattering.sizes[d] != 1]
        self.size = math.prod(self.scattering.sizes[d] for d in self.dims)

    def split(self, i: Index, count: int) -> tuple[Index, dict[int, Index]]:
        """Split an iteration into the cell or update, below `count`, and the index in its window."""
        at, *inner = self.k.digits(i, (count, *(self.scattering.sizes[d] for d in self.dims)))
        return at, dict(zip(self.dims, inner, strict=True))

    def update_at(self, at: Value, inner: dict[int, Index]) -> Value:
        """Read an element of the update at an index of the sorted updates."""
        k, scattering = self.k, self.scattering
        found = k.scalars.convert(k.load(self.codes, Index.of(at)), UINT32)
        if self.updates.payload == "element":
            return from_uint32(k.scalars, found, self.updates.fusion.kernel_dtype(scattering.updates))
        return scattering.update(k.digits(Index.of(found), scattering.many), inner)

    def offset(self, cell: Value, inner: dict[int, Index]) -> Index:
        """Return the offset in the buffer of an element of a cell."""
        scattering = self.scattering
        begin = self.k.digits(Index.of(cell), cell_shape(scattering))
        found = {**dict.fromkeys(range(len(scattering.shape)), Index()), **inner}
        found.update(zip(cell_dims(scattering), begin, strict=True))
        return row_major(scattering.shape, [found[d] for d in range(len(scattering.shape))])

    def combine(self, cell: Value, begin: Value, size: Value, inner: dict[int, Index], few: bool = False) -> None:
        """Combine `size` updates of a cell, at least one, from an index of the sorted ones on, with the element. If
        there are `few`, they are no more than are read together."""
        k, s, scattering = self.k, self.k.scalars, self.scattering
        buffer: Buffer = scattering.buffer_of(self.writer)
        offset = self.offset(cell, inner)
        last = k.compute("sub", k.compute("add", begin, size), k.constant(1, UINT32))
        if scattering.op is None:
            k.store(buffer, offset, s.convert(self.update_at(last, inner), buffer.dtype))
            return
        held = s.convert(k.load(buffer, offset), scattering.wide)
        if few:
            total = self.several(FEW, begin, Index(), last, held, inner)
        else:
            with k.loop(self.count, step=TOGETHER, limit=Index.of(size), carries=[held]) as (j, (so_far,)):
                (total,) = k.carry(self.several(TOGETHER, begin, Index.of(j), last, so_far, inner))
        k.store(buffer, offset, s.convert(total, buffer.dtype))

    def several(self, count: int, begin: Value, j: Index, last: Value, total: Value, inner: dict[int, Index]) -> Value:
        """Combine a total with up to `count` further updates. All are read before the first is added; beyond the last
        one it is read again and ignored.
        """
        k, s, scattering = self.k, self.k.scalars, self.scattering
        found = []
        for n in range(count):
            at = s.convert(k.position(Index.of(begin) + j + n), UINT32)
            update = self.update_at(k.compute("min", at, last), inner)
            found.append((k.compute("le", at, last), s.convert(update, scattering.wide)))
        assert scattering.op is not None
        for holds, update in found:
            total = k.compute("select_n", holds, total, k.compute(scattering.op, total, update))
        return total


def _cell(k: KernelBuilder, word: Value) -> Value:
    """Return the cell of a sorted word."""
    return k.scalars.convert(k.compute("shift_right_logical", word, k.constant(32, UINT64)), UINT32)


def _find_first(k: KernelBuilder, codes: Buffer, cell: Value, begin: Value, count: int) -> Value:
    """Find by bisection the first of `count` sorted words, from `begin` on, whose cell is not less than `cell`."""
    one = k.constant(1, UINT32)
    with k.loop(count.bit_length(), carries=[begin, k.constant(count, UINT32)]) as (_, (low, high)):
        middle = k.compute("shift_right_logical", k.compute("add", low, high), one)
        # Where nothing is left between them, both stay.
        at = k.compute("min", middle, k.constant(count - 1, UINT32))
        less = k.compute("lt", _cell(k, k.load(codes, Index.of(at))), cell)
        left = k.compute("lt", low, high)
        upper = k.compute("and", left, less)
        lower = k.compute("and", left, k.compute("not", less))
        next_low = k.compute("select_n", upper, low, k.compute("add", middle, one))
        found, _ = k.carry(next_low, k.compute("select_n", lower, high, middle))
    return found
