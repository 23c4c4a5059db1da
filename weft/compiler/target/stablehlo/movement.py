"""Rules of operations that move elements: shapes, slices, padding, concatenation, indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.target.stablehlo.emitter import Emitter, Site, part_rule, rule
from weft.compiler.target.stablehlo.types import INT32, INT64, int64_array
from weft.compiler.target.stablehlo.writer import Value


@rule("copy", "stage", "stop_gradient", "name", "device_put", "sharding_constraint", "reshard", "random_clone")
def identity(e: Emitter, site: Site, x: Value) -> Value:
    """Write nothing: the result is the operand."""
    return x


@rule("optimization_barrier")
def optimization_barrier(e: Emitter, site: Site, *operands: Value) -> list[Value]:
    """Write a barrier against optimizations."""
    return e.write("stablehlo.optimization_barrier", operands, site.results)


@rule("transpose")
def transpose(e: Emitter, site: Site, x: Value) -> Value:
    """Write a transposition."""
    return e.op("transpose", [x], *site.results[0], f"permutation = {int64_array(site.params['permutation'])}")


@rule("broadcast_in_dim")
def broadcast_in_dim(e: Emitter, site: Site, x: Value, *sizes: Value) -> Value:
    """Write a broadcast."""
    return e.broadcast(x, site.shape, site.params["broadcast_dimensions"])


@rule("reshape", "squeeze")
def reshape(e: Emitter, site: Site, x: Value, *sizes: Value) -> Value:
    """Write a change of shape, after the transposition that `dimensions` asks for."""
    order = site.params.get("dimensions") if site.primitive.name == "reshape" else None
    if order is not None and tuple(order) != tuple(range(len(x.shape))):
        shape = tuple(x.shape[i] for i in order)
        x = e.op("transpose", [x], shape, x.dtype, f"permutation = {int64_array(order)}")
    return e.reshape(x, site.shape)


@rule("rev")
def rev(e: Emitter, site: Site, x: Value) -> Value:
    """Write a reversal of dimensions."""
    return e.op("reverse", [x], *site.results[0], f"dimensions = {int64_array(site.params['dimensions'])}")


@rule("tile")
def tile(e: Emitter, site: Site, x: Value) -> Value:
    """Write repetitions of an array: each dimension gets one in front of it that is broadcast."""
    reps = site.params["reps"]
    rank = len(x.shape)
    lead = len(reps) - rank
    sizes = (1,) * lead + x.shape
    shape = tuple(n for pair in zip(reps, sizes, strict=True) for n in pair)
    wide = e.broadcast(x, shape, [2 * (lead + i) + 1 for i in range(rank)])
    return e.reshape(wide, site.shape)


@rule("iota")
def iota(e: Emitter, site: Site, *sizes: Value) -> Value:
    """Write indices; of dtypes that StableHLO does not count in, by way of int32."""
    dtype = site.dtype
    if dtypes.kind(dtype) == "b":
        number = e.iota(site.shape, np.dtype(np.int32), site.params["dimension"])
        return e.compare("NE", number, e.full_like(0, number))
    return e.iota(site.shape, dtype, site.params["dimension"])


@rule("size")
def size(e: Emitter, site: Site, *symbols: Value) -> Value:
    """Write the value of an expression of sizes, which must be a number."""
    return e.scalar(int(site.params["expression"]), site.dtype)


@rule("slice")
def slice_(e: Emitter, site: Site, x: Value) -> Value:
    """Write a slice of constant bounds."""
    p = site.params
    return e.slice(x, p["start_indices"], p["limit_indices"], p["strides"])


@rule("split")
def split(e: Emitter, site: Site, x: Value) -> list[Value]:
    """Write slices along one axis."""
    axis, start, results = site.params["axis"], 0, []
    for count in site.params["sizes"]:
        starts, limits = [0] * len(x.shape), list(x.shape)
        starts[axis], limits[axis] = start, start + count
        results.append(e.slice(x, starts, limits))
        start += count
    return results


@rule("concatenate")
def concatenate(e: Emitter, site: Site, *operands: Value) -> Value:
    """Write a concatenation."""
    return e.op("concatenate", operands, *site.results[0], f"dimension = {site.params['dimension']} : i64")


@rule("pad")
def pad(e: Emitter, site: Site, x: Value, value: Value) -> Value:
    """Write padding around and between elements."""
    columns = zip(("edge_padding_low", "edge_padding_high", "interior_padding"), range(3), strict=True)
    config = site.params["padding_config"]
    attributes = ", ".join(f"{name} = {int64_array(row[i] for row in config)}" for name, i in columns)
    return e.op("pad", [x, value], *site.results[0], attributes)


@rule("dynamic_slice")
def dynamic_slice(e: Emitter, site: Site, x: Value, *starts: Value) -> Value:
    """Write a slice whose start is computed, and clamped."""
    if not starts:
        return x
    sizes = site.params["slice_sizes"]
    operands = [x, *clamp_starts(e, starts, x, sizes)]
    return e.op("dynamic_slice", operands, *site.results[0], f"slice_sizes = {int64_array(sizes)}")


@rule("dynamic_update_slice")
def dynamic_update_slice(e: Emitter, site: Site, x: Value, update: Value, *starts: Value) -> Value:
    """Write an update of a slice whose start is computed, and clamped."""
    if not starts:
        return update
    return e.op("dynamic_update_slice", [x, update, *clamp_starts(e, starts, x, update.shape)], *site.results[0])


def clamp_starts(e: Emitter, starts: Sequence[Value], x: Value, sizes: Sequence[int]) -> list[Value]:
    """Clamp starts of a slice of x, and convert them to one dtype, which StableHLO needs.

    Its operations clamp too, but XLA adds the starts of a slice of a slice before (docs/design/stablehlo.md).
    """
    # Short integers may not hold the bounds.
    starts = [e.convert(i, INT32) if dtypes.itemsize_bits(i.dtype) < 32 else i for i in starts]
    common = starts[0].dtype if len({i.dtype for i in starts}) == 1 else INT64
    result = []
    for start, total, size in zip(starts, x.shape, sizes, strict=True):
        most = min(total - size, np.iinfo(start.dtype).max)
        bounds = e.scalar(0, start.dtype), e.scalar(most, start.dtype)
        result.append(e.convert(e.same("clamp", bounds[0], start, bounds[1]), common) if most else e.scalar(0, common))
    return result


# ---------------------------------------------------------------------------------------------------------------- keys


@part_rule("random_wrap")
def random_wrap(e: Emitter, site: Site, equation: Any, data: Any) -> list[Any]:
    """Write the split of words along the last axis into the parts of keys."""
    (x,) = data
    return [split_key_data(e, x)]


def split_key_data(e: Emitter, x: Value) -> tuple[Value, ...]:
    """Return the words of keys, given along the last axis."""
    *lead, count = x.shape
    none = [0] * len(lead)
    return tuple(e.reshape(e.slice(x, [*none, i], [*lead, i + 1]), tuple(lead)) for i in range(count))


@part_rule("random_unwrap")
def random_unwrap(e: Emitter, site: Site, equation: Any, key: Any) -> list[Any]:
    """Write the words of keys along a new last axis."""
    return [(join_key_data(e, key),)]


def join_key_data(e: Emitter, key: Any) -> Value:
    """Return the words of keys along a new last axis."""
    columns = [e.reshape(word, (*word.shape, 1)) for word in key]
    shape = (*key[0].shape, len(key))
    return e.op("concatenate", columns, shape, key[0].dtype, f"dimension = {len(shape) - 1} : i64")
