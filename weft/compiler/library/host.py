"""Calls that are Python functions: transforms by SciPy's code for them, and whatever has no routine, by its meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.compiler.library.calls import HOST, Call, arrays_of
from weft.compiler.target.cpu import pool
from weft.ir.interpreter import run_equation
from weft.ir.jaxpr import Equation
from weft.ops.fft import FftType

# Bytes of transforms that threads share.
SHARED = 1 << 18
_TRANSFORMS: dict[FftType, str] = {
    FftType.FFT: "fftn",
    FftType.IFFT: "ifftn",
    FftType.RFFT: "rfftn",
    FftType.IRFFT: "irfftn",
}


def _transform(kind: FftType) -> Callable[..., Any]:
    """SciPy's transform, which is the quicker of the two at hand, and stays in the precision of its operand."""
    import scipy.fft

    return getattr(scipy.fft, _TRANSFORMS[kind])


def plan_fft(equation: Equation) -> Call:
    """A transform, written to where its result belongs."""
    kind, lengths = FftType(equation.params["fft_type"]), equation.params["fft_lengths"]
    axes = tuple(range(-len(lengths), 0))
    transform = _transform(kind)

    def host(x: np.ndarray, *, out: Sequence[np.ndarray]) -> None:
        workers = pool.threads() if x.nbytes >= SHARED else 1
        if same:  # SciPy then works in the memory that it is given
            if x.ctypes.data != out[0].ctypes.data:
                out[0][...] = x
            x = out[0]
        made = transform(x, s=lengths, axes=axes, overwrite_x=same, workers=workers)
        if made.ctypes.data != out[0].ctypes.data:
            out[0][...] = made

    (x,) = arrays_of(equation.invars)
    same = kind in (FftType.FFT, FftType.IFFT)
    if not x.size or 0 in lengths:
        return plan_evaluation(equation)
    return Call(routine=HOST, host=host, in_place=((0, 0),) if same else ())


def plan_evaluation(equation: Equation) -> Call:
    """The meaning of the operation on NumPy arrays; its errors name the line of the equation."""

    def host(*operands: Any, out: Sequence[np.ndarray]) -> None:
        with np.errstate(all="ignore"):
            for target, result in zip(out, run_equation(equation, operands), strict=True):
                target[...] = result

    return Call(routine=HOST, host=host)
