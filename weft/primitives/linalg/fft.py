"""The discrete Fourier transform over the last dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.ir.primitive import Axis, Sample, primitive
from weft.ir.types import ArrayType, array_type
from weft.primitives.elementwise.arithmetic import mul
from weft.primitives.elementwise.complex import conj, real
from weft.primitives.families import fail
from weft.primitives.linalg.matrix import MATRIX_DTYPES, MatrixFunction
from weft.primitives.movement.pad import pad
from weft.primitives.movement.shape import broadcast_in_dim, move_batch_to_front, ramp
from weft.sharding.factors import AxisFactors


class FftType(IntEnum):
    """Which transform: of complex numbers or of real ones to half of the spectrum, and the inverses."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


@primitive
class fft(MatrixFunction):
    """Transform over the last `len(fft_lengths)` dimensions; the lengths are those of the signal."""

    linear = (0,)

    def type(self, x: ArrayType, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> ArrayType:
        name, kind = f"fft of type {fft_type.name}", dtypes.kind(x.dtype)
        wanted = "f" if fft_type is FftType.RFFT else "c"
        if x.dtype not in MATRIX_DTYPES or kind != wanted:
            accepted = "float32 and float64" if wanted == "f" else "complex64 and complex128"
            raise ArgumentTypeError(f"{name} takes {accepted} arrays, got {dtypes.name(x.dtype)}.")
        count = len(fft_lengths)
        if not 1 <= count <= x.ndim:
            raise fail(
                f"{name} got lengths {fft_lengths} for an operand of shape {x.shape}.", fix="give 1 to rank lengths"
            )
        half = (*fft_lengths[:-1], fft_lengths[-1] // 2 + 1)
        expected = half if fft_type is FftType.IRFFT else fft_lengths
        if x.shape[-count:] != expected:
            raise fail(
                f"{name} with lengths {fft_lengths} needs last dimensions {expected}, got shape {x.shape}.",
                received=x.short(),
                fix="pad or cut the operand first; the functions of weft.numpy.fft do",
            )
        lead = x.shape[:-count]
        if fft_type is FftType.RFFT:
            return array_type((*lead, *half), dtypes.to_complex_dtype(x.dtype))
        if fft_type is FftType.IRFFT:
            return array_type((*lead, *fft_lengths), dtypes.to_real_dtype(x.dtype))
        return x.strong()

    def eval(self, x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> Any:
        out_type = self.type(array_type(x.shape, x.dtype), fft_type=fft_type, fft_lengths=fft_lengths)
        if not x.size or 0 in fft_lengths:
            return np.zeros(out_type.shape, out_type.dtype)
        axes = tuple(range(-len(fft_lengths), 0))
        if fft_type is FftType.FFT:
            return np.fft.fftn(x, axes=axes)
        if fft_type is FftType.IFFT:
            return np.fft.ifftn(x, axes=axes)
        if fft_type is FftType.RFFT:
            return np.fft.rfftn(x, axes=axes)
        return np.fft.irfftn(x, s=fft_lengths, axes=axes)

    def transpose(self, cotangent: Any, x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> Sequence[Any]:
        if fft_type in (FftType.FFT, FftType.IFFT):
            return [fft(cotangent, fft_type=fft_type, fft_lengths=fft_lengths)]
        last, rank = fft_lengths[-1], len(cotangent.shape)
        if fft_type is FftType.RFFT:
            # The half that is not computed has no cotangent: the real part of the full transform with zeros there.
            missing = last - (last // 2 + 1)
            config = ((0, 0, 0),) * (rank - 1) + ((0, missing, 0),)
            whole = pad(cotangent, np.zeros((), cotangent.dtype), padding_config=config)
            return [real(fft(whole, fft_type=FftType.FFT, fft_lengths=fft_lengths))]
        # Each element of the half spectrum counts twice, for itself and its mirror image, unless it is its own image.
        spectrum = fft(cotangent, fft_type=FftType.RFFT, fft_lengths=fft_lengths)
        frequency = np.arange(last // 2 + 1)
        # Of no elements the spectrum is zero, and so is the cotangent.
        share = np.where((frequency == 0) | (2 * frequency == last), 1, 2) / max(math.prod(fft_lengths), 1)
        weight = broadcast_in_dim(share.astype(spectrum.dtype), shape=spectrum.shape, broadcast_dimensions=(rank - 1,))
        return [mul(conj(spectrum, input_dtype=spectrum.dtype), weight)]

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        return fft(move_batch_to_front(args[0], dims[0], axis), **params), 0

    def factors(self, x: ArrayType, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> AxisFactors:
        whole = len(fft_lengths)
        names = (*(f"b{i}" for i in range(x.ndim - whole)), *(None,) * whole)
        return AxisFactors((names,), (names,), reason="a transform is computed on one device")

    def samples(self) -> Any:
        signal, waves = ramp(3, 4), (ramp(3, 4) * (1 + 0.5j)).astype(np.complex64)
        for kind in (FftType.FFT, FftType.IFFT):
            yield Sample(waves, fft_type=kind, fft_lengths=(4,))
            yield Sample(waves, fft_type=kind, fft_lengths=(3, 4))
        yield Sample(signal, fft_type=FftType.RFFT, fft_lengths=(4,))
        yield Sample(signal, fft_type=FftType.RFFT, fft_lengths=(3, 4))
        yield Sample(ramp(2, 5), fft_type=FftType.RFFT, fft_lengths=(5,))
        yield Sample(ramp(1), fft_type=FftType.RFFT, fft_lengths=(1,))
        for lengths in ((6,), (7,), (3, 6), (3, 7)):
            yield Sample(waves, fft_type=FftType.IRFFT, fft_lengths=lengths)
        yield Sample(ramp(2, 3, 2).astype(np.complex64), fft_type=FftType.FFT, fft_lengths=(2, 3, 2))
