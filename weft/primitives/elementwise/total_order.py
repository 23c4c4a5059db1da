"""Comparisons in the total order of floats: by their bits, -nan < -inf < ... < -0 < 0 < ... < inf < nan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.ir.primitive import Primitive, Sample, primitive
from weft.primitives.elementwise.bitwise import xor
from weft.primitives.elementwise.compare import eq, le, lt
from weft.primitives.elementwise.convert import bitcast_convert_type
from weft.primitives.elementwise.scalar import bfloat16
from weft.primitives.elementwise.select import select_n
from weft.primitives.families import Composite, check_kind
from weft.primitives.movement.shape import ramp


def to_ordered_bits(x: Any) -> Any:
    """Map floats to integers in the same order; return integers and booleans unchanged."""
    if dtypes.kind(x.dtype) != "f":
        return x
    integer = np.dtype(f"int{8 * x.dtype.itemsize}")
    bits = bitcast_convert_type(x, new_dtype=integer)
    greatest = np.array(np.iinfo(integer).max, integer)
    return select_n(lt(bits, np.array(0, integer)), bits, xor(bits, greatest))


class TotalComparison(Composite):
    """Comparison of two arrays of real numbers in the total order."""

    comparison: Callable[[Any, Any], Any]

    def type(self, x: Any, y: Any) -> Any:
        check_kind(self.name, x.dtype, "biuf")
        return type(self).comparison.type(x, y)  # type: ignore[attr-defined]

    def jvp(self, tangents: Any, out: Any, *args: Any) -> Any:
        return Primitive.jvp(self, tangents, out, *args)

    zero_derivative = True

    def decompose(self, x: Any, y: Any) -> Any:
        return type(self).comparison(to_ordered_bits(x), to_ordered_bits(y))

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), ramp(3, 2)[::-1].copy())
        yield Sample(ramp(4, dtype=np.int32), ramp(4, dtype=np.int32)[::-1].copy())
        special = np.array([np.nan, -np.nan, 0.0, -0.0, 1.0, -np.inf], np.float32)
        yield Sample(np.repeat(special, 6), np.tile(special, 6))
        yield Sample(ramp(3, dtype=bfloat16), ramp(3, dtype=bfloat16)[::-1].copy())


@primitive
class eq_to(TotalComparison):
    """Whether elements have the same bits."""

    comparison = staticmethod(eq)


@primitive
class le_to(TotalComparison):
    """Whether the first element is less or the same in the total order."""

    comparison = staticmethod(le)


@primitive
class lt_to(TotalComparison):
    """Whether the first element is less in the total order."""

    comparison = staticmethod(lt)
