"""Arithmetic on each element: add, sub, mul, div, neg and what is closest to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.primitive import Sample, primitive
from weft.ir.zeros import Zero, is_linear
from weft.ops.elementwise import Elementwise
from weft.ops.reduce import unbroadcast
from weft.ops.shape import broadcast_in_dim, ramp


@primitive
class add(Elementwise):
    """Sum of two arrays."""

    linear = "all"
    kinds = "iufc"
    eval = staticmethod(np.add)

    def transpose(self, cotangent: Any, x: Any, y: Any) -> Sequence[Any]:
        return [unbroadcast(cotangent, a.aval) if is_linear(a) else None for a in (x, y)]

    def jvp(self, tangents: Any, out: Any, x: Any, y: Any) -> Any:
        dx, dy = tangents
        if type(dx) is Zero or type(dy) is Zero:
            return broadcast_tangent(dy if type(dx) is Zero else dx, out)
        return add(dx, dy)

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), ramp(3, 2)[::-1])
        yield Sample(ramp(3), ramp()[()])
        yield Sample(ramp(4, dtype=np.int32), ramp(4, dtype=np.int32))
        yield Sample(ramp(2, dtype=np.complex64), ramp(2, dtype=np.complex64) * 1j)


@primitive
class mul(Elementwise):
    """Product of two arrays."""

    linear = "all"
    multilinear = True
    kinds = "biufc"
    eval = staticmethod(np.multiply)

    def transpose(self, cotangent: Any, x: Any, y: Any) -> Sequence[Any]:
        if is_linear(x):
            return [unbroadcast(mul(cotangent, y), x.aval), None]
        return [None, unbroadcast(mul(x, cotangent), y.aval)]

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), ramp(3, 2)[::-1])
        yield Sample(ramp()[()], ramp(3))
        yield Sample(ramp(4, dtype=np.int32), ramp(4, dtype=np.int32))
        yield Sample(ramp(2, dtype=np.complex64), ramp(2, dtype=np.complex64) * 1j)


@primitive
class neg(Elementwise):
    """Minus each element."""

    linear = (0,)
    eval = staticmethod(np.negative)

    def transpose(self, cotangent: Any, x: Any) -> Sequence[Any]:
        return [neg(cotangent)]

    def samples(self) -> Any:
        yield Sample(ramp(3, 2))


@primitive
class sub(Elementwise):
    """Difference of two arrays."""

    linear = "all"
    eval = staticmethod(np.subtract)

    def jvp(self, tangents: Any, out: Any, x: Any, y: Any) -> Any:
        dx, dy = tangents
        if type(dy) is Zero:
            return broadcast_tangent(dx, out)
        return broadcast_tangent(neg(dy), out) if type(dx) is Zero else sub(dx, dy)

    def transpose(self, cotangent: Any, x: Any, y: Any) -> Sequence[Any]:
        return [
            unbroadcast(cotangent, x.aval) if is_linear(x) else None,
            neg(unbroadcast(cotangent, y.aval)) if is_linear(y) else None,
        ]

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), ramp(3, 2)[::-1])
        yield Sample(ramp(3), ramp()[()])


def broadcast_tangent(tangent: Any, out: Any) -> Any:
    """A tangent in the shape of the result: that of a scalar operand is repeated."""
    if tangent.shape == out.shape:
        return tangent
    return broadcast_in_dim(tangent, shape=out.shape, broadcast_dimensions=())
