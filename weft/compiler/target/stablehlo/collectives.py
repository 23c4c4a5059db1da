"""Rules of collectives between the devices of a mesh.

The devices are replicas in the order of the mesh: each runs the same local program. Partitions would be parts of one
global program for a partitioner of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.target.stablehlo.elementwise import convert
from weft.compiler.target.stablehlo.emitter import Emitter, Site, rule, support_error
from weft.compiler.target.stablehlo.indexing import combine_region
from weft.compiler.target.stablehlo.types import INT32, UINT32, pairs
from weft.compiler.target.stablehlo.writer import Value
from weft.ir.primitive import lookup

COMBINERS = {"psum": "add", "pmax": "maximum", "pmin": "minimum"}


def mesh_axes(e: Emitter, site: Site, names: Sequence[Any]) -> dict[Any, int]:
    """Return the axes of the mesh with their sizes, in order; raise if an axis is not one of it."""
    axes = e.axes
    if not axes and len(names) == 1:
        axes = {names[0]: e.device_count}
    missing = [name for name in names if name not in axes]
    if missing:
        reason = f"the mesh of the module has no axis {missing[0]!r}"
        fix = "pass the axes of the mesh and their sizes: emit(jaxpr, axes=dict(mesh.shape), ...)"
        raise support_error(site.primitive.name, reason, fix, site.source)
    return axes


def replica_groups(e: Emitter, site: Site, names: Sequence[Any], groups: Any = None) -> list[list[int]]:
    """Return the replicas that communicate with each other along axes, in the order of the axes."""
    axes = mesh_axes(e, site, names)
    sizes = [axes[name] for name in axes]
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    order = list(axes)
    along = [order.index(name) for name in names]
    rest = [i for i in range(len(sizes)) if i not in along]
    rows = numbers.transpose(*rest, *along).reshape(-1, math.prod(axes[name] for name in names))
    if groups is None:
        return [list(map(int, row)) for row in rows]
    return [[int(row[i]) for i in group] for row in rows for group in groups]


def group_attribute(groups: Sequence[Sequence[int]]) -> str:
    """Return the attribute of groups; shorter ones are filled with -1."""
    longest = max(map(len, groups))
    return f"replica_groups = {pairs([[*g, *[-1] * (longest - len(g))] for g in groups])}"


@rule(*COMBINERS)
def all_reduce(e: Emitter, site: Site, x: Value) -> Value:
    """Write a reduction over devices; short floats are summed wider."""
    name = COMBINERS[site.primitive.name]
    groups = replica_groups(e, site, site.params["axes"], site.params.get("axis_index_groups"))
    wide = dtypes.accumulation_dtype(x.dtype)
    attributes = f"{group_attribute(groups)}"
    region = combine_region(e, name, wide)
    return convert(e, e.op("all_reduce", [convert(e, x, wide)], x.shape, wide, attributes, region), x.dtype)


@rule("axis_index")
def axis_index(e: Emitter, site: Site, *operands: Value) -> Value:
    """Write the position of the device along an axis."""
    name = site.params["axis_name"]
    axes = mesh_axes(e, site, [name])
    order = list(axes)
    inner = math.prod(axes[other] for other in order[order.index(name) + 1 :])
    device = e.op("replica_id", (), (), UINT32)
    index = e.same("remainder", e.same("divide", device, e.scalar(inner, UINT32)), e.scalar(axes[name], UINT32))
    return e.convert(index, site.dtype)


@rule("all_gather", "all_gather_invariant", "all_gather_reduced")
def all_gather(e: Emitter, site: Site, x: Value) -> Value:
    """Write the operands of all devices, one after the other or along a new dimension."""
    p = site.params
    axis = p["all_gather_dimension"]
    groups = replica_groups(e, site, [p["axis_name"]], p.get("axis_index_groups"))
    if not p["tiled"]:
        x = e.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))
    attributes = f"all_gather_dim = {axis} : i64, {group_attribute(groups)}"
    return e.op("all_gather", [x], *site.results[0], attributes)


@rule("reduce_scatter")
def reduce_scatter(e: Emitter, site: Site, x: Value) -> Value:
    """Write a sum over devices; each keeps its slice."""
    p = site.params
    axis, count = p["scatter_dimension"], p["axis_size"]
    groups = replica_groups(e, site, [p["axis_name"]], p.get("axis_index_groups"))
    wide = dtypes.accumulation_dtype(x.dtype)
    shape = tuple(n // count if d == axis else n for d, n in enumerate(x.shape))
    attributes = f"scatter_dimension = {axis} : i64, {group_attribute(groups)}"
    region = combine_region(e, "add", wide)
    result = e.op("reduce_scatter", [convert(e, x, wide)], shape, wide, attributes, region)
    return e.reshape(convert(e, result, x.dtype), site.shape)


@rule("all_to_all")
def all_to_all(e: Emitter, site: Site, x: Value) -> Value:
    """Write an exchange of slices, which arrive along a new dimension."""
    p = site.params
    groups = replica_groups(e, site, [p["axis_name"]], p.get("axis_index_groups"))
    split, count = p["split_axis"], p["axis_size"]
    shape = tuple(n for d, n in enumerate(x.shape) if d != split)
    # Each device sends the slices along the first dimension, which then counts the senders.
    front = (split, *(d for d in range(len(x.shape)) if d != split))
    transposed = e.apply("transpose", x, permutation=front)
    attributes = (
        f"split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = {count} : i64, {group_attribute(groups)}"
    )
    arrived = e.op("all_to_all", [transposed], (count, *shape), x.dtype, attributes)
    concat = p["concat_axis"]
    back = [*range(1, len(x.shape))]
    back.insert(concat, 0)
    return e.apply("transpose", arrived, permutation=tuple(back))


@rule("ppermute")
def ppermute(e: Emitter, site: Site, x: Value) -> Value:
    """Write sends between devices; those that receive nothing get zeros."""
    groups = replica_groups(e, site, [site.params["axis_name"]])
    routes = [[group[a], group[b]] for group in groups for a, b in site.params["perm"]]
    attributes = f"source_target_pairs = {pairs(routes)}"
    return e.op("collective_permute", [x], x.shape, x.dtype, attributes) if routes else e.full_like(0, x)


@rule("pbroadcast")
def pbroadcast(e: Emitter, site: Site, x: Value) -> Value:
    """Write the operand of one device for all: a sum in which all others are zero."""
    p = site.params
    inner = site._replace(primitive=lookup("axis_index"), results=(((), INT32),))
    own = e.compare("EQ", axis_index(e, inner), e.scalar(p["source"], INT32))
    # Sums of integers keep the bits of floats.
    kind = dtypes.kind(x.dtype)
    whole = np.dtype(f"u{x.dtype.itemsize}") if kind == "f" else np.dtype(np.uint8) if kind == "b" else x.dtype
    bits = e.bitcast(x, whole) if kind == "f" else convert(e, x, whole)
    masked = e.select(own, bits, e.full_like(0, bits))
    groups = replica_groups(e, site, [p["axis_name"]])
    attributes = f"{group_attribute(groups)}"
    total = e.op("all_reduce", [masked], masked.shape, whole, attributes, e.combiner("add", whole))
    return e.bitcast(total, x.dtype) if kind == "f" else convert(e, total, x.dtype)
