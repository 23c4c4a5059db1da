"""Fourier transforms by cuFFT, and triangular solves by cuBLAS."""

from __future__ import annotations

import math

from weft.base import dtypes
from weft.compiler.target.cuda.library.calls import (
    TRANSFORM_ROUTINE,
    TRIANGULAR_ROUTINE,
    TransformCall,
    TriangularCall,
    dtype_index,
)
from weft.compiler.target.evaluation import plan_evaluation
from weft.compiler.target.library_call import LibraryCall, get_arrays
from weft.ir.jaxpr import Equation
from weft.primitives.linalg.fft import FftType

# Most dimensions of one cuFFT transform.
MOST_TRANSFORMED = 3


def plan_fft(equation: Equation) -> LibraryCall:
    """Return the call for a Fourier transform; the host computes those of more dimensions than cuFFT has."""
    (x,), (out,) = get_arrays(equation.invars), get_arrays(equation.outvars)
    kind, lengths = FftType(equation.params["fft_type"]), tuple(equation.params["fft_lengths"])
    if len(lengths) > MOST_TRANSFORMED or not x.size or 0 in lengths:
        return plan_evaluation(equation)
    signal = out if kind is FftType.IRFFT else x
    batch = signal.size // math.prod(lengths)
    double = x.dtype in (dtypes.float64, dtypes.complex128)
    call = TransformCall(kind=int(kind), double=double, batch=batch, lengths=lengths)
    copied = (x.bytes,) if kind is FftType.IRFFT else ()
    same = ((0, 0),) if kind in (FftType.FFT, FftType.IFFT) else ()
    return LibraryCall(routine=TRANSFORM_ROUTINE, parameters=call.integers, scratch=copied, in_place=same)


def plan_triangular(equation: Equation) -> LibraryCall:
    """Return the call for a triangular solve. A matrix stored by rows is, for BLAS, its transpose stored by columns;
    so op(a) x = b is solved as xᵀ op(a)ᵀ = bᵀ, in the memory of b."""
    a, b = get_arrays(equation.invars)
    left, lower, transposed, conjugated, unit = (
        equation.params[name] for name in ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    )
    conjugated = conjugated and a.dtype.kind == "c"
    if not a.size or not b.size or (conjugated and not transposed):
        return plan_evaluation(equation)
    call = TriangularCall(
        dtype=dtype_index(a.dtype),
        batch=math.prod(a.shape[:-2]),
        size=a.shape[-1],
        others=b.shape[-1 if left else -2],
        right=not left,
        lower=lower,
        operation=0 if not transposed else 2 if conjugated else 1,
        unit=unit,
    )
    return LibraryCall(routine=TRIANGULAR_ROUTINE, parameters=call.integers, in_place=((1, 0),))
