"""Reductions by addition, and the helper that sums away what broadcasting added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.primitive import Sample, primitive
from weft.ir.types import ArrayType
from weft.ops.families import Reduction, kept_axes, wide
from weft.ops.shape import broadcast_in_dim, ramp


@primitive
class reduce_sum(Reduction):
    """Sum over `axes`; reduced-precision floats accumulate wider."""

    linear = (0,)
    ulp = {"": 2.0}

    def eval(self, x: Any, *, axes: tuple[int, ...]) -> Any:
        return np.sum(wide(np.asarray(x)), axis=axes, dtype=None if x.dtype.kind == "c" else wide(np.empty(0, x.dtype)).dtype).astype(x.dtype)

    def transpose(self, cotangent: Any, x: Any, *, axes: tuple[int, ...]) -> Sequence[Any]:
        shape = x.aval.shape
        return [broadcast_in_dim(cotangent, shape=shape, broadcast_dimensions=kept_axes(len(shape), axes))]

    def initial(self, dtype: Any) -> Any:
        return np.zeros((), dtype)

    def combine(self, builder: Any, accumulator: Any, value: Any) -> Any:
        return builder.add(accumulator, value)

    def samples(self) -> Any:
        yield Sample(ramp(3, 4), axes=(1,))
        yield Sample(ramp(2, 3, 4), axes=(0, 2))
        yield Sample(ramp(3), axes=())
        yield Sample(ramp(4, dtype=np.int32), axes=(0,))
        yield Sample(ramp(0, 3), axes=(0,))


def unbroadcast(cotangent: Any, aval: ArrayType) -> Any:
    """The cotangent of an operand that may have been a scalar used against a whole tensor."""
    shape = cotangent.aval.shape
    if shape == aval.shape:
        return cotangent
    return reduce_sum(cotangent, axes=tuple(range(len(shape))))
