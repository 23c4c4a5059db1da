"""Arguments of random programs: small integers, whose sums are exact, or edge values of the dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.compiler.passes_bits import edges
from weft.base import dtypes

SMALL = 4.0
FLOATS = (np.float32, np.float32, np.float32, np.float16, ml_dtypes.bfloat16)
FLOAT8 = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e5m2fnuz)
INTEGERS = (np.int32, np.int32, np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint32)
INT4 = (ml_dtypes.int4, ml_dtypes.uint4)
SHORT = frozenset(map(np.dtype, (*FLOAT8, *INT4)))
NARROW = (*FLOATS, *FLOATS, *INTEGERS, *FLOAT8, *INT4, np.bool_, np.bool_, np.complex64, np.complex64)
WIDE = (*NARROW, *(np.float64,) * 4, np.int64, np.int64, np.uint64, np.complex128, np.complex128)
# How large integers may get in a float dtype, such that sums of many of them are exact.
MOST = {"float16": 2.0**7, "bfloat16": 2.0**5, "float32": 2.0**12, "float64": 2.0**24}


def most_of(dtype: Any) -> float:
    """Return the largest magnitude of values of a dtype in programs of small integers."""
    kind = dtypes.kind(dtype)
    if kind in "iu":
        return float(dtypes.iinfo(dtype).max)
    if kind in "bk":
        return 1.0
    return MOST.get(dtypes.name(dtypes.to_real_dtype(dtype) if kind == "c" else dtype), SMALL)


def small_integers(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Integers from -3 to 3, among them zeros of both signs."""
    kind = dtypes.kind(np.dtype(dtype))
    if kind == "b":
        return np.asarray(rng.integers(0, 2, shape), bool)
    numbers = np.asarray(rng.integers(0 if kind == "u" else -3, 4, shape), np.float64)
    if kind == "f":
        numbers = np.where((numbers == 0) & (rng.random(shape) < 0.3), -0.0, numbers)
    if kind == "c":
        numbers = numbers + 1j * np.asarray(rng.integers(-3, 4, shape))
    return np.asarray(numbers).astype(dtype)


def edge_numbers(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Ordinary fractions, and among them, in some arrays, edges: zeros of both signs, infinities, nan, denormals, the
    largest and smallest numbers."""
    dtype = np.dtype(dtype)
    kind = dtypes.kind(dtype)
    if kind == "c":
        part = dtypes.to_real_dtype(dtype)
        real, imaginary = edge_numbers(rng, shape, part), edge_numbers(rng, shape, part)
        result = np.empty(shape, dtype)
        result.real, result.imag = real, imaginary
        return result
    if kind == "b":
        return np.asarray(rng.integers(0, 2, shape), bool)
    special = edge_values(dtype)
    if kind == "f":
        ordinary = np.asarray(rng.uniform(-3, 3, shape)).astype(dtype)
    else:
        ordinary = np.asarray(rng.integers(0 if kind == "u" else -7, 8, shape)).astype(dtype)
    share = (0.0, 0.1, 0.5)[int(rng.integers(3))]
    chosen = special[rng.integers(len(special), size=shape)]
    return np.asarray(np.where(rng.random(shape) < share, chosen, ordinary)).astype(dtype)


def edge_values(dtype: np.dtype[Any]) -> np.ndarray:
    """Return the edge values of a dtype of floats or integers."""
    if dtypes.kind(dtype) == "f" and dtype.itemsize > 1:
        return edges(dtype)
    if dtypes.kind(dtype) == "f":
        return np.arange(256, dtype=np.uint8).view(dtype)
    info = dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    return (
        np.array([low, low + 1, -1 if low else high, 0, 1, high - 1, high], object)
        .astype(np.int64 if low else np.uint64)
        .astype(dtype)
    )
