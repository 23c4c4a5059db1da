"""Contractions by cuBLASLt, with their epilogues."""

from __future__ import annotations

import math
from typing import Any

from weft.base import dtypes
from weft.compiler.target.cuda.library.calls import ACTIVATIONS, EXACT, TF32, MatmulCall, dtype_index
from weft.compiler.target.library_call import LibraryCall, get_arrays
from weft.compiler.target.matmuls import ONE, StridedMatmul, plan_as_matmul, reading
from weft.ir.jaxpr import Equation
from weft.primitives.contraction.precision import allows_tf32

ROUTINE = "cublaslt_matmul"
# Most calls for one contraction: batch dimensions beyond the first that cannot merge are loops of calls.
MOST_CALLS = 16
_BYTE = 8  # bits


def plan_matmul(
    equation: Equation, result: Any = None, activation: str = "", has_bias: bool = False, has_input: bool = False
) -> LibraryCall:
    """Return the call for a contraction. `result` is another dtype of its result; additional operands and results
    are those of `MatmulCall`."""
    left, _ = get_arrays(equation.invars)
    (out,) = get_arrays(equation.outvars)
    of_bytes = dtypes.itemsize_bits(left.dtype) == _BYTE
    matmul, permutations = plan_as_matmul(equation, accepts_bytes if of_bytes else accepts)
    rows, columns, summed = matmul.rows, matmul.columns, matmul.summed
    lhs_transposed, lhs_stride = reading(rows, summed, "lhs")
    rhs_transposed, rhs_stride = reading(summed, columns, "rhs")
    if of_bytes and columns.size == 1:  # the transposed form reads the same bytes
        rhs_transposed, rhs_stride = True, summed.size
    batch = max(matmul.loops, key=lambda d: d.size, default=ONE)
    around = [d for d in matmul.loops if d is not batch]
    call = MatmulCall(
        rows=rows.size,
        columns=columns.size,
        summed=summed.size,
        dtype=dtype_index(left.dtype),
        result=dtype_index(out.dtype if result is None else result),
        tf32=TF32 if allows_tf32(left.dtype, equation.params.get("precision")) else EXACT,
        lhs_transposed=lhs_transposed,
        lhs_stride=lhs_stride,
        rhs_transposed=rhs_transposed,
        rhs_stride=rhs_stride,
        out_stride=rows.out if rows.size > 1 else columns.size,
        batch=batch.size,
        lhs_step=batch.lhs,
        rhs_step=batch.rhs,
        out_step=batch.out,
        activation=ACTIVATIONS.index(activation),
        has_bias=has_bias,
        has_input=has_input,
        loops=tuple(value for d in around for value in (d.size, d.lhs, d.rhs, d.out)),
    )
    transposed = permutations if any(p is not None for p in permutations) else ()
    return LibraryCall(routine=ROUTINE, parameters=call.integers, permutations=transposed)


def accepts(matmul: StridedMatmul) -> bool:
    """Return whether one call, or few, compute the whole contraction."""
    return math.prod(d.size for d in matmul.loops) // max((d.size for d in matmul.loops), default=1) <= MOST_CALLS


def accepts_bytes(matmul: StridedMatmul) -> bool:
    """Return whether a contraction of 8-bit numbers is supported: besides `accepts`, both operands must be
    contiguous along the summed axis."""
    rows, columns, summed = matmul.rows, matmul.columns, matmul.summed
    lhs_transposed, _ = reading(rows, summed, "lhs")
    rhs_transposed, _ = reading(summed, columns, "rhs")
    return accepts(matmul) and not lhs_transposed and (rhs_transposed or columns.size == 1)
