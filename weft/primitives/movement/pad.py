"""Padding at the edges and between elements; negative padding crops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.indexing import index_map
from weft.indexing.dimension import definitely_less, maximum
from weft.ir.fusing import PADDED, Machine, Properties
from weft.ir.halo import with_halo
from weft.ir.parts import Parts
from weft.ir.primitive import Axis, Params, Sample, lookup, primitive
from weft.ir.rules.bindable import Operands
from weft.ir.types import ArrayType, Shape, get_aval
from weft.ir.zeros import is_linear
from weft.primitives.families import Indexing, fail
from weft.primitives.movement.shape import broadcast_in_dim, move_axis, move_batch_to_front, ramp
from weft.sharding.factors import AxisFactors, by_dimension
from weft.sharding.halo import Reach

Padding = tuple[tuple[int, int, int], ...]


def pad_size(size: Any, low: Any, high: Any, interior: int) -> Any:
    """Return the size of a dimension after padding."""
    if not interior:
        return low + size + high
    # An empty dimension has no gaps between elements; a symbolic one may be empty.
    return low + maximum((interior + 1) * size - interior, 0) + high


@primitive
class pad(Indexing):
    """Put `low` padding values before, `high` after and `interior` between the elements of each dimension."""

    def type(self, x: ArrayType, value: ArrayType, *, padding_config: Padding) -> ArrayType:
        if value.shape:
            raise fail(f"pad needs a scalar padding value, got one of shape {value.shape}.")
        if value.dtype != x.dtype:
            raise ArgumentTypeError(
                f"pad needs a padding value of dtype {dtypes.name(x.dtype)}, got {dtypes.name(value.dtype)}."
            )
        if len(padding_config) != x.ndim:
            raise fail(
                f"pad got padding_config {padding_config} for an operand of shape {x.shape}.",
                fix="give one (low, high, interior) for each dimension",
            )
        sizes = []
        for size, (low, high, interior) in zip(x.shape, padding_config, strict=True):
            if interior < 0:
                raise fail(f"pad needs interior padding of at least 0, got {interior} in {padding_config}.")
            sizes.append(pad_size(size, low, high, interior))
            if definitely_less(sizes[-1], 0):
                raise fail(f"pad cannot crop {padding_config} from shape {x.shape}: a size would be {sizes[-1]}.")
        return x.plain_of_shape(sizes) if x.weak_type == value.weak_type else x.strong().plain_of_shape(sizes)

    def eval(self, x: Any, value: Any, *, padding_config: Padding) -> Any:
        x = np.asarray(x)
        sizes = [pad_size(n, *p) for n, p in zip(x.shape, padding_config, strict=True)]
        out = np.empty(sizes, x.dtype)
        out[...] = value
        taken, placed = [], []
        for n, size, (low, _, interior) in zip(x.shape, sizes, padding_config, strict=True):
            step = interior + 1
            first = max(0, -(low // step)) if low < 0 else 0
            last = min(n, -((low - size) // step))
            last = max(first, last)
            taken.append(slice(first, last))
            placed.append(
                slice(
                    low + first * step,
                    low + first * step + (last - first - 1) * step + 1 if last > first else low + first * step,
                    step,
                )
            )
        out[tuple(placed)] = x[tuple(taken)]
        return out

    def transpose(self, cotangent: Any, x: Any, value: Any, *, padding_config: Padding) -> Sequence[Any]:
        back = pad(
            cotangent,
            zero(cotangent.aval.dtype),
            padding_config=tuple((-low, -high, 0) for low, high, _ in padding_config),
        )
        if any(interior for _, _, interior in padding_config):
            shape = back.shape
            steps = tuple(interior + 1 for _, _, interior in padding_config)
            back = lookup("slice")(back, start_indices=(0,) * len(shape), limit_indices=shape, strides=steps)
        to_value = None
        if is_linear(value):
            everything = lookup("reduce_sum")(cotangent, axes=tuple(range(len(cotangent.shape))))
            inside = lookup("reduce_sum")(back, axes=tuple(range(len(back.shape))))
            to_value = lookup("sub")(everything, inside)
        return [back if is_linear(x) else None, to_value]

    def batch(self, axis: Axis, args: Any, dims: Any, *, padding_config: Padding) -> tuple[Any, int]:
        (x, value), (dim, value_dim) = args, dims
        if value_dim is None:
            return pad(x, value, padding_config=(*padding_config[:dim], (0, 0, 0), *padding_config[dim:])), dim
        # Each element of the batch has its own padding value: pad with zeros, then select it outside of the operand.
        x = move_batch_to_front(x, dim, axis)
        config = ((0, 0, 0), *padding_config)
        aval = get_aval(x)
        padded = pad(x, zero(aval.dtype), padding_config=config)  # type: ignore[attr-defined]
        shape = padded.shape
        inside = broadcast_in_dim(np.ones((), np.bool_), shape=aval.shape, broadcast_dimensions=())  # type: ignore[attr-defined]
        inside = pad(inside, np.zeros((), np.bool_), padding_config=config)
        values = broadcast_in_dim(move_axis(value, value_dim, 0), shape=shape, broadcast_dimensions=(0,))
        return lookup("select_n")(inside, values, padded), 0

    def factors(self, x: ArrayType, value: ArrayType, *, padding_config: Padding) -> AxisFactors:
        names: list[str | None] = []
        reach: dict[str, tuple[Reach | None, ...]] = {}
        sizes: tuple[Any, ...] = x.shape
        for i, (size, (low, high, interior)) in enumerate(zip(sizes, padding_config, strict=True)):
            count = pad_size(size, low, high, interior)
            known = all(isinstance(n, int) for n in (size, low, high)) and size > 0 and count > 0
            names.append(f"d{i}")
            if (low, high, interior) != (0, 0, 0):
                if known and dtypes.kind(x.dtype) in "biufc":
                    reach[f"d{i}"] = Reach(size, count, 1, low, 1, interior + 1), None
                else:
                    names[-1] = None
        inside, reason = dict.fromkeys(reach, 0), "with padding elements belong to other parts"
        return AxisFactors((tuple(names), ()), (tuple(names),), inside=inside, reach=reach, reason=reason)

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Exchange the elements of the operand that this part of the result needs, and pad them at the operand's
        ends."""
        x, value = args
        config = list(params["padding_config"])
        for d, name in parts.split_dims(0).items():
            if name in parts.reach:
                x, halo = with_halo(parts, x, 0, d, value)
                config[d] = halo.pad_low, halo.pad_high, config[d][2]
        return [pad(x, value, padding_config=tuple(config))]

    def explicit_factors(self, x: ArrayType, value: ArrayType, *, padding_config: Padding) -> AxisFactors:
        return by_dimension([x.ndim, 0])

    def sources(self, x: ArrayType, value: ArrayType, *, padding_config: Padding) -> list[tuple[int, Any]]:
        sizes: Shape = self.type(x, value, padding_config=padding_config).shape
        return [(0, index_map.pad_map(x.shape, padding_config)), (1, index_map.IndexMap.over(sizes, ()))]

    def nan_operands(self, params: Params) -> Operands:
        lost = any(low < 0 or high < 0 for low, high, _ in params["padding_config"])
        return () if lost else (0,)

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return PADDED

    def samples(self) -> Any:
        yield Sample(ramp(2, 3), ramp(), padding_config=((1, 2, 0), (0, 0, 0)))
        yield Sample(ramp(3), ramp(), padding_config=((1, 0, 2),))
        yield Sample(ramp(5), ramp(), padding_config=((-1, -2, 0),))
        yield Sample(ramp(5), ramp(), padding_config=((-2, 1, 1),))
        yield Sample(ramp(4), ramp(), padding_config=((1, -3, 2),))
        yield Sample(ramp(2), ramp(), padding_config=((4, -5, 0),))
        yield Sample(ramp(3, dtype=np.int32), ramp(dtype=np.int32), padding_config=((0, 1, 0),))
        yield Sample(ramp(2, dtype=dtypes.bfloat16), ramp(dtype=dtypes.bfloat16), padding_config=((1, 1, 1),))
        yield Sample(ramp(0, dtype=np.complex64), ramp(dtype=np.complex64), padding_config=((1, 1, 3),))
        yield Sample(ramp(), ramp(), padding_config=())


def zero(dtype: Any) -> np.ndarray:
    """Return a scalar zero."""
    return np.zeros((), dtype)
