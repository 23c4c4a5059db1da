"""Counting along a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.indexing.ranges import Range
from weft.ir.element import Element
from weft.ir.flow import OperandRanges
from weft.ir.fusing import REPEATED, Machine, Properties
from weft.ir.parts import Parts
from weft.ir.primitive import Params, Primitive, Sample, lookup, primitive
from weft.ir.types import ArrayType, Shape, array_type
from weft.primitives.families import fail
from weft.sharding.factors import AxisFactors


@primitive
class iota(Primitive):
    """0, 1, 2, ... along one dimension of an array of `shape`, the same along all others."""

    zero_derivative = True
    introduces = ()
    negative_zero = False
    weight = 0

    def type(self, *, dtype: Any, shape: Shape, dimension: int) -> ArrayType:
        if dtypes.kind(dtype) not in "iufc":
            raise ArgumentTypeError(f"iota makes integer, float or complex arrays, not {dtypes.name(dtype)}.")
        if not 0 <= dimension < len(shape):
            raise fail(
                f"iota got dimension {dimension} for shape {shape}.", fix="give a dimension in range(len(shape))"
            )
        return array_type(tuple(shape), dtype)

    def eval(self, *, dtype: Any, shape: Any, dimension: int) -> Any:
        count = np.arange(shape[dimension]).astype(dtype)
        return np.broadcast_to(count.reshape([-1 if i == dimension else 1 for i in range(len(shape))]), shape)

    def factors(self, *, dtype: Any, shape: Shape, dimension: int) -> AxisFactors:
        return AxisFactors((), (tuple(f"d{i}" for i in range(len(shape))),))

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Count from the start of this part."""
        dtype, dimension, shape = params["dtype"], params["dimension"], parts.results[0].shape  # type: ignore[attr-defined]
        out = iota(dtype=dtype, shape=shape, dimension=dimension)
        name = parts.result_names[0][dimension]
        if name is not None and parts.split(name):
            start = parts.start(name, shape[dimension])
            start = lookup("convert_element_type")(start, new_dtype=dtype, weak_type=False)
            start = lookup("broadcast_in_dim")(start, shape=shape, broadcast_dimensions=())
            out = lookup("add")(out, start)
        return [out]

    def bounds(self, operands: OperandRanges, *, dtype: Any, shape: Shape, dimension: int) -> Range:
        size = shape[dimension]
        return Range(0, max(size - 1, 0)) if type(size) is int else Range.EVERYTHING

    def value_at(self, element: Element, *, dtype: Any, shape: Shape, dimension: int) -> Any:
        return element.scalars.convert(element.position(element.index[dimension]), dtype)

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return REPEATED

    def samples(self) -> Any:
        yield Sample(dtype=np.dtype(np.int32), shape=(4,), dimension=0)
        yield Sample(dtype=np.dtype(np.float32), shape=(2, 3), dimension=1)
        yield Sample(dtype=dtypes.bfloat16, shape=(3, 2), dimension=0)
        yield Sample(dtype=np.dtype(np.uint8), shape=(0, 2), dimension=1)
