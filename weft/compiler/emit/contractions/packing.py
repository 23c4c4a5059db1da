"""Copies of operands in the order in which a contraction reads them, as kernels that run before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.contractions.contraction_loops import (
    ContractionAxis,
    ContractionLoops,
    Coordinates,
    OperandAccess,
    OperandReader,
    access as access_of,
    divides,
    may_be_several,
    sum_dtype,
)
from weft.compiler.emit.contractions.tiling import TilingPlan
from weft.compiler.emit.emission import Fusion, KernelWriter
from weft.compiler.emit.maps.transpose import SHORT_SIDE, SIDE, transpose_square
from weft.compiler.emit.values import row_major
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, LoopKind, Value
from weft.indexing.dimension import definitely_less_equal
from weft.indexing.expression import Expression, Integer

# Rows of a transposed copy that are written together.
ROWS = 64
# Up to this size a copy uses short squares: it takes microseconds either way, but long ones take milliseconds to
# compile.
SMALL_COPY_BYTES = 1 << 18


def pack(
    fusion: Fusion, contraction: ContractionLoops, plan: TilingPlan, operand: OperandReader, access: OperandAccess
) -> OperandReader:
    """Emit a kernel that packs an operand for a plan; return a reader of the copy.

    The order is: free axes without lanes, panels of lanes, the axes of K, and last the lanes of a panel. The last
    panel is padded with zeros, so that it is read without masks, and its sums cost no more than others.
    """
    dtype = sum_dtype(contraction.compute)
    lanes = plan.lanes if plan.lanes is not None and plan.lanes in access.strides and not plan.lanes_along_k else None
    free = [a for a in contraction.free if a in access.strides and a is not lanes]
    k_axes = [a for a in plan.k_axes if a in access.strides]
    panels = 1 if lanes is None else -(-lanes.size // plan.width)
    sizes = [*(a.size for a in free), panels, *(a.size for a in k_axes), plan.width if lanes else 1]
    scratch = fusion.new_scratch(dtype, prod(sizes))

    def position(coords: Coordinates) -> Index:
        indices = [*(coords.indices[a] for a in free), coords.panel if lanes else Index()]
        indices += [*(coords.indices[a] for a in k_axes), coords.lane if lanes else Index()]
        total, stride = Index(), 1
        for size, i in zip(reversed(sizes), reversed(indices), strict=True):
            total, stride = total + i * stride if may_be_several(size) else total, stride * size
        return total

    _Copy(fusion, plan.width, operand, access, (free, lanes, k_axes), scratch, position).write()

    def read(reader: KernelWriter, coords: Coordinates) -> Value:
        return reader.k.load(reader.scratch_input(scratch, padded=lanes is not None), position(coords))

    return read


def rearrange(
    fusion: Fusion, operand: OperandReader, axes: Sequence[ContractionAxis], dtype: np.dtype[Any]
) -> OperandReader:
    """Emit a kernel that copies an operand in the order of `axes`; return a reader of the copy."""
    long = [a for a in axes if a.size > 1]
    scratch = fusion.new_scratch(dtype, prod(a.size for a in axes))

    def position(coords: Coordinates) -> Index:
        return row_major([a.size for a in axes], [coords.indices.get(a, Index()) for a in axes])

    _Copy(fusion, 0, operand, access_of(fusion, operand, long), ((), None, long), scratch, position).write()
    return lambda reader, coords: reader.k.load(reader.scratch_input(scratch), position(coords))


def rows_of_block(size: Integer) -> int:
    """Return how many of `size` rows are written together."""
    return ROWS if isinstance(size, Expression) else min(size, ROWS)


class _Copy:
    """Kernel of one copy. Lanes run along `across`, the last axis of the copy. If the operand is contiguous along
    another axis, `inner`, squares of both are transposed in registers where they fit; else `inner` runs inside the
    lanes, so that whole cache lines are used while they are in cache."""

    def __init__(
        self,
        fusion: Fusion,
        width: int,
        operand: OperandReader,
        access: OperandAccess,
        axes: tuple[Sequence[ContractionAxis], ContractionAxis | None, Sequence[ContractionAxis]],
        scratch: int,
        position: Callable[[Coordinates], Index],
    ) -> None:
        self.writer = fusion.writer("pack")
        self.k: KernelBuilder = self.writer.k
        self.operand, self.position = operand, position
        self.dtype: np.dtype[Any] = fusion.scratch[scratch].dtype
        self.target = self.writer.scratch(scratch)
        free, self.lanes, k_axes = axes
        # None means panels.
        several = self.lanes is not None and not definitely_less_equal(self.lanes.size, width)
        dims: list[ContractionAxis | None] = [*free, *([None] if several else []), *k_axes]
        self.across = self.lanes if self.lanes is not None else dims.pop()
        self.inner: ContractionAxis | None = None
        if self.across is not None and access.stride(self.across) > 1:
            self.inner = next((a for a in dims if a is not None and access.stride(a) == 1), None)
        self.outer = [a for a in dims if a is None or a is not self.inner]
        # Elements of a panel along `across`, and of the last one.
        self.width: Any = width if self.lanes is not None else self.across.size if self.across is not None else 1
        self.panels: Any = 1 if self.lanes is None else -(-self.lanes.size // self.width)
        self.rest: Any = self.width if self.lanes is None else (self.lanes.size - 1) % self.width + 1
        # Whether the last panel is full, and whether it is the only one; false for symbolic sizes.
        self.whole = (not isinstance(self.rest, Expression) and self.rest == self.width) or self.rest is self.width
        self.single = not isinstance(self.panels, Expression) and self.panels == 1
        self.register = max(1, fusion.target.vector_bytes // max(4, min(8, self.dtype.itemsize)))
        self.side = self.side_of_squares(fusion)
        self.block = 1 if self.inner is None else rows_of_block(self.inner.size)

    @property
    def vector_width(self) -> int:
        """How many lanes go together."""
        return self.register if isinstance(self.width, Expression) else min(self.register, self.width)

    def side_of_squares(self, fusion: Fusion) -> int:
        """Return the side of the squares that are transposed in registers, 0 for none; a small copy has short ones."""
        size = self.dtype.itemsize
        small = isinstance(self.target.size, Expression) or self.target.size * size <= SMALL_COPY_BYTES
        side = min(SHORT_SIDE if small else SIDE, fusion.target.vector_bytes // size)
        simple = size in (4, 8) and dtypes.kind(self.dtype) != "c"
        if self.inner is None or self.across is None or not simple or side < 4:
            return 0
        shortest = min(self.inner.size, self.across.size, self.width)
        return side if shortest >= side and (self.lanes is None or self.width % side == 0) else 0

    def write(self) -> None:
        self.loops(self.outer, Coordinates({}), LoopKind.THREADS)

    def loops(self, left: Sequence[ContractionAxis | None], coords: Coordinates, kind: LoopKind) -> None:
        """Emit the remaining loops in order. Squares, or blocks of rows, come last."""
        if left:
            axis, *rest = left
            with self.k.loop(self.panels if axis is None else axis.size, kind=kind) as i:
                there = Coordinates(coords.indices, Index.of(i)) if axis is None else coords.at(axis, i + 0)
                self.loops(rest, there, LoopKind.SERIAL)
        elif self.side:
            with self.k.loop(-(-self.width // self.side), kind=kind) as i:
                self.copy_squares(coords, i * self.side)
        else:
            self.rows(coords, 0, kind)

    def rows(self, coords: Coordinates, start: Any, kind: LoopKind) -> None:
        """Emit all rows along `inner`, in blocks, from an index of the panel on."""
        if self.inner is None or definitely_less_equal(self.inner.size, self.block):
            self.copy_vectors(coords, Index(), start)
            return
        with self.k.loop(-(-self.inner.size // self.block), kind=kind) as i:
            self.copy_vectors(coords, i * self.block, start)

    # -- squares -----------------------------------------------------------------------------------------------------

    def copy_squares(self, coords: Coordinates, start: Index) -> None:
        """Copy squares along `inner`, which are read contiguously and transposed; where no square fits, the rest of
        the panel."""
        assert self.across is not None
        edge = self.across.size // self.side * self.side
        if divides(self.side, self.across.size) and self.whole:
            self.column(coords, start)
            return
        k, index = self.k, self.k.position(coords.panel * self.width + start)
        with k.when(k.compute("lt", index, k.constant(edge, "int64"))):
            self.column(coords, start)
        with k.when(k.compute("eq", index, k.constant(edge, "int64"))):
            last = self.panels - 1
            self.rows(Coordinates(coords.indices, Index(last)), edge - last * self.width, LoopKind.SERIAL)

    def column(self, coords: Coordinates, start: Index) -> None:
        """Emit the squares from an index of the panel on, then the remaining rows."""
        k, side, inner = self.k, self.side, self.inner
        assert inner is not None
        whole = inner.size // side
        with k.loop(whole) as i:
            self.square(coords, start, i * side)
        if not divides(side, inner.size):
            with k.loop(side, kind=LoopKind.LANES, width=side) as lane, k.loop(inner.size, start=whole * side) as row:
                self.store(self.at(coords, start + lane).at(inner, row + 0), self.value)

    def square(self, coords: Coordinates, start: Index, first: Index) -> None:
        """Read vectors along `inner`, transpose them, write vectors along `across`."""
        k, side, inner = self.k, self.side, self.inner
        assert inner is not None
        empty = [k.constant(0, self.dtype)] * side
        with k.loop(side, kind=LoopKind.LANES, width=side, carries=empty) as (lane, _):
            there = [self.at(coords, start + n).at(inner, first + lane) for n in range(side)]
            vectors = k.carry(*(self.value(s) for s in there))
        columns = transpose_square(k, vectors)
        with k.loop(side, kind=LoopKind.LANES, width=side, carries=columns) as (lane, inside):
            for n, value in enumerate(inside):
                k.store(self.target, self.position(self.at(coords, start + lane).at(inner, first + n)), value)
            k.carry(*inside)

    # -- one element after the other ---------------------------------------------------------------------------------

    def copy_vectors(self, coords: Coordinates, first: Index, start: Any) -> None:
        """Copy vectors along `across` from an index of a panel on, with a block of rows inside."""
        if self.across is None:
            self.visit(coords, first, self.value)
            return
        last, width = not self.whole, self.vector_width
        stop, limit = self.rest if self.single else self.width, None
        if last and not self.single:
            limit = Index((self.panels - 1) * self.width + self.rest) - coords.panel * self.width
        if isinstance(start, Expression) or not start or start < self.rest:
            with self.k.loop(stop, start=start, kind=LoopKind.LANES, width=width, limit=limit) as j:
                self.visit(self.at(coords, Index.of(j)), first, self.value)
        if last and self.single:
            self.pad(coords, first)
        elif last:
            with self.k.when(self.in_last(coords)):
                self.pad(coords, first)

    def pad(self, coords: Coordinates, first: Index) -> None:
        """Fill the padding of the last panel with zeros."""
        zero = self.k.constant(0, self.dtype)
        width = self.vector_width
        with self.k.loop(self.width, start=self.rest, kind=LoopKind.LANES, width=width) as j:
            self.visit(self.at(coords, Index.of(j)), first, lambda _: zero)

    def visit(self, coords: Coordinates, first: Index, value: Callable[[Coordinates], Value]) -> None:
        """Store the rows of a block."""
        inner = self.inner
        if inner is None:
            self.store(coords, value)
            return
        limit = None if divides(self.block, inner.size) else Index(inner.size) - first
        with self.k.loop(self.block, limit=limit) as i:
            self.store(coords.at(inner, first + i), value)

    def store(self, coords: Coordinates, value: Callable[[Coordinates], Value]) -> None:
        self.k.store(self.target, self.position(coords), value(coords))

    def value(self, coords: Coordinates) -> Value:
        return self.operand(self.writer, coords)

    def at(self, coords: Coordinates, index: Index) -> Coordinates:
        """Set the index along `across`: in a panel if there are panels."""
        assert self.across is not None
        if self.lanes is None:
            return coords.at(self.across, index)
        return Coordinates(coords.indices, coords.panel, index).at(self.across, coords.panel * self.width + index)

    def in_last(self, coords: Coordinates) -> Value:
        """Return whether the current panel is the last."""
        return self.k.compute("ge", self.k.position(coords.panel), self.k.constant(self.panels - 1, "int64"))
