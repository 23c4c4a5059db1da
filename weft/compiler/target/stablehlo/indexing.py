"""Rules of gather and scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.target.stablehlo.elementwise import computing_dtype, convert, lexicographic
from weft.compiler.target.stablehlo.emitter import Emitter, Site, rule
from weft.compiler.target.stablehlo.types import BOOL, INT64, boolean, int64_array, integers
from weft.compiler.target.stablehlo.writer import Region, Value
from weft.primitives.movement.gather import GatherScatterMode, default_fill
from weft.primitives.movement.scatter import window_sizes

COMBINERS = {
    "scatter-add": "add",
    "scatter-sub": "subtract",
    "scatter-mul": "multiply",
    "scatter-max": "maximum",
    "scatter-min": "minimum",
}


@rule("gather")
def gather(e: Emitter, site: Site, x: Value, indices: Value) -> Value:
    """Write slices at many indices. Those out of bounds are clamped, or filled afterwards."""
    p = site.params
    if 0 in site.shape:
        return e.full(0, site.shape, site.dtype)
    sizes = p["slice_sizes"]
    dnums = p["dimension_numbers"]
    limits = [x.shape[d] - sizes[d] for d in dnums.start_index_map]
    fills = p["mode"] is GatherScatterMode.FILL_OR_DROP
    value = p.get("fill_value")
    fill = default_fill(x.dtype) if value is None and fills else value
    if 0 in x.shape:
        return e.full(fill, site.shape, site.dtype)
    attributes = (
        f"dimension_numbers = #stablehlo.gather<offset_dims = {integers(dnums.offset_dims)}, "
        f"collapsed_slice_dims = {integers(dnums.collapsed_slice_dims)}, "
        f"operand_batching_dims = {integers(dnums.operand_batching_dims)}, "
        f"start_indices_batching_dims = {integers(dnums.start_indices_batching_dims)}, "
        f"start_index_map = {integers(dnums.start_index_map)}, index_vector_dim = {len(indices.shape) - 1}>, "
        f"slice_sizes = {int64_array(sizes)}, indices_are_sorted = {boolean(p['indices_are_sorted'])}"
    )
    clips = p["mode"] is GatherScatterMode.CLIP
    starts = clamp_indices(e, indices, limits) if clips else wide_indices(e, indices)
    read = e.op("gather", [x, starts], *site.results[0], attributes)
    if not fills or not limits:
        return read
    inside = in_bounds(e, indices, limits)
    remaining = [d for d in range(len(site.shape)) if d not in dnums.offset_dims]
    return e.select(e.broadcast(inside, site.shape, remaining), read, e.full(fill, site.shape, site.dtype))


def wide_indices(e: Emitter, indices: Value) -> Value:
    """Convert short or unsigned indices to int64: they must hold the bounds that they are clamped to."""
    short = dtypes.itemsize_bits(indices.dtype) < 32 or dtypes.kind(indices.dtype) == "u"
    return e.convert(indices, INT64) if short else indices


def clamp_indices(e: Emitter, indices: Value, limits: Sequence[int]) -> Value:
    """Clamp index vectors to the bounds, as `movement.clamp_starts` does the starts of one slice."""
    indices = wide_indices(e, indices)
    if not limits:
        return indices
    most = np.minimum(limits, np.iinfo(indices.dtype).max).astype(indices.dtype)
    high = e.broadcast(e.constant(most), indices.shape, [len(indices.shape) - 1])
    return e.same("clamp", e.full_like(0, indices), indices, high)


def in_bounds(e: Emitter, indices: Value, limits: Any) -> Value:
    """Return which index vectors are inside of the bounds, without their last dimension."""
    indices = e.convert(indices, INT64)
    shape, axis = indices.shape, len(indices.shape) - 1
    most = e.broadcast(e.constant(np.array(limits, np.int64)), shape, [axis])
    inside = e.same("and", e.compare("GE", indices, e.full_like(0, indices)), e.compare("LE", indices, most))
    attributes = f"dimensions = {int64_array([axis])}"
    return e.op("reduce", [inside, e.scalar(True, BOOL)], shape[:-1], BOOL, attributes, e.combiner("and", BOOL))


@rule("scatter", *COMBINERS)
def scatter(e: Emitter, site: Site, x: Value, indices: Value, updates: Value) -> Value:
    """Write updates at many indices; those out of bounds are dropped, or transposed inside before."""
    p, dnums = site.params, site.params["dimension_numbers"]
    if 0 in updates.shape or 0 in x.shape:
        return x
    sizes = window_sizes(len(x.shape), updates.shape, dnums)
    limits = [x.shape[d] - sizes[d] for d in dnums.scatter_dims_to_operand_dims]
    if p["mode"] is GatherScatterMode.CLIP:
        indices = clamp_indices(e, indices, limits)
    attributes = (
        f"scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {integers(dnums.update_window_dims)}, "
        f"inserted_window_dims = {integers(dnums.inserted_window_dims)}, "
        f"input_batching_dims = {integers(dnums.operand_batching_dims)}, "
        f"scatter_indices_batching_dims = {integers(dnums.scatter_indices_batching_dims)}, "
        f"scatter_dims_to_operand_dims = {integers(dnums.scatter_dims_to_operand_dims)}, "
        f"index_vector_dim = {len(indices.shape) - 1}>, "
        f"indices_are_sorted = {boolean(p['indices_are_sorted'])}, unique_indices = {boolean(p['unique_indices'])}"
    )
    dtype, wide_dtype = x.dtype, _accumulation(site, x.dtype)
    x, updates = convert(e, x, wide_dtype), convert(e, updates, wide_dtype)
    operands = [x, wide_indices(e, indices), updates]
    region = combine_region(e, COMBINERS.get(site.primitive.name), wide_dtype)
    return convert(e, e.op("scatter", operands, x.shape, wide_dtype, attributes, region), dtype)


def _accumulation(site: Site, dtype: Any) -> Any:
    operation: Any = site.primitive
    return dtypes.accumulation_dtype(dtype) if operation.widens else computing_dtype(dtype)


def combine_region(e: Emitter, name: str | None, dtype: Any) -> Region:
    """Return the region that combines an element with an update, which replaces it if there is no operation."""
    if name is None:
        return e.region([((), dtype)] * 2, lambda pair: [pair[1]])
    if dtype == BOOL:
        name = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}.get(name, name)
    if dtypes.kind(dtype) != "c" or name not in ("maximum", "minimum"):
        return e.combiner(name, dtype)

    def build(pair: list[Value]) -> list[Value]:
        first = lexicographic(e, "GE" if name == "maximum" else "LE", *pair)
        unknown = e.compare("NE", pair[0], pair[0])
        return [e.select(e.same("or", first, unknown), *pair)]

    return e.region([((), dtype)] * 2, build)
