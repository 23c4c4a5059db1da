"""Rules of Fourier transforms: `DFT` of complex numbers, one axis after the other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.export.onnx.emitter import Emitter
from weft.export.onnx.graph import Value
from weft.export.onnx.rules.movement import cut, reverse
from weft.export.onnx.table import Parts, parts_rule
from weft.ir.jaxpr import Equation
from weft.primitives.linalg.fft import FftType


@parts_rule("fft")
def write_fft(g: Emitter, e: Equation, x: Parts) -> list[Parts]:
    """Transform the last axes; of real numbers one half of the last axis is computed, or given."""
    kind, lengths = e.params["fft_type"], e.params["fft_lengths"]
    out: Any = e.outvars[0].aval
    rank = x[0].rank
    axes = list(range(rank - len(lengths), rank))
    if 0 in x[0].shape or 0 in out.shape:
        zero = g.expand(g.scalar(0, x[0]), out.shape)
        return [(zero,) if kind is FftType.IRFFT else (zero, zero)]
    inverse = kind in (FftType.IFFT, FftType.IRFFT)
    if len(x) == 1:
        x = x[0], g.expand(g.scalar(0, x[0]), x[0].shape)
    if kind is FftType.IRFFT:  # the other half is the conjugate in reverse order, once other axes are transformed
        for axis in axes[:-1]:
            x = transform(g, x, axis, inverse)
        return [transform(g, complete(g, x, axes[-1], lengths[-1]), axes[-1], inverse)[:1]]
    for axis in reversed(axes):
        x = transform(g, x, axis, inverse)
        if kind is FftType.RFFT and axis == axes[-1]:
            half = lengths[-1] // 2 + 1
            x = tuple(cut(g, part, [axis], [0], [half], [1], [half]) for part in x)
    return [x]


def transform(g: Emitter, x: Parts, axis: int, inverse: bool) -> Parts:
    """Transform one axis, which is moved to the place that runtimes expect."""
    rank = x[0].rank
    last = [*(i for i in range(rank) if i != axis), axis]
    back = [last.index(i) for i in range(rank)]
    moved = [g.transpose(part, last) for part in x]
    shape = moved[0].shape
    both = g.concatenate([g.reshape(part, (math.prod(shape[:-1]), shape[-1], 1)) for part in moved], 2)
    wide = g.cast(both, np.float64)  # the kernel for float32 has half of its digits
    found = g.cast(g.node("DFT", [wide], wide.dtype, both.shape, axis=1, inverse=int(inverse)), both.dtype)
    parts = [g.reshape(cut(g, found, [2], [i], [i + 1], [1], [1]), shape) for i in (0, 1)]
    return tuple(g.transpose(part, back) for part in parts)


def complete(g: Emitter, x: Parts, axis: int, length: int) -> Parts:
    """Return the spectrum of real numbers from its first half."""
    count = length - (length // 2 + 1)
    if count <= 0:
        return tuple(cut(g, part, [axis], [0], [length], [1], [length]) for part in x)
    rest = [reverse(g, cut(g, part, [axis], [1], [1 + count], [1], [count]), (axis,)) for part in x]
    conjugate: list[Value] = [rest[0], g.elementwise("Neg", rest[1])]
    return tuple(g.concatenate([part, other], axis) for part, other in zip(x, conjugate, strict=True))
