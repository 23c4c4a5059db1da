"""Scalar builder over NumPy: each lane is an element of an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import dtypes

OPERATIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "add": np.add,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "eq": np.equal,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "floor": np.floor,
    "ge": np.greater_equal,
    "gt": np.greater,
    "imag": np.imag,
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "log": np.log,
    "log1p": np.log1p,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.invert,
    "real": np.real,
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "sub": np.subtract,
    "tan": np.tan,
    "tanh": np.tanh,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "prod": np.multiply,
}
COMPARISONS = {"eq", "ge", "gt", "is_finite", "le", "lt", "ne"}


class NumpyBuilder:
    """Operations with a plain meaning in NumPy; any other raises `Unknown`."""

    class Unknown(Exception):
        pass

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = OPERATIONS.get(name)
        if function is None:
            raise NumpyBuilder.Unknown(name)

        def operation(*operands: Any, **params: Any) -> Any:
            if any(value is not None for value in params.values()):
                raise NumpyBuilder.Unknown(f"{name} with parameters {params}")
            dtype = operands[0].dtype
            narrow = dtypes.kind(dtype) == "f" and dtype.itemsize < 4
            args = [o.astype(np.float32) for o in operands] if narrow else operands
            result = function(*args)
            return result if name in COMPARISONS or not narrow else result.astype(dtype)

        return operation

    def convert(self, x: Any, dtype: Any) -> Any:
        if dtypes.kind(x.dtype) == "f" and dtypes.kind(dtype) in "iu":
            raise NumpyBuilder.Unknown("NumPy does not say what a float out of range becomes")
        return x.real.astype(dtype) if dtypes.kind(x.dtype) == "c" and dtypes.kind(dtype) != "c" else x.astype(dtype)

    def select_n(self, which: Any, *cases: Any) -> Any:
        return np.choose(np.asarray(which).astype(np.int32), cases)
