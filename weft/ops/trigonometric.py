"""Sine, cosine and their relatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.primitive import Sample, primitive
from weft.ops.arithmetic import mul, neg
from weft.ops.elementwise import Elementwise
from weft.ops.shape import ramp


@primitive
class sin(Elementwise):
    """Sine of each element, in radians."""

    kinds = "fc"
    ulp = {"": 2.0}
    eval = staticmethod(np.sin)

    def partial(self, number: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, cos(x))

    def samples(self) -> Any:
        yield Sample(ramp(3, 2))


@primitive
class cos(Elementwise):
    """Cosine of each element, in radians."""

    kinds = "fc"
    ulp = {"": 2.0}
    eval = staticmethod(np.cos)

    def partial(self, number: int, tangent: Any, out: Any, x: Any) -> Any:
        return neg(mul(tangent, sin(x)))

    def samples(self) -> Any:
        yield Sample(ramp(3, 2))
