"""Reductions by addition, the base of all reductions, and the sum that undoes a broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from weft.ir.primitive import Sample, primitive
from weft.ir.types import ArrayType
from weft.primitives.families import Reduction, check_kind, remaining_axes, widen
from weft.primitives.movement.shape import broadcast_in_dim, ramp


class CheckedReduction(Reduction):
    """Reduction of one operand that accepts dtypes of `kinds`."""

    kinds: ClassVar[str] = "iufc"
    keeps_nan = "all"
    one_as_is = "biuf"

    def type(self, x: ArrayType, *, axes: tuple[int, ...]) -> ArrayType:
        check_kind(self.name, x.dtype, self.kinds)
        return super().type(x, axes=axes)


@primitive
class reduce_sum(CheckedReduction):
    """Sum over `axes`; reduced-precision floats accumulate wider."""

    linear = (0,)
    ulp = {"": 2.0}
    negative_zero = False  # it starts from 0.0
    any_order = "iu"
    one_plus_zero = "fc"

    def eval(self, x: Any, *, axes: tuple[int, ...]) -> Any:
        operand = widen(np.asarray(x))
        return np.sum(operand, axis=axes, dtype=operand.dtype).astype(x.dtype)

    def transpose(self, cotangent: Any, x: Any, *, axes: tuple[int, ...]) -> Sequence[Any]:
        shape = x.aval.shape
        return [broadcast_in_dim(cotangent, shape=shape, broadcast_dimensions=remaining_axes(len(shape), axes))]

    def initial(self, dtype: Any) -> Any:
        return np.zeros((), dtype)

    def combine(self, builder: Any, accumulator: Any, value: Any) -> Any:
        return builder.add(accumulator, value)

    def samples(self) -> Any:
        yield Sample(ramp(3, 4), axes=(1,))
        yield Sample(ramp(2, 3, 4), axes=(0, 2))
        yield Sample(ramp(3), axes=())
        yield Sample(ramp(), axes=())
        yield Sample(ramp(4, dtype=np.int32), axes=(0,))
        yield Sample(ramp(0, 3), axes=(0,))
        yield Sample(ramp(1, 3), axes=(0,))
        yield Sample(ramp(2, 3, dtype=np.complex64) * (1 + 2j), axes=(1,))
        yield Sample(ramp(5, dtype=ml_dtypes.bfloat16), axes=(0,), differentiable=False)


def unbroadcast(cotangent: Any, aval: ArrayType) -> Any:
    """Sum a cotangent to the shape of its operand, which may have been a scalar next to full shapes."""
    shape = np.shape(cotangent)
    if shape == aval.shape:
        return cotangent
    return reduce_sum(cotangent, axes=tuple(range(len(shape))))
