"""Copies of factors in the order in which a sum of products reads them, as kernels that run before it."""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.emit.emission import Fusion, Writer
from weft.compiler.emit.products import Access, Axis, Factor, Products, Spot, product_of, sum_dtype
from weft.compiler.emit.tiling import Plan
from weft.compiler.kernel.ir import Index, Kind, Value

# Rows of a transposed copy that are made together.
ROWS = 64


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

    # The axis of the copy's lanes, and the one that is read one after the other if they are not: it runs inside of
    # them, so that all of a line is used while it is in the cache.
    dims: list[Axis | None] = [*free, *([] if lanes is None else [None]), *depth]
    across = lanes if lanes is not None else dims.pop()
    inner = None
    if across is not None and access.stride(across) > 1:
        inner = next((a for a in dims if a is not None and access.stride(a) == 1), None)
    outer = [a for a in dims if a is None or a is not inner]
    block = 1 if inner is None else min(inner.size, ROWS)

    def element(spot: Spot) -> None:
        k.store(writer.scratch(number), position(spot), factor(writer, spot))

    def rows(spot: Spot, first: Index) -> None:
        if inner is None:
            element(spot)
            return
        limit = Index(inner.size) - first if inner.size % block else None
        with k.loop(block, limit=limit) as i:
            element(spot.at(inner, first + i))

    def vectors(spot: Spot, first: Index) -> None:
        if across is None:
            rows(spot, first)
            return
        count, width, limit = across.size, register, None
        if lanes is not None:
            count, width = plan.width, min(register, plan.width)
            limit = Index(lanes.size) - spot.panel * plan.width if lanes.size % plan.width else None
        with k.loop(count, kind=Kind.LANES, width=width, limit=limit) as j:
            there = Spot(spot.places, spot.panel, Index.of(j)) if lanes is not None else spot
            rows(there.at(across, spot.panel * plan.width + j), first)

    def loops(left: Sequence[Axis | None], spot: Spot, kind: Kind) -> None:
        """One loop after the other; None stands for panels. Blocks of rows come last."""
        if left:
            axis, *rest = left
            with k.loop(panels if axis is None else axis.size, kind=kind) as i:
                loops(rest, Spot(spot.places, Index.of(i)) if axis is None else spot.at(axis, i + 0), Kind.SERIAL)
        elif inner is not None and inner.size > block:
            with k.loop(-(-inner.size // block), kind=kind) as i:
                vectors(spot, i * block)
        else:
            vectors(spot, Index())

    loops(outer, Spot({}), Kind.THREADS)

    def read(reader: Writer, spot: Spot) -> Value:
        return reader.k.load(reader.scratch_input(number), position(spot))

    return read
