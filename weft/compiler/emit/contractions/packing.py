"""Copies of factors in the order in which a sum of products reads them, as kernels that run before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.contractions.products import (
    Access,
    ContractionAxis,
    Factor,
    Products,
    Spot,
    product_of,
    sum_dtype,
)
from weft.compiler.emit.contractions.products import access as access_of
from weft.compiler.emit.contractions.tiling import Plan
from weft.compiler.emit.emission import Fusion, Writer
from weft.compiler.emit.maps.transpose import SHORT_SIDE, SIDE, transposed
from weft.compiler.emit.values import row_major
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, LoopKind, Value

# Rows of a transposed copy that are made together.
ROWS = 64
# A copy for which short squares do: it takes microseconds either way, but long ones take milliseconds to compile.
SMALL_COPY_BYTES = 1 << 18


def packed(fusion: Fusion, products: Products, plan: Plan, factor: Factor, access: Access) -> Factor:
    """A factor that reads a copy, made by a kernel that is written here.

    The order is: free axes that have no lanes, panels of lanes, the depth, and last the lanes of a panel. What the last
    panel has beyond the axis is zero, so that it can be read without masks, and sums of it cost no more than others.
    """
    dtype = sum_dtype(products.compute)
    lanes = plan.lanes if plan.lanes is not None and plan.lanes in access.strides and not plan.folded else None
    free = [a for a in products.free if a in access.strides and a is not lanes]
    depth = [a for a in plan.depth if a in access.strides]
    panels = 1 if lanes is None else -(-lanes.size // plan.width)
    sizes = [*(a.size for a in free), panels, *(a.size for a in depth), plan.width if lanes else 1]
    number = fusion.new_scratch(dtype, product_of(sizes))

    def position(spot: Spot) -> Index:
        places = [*(spot.places[a] for a in free), spot.panel if lanes else Index()]
        places += [*(spot.places[a] for a in depth), spot.lane if lanes else Index()]
        total, stride = Index(), 1
        for size, place in zip(reversed(sizes), reversed(places), strict=True):
            total, stride = total + place * stride if size > 1 else total, stride * size
        return total

    _Copy(fusion, plan.width, factor, access, (free, lanes, depth), number, position).write()

    def read(reader: Writer, spot: Spot) -> Value:
        return reader.k.load(reader.scratch_input(number, padded=lanes is not None), position(spot))

    return read


def rearranged(fusion: Fusion, factor: Factor, axes: Sequence[ContractionAxis], dtype: np.dtype[Any]) -> Factor:
    """A factor that reads a copy in the order of these axes, made by a kernel that is written here."""
    long = [a for a in axes if a.size > 1]
    number = fusion.new_scratch(dtype, product_of(a.size for a in axes))

    def position(spot: Spot) -> Index:
        return row_major([a.size for a in axes], [spot.places.get(a, Index()) for a in axes])

    _Copy(fusion, 0, factor, access_of(fusion, factor, long), ((), None, long), number, position).write()
    return lambda reader, spot: reader.k.load(reader.scratch_input(number), position(spot))


class _Copy:
    """The kernel of one copy. Lanes are along `across`, the last axis of the copy. If the factor is not read one after
    the other along it but along another axis, `inner`, squares of both are turned in registers, where they fit; else
    `inner` runs inside of the lanes, so that all of a line is used while it is in the cache."""

    def __init__(
        self,
        fusion: Fusion,
        width: int,
        factor: Factor,
        access: Access,
        axes: tuple[Sequence[ContractionAxis], ContractionAxis | None, Sequence[ContractionAxis]],
        number: int,
        position: Callable[[Spot], Index],
    ) -> None:
        self.writer = fusion.writer("pack")
        self.k: KernelBuilder = self.writer.k
        self.factor, self.position = factor, position
        self.dtype: np.dtype[Any] = fusion.scratch[number].dtype
        self.target = self.writer.scratch(number)
        free, self.lanes, depth = axes
        # None stands for panels.
        several = self.lanes is not None and self.lanes.size > width
        dims: list[ContractionAxis | None] = [*free, *([None] if several else []), *depth]
        self.across = self.lanes if self.lanes is not None else dims.pop()
        self.inner: ContractionAxis | None = None
        if self.across is not None and access.stride(self.across) > 1:
            self.inner = next((a for a in dims if a is not None and access.stride(a) == 1), None)
        self.outer = [a for a in dims if a is None or a is not self.inner]
        # Of how many places along `across` there are panels, and how many the last one has.
        self.width = width if self.lanes is not None else self.across.size if self.across is not None else 1
        self.panels = 1 if self.lanes is None else -(-self.lanes.size // self.width)
        self.rest = self.width if self.lanes is None else (self.lanes.size - 1) % self.width + 1
        self.register = max(1, fusion.target.vector_bytes // max(4, min(8, self.dtype.itemsize)))
        self.side = self.side_of_squares(fusion)
        self.block = 1 if self.inner is None else min(self.inner.size, ROWS)

    def side_of_squares(self, fusion: Fusion) -> int:
        """The side of the squares that are turned, or 0; short ones in a small copy."""
        size = self.dtype.itemsize
        side = min(
            SHORT_SIDE if self.target.size * size <= SMALL_COPY_BYTES else SIDE, fusion.target.vector_bytes // size
        )
        simple = size in (4, 8) and dtypes.kind(self.dtype) != "c"
        if self.inner is None or self.across is None or not simple or side < 4:
            return 0
        shortest = min(self.inner.size, self.across.size, self.width)
        return side if shortest >= side and (self.lanes is None or self.width % side == 0) else 0

    def write(self) -> None:
        self.loops(self.outer, Spot({}), LoopKind.THREADS)

    def loops(self, left: Sequence[ContractionAxis | None], spot: Spot, kind: LoopKind) -> None:
        """One loop after the other. Squares, or blocks of rows, come last."""
        if left:
            axis, *rest = left
            with self.k.loop(self.panels if axis is None else axis.size, kind=kind) as i:
                there = Spot(spot.places, Index.of(i)) if axis is None else spot.at(axis, i + 0)
                self.loops(rest, there, LoopKind.SERIAL)
        elif self.side:
            with self.k.loop(-(-self.width // self.side), kind=kind) as i:
                self.squares(spot, i * self.side)
        else:
            self.rows(spot, 0, kind)

    def rows(self, spot: Spot, start: int, kind: LoopKind) -> None:
        """All rows along `inner`, in blocks, from a place of the panel on."""
        if self.inner is None or self.inner.size <= self.block:
            self.apart(spot, Index(), start)
            return
        with self.k.loop(-(-self.inner.size // self.block), kind=kind) as i:
            self.apart(spot, i * self.block, start)

    # -- squares -----------------------------------------------------------------------------------------------------

    def squares(self, spot: Spot, start: Index) -> None:
        """Squares one after the other along `inner`, which are read as they lie in memory; where none fits any more,
        the rest of the panel."""
        assert self.across is not None
        edge = self.across.size // self.side * self.side
        if edge == self.across.size and self.rest == self.width:
            self.column(spot, start)
            return
        k, place = self.k, self.k.position(spot.panel * self.width + start)
        with k.when(k.compute("lt", place, k.constant(edge, "int64"))):
            self.column(spot, start)
        with k.when(k.compute("eq", place, k.constant(edge, "int64"))):
            last = self.panels - 1
            self.rows(Spot(spot.places, Index(last)), edge - last * self.width, LoopKind.SERIAL)

    def column(self, spot: Spot, start: Index) -> None:
        """The squares from a place of the panel on, and the rows that are left."""
        k, side, inner = self.k, self.side, self.inner
        assert inner is not None
        whole = inner.size // side
        with k.loop(whole) as number:
            self.square(spot, start, number * side)
        if whole * side < inner.size:
            with k.loop(side, kind=LoopKind.LANES, width=side) as lane, k.loop(inner.size, start=whole * side) as row:
                self.store(self.at(spot, start + lane).at(inner, row + 0), self.value)

    def square(self, spot: Spot, start: Index, first: Index) -> None:
        """Read vectors along `inner`, turn them, write vectors along `across`."""
        k, side, inner = self.k, self.side, self.inner
        assert inner is not None
        empty = [k.constant(0, self.dtype)] * side
        with k.loop(side, kind=LoopKind.LANES, width=side, carries=empty) as (lane, _):
            there = [self.at(spot, start + n).at(inner, first + lane) for n in range(side)]
            vectors = k.carry(*(self.value(s) for s in there))
        turned = transposed(k, vectors)
        with k.loop(side, kind=LoopKind.LANES, width=side, carries=turned) as (lane, inside):
            for n, value in enumerate(inside):
                k.store(self.target, self.position(self.at(spot, start + lane).at(inner, first + n)), value)
            k.carry(*inside)

    # -- one element after the other ---------------------------------------------------------------------------------

    def apart(self, spot: Spot, first: Index, start: int) -> None:
        """Vectors along `across` from a place of a panel on, with a block of rows inside of them."""
        if self.across is None:
            self.visit(spot, first, self.value)
            return
        last, width = self.rest < self.width, min(self.register, self.width)
        stop, limit = self.rest if self.panels == 1 else self.width, None
        if last and self.panels > 1:
            limit = Index((self.panels - 1) * self.width + self.rest) - spot.panel * self.width
        if not start or start < self.rest:
            with self.k.loop(stop, start=start, kind=LoopKind.LANES, width=width, limit=limit) as j:
                self.visit(self.at(spot, Index.of(j)), first, self.value)
        if last and self.panels == 1:
            self.pad(spot, first)
        elif last:
            with self.k.when(self.in_last(spot)):
                self.pad(spot, first)

    def pad(self, spot: Spot, first: Index) -> None:
        """Zeros in what the last panel has beyond the axis."""
        zero = self.k.constant(0, self.dtype)
        width = min(self.register, self.width)
        with self.k.loop(self.width, start=self.rest, kind=LoopKind.LANES, width=width) as j:
            self.visit(self.at(spot, Index.of(j)), first, lambda _: zero)

    def visit(self, spot: Spot, first: Index, value: Callable[[Spot], Value]) -> None:
        """Store what stands in the rows of a block."""
        inner = self.inner
        if inner is None:
            self.store(spot, value)
            return
        limit = Index(inner.size) - first if inner.size % self.block else None
        with self.k.loop(self.block, limit=limit) as i:
            self.store(spot.at(inner, first + i), value)

    def store(self, spot: Spot, value: Callable[[Spot], Value]) -> None:
        self.k.store(self.target, self.position(spot), value(spot))

    def value(self, spot: Spot) -> Value:
        return self.factor(self.writer, spot)

    def at(self, spot: Spot, place: Index) -> Spot:
        """A place along `across`: in a panel, if that has them."""
        assert self.across is not None
        if self.lanes is None:
            return spot.at(self.across, place)
        return Spot(spot.places, spot.panel, place).at(self.across, spot.panel * self.width + place)

    def in_last(self, spot: Spot) -> Value:
        """Whether this is the last panel."""
        return self.k.compute("ge", self.k.position(spot.panel), self.k.constant(self.panels - 1, "int64"))
