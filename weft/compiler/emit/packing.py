"""Copies of factors in the order in which a sum of products reads them, as kernels that run before it."""

from __future__ import annotations

from collections.abc import Sequence

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
    k = writer.k
    register = max(1, fusion.vector_bytes // max(4, min(8, dtype.itemsize)))

    def element(spot: Spot) -> None:
        k.store(writer.scratch(number), position(spot), factor(writer, spot))

    def panel(spot: Spot) -> None:
        """The lanes of one panel; without an axis of lanes, one element."""
        if lanes is None:
            element(spot)
            return
        limit = Index(lanes.size) - spot.panel * plan.width if lanes.size % plan.width else None
        with k.loop(plan.width, kind=Kind.LANES, width=min(register, plan.width), limit=limit) as j:
            there = Spot(spot.places, spot.panel, Index.of(j))
            element(there.at(lanes, spot.panel * plan.width + j))

    def loops(left: Sequence[Axis | None], spot: Spot, first: bool = False) -> None:
        """One loop after the other; None stands for panels. Without an axis of lanes the last one has them."""
        if not left:
            panel(spot)
            return
        axis, *rest = left
        last = lanes is None and not rest
        kind = Kind.LANES if last else Kind.THREADS if first else Kind.SERIAL
        with k.loop(panels if axis is None else axis.size, kind=kind, width=register if last else 1) as i:
            loops(rest, Spot(spot.places, Index.of(i)) if axis is None else spot.at(axis, Index.of(i)))

    loops([*free, *([] if lanes is None else [None]), *depth], Spot({}), first=True)

    def read(reader: Writer, spot: Spot) -> Value:
        return reader.k.load(reader.scratch_input(number), position(spot))

    return read
