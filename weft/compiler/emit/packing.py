"""Copies of factors in the order in which a sum of products reads them, as kernels that run before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compiler.emit.emission import Fusion, Writer
from weft.compiler.emit.products import Access, Axis, Factor, Products, Spot, product_of, sum_dtype
from weft.compiler.emit.tiling import Plan
from weft.compiler.kernel.ir import Index, Kind, Value


def packed(fusion: Fusion, products: Products, plan: Plan, factor: Factor, access: Access) -> Factor:
    """A factor that reads a copy, made by a kernel that is written here.

    The order is: free axes that have no lanes, panels of lanes, the depth, and last the lanes of a panel.
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

    writer = fusion.writer("pack")
    _Copy(writer, plan, lanes, panels, factor, position, number, dtype).write([*free], [*depth])

    def read(reader: Writer, spot: Spot) -> Value:
        return reader.k.load(reader.scratch_input(number), position(spot))

    return read


class _Copy:
    """Writes the loops of one copy."""

    def __init__(
        self,
        writer: Writer,
        plan: Plan,
        lanes: Axis | None,
        panels: int,
        factor: Factor,
        position: object,
        number: int,
        dtype: np.dtype[object],
    ) -> None:
        self.writer, self.plan, self.lanes, self.panels = writer, plan, lanes, panels
        self.factor, self.position, self.number = factor, position, number
        self.width = max(1, writer.fusion.vector_bytes // max(4, min(8, dtype.itemsize)))

    def write(self, free: Sequence[Axis], depth: Sequence[Axis]) -> None:
        self.loops([*free, *([None] if self.lanes else []), *depth], Spot({}), first=True)

    def loops(self, left: Sequence[Axis | None], spot: Spot, first: bool) -> None:
        """One loop after the other; None stands for panels. The last one has lanes."""
        k = self.writer.k
        last = self.lanes is None and len(left) == 1
        if not left:
            self.row(spot)
            return
        axis, *rest = left
        count = self.panels if axis is None else axis.size
        kind = Kind.LANES if last else Kind.THREADS if first else Kind.SERIAL
        with k.loop(count, kind=kind, width=self.width if last else 1) as i:
            inner = Spot(spot.places, Index.of(i), Index()) if axis is None else spot.at(axis, Index.of(i))
            self.loops(rest, inner, False)

    def row(self, spot: Spot) -> None:
        """The lanes of one panel; without an axis of lanes, one element."""
        k, plan = self.writer.k, self.plan
        if self.lanes is None:
            self.element(spot)
            return
        limit = Index(self.lanes.size) - spot.panel * plan.width if self.lanes.size % plan.width else None
        with k.loop(plan.width, kind=Kind.LANES, width=min(self.width, plan.width), limit=limit) as j:
            there = Spot(spot.places, spot.panel, Index.of(j))
            self.element(there.at(self.lanes, spot.panel * plan.width + j))

    def element(self, spot: Spot) -> None:
        value = self.factor(self.writer, spot)
        self.writer.k.store(self.writer.scratch(self.number), self.position(spot), value)  # type: ignore[operator]
