"""Emitter of scatters: windows of updates are scattered into an array in place, in the order of their indices. Hero:
one of the `Scatter` family.

Updates of one element happen in order, so the loop over indices is serial, with lanes along a window. Threads share
disjoint work: batches, windows with unique indices, or slices of a dimension that windows cover completely. Many
scalars are partitioned first (`scatter_split.py`); on GPUs many windows are sorted (`scatter_sorted.py`). Sums and
products of short floats are accumulated in a wider dtype, in separate memory that is rounded at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.base import dtypes
from weft.compiler.emit.emission import Emission, Fusion, KernelWriter, storage
from weft.compiler.emit.gather_windows import first_of_window
from weft.compiler.emit.maps.loop import nest
from weft.compiler.emit.maps.scatter_sorted import can_sort, emit_by_sorting
from weft.compiler.emit.maps.scatter_split import emit_split, fits_split
from weft.compiler.emit.maps.update import begin_update
from weft.compiler.emit.result_slices import FEW, copy_lanes
from weft.compiler.emit.values import MultiIndex, expand, get_space, row_major
from weft.compiler.kernel.ir import Buffer, Index, LoopKind, Value
from weft.primitives.families import remaining_axes
from weft.primitives.movement.gather import GatherScatterMode, window_index
from weft.primitives.movement.scatter import window_dims, window_sizes
from weft.primitives.movement.scatter_flagged import get_scatter

# For bools, sums are `or` and products are `and`.
BOOL_OPERATIONS = {"add": "or", "mul": "and", "min": "and", "max": "or"}
# Widest slice of a window, in registers, that lanes process at a time.
REGISTERS = 4
# Threads of a grid: enough to hide latency. Each reads all indices, so more would only add work.
GRID_THREADS = 1 << 15


def emit_scatter(fusion: Fusion) -> Emission:
    """Emit a kernel that updates the hero's first operand; short floats take two more, which widen and round it."""
    hero: Any = fusion.hero
    operand, _, updates = hero.invars
    out = hero.outvars[0]
    exact = storage(out)
    wide = dtypes.accumulation_dtype(exact)
    _clear_flag(fusion)
    nothing = not math.prod(operand.aval.shape) or not math.prod(updates.aval.shape)
    # Elements with one update are rounded once, wherever they are stored.
    widened = get_scatter(hero.primitive, hero.params).widens and dtypes.kind(exact) == "f" and wide != exact
    needed = out in fusion.results  # else it is done for the flag alone
    if needed and (nothing or not widened or hero.params["unique_indices"]):
        updated = begin_update(fusion)
        if not nothing:
            _emit(fusion, lambda writer: writer.result(out), wide if widened else exact)
        return fusion.finish(updated=updated)
    if nothing:
        return fusion.finish()
    accumulated = fusion.new_scratch(wide, math.prod(operand.aval.shape))
    writer = fusion.writer("widen")

    def widen(index: MultiIndex) -> None:
        value = writer.values.at(operand, expand(operand, index))
        offset = row_major(operand.aval.shape, expand(operand, index))
        writer.k.store(writer.scratch(accumulated), offset, writer.k.scalars.convert(value, wide))

    nest(writer.k, get_space(operand), writer.lanes, widen)
    _emit(fusion, lambda writer: writer.scratch(accumulated), wide)
    if not needed:
        return fusion.finish()
    last = fusion.writer("round")

    def store_rounded(index: MultiIndex) -> None:
        offset = row_major(operand.aval.shape, expand(operand, index))
        last.store(out, index, last.k.scalars.convert(last.k.load(last.scratch_input(accumulated), offset), exact))

    nest(last.k, get_space(out), last.lanes, store_rounded)
    return fusion.finish()


def _clear_flag(fusion: Fusion) -> None:
    """Emit a kernel that clears the flag, if there is one, since the kernel that sets it may run in several threads."""
    hero: Any = fusion.hero
    for flag in (v for v in hero.outvars[1:] if v in fusion.results):
        writer = fusion.writer("clear")
        writer.k.store(writer.result(flag), Index(), writer.k.constant(False, dtypes.bool_))


def _emit(fusion: Fusion, buffer_of: Callable[[KernelWriter], Buffer], wide: Any) -> None:
    """Emit one kernel, or several for many scalars, that store into the buffer that `buffer_of` returns."""

    def make_scattering(writer: KernelWriter) -> ScatterKernel:
        return ScatterKernel(fusion, writer, buffer_of, wide)

    some = make_scattering(KernelWriter(fusion, "none"))
    if can_sort(some):
        emit_by_sorting(fusion, make_scattering)
    elif fits_split(some):
        emit_split(fusion, make_scattering)
    else:
        make_scattering(fusion.writer("scatter")).emit()


