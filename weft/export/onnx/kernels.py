"""Dtypes that runtimes implement each operation for, and the dtype to compute in where they do not.

The standard allows more than runtimes implement: onnxruntime has no `Where` of booleans and no `Add` of 16-bit floats.
A graph converts operands around such an operation. The table has what onnxruntime's CPU kernels and most others have.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes

FLOAT = frozenset({"float32"})
FLOATS = frozenset({"float32", "float64"})
NUMBERS = FLOATS | {"int32", "int64"}
BYTES = NUMBERS | {"uint8"}
WORDS = frozenset({"uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"})
EVERY = NUMBERS | WORDS | {"bool", "float16", "bfloat16"}

KERNELS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "MatMul", "Einsum"), NUMBERS),
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Abs", "Neg", "Sign", "CumSum"), NUMBERS),
    **dict.fromkeys(("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"), NUMBERS),
    **dict.fromkeys(("Exp", "Log", "Sin", "Cos", "Sqrt", "Floor", "Ceil", "Round", "Tanh", "Sigmoid"), FLOATS),
    **dict.fromkeys(("Reciprocal", "IsNaN", "IsInf", "DFT"), FLOATS),
    **dict.fromkeys(("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan", "Erf"), FLOAT),
    **dict.fromkeys(("Conv", "MaxPool", "AveragePool"), FLOAT),
    **dict.fromkeys(("And", "Or", "Xor", "Not"), frozenset({"bool"})),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"), WORDS),
    **dict.fromkeys(("Concat", "Slice", "Gather", "GatherElements", "GatherND", "ScatterElements", "Split"), EVERY),
    **dict.fromkeys(("Reshape", "Transpose", "Identity"), EVERY),
    "Equal": NUMBERS | {"bool"},
    "Where": BYTES,
    "Expand": EVERY - {"bfloat16"},
    "Tile": EVERY - {"bfloat16", "float16"},
    "Pad": NUMBERS | {"bool"},
    "BitShift": frozenset({"uint8", "uint32", "uint64"}),
}  # fmt: skip


def computing_dtype(operation: str, dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype to convert operands to for an operation: the same one if kernels exist for it, else the least
    wider one that represents all its values, or None."""
    supported = KERNELS[operation]
    if dtype.name in supported:
        return dtype
    kind, bits = dtypes.kind(dtype), dtypes.itemsize_bits(dtype)
    if kind == "f":
        wider = ["float32", "float64"] if bits < 32 else ["float64"]
    elif kind == "b":
        wider = ["uint8", "int32"]
    elif kind == "u":
        wider = [name for name, size in (("uint8", 8), ("uint32", 32), ("int32", 31), ("int64", 63)) if bits <= size]
        wider += ["int64"]  # of the greatest integers, operations that wrap around have the right bits
    else:
        wider = [name for name, size in (("int32", 32), ("int64", 64)) if bits <= size]
    return next((np.dtype(name) for name in wider if name in supported), None)
