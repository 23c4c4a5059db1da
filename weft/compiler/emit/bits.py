"""Bit casts between elements of different widths, and random keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, Value

UINT32, UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)


def get_unsigned_dtype(bits: int) -> np.dtype[Any]:
    """Return the unsigned integer dtype with `bits` bits."""
    return dtypes.storage(dtypes.as_dtype(f"uint{bits}"))


def piece(k: KernelBuilder, value: Value, i: Index, dtype: np.dtype[Any]) -> Value:
    """Extract the i-th narrower element of a bitcast value, counted from the lowest bits."""
    width = dtypes.itemsize_bits(dtype)
    code = k.scalars.bitcast(value, get_unsigned_dtype(dtypes.itemsize_bits(value.dtype)))
    amount = k.scalars.convert(k.position(i * width, np.dtype(np.int32)), code.dtype)
    code = k.compute("shift_right_logical", code, amount)
    if width < 8:
        code = k.compute("and", code, k.constant((1 << width) - 1, code.dtype))
    return k.scalars.bitcast(k.scalars.convert(code, get_unsigned_dtype(width)), dtype)


def concatenate_bits(k: KernelBuilder, values: Sequence[Value], dtype: np.dtype[Any]) -> Value:
    """Concatenate narrower elements into one of `dtype`, the first in the lowest bits."""
    width = dtypes.itemsize_bits(values[0].dtype)
    wide = get_unsigned_dtype(dtypes.itemsize_bits(dtype))
    total: Value | None = None
    for i, value in enumerate(values):
        code = k.scalars.convert(k.scalars.bitcast(value, get_unsigned_dtype(width)), wide)
        if i:
            code = k.compute("shift_left", code, k.constant(i * width, wide))
        total = code if total is None else k.compute("or", total, code)
    assert total is not None
    return k.scalars.bitcast(total, dtype)


def key_word(k: KernelBuilder, key: Value, i: Index) -> Value:
    """Return the i-th 32-bit word of a random key. In kernels a key of 8 bytes is one integer, a key of 16 bytes a
    complex number of two float64 with the same bits.
    """
    if key.dtype == UINT64:
        return piece(k, key, i, UINT32)
    low, high = (k.scalars.bitcast(k.compute(part, key), UINT64) for part in ("real", "imag"))
    # Within a half the words count from its start.
    pieces = [piece(k, half, i - first, UINT32) for half, first in ((low, 0), (high, 2))]
    upper = k.compute("ge", k.position(i), k.constant(2, np.int64))
    return k.compute("select_n", upper, *pieces)


def pack_key(k: KernelBuilder, parts: Sequence[Value]) -> Value:
    """Build a random key from its 32-bit words."""
    halves = [concatenate_bits(k, parts[start : start + 2], UINT64) for start in range(0, len(parts), 2)]
    if len(halves) == 1:
        return halves[0]
    return k.compute("complex", *(k.scalars.bitcast(half, dtypes.float64) for half in halves))