class ScatterKernel:
    """One kernel: loops over batches, indices and windows that store into the buffer that `buffer_of` returns for a
    writer, computing in `wide`."""

    def __init__(
        self, fusion: Fusion, writer: KernelWriter, buffer_of: Callable[[KernelWriter], Buffer], wide: Any
    ) -> None:
        self.fusion, self.writer, self.k, self.buffer_of, self.wide = fusion, writer, writer.k, buffer_of, wide
        hero: Any = fusion.hero
        self.hero = hero
        operand, self.indices, self.updates = hero.invars
        self.shape: tuple[int, ...] = operand.aval.shape
        self.dimension_numbers = hero.params["dimension_numbers"]
        self.sizes = window_sizes(len(self.shape), self.updates.aval.shape, self.dimension_numbers)
        self.window_dims = window_dims(len(self.shape), self.dimension_numbers)
        self.many = self.indices.aval.shape[:-1]
        self.pairs = list(
            zip(
                self.dimension_numbers.operand_batching_dims,
                self.dimension_numbers.scatter_indices_batching_dims,
                strict=True,
            )
        )
        self.width = copy_lanes(fusion)
        self.clip = hero.params["mode"] is GatherScatterMode.CLIP
        self.op = get_scatter(hero.primitive, hero.params).operation
        self.flags = [v for v in hero.outvars[1:] if v in fusion.results]
        self.flags_outside = bool(self.flags) and hero.params["outside"]
        self.flags_nan = bool(self.flags) and hero.params["nan"]
        if self.op is not None and wide == dtypes.bool_:
            self.op = BOOL_OPERATIONS[self.op]

    def emit(self) -> None:
        """Emit the loop over threads if there is one, then loops over batches, indices in order, and the window."""
        batched = [e for _, e in self.pairs if self.many[e] != 1]
        # No two windows overlap, unless they were clamped.
        apart = self.hero.params["unique_indices"] and not self.clip
        if apart and not self.pairs and not self.flags and all(size == 1 for size in self.sizes):
            self._scalars_apart()
            return
        if not batched and apart:
            batched = [e for e, size in enumerate(self.many) if size >= FEW]
        first = max(batched, key=lambda e: self.many[e], default=None)
        order = [] if first is None else [first]
        order += [e for e in batched if e != first]
        order += [e for e in range(len(self.many)) if e not in order]
        blocks = None if batched else self._blocks()
        if blocks is None:
            self._over_indices(order, {}, bool(batched), None)
            return
        axis, block = blocks
        parts = -(-self.sizes[axis] // block)
        shares = self._shares(parts)
        if shares == 1:
            with self.k.loop(parts, kind=LoopKind.THREADS) as part:
                self._over_indices(order, {}, False, (axis, block, part * block, None))
            return
        with self.k.loop(parts * shares, kind=LoopKind.THREADS) as task:
            position = self.k.scalars.convert(self.k.position(Index.of(task)), dtypes.uint32)
            count = self.k.constant(parts, dtypes.uint32)
            share = self.k.compute("div", position, count)
            own = Index.of(self.k.compute("rem", position, count))
            self._over_indices(order, {}, False, (axis, block, own * block, (share, shares)))

    def _scalars_apart(self) -> None:
        """Scatter distinct single elements, with lanes along the indices."""

        def body(index: MultiIndex) -> None:
            rest = iter(index)
            many = tuple(Index() if size == 1 else next(rest) for size in self.many)
            begin, inside = self.start(many)
            self._combine(self.offset(many, {}, begin), self.update(many, {}), inside)

        nest(self.k, [size for size in self.many if size != 1], self.writer.lanes, body)

    def _blocks(self) -> tuple[int, int] | None:
        """Return a window dimension to split for threads and the length of a part. If windows cover a dimension
        completely, equal parts of all windows are disjoint from the others.
        """
        width = REGISTERS * self.width
        for d in self.window_dims:
            covered = d not in self.dimension_numbers.scatter_dims_to_operand_dims
            last = d == self._lane_dim()
            if covered and self.sizes[d] >= (4 * width if last else 4):
                return d, 2 * width if last else 1
        return None

    def _shares(self, parts: int) -> int:
        """Return among how many threads the windows of each part are divided. A thread has the windows whose start is
        congruent to its number, so all updates of an element belong to one thread, in order. 1 on CPUs.
        """
        count = math.prod(self.many)
        if not self.fusion.target.grid_bytes or self.flags or not self.dimension_numbers.scatter_dims_to_operand_dims:
            return 1
        wanted = min(GRID_THREADS // parts, count // 8)
        result: int = 1 << max(wanted.bit_length() - 1, 0)
        return result

    def _lane_dim(self) -> int | None:
        """Return the last dimension in which a window has more than one element."""
        return next((d for d in reversed(self.window_dims) if self.sizes[d] != 1), None)

    def _over_indices(self, order: Sequence[int], indices: dict[int, Index], threads: bool, part: Any) -> None:
        if not order:
            self._window(tuple(indices[e] for e in range(len(self.many))), part)
            return
        dimension, *rest = order
        if self.many[dimension] == 1:
            self._over_indices(rest, {**indices, dimension: Index()}, threads, part)
            return
        with self.k.loop(self.many[dimension], kind=LoopKind.THREADS if threads else LoopKind.SERIAL) as i:
            self._over_indices(rest, {**indices, dimension: Index.of(i)}, False, part)

    def _window(self, many: MultiIndex, part: Any) -> None:
        """Emit one window: its start, and loops over its elements."""
        k = self.k
        begin, inside = self.start(many)
        dims = [d for d in self.window_dims if self.sizes[d] != 1]

        def store(inner: dict[int, Index]) -> Value:
            return self._element(many, inner, begin)

        if part is not None and part[3] is not None:
            own = self._is_own(begin, *part[3])
            inside = own if inside is None else k.compute("and", inside, own)
        if inside is None:
            self._over_window(dims, {}, part, store)
            return
        if self.flags_outside:
            self.set_flag(k.compute("not", inside))
        with k.when(inside):
            self._over_window(dims, {}, part, store)

    def _is_own(self, begin: dict[int, Index], share: Value, shares: int) -> Value:
        """Return whether a window belongs to a share."""
        k = self.k
        first = self.dimension_numbers.scatter_dims_to_operand_dims[0]
        index = k.scalars.convert(k.position(begin[first]), dtypes.uint32)
        return k.compute("eq", k.compute("and", index, k.constant(shares - 1, dtypes.uint32)), share)

    def start(self, many: MultiIndex) -> tuple[dict[int, Index], Value | None]:
        """Return the start of a window in the indexed dimensions, and the condition that it is in bounds (None:
        always).
        """
        starts = self.dimension_numbers.scatter_dims_to_operand_dims
        vector = [self.writer.values.at(self.indices, (*many, Index(c))) for c in range(len(starts))]
        limits = [self.shape[d] - self.sizes[d] for d in starts]
        first, inside = first_of_window(self.k, vector, limits, self.clip)
        return dict(zip(starts, first, strict=True)), inside

    def set_flag(self, found: Value) -> None:
        """Set the flag, if a scalar condition holds."""
        with self.k.when(found):
            self.k.store(self.writer.result(self.flags[0]), Index(), self.k.constant(True, dtypes.bool_))

    def _over_window(
        self, dims: Sequence[int], inner: dict[int, Index], part: Any, store: Callable[[dict[int, Index]], Value]
    ) -> None:
        if not dims:
            self._flag_nan(store(inner))
            return
        d, *rest = dims
        size, offset, limit = self.sizes[d], Index(), None
        if part is not None and part[0] == d:
            size, offset = part[1], Index.of(part[2])
            limit = None if self.sizes[d] % size == 0 else Index(self.sizes[d]) - offset
        lanes = not rest
        width = self._row_width(size) if lanes else 1
        if lanes and self.flags_nan:
            clean = self.k.constant(False, dtypes.bool_)
            with self.k.loop(size, kind=LoopKind.LANES, width=width, carries=[clean], limit=limit) as (i, (before,)):
                value = store({**inner, d: offset + i})
                (found,) = self.k.carry(self.k.compute("or", before, self.k.compute("ne", value, value)))
            self.set_flag(self.k.reduce_lanes("or", found, width))
            return
        with self.k.loop(size, kind=LoopKind.LANES if lanes else LoopKind.SERIAL, width=width, limit=limit) as i:
            self._over_window(rest, {**inner, d: offset + i}, part, store)

    def _row_width(self, size: int) -> int:
        """Return the lanes for a row: up to a few registers, and no more lanes than the row has elements."""
        return min(REGISTERS * self.width, 1 << max(size.bit_length() - 1, 0))

    def _element(self, many: MultiIndex, inner: dict[int, Index], begin: dict[int, Index]) -> Value:
        """Combine an element of a window with its update; returns the new value."""
        return self._combine(self.offset(many, inner, begin), self.update(many, inner))

    def offset(self, many: MultiIndex, inner: dict[int, Index], begin: dict[int, Index]) -> Index:
        """Return the offset in the buffer of an element of a window."""
        index = window_index(len(self.shape), (begin, inner, {d: many[e] for d, e in self.pairs}))
        return row_major(self.shape, [Index.of(i) for i in index])

    def update(self, many: MultiIndex, inner: dict[int, Index]) -> Value:
        """Read an element of an update, at index 0 of dimensions that are missing."""
        rank = len(self.updates.aval.shape)
        window = self.dimension_numbers.update_window_dims
        found = dict(zip(remaining_axes(rank, window), many, strict=True))
        found.update(zip(window, (inner.get(d, Index()) for d in self.window_dims), strict=True))
        return self.writer.values.at(self.updates, tuple(found[axis] for axis in range(rank)))

    def combine(self, offset: Index, update: Value) -> None:
        """Combine an update with an element of the buffer, outside of loops over lanes."""
        self._flag_nan(self._combine(offset, update))

    def _flag_nan(self, value: Value) -> None:
        if self.flags_nan:
            self.set_flag(self.k.compute("ne", value, value))

    def _combine(self, offset: Index, update: Value, condition: Value | None = None) -> Value:
        k, buffer = self.k, self.buffer_of(self.writer)
        combined = update
        if self.op is not None:
            there = k.scalars.convert(k.load(buffer, offset, condition), self.wide)
            new = k.compute(self.op, there, k.scalars.convert(update, self.wide))
            combined = k.scalars.convert(new, buffer.dtype)
        k.store(buffer, offset, combined, condition)
        return combined
