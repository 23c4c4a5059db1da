"""Elementwise operations over the lanes of a GPU thread: native instructions for functions and rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compiler.target import llvm
from weft.compiler.target.cuda import math, threefry
from weft.compiler.target.lanes import Lane, Lanes, elementary
from weft.compiler.target.math import complex, error, exponential, trigonometric
from weft.compiler.target.math.term import Term

# 16-bit floats with native instructions: LLVM matches sums and products that are rounded to them.
SHORT = {"bfloat16": llvm.bfloat, "float16": llvm.half}


class CudaLanes(Lanes):
    """Elementwise operations for GPUs."""

    exp = elementary(math.single(math.exp, exponential.exp), complex.exp)
    logistic = elementary(math.single(math.logistic, exponential.logistic), complex.logistic)
    sin = elementary(math.single(math.sin, trigonometric.sin), complex.sin)
    cos = elementary(math.single(math.cos, trigonometric.cos), complex.cos)
    erf_inv = elementary(math.single(math.erf_inv, error.erf_inv))
    _tanh = elementary(math.single(math.tanh, exponential.tanh), complex.tanh)

    def tanh(self, x: Lane) -> Lane:
        if x.dtype.name == "bfloat16":
            return self._round_to(math.tanh_of_short(x.re), x.dtype)
        result: Lane = self._tanh(x)
        return result

    def threefry2x32(self, *operands: Lane) -> tuple[Lane, Lane]:
        first, second = threefry.threefry(*(x.re for x in operands))
        return Lane(operands[0].dtype, first), Lane(operands[0].dtype, second)

    def from_storage(self, parts: Sequence[llvm.Value], dtype: np.dtype[Any]) -> Lane:
        native = SHORT.get(dtype.name)
        if native is None:
            return super().from_storage(parts, dtype)
        f, (part,) = self.function, parts
        value = f.bitcast(part, llvm.vector(native, part.type.count))
        return Lane(dtype, Term(f, f.fpext(value, llvm.vector(llvm.float_, part.type.count))))

    def to_storage(self, x: Lane) -> list[llvm.Value]:
        native = SHORT.get(x.dtype.name)
        if native is None:
            return super().to_storage(x)
        f = self.function
        return [f.bitcast(f.fptrunc(x.re.value, x.re.vector_type(native)), x.re.vector_type(llvm.i16))]

    def _round_to(self, x: Term, dtype: np.dtype[Any]) -> Lane:
        if dtype.name != "bfloat16":
            return super()._round_to(x, dtype)
        f = self.function
        return Lane(dtype, Term(f, f.fpext(f.fptrunc(x.value, x.vector_type(llvm.bfloat)), x.type)))
