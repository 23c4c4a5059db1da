"""Rounding: to integers, to the next float, to fewer bits."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import ml_dtypes
import numpy as np

from weft.base.errors import ArgumentError
from weft.ir.primitive import No, Sample, primitive
from weft.ir.types import ArrayType
from weft.ir.zeros import Zero
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.elementwise.scalar import bfloat16, round_result
from weft.primitives.movement.shape import ramp

_EDGES = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 1e9, np.inf, -np.inf, np.nan], np.float32)


class RoundingMethod(IntEnum):
    """What happens to a number halfway between two integers."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


class Rounding(Elementwise):
    """Piecewise constant, so the derivative is zero."""

    kinds = "f"
    zero_derivative = True
    keeps_nan = "all"

    def samples(self) -> Any:
        yield Sample(ramp(3, 2))
        yield Sample(_EDGES, differentiable=False)
        yield Sample(ramp(3, dtype=bfloat16), differentiable=False)
        yield Sample(np.float32(1.25).reshape(()))


@primitive
class floor(Rounding):
    """Greatest integer not above."""

    eval = round_result(np.floor)


@primitive
class ceil(Rounding):
    """Least integer not below."""

    eval = round_result(np.ceil)


@primitive
class round(Rounding):
    """Nearest integer; `rounding_method` decides halfway."""

    @round_result
    def eval(x: Any, *, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Any:
        if rounding_method == RoundingMethod.TO_NEAREST_EVEN:
            return np.rint(x)
        whole = np.trunc(x)
        # The difference is exact, so a number just under one half is not carried over it.
        away = np.abs(x - whole) >= 0.5
        return np.where(away, whole + np.copysign(np.ones((), x.dtype), x), whole)

    def samples(self) -> Any:
        for sample in super().samples():
            for method in RoundingMethod:
                yield Sample(*sample.args, differentiable=sample.differentiable, rounding_method=method)


@primitive
class nextafter(Rounding):
    """Float next to the first operand in the direction of the second."""

    weight = 4

    @staticmethod
    def eval(x: Any, y: Any) -> Any:
        # The step depends on the dtype itself, so nothing is widened here. Of equal numbers the second is the result,
        # as in C: it matters for zeros of opposite signs, where NumPy's float16 returned the first before NumPy 2.5.
        return np.where(x == y, y, np.nextafter(x, y))

    jvp = No("it steps between neighbouring floats, which says nothing about rates of change")

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), ramp(3, 2)[::-1].copy(), differentiable=False)
        yield Sample(np.array([0, np.inf, np.nan, 1], np.float32), np.float32(0), differentiable=False)
        for dtype in (np.float16, bfloat16, np.float32):
            yield Sample(np.array([-0.0, 0.0], dtype), np.array([0.0, -0.0], dtype), differentiable=False)
        yield Sample(ramp(3, dtype=bfloat16), ramp(3, dtype=bfloat16)[::-1].copy(), differentiable=False)


@primitive
class reduce_precision(Elementwise):
    """Each element rounded to what `exponent_bits` and `mantissa_bits` can hold, in the same dtype."""

    kinds = "f"
    linear = (0,)
    introduces = ("inf",)
    keeps_nan = "all"
    weight = 4

    def type(self, x: ArrayType, *, exponent_bits: int, mantissa_bits: int) -> ArrayType:
        if exponent_bits < 1 or mantissa_bits < 0:
            raise ArgumentError(
                f"reduce_precision got exponent_bits={exponent_bits}, mantissa_bits={mantissa_bits}; "
                "at least one exponent bit and no negative number of mantissa bits are needed."
            )
        result: ArrayType = super().type(x)
        return result

    @staticmethod
    def eval(x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
        x = np.asarray(x)
        limits = ml_dtypes.finfo(x.dtype)
        if x.dtype.itemsize == 1:  # their own encodings differ; float32 holds all of them exactly
            wide = _reduce_bits(x.astype(np.float32), exponent_bits, mantissa_bits, exponent_bits < limits.nexp)
            return wide.astype(x.dtype)
        return _reduce_bits(x, exponent_bits, mantissa_bits, exponent_bits < limits.nexp)

    def jvp(self, tangents: Any, out: Any, x: Any, **params: Any) -> Any:
        return Zero.of(out.aval) if type(tangents[0]) is Zero else reduce_precision(tangents[0], **params)

    def transpose(self, cotangent: Any, x: Any, **params: Any) -> Any:
        return [reduce_precision(cotangent, **params)]

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), exponent_bits=8, mantissa_bits=23, differentiable=False)
        yield Sample(_EDGES, exponent_bits=5, mantissa_bits=10, differentiable=False)
        yield Sample(_EDGES * 1.001, exponent_bits=8, mantissa_bits=7, differentiable=False)
        yield Sample(ramp(3, dtype=bfloat16), exponent_bits=4, mantissa_bits=3, differentiable=False)


def _reduce_bits(x: np.ndarray, exponent_bits: int, mantissa_bits: int, fewer_exponents: bool) -> np.ndarray:
    """Round the mantissa to nearest even; exponents beyond the new range become infinite or zero."""
    limits = ml_dtypes.finfo(x.dtype)
    unsigned = np.dtype(f"u{x.dtype.itemsize}").type
    mantissa, exponents = int(limits.nmant), int(limits.nexp)
    bits = x.view(unsigned)
    sign = bits & unsigned(1 << (mantissa + exponents))
    magnitude = bits ^ sign
    drop = mantissa - mantissa_bits
    if drop > 0:
        last = (magnitude >> unsigned(drop)) & unsigned(1)
        magnitude = magnitude + unsigned((1 << (drop - 1)) - 1) + last
        magnitude = magnitude & ~unsigned((1 << drop) - 1)
    if fewer_exponents:
        exponent_mask = ((1 << exponents) - 1) << mantissa
        bias, new_bias = (1 << (exponents - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        exponent = magnitude & unsigned(exponent_mask)
        magnitude = np.where(exponent > unsigned((bias + new_bias) << mantissa), unsigned(exponent_mask), magnitude)
        magnitude = np.where(exponent <= unsigned((bias - new_bias) << mantissa), unsigned(0), magnitude)
    result = (magnitude | sign).astype(unsigned).view(x.dtype)
    return np.where(np.isnan(x), x, result)
