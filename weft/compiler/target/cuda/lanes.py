"""Elementwise operations over the lanes of a GPU's thread: its own instructions for functions and for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compiler.target import llvm
from weft.compiler.target.cuda import math
from weft.compiler.target.lanes import Lane, Lanes, elementary
from weft.compiler.target.math import complex, exponential, trigonometric
from weft.compiler.target.math.term import Term


class CudaLanes(Lanes):
    """Appends elementwise operations to a function for a GPU."""

    exp = elementary(math.single(math.exp, exponential.exp), complex.exp)
    logistic = elementary(math.single(math.logistic, exponential.logistic), complex.logistic)
    sin = elementary(math.single(math.sin, trigonometric.sin), complex.sin)
    cos = elementary(math.single(math.cos, trigonometric.cos), complex.cos)
    _tanh = elementary(math.single(math.tanh, exponential.tanh), complex.tanh)

    def tanh(self, x: Lane) -> Lane:
        if x.dtype.name == "bfloat16":
            return self._rounded(math.tanh_of_short(x.re), x.dtype)
        return self._tanh(x)

    def _rounded(self, x: Term, dtype: np.dtype[Any]) -> Lane:
        if dtype.name != "bfloat16":
            return super()._rounded(x, dtype)
        f = self.function
        return Lane(dtype, Term(f, f.fpext(f.fptrunc(x.value, x.typed(llvm.bfloat)), x.type)))
