"""Dimensions that do not split evenly: all shards have the size of the largest, and the last ones end in padding.

The padding is undefined. Operations run over it too, since that costs nothing; before a reduction along the dimension
it is replaced by the neutral element, and it is cut off before the value leaves the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.partition.rules import Dims, ShardingRule, count_shards
from weft.ir.parts import Parts
from weft.ir.types import ArrayType
from weft.primitives.elementwise.compare import lt
from weft.primitives.elementwise.select import select_n
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim
from weft.primitives.reduction.reduce import reduce_sum
from weft.primitives.reduction.reduce_extrema import reduce_max, reduce_min
from weft.primitives.reduction.reduce_other import reduce_and, reduce_or, reduce_prod, reduce_xor

REDUCTIONS: Mapping[str, Any] = {
    "sum": reduce_sum,
    "max": reduce_max,
    "min": reduce_min,
    "prod": reduce_prod,
    "and": reduce_and,
    "or": reduce_or,
    "xor": reduce_xor,
}


def can_split(size: Any, axes: Sequence[Any], sizes: Mapping[Any, int], pads: bool) -> bool:
    """Return whether a dimension of this size can be split over axes. `pads`: shards may have undefined elements."""
    return pads or size % count_shards(axes, sizes) == 0


def splittable(aval: Any, dims: Dims, sizes: Mapping[Any, int], pads: bool) -> Dims:
    """Return `dims` with the dimensions replicated that cannot be split so."""
    return dims if pads else drop_uneven(aval, dims, sizes)


def drop_uneven(aval: Any, dims: Dims, sizes: Mapping[Any, int]) -> Dims:
    """Return `dims` with the dimensions replicated that do not split evenly."""
    if not isinstance(aval, ArrayType):
        return dims
    return tuple(
        axes if size % count_shards(axes, sizes) == 0 else () for size, axes in zip(aval.shape, dims, strict=True)
    )


def within_manual(aval: Any, manual: Dims, own: Dims, sizes: Mapping[Any, int]) -> Dims:
    """Return how a shard over `manual` axes is split further, without the dimensions in which its shards would not be
    shards of the whole value."""
    return tuple(
        axes if not by_hand or size % count_shards(axes, sizes) == 0 else ()
        for size, by_hand, axes in zip(aval.shape, manual, own, strict=True)
    )


def even_reason(
    rule: ShardingRule, operand: int, dims: Dims, wanted: Dims, sizes: Mapping[Any, int], pads: bool
) -> str:
    """Explain why an operand that is split unevenly, as `dims`, is gathered for an operation that reads `wanted`."""
    for name, axes, left in zip(rule.names[operand], dims, wanted, strict=True):
        size, count = rule.sizes.get(name or "", 0), count_shards(axes, sizes)
        if len(axes) > len(left) and size % count and (name in rule.even or not pads):
            checked = "" if pads else ", and all elements are checked"
            return f": {size} element{'s'[: size != 1]} do not split evenly into {count} parts{checked}"
    return ""


def clear_ends(x: Any, aval: Any, dims: Dims, sizes: Mapping[Any, int], pads: bool) -> Any:
    """Replace the padding of an argument by zeros, if all elements are checked."""
    if pads or not isinstance(aval, ArrayType) or dtypes.kind(aval.dtype) not in "fc":
        return x
    for d, (size, axes) in enumerate(zip(aval.shape, dims, strict=True)):
        if size % count_shards(axes, sizes):
            x = with_end(Parts((), (), (), (), {"d": axes}, sizes), "d", x, d, size, "sum")
    return x


def with_neutral_ends(parts: Parts, rule: ShardingRule, args: Sequence[Any]) -> list[Any]:
    """Replace the padding of operands along reduced dimensions by the neutral element of the reduction."""
    out = list(args)
    for name, axes in parts.axes.items():
        size = rule.sizes[name]
        if name in rule.results or name in rule.reach or not size % count_shards(axes, parts.sizes):
            continue
        for i, d in rule.dims[name]:
            out[i] = with_end(parts, name, out[i], d, size, rule.combine[name])
    return out


def with_end(parts: Parts, name: str, x: Any, dim: int, size: Any, how: str) -> Any:
    """Replace what is beyond the first `size` elements of dimension `dim`, counted over all shards, by the neutral
    element of the reduction `how`."""
    shape = x.shape
    index = iota(dtype=np.dtype(np.int32), shape=shape, dimension=dim)
    end = np.int32(size) - parts.start(name, shape[dim])
    inside = lt(index, broadcast_in_dim(end, shape=shape, broadcast_dimensions=()))
    nothing = np.asarray(REDUCTIONS[how].neutral(x.dtype)).astype(x.dtype)
    return select_n(inside, broadcast_in_dim(nothing, shape=shape, broadcast_dimensions=()), x)
