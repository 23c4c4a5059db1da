"""Complex numbers: parts, building from parts, conjugation.

Transposes do not conjugate: the pairing is the real part of `cotangent * tangent`, as everywhere in Weft.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.ir.primitive import Sample, primitive
from weft.ir.zeros import Zero, is_linear
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.elementwise.scalar import complex_ramp, constant_like, get_dtype
from weft.primitives.elementwise.select import broadcast_to_type
from weft.primitives.movement.shape import ramp
from weft.primitives.reduction.reduce import unbroadcast


class Part(Elementwise):
    """Real or the imaginary part."""

    kinds = "c"
    linear = (0,)
    introduces = ()

    def result_dtype(self, dtype: Any, **params: Any) -> Any:
        return dtypes.to_real_dtype(dtype)

    def samples(self) -> Any:
        yield Sample(complex_ramp(3, 2))
        yield Sample(complex_ramp(1).reshape(()))


@primitive
class real(Part):
    """Real part."""

    eval = staticmethod(np.real)

    def transpose(self, cotangent: Any, x: Any) -> Sequence[Any]:
        return [complex(cotangent, constant_like(cotangent, 0))]


@primitive
class imag(Part):
    """Imaginary part."""

    eval = staticmethod(np.imag)

    def transpose(self, cotangent: Any, x: Any) -> Sequence[Any]:
        return [_conjugate(complex(constant_like(cotangent, 0), cotangent))]


@primitive
class complex(Elementwise):
    """Complex number from its real and imaginary parts."""

    kinds = "f"
    linear = "all"
    introduces = ()

    def type(self, x: Any, y: Any) -> Any:
        for operand in (x, y):
            if operand.dtype not in (dtypes.float32, dtypes.float64):
                raise ArgumentTypeError(f"complex takes float32 or float64 parts, got {x.short()} and {y.short()}.")
        return super().type(x, y)

    def result_dtype(self, dtype: Any, **params: Any) -> Any:
        return dtypes.to_complex_dtype(dtype)

    @staticmethod
    def eval(x: Any, y: Any) -> Any:
        x, y = np.broadcast_arrays(x, y)
        result = np.empty(x.shape, dtypes.to_complex_dtype(x.dtype))
        result.real, result.imag = x, y  # x + 1j * y would turn an infinite part into nan
        return result

    def jvp(self, tangents: Any, out: Any, x: Any, y: Any) -> Any:
        if all(type(t) is Zero for t in tangents):
            return Zero.of(out.aval)
        filled = [constant_like(a, 0) if type(t) is Zero else t for t, a in zip(tangents, (x, y), strict=True)]
        return broadcast_to_type(complex(*filled), out.aval)

    def transpose(self, cotangent: Any, x: Any, y: Any) -> Sequence[Any]:
        return [
            unbroadcast(real(cotangent), x.aval) if is_linear(x) else None,
            unbroadcast(imag(_conjugate(cotangent)), y.aval) if is_linear(y) else None,
        ]

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), ramp(3, 2)[::-1].copy())
        yield Sample(ramp(3), np.float32(2).reshape(()))
        yield Sample(np.float32(2).reshape(()), ramp(3))
        yield Sample(np.array([np.inf, np.nan], np.float32), np.array([1, np.inf], np.float32), differentiable=False)


@primitive
class conj(Elementwise):
    """Complex conjugate; a real operand becomes a complex number."""

    kinds = "fc"
    linear = (0,)
    introduces = ()

    def type(self, x: Any, *, input_dtype: Any = None) -> Any:
        if dtypes.kind(x.dtype) == "f" and x.dtype not in (dtypes.float32, dtypes.float64):
            raise ArgumentTypeError(f"conj takes float32, float64 or complex arrays, got {x.short()}.")
        return super().type(x)

    def result_dtype(self, dtype: Any, **params: Any) -> Any:
        return dtypes.to_complex_dtype(dtype)

    @staticmethod
    def eval(x: Any, *, input_dtype: Any = None) -> Any:
        return np.conj(x).astype(dtypes.to_complex_dtype(x.dtype))

    def transpose(self, cotangent: Any, x: Any, *, input_dtype: Any = None) -> Sequence[Any]:
        return [_conjugate(cotangent) if dtypes.kind(x.aval.dtype) == "c" else real(cotangent)]

    def samples(self) -> Any:
        yield Sample(complex_ramp(3, 2), input_dtype=dtypes.complex64)
        yield Sample(ramp(3), input_dtype=dtypes.float32)


def _conjugate(x: Any) -> Any:
    return conj(x, input_dtype=get_dtype(x))
