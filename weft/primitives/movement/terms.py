"""A value as the terms of a sum over the devices along axes of a mesh: how arrays are unreduced outside of programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.primitive import Axis, Primitive, Sample, lookup, primitive
from weft.ir.types import ArrayType
from weft.primitives.movement.pad import pad, zero
from weft.primitives.movement.shape import move_axis, ramp, reshape
from weft.sharding.factors import AxisFactors


@primitive
class unsum(Primitive):
    """Terms along new first dimensions of these `sizes`, whose sum is the operand. Where programs are partitioned, the
    dimensions are split over `axes` and the terms are what each device has to add; otherwise the first term is the
    operand, and the others are zeros."""

    linear = (0,)
    introduces = ()
    weight = 0
    partitions = True

    def type(self, x: ArrayType, *, axes: tuple[Any, ...], sizes: tuple[int, ...]) -> ArrayType:
        return x.plain_of_shape((*sizes, *x.shape))

    def eval(self, x: Any, *, axes: tuple[Any, ...], sizes: tuple[int, ...]) -> Any:
        out = np.zeros((math.prod(sizes), *np.shape(x)), np.asarray(x).dtype)
        out[0] = x
        return out.reshape(*sizes, *np.shape(x))

    def definition(self, x: Any, *, axes: tuple[Any, ...], sizes: tuple[int, ...]) -> Any:
        first = reshape(x, new_sizes=(*(1 for _ in sizes), *x.shape), dimensions=None)
        config = (*((0, n - 1, 0) for n in sizes), *((0, 0, 0) for _ in x.shape))
        return pad(first, zero(x.dtype), padding_config=config)

    def transpose(self, cotangent: Any, x: Any, *, axes: tuple[Any, ...], sizes: tuple[int, ...]) -> Sequence[Any]:
        count, shape = len(sizes), cotangent.shape[len(sizes) :]
        starts, limits = (0,) * len(cotangent.shape), ((1,) * count + shape)
        first = lookup("slice")(cotangent, start_indices=starts, limit_indices=limits, strides=None)
        return [reshape(first, new_sizes=shape, dimensions=None)]

    def batch(
        self, axis: Axis, args: Any, dims: Any, *, axes: tuple[Any, ...], sizes: tuple[int, ...]
    ) -> tuple[Any, int]:
        return unsum(move_axis(args[0], dims[0], 0), axes=axes, sizes=sizes), len(sizes)

    def factors(self, x: ArrayType, *, axes: tuple[Any, ...], sizes: tuple[int, ...]) -> AxisFactors:
        names = tuple(f"d{i}" for i in range(x.ndim))
        return AxisFactors((names,), ((*(None for _ in sizes), *names),))

    def samples(self) -> Any:
        yield Sample(ramp(2, 3), axes=("x",), sizes=(2,))
        yield Sample(ramp(3), axes=("x", "y"), sizes=(2, 3))
        yield Sample(ramp(dtype=np.int32), axes=("x",), sizes=(3,))
