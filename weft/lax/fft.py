"""The discrete Fourier transform primitive under JAX's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.linalg import fft as _fft
from weft.primitives.linalg.fft import FftType as FftType
from weft.runtime.array import from_numpy
from weft.trace.array import Array


def fft(x: Any, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Array:
    """Compute the Fourier transform of type `fft_type` over the last `len(fft_lengths)` dimensions of x.

    The lengths are the sizes on the side of the signal: those of the operand, except for IRFFT, where they are the
    result's. Real operands of FFT and IFFT are made complex.
    """
    x = x if isinstance(x, Array) else from_numpy(x)
    kind = _kind(fft_type)
    if kind is FftType.RFFT:
        if dtypes.kind(x.dtype) == "c":
            raise ArgumentError("fft of type RFFT takes real arrays, got a complex one. Use FFT, or x.real.")
        if dtypes.kind(x.dtype) != "f":
            x = convert_element_type(x, new_dtype=dtypes.to_inexact_dtype(x.dtype), weak_type=False)
    elif dtypes.kind(x.dtype) != "c":
        x = convert_element_type(x, new_dtype=dtypes.to_complex_dtype(x.dtype), weak_type=False)
    lengths = (fft_lengths,) if isinstance(fft_lengths, int) else tuple(fft_lengths)
    if not lengths:  # a transform over no dimensions
        return x
    return _fft.fft(x, fft_type=kind, fft_lengths=tuple(index(n) for n in lengths))


def _kind(fft_type: FftType | str) -> FftType:
    try:
        return FftType[fft_type.upper()] if isinstance(fft_type, str) else FftType(fft_type)
    except (KeyError, ValueError):
        names = ", ".join(kind.name for kind in FftType)
        raise ArgumentError(f"Unknown fft_type {fft_type!r}; it is one of {names}.") from None
