"""Rules of the choice of one element in each window, whose positions are found by a reduction of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.target.stablehlo.elementwise import computing_dtype, convert
from weft.compiler.target.stablehlo.emitter import Emitter, Site, flatten, rule
from weft.compiler.target.stablehlo.reduction import windows
from weft.compiler.target.stablehlo.types import INT32, INT64, int64_array, pairs
from weft.compiler.target.stablehlo.writer import Region, Shape, Value
from weft.primitives.movement.gather import GatherDimensionNumbers, GatherScatterMode
from weft.primitives.movement.scatter import ScatterDimensionNumbers


def chosen_positions(e: Emitter, site: Site, x: Value, counts: Sequence[int]) -> Value:
    """Return the position in row-major order of the element chosen in each window; -1 where there is only padding."""
    size = math.prod(x.shape)
    kind = INT32 if size < 2**31 else INT64
    positions = e.reshape(e.iota((size,), kind, 0), x.shape)
    keeps = "GE" if site.params["select_prim"].name == "ge" else "LE"
    x = convert(e, x, computing_dtype(x.dtype))
    types: list[tuple[Shape, Any]] = [((), x.dtype), ((), kind)]

    def build(values: list[Value]) -> list[Value]:
        # Of two elements, the first in the order of positions stays while the comparison with the other holds.
        a, i, b, j = values
        first = e.compare("LT", i, j)
        stays = e.select(first, e.compare(keeps, a, b), e.same("not", e.compare(keeps, b, a)))
        none, other_none = (e.compare("LT", k, e.scalar(0, kind)) for k in (i, j))
        left = e.same("and", e.same("not", none), e.same("or", other_none, stays))
        return [e.select(left, a, b), e.select(left, i, j)]

    start = [e.scalar(0, x.dtype), e.scalar(-1, kind)]
    results = [(tuple(counts), x.dtype), (tuple(counts), kind)]
    return windows(e, [x, positions], start, results, e.region(types * 2, build), site.params)[1]


@rule("select_and_gather_add")
def select_and_gather_add(e: Emitter, site: Site, tangents: Value, x: Value) -> Value:
    """Write reads of the chosen positions; windows of padding read zero."""
    if 0 in site.shape or 0 in x.shape:
        return e.full(0, site.shape, site.dtype)
    flat = e.reshape(tangents, (math.prod(x.shape),))
    position = chosen_positions(e, site, x, site.shape)
    dnums = GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    return e.apply(
        "gather",
        flat,
        e.reshape(position, (*position.shape, 1)),
        dimension_numbers=dnums,
        slice_sizes=(1,),
        mode=GatherScatterMode.FILL_OR_DROP,
        fill_value=np.zeros((), site.dtype),
        indices_are_sorted=False,
        unique_indices=False,
    )


@rule("select_and_scatter_add")
def select_and_scatter_add(e: Emitter, site: Site, source: Value, x: Value) -> Value:
    """Write additions at the chosen positions; by the operation of StableHLO where it has no dilation to leave out."""
    if 0 in source.shape or 0 in x.shape:
        return e.full(0, site.shape, site.dtype)
    p = site.params
    dilated = any(d != 1 for name in ("base_dilation", "window_dilation") for d in p.get(name) or ())
    wide = dtypes.accumulation_dtype(x.dtype)
    if not dilated and x.shape and source.dtype == x.dtype and min(min(pad) for pad in p["padding"]) >= 0:
        keeps = "GE" if p["select_prim"].name == "ge" else "LE"
        select = e.region([((), wide)] * 2, lambda pair: [e.compare(keeps, pair[0], pair[1])])
        operands = [convert(e, x, wide), convert(e, source, wide), e.scalar(0, wide)]
        return convert(e, _native(e, site, operands, select, e.combiner("add", wide)), site.dtype)
    zeros = e.full(0, (math.prod(x.shape),), source.dtype)
    position = chosen_positions(e, site, x, source.shape)
    dnums = ScatterDimensionNumbers((), (0,), (0,))
    total = e.apply(
        "scatter-add",
        zeros,
        e.reshape(position, (*position.shape, 1)),
        source,
        dimension_numbers=dnums,
        indices_are_sorted=False,
        unique_indices=False,
        mode=GatherScatterMode.FILL_OR_DROP,
    )
    return e.reshape(total, site.shape)


def _native(e: Emitter, site: Site, operands: Sequence[Value], select: Region, combine: Region) -> Value:
    p = site.params
    attributes = (
        f"window_dimensions = {int64_array(p['window_dimensions'])}, "
        f"window_strides = {int64_array(p['window_strides'])}, padding = {pairs(p['padding'])}"
    )
    return e.op("select_and_scatter", operands, site.shape, operands[0].dtype, attributes, select, combine)


@rule("select_and_scatter")
def select_and_scatter(e: Emitter, site: Site, x: Value, source: Value, initial: Value) -> Value:
    """Write combinations at the positions that a function chooses."""
    p = site.params
    if 0 in source.shape or 0 in x.shape:
        return e.broadcast(initial, site.shape)
    if not x.shape:
        x, source = e.reshape(x, (1,)), e.reshape(source, (1,))
        params = {**p, "window_dimensions": (1,), "window_strides": (1,), "padding": ((0, 0),)}
        inner = site._replace(params=params, results=(((1,), site.dtype),))
        return e.reshape(select_and_scatter(e, inner, x, source, initial), ())

    def region(jaxpr: Any) -> Region:
        return e.region([((), x.dtype)] * 2, lambda pair: flatten(e.body(jaxpr, [(v,) for v in pair])))

    return _native(e, site, [x, source, initial], region(p["select_jaxpr"]), region(p["scatter_jaxpr"]))
