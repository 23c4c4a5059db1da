"""Dimensions that do not split evenly: parts have the size of the largest, and the last ones end early.

What is beyond the end of a dimension is undefined. Operations run over all of it, since that costs nothing; where they
reduce along the dimension, the neutral element takes its place first, and what leaves the device ends where it should.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.settings import config
from weft.compiler.partition.rules import Dims, Rule, parts_of
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


def are_allowed() -> bool:
    """Whether parts may have undefined elements: not where all elements are looked at."""
    return config.checks != "all" and not config.debug_nans and not config.debug_infs


def can_split(size: Any, axes: Sequence[Any], sizes: Mapping[Any, int]) -> bool:
    """Whether a dimension of this size can be split over axes."""
    return size % parts_of(axes, sizes) == 0 or are_allowed()


def splittable(aval: Any, dims: Dims, sizes: Mapping[Any, int]) -> Dims:
    """How a value is split, without the dimensions that cannot be."""
    if not isinstance(aval, ArrayType):
        return dims
    return tuple(axes if can_split(size, axes, sizes) else () for size, axes in zip(aval.shape, dims, strict=True))


def evened(aval: Any, dims: Dims, sizes: Mapping[Any, int]) -> Dims:
    """How a value is split, without the dimensions that do not split evenly."""
    if not isinstance(aval, ArrayType):
        return dims
    return tuple(axes if size % parts_of(axes, sizes) == 0 else () for size, axes in zip(aval.shape, dims, strict=True))


def within_manual(aval: Any, manual: Dims, own: Dims, sizes: Mapping[Any, int]) -> Dims:
    """How the values of a type are split that are parts over `manual` axes already, without the dimensions in which
    the parts of those parts would not be parts of the whole."""
    return tuple(
        axes if not by_hand or size % parts_of(axes, sizes) == 0 else ()
        for size, by_hand, axes in zip(aval.shape, manual, own, strict=True)
    )


def why_even(rule: Rule, operand: int, dims: Dims, wanted: Dims, sizes: Mapping[Any, int]) -> str:
    """Why an operand that is split unevenly, as `dims`, is gathered for an operation that wants it otherwise."""
    for name, axes, left in zip(rule.names[operand], dims, wanted, strict=True):
        size, count = rule.sizes.get(name or "", 0), parts_of(axes, sizes)
        if len(axes) > len(left) and size % count and (name in rule.even or not are_allowed()):
            checked = "" if are_allowed() else ", and all elements are checked"
            return f": {size} element{'s'[: size != 1]} do not split evenly into {count} parts{checked}"
    return ""


def cleared(x: Any, aval: Any, dims: Dims, sizes: Mapping[Any, int]) -> Any:
    """An argument in which elements beyond the end of a dimension are zeros, if all elements are looked at."""
    if are_allowed() or not isinstance(aval, ArrayType) or dtypes.kind(aval.dtype) not in "fc":
        return x
    for d, (size, axes) in enumerate(zip(aval.shape, dims, strict=True)):
        if size % parts_of(axes, sizes):
            x = with_end(Parts((), (), (), (), {"d": axes}, sizes), "d", x, d, size, "sum")
    return x


def with_neutral_ends(parts: Parts, rule: Rule, args: Sequence[Any]) -> list[Any]:
    """Operands in which elements beyond the end of a dimension that is reduced are neutral."""
    out = list(args)
    for name, axes in parts.axes.items():
        size = rule.sizes[name]
        if name in rule.results or name in rule.reach or not size % parts_of(axes, parts.sizes):
            continue
        for i, d in rule.dims[name]:
            out[i] = with_end(parts, name, out[i], d, size, rule.combine[name])
    return out


def with_end(parts: Parts, name: str, x: Any, dim: int, size: Any, how: str) -> Any:
    """An operand whose dimension `dim` ends after `size` elements of all parts; what is beyond is neutral for `how`."""
    shape = x.shape
    index = iota(dtype=np.dtype(np.int32), shape=shape, dimension=dim)
    end = np.int32(size) - parts.start(name, shape[dim])
    inside = lt(index, broadcast_in_dim(end, shape=shape, broadcast_dimensions=()))
    nothing = np.asarray(REDUCTIONS[how].neutral(x.dtype)).astype(x.dtype)
    return select_n(inside, broadcast_in_dim(nothing, shape=shape, broadcast_dimensions=()), x)
