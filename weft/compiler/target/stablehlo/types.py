"""Types and literals of StableHLO: dtypes, tensors, dense constants, attributes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import NotSupportedError

ELEMENTS = {
    "bool": "i1",
    **{
        f"{kind}int{bits}": f"{letter}i{bits}"
        for kind, letter in (("", ""), ("u", "u"))
        for bits in (2, 4, 8, 16, 32, 64)
    },
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
    "float4_e2m1fn": "f4E2M1FN",
    "float8_e3m4": "f8E3M4",
    "float8_e4m3": "f8E4M3",
    "float8_e4m3b11fnuz": "f8E4M3B11FNUZ",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e4m3fnuz": "f8E4M3FNUZ",
    "float8_e5m2": "f8E5M2",
    "float8_e5m2fnuz": "f8E5M2FNUZ",
    "float8_e8m0fnu": "f8E8M0FNU",
}
BOOL, INT32, INT64, UINT32 = (np.dtype(d) for d in (np.bool_, np.int32, np.int64, np.uint32))
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


@functools.cache
def element_type(dtype: Any) -> str:
    """Return the element type of a dtype, such as `f32` or `ui8`."""
    name = dtypes.name(dtype)
    found = ELEMENTS.get(name)
    if found is None:
        raise NotSupportedError(
            f"StableHLO must have an element type for every dtype; it has none for {name}.",
            received=name,
            fix="x.astype(...) to a dtype of StableHLO before it is stored or returned",
        )
    return found


@functools.lru_cache(maxsize=8192)
def tensor_type(shape: tuple[int, ...], dtype: Any) -> str:
    """Return the type of an array, such as `tensor<2x3xf32>`."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element_type(dtype)}>"


def int64_array(values: Iterable[int]) -> str:
    """Return an attribute of 64-bit integers: `array<i64: 1, 2>`."""
    text = ", ".join(map(str, values))
    return f"array<i64: {text}>" if text else "array<i64>"


def boolean(value: Any) -> str:
    """Return `true` or `false`."""
    return "true" if value else "false"


def integers(values: Iterable[int]) -> str:
    """Return a list of integers: `[0, 1]`."""
    return f"[{', '.join(map(str, values))}]"


def pairs(values: Sequence[Sequence[int]], element: str = "i64") -> str:
    """Return a matrix of two columns, or of as many as its rows have, as a dense attribute."""
    columns = len(values[0]) if values else 2
    rows = ", ".join(integers(row) for row in values)
    return f"dense<{f'[{rows}]' if rows and columns else ''}> : tensor<{len(values)}x{columns}x{element}>"


# ------------------------------------------------------------------------------------------------------------ literals


def dense(array: np.ndarray) -> str:
    """Return an array as a constant attribute. Numbers of single elements are written out, others as their bytes."""
    kind = tensor_type(array.shape, array.dtype)
    if not array.size:
        return f"dense<> : {kind}"
    first = array.reshape(-1)[:1]
    if array.size == 1 or _is_uniform(array):
        return f"dense<{_number(first[0], array.dtype)}> : {kind}"
    if array.dtype == BOOL or dtypes.itemsize_bits(array.dtype) < 8:
        return f"dense<{_nest(array)}> : {kind}"
    little = array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array
    return f'dense<"0x{np.ascontiguousarray(little).tobytes().hex().upper()}"> : {kind}'


def _is_uniform(array: np.ndarray) -> bool:
    """Return whether all elements have the same bits."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1)
    return bool((raw == raw[:1]).all())


def _nest(array: np.ndarray) -> str:
    if not array.ndim:
        return _number(array[()], array.dtype)
    return f"[{', '.join(map(_nest, array))}]"


def _number(value: Any, dtype: Any) -> str:
    """Return one number: floats exactly, in decimals if a double has them, else by their bits."""
    kind = dtypes.kind(dtype)
    if kind == "b":
        return boolean(value)
    if kind in "iu":
        return str(int(value))
    if kind == "c":
        part = dtypes.to_real_dtype(dtype)
        return f"({_number(part.type(value.real), part)}, {_number(part.type(value.imag), part)})"
    number = float(value)
    if math.isfinite(number) and dtypes.itemsize_bits(dtype) >= 8:
        text = repr(number)
        mantissa, _, exponent = text.partition("e")
        mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
        return f"{mantissa}e{exponent}" if exponent else mantissa
    if math.isfinite(number):
        return repr(number)
    bits = np.asarray(value, dtype).view(f"u{dtype.itemsize}")
    return f"0x{int(bits):0{2 * dtype.itemsize}X}"
