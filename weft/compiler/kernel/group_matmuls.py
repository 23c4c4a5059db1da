"""What the matrix units of GPUs compute, on NumPy arrays: sums of float32 of products that are exact.

A unit adds 32 bytes of a row of each operand along K at a time: 16 terms of bfloat16 or float16, 8 of float32, of which
it takes 10 bits of mantissa. Here such a sum is exact and is rounded once with what was there before; a GPU drops bits
of the smaller terms, so it may have other last bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes

# The dtypes of operands, and bytes of a row that are multiplied at a time.
SUPPORTED = (dtypes.bfloat16, np.dtype(np.float16), np.dtype(np.float32))
STEP_BYTES = 32
# Rows and columns that a unit multiplies at a time, and how many threads multiply together.
UNIT_ROWS, UNIT_COLUMNS = 16, 8
THREADS = (128, 256)


def step_of(dtype: Any) -> int:
    """The elements along K that are multiplied at a time."""
    return STEP_BYTES // dtype.itemsize


def group_matmul(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Rows of the left operand with columns of the right one, which have K first."""
    step, k_size = step_of(left.dtype), left.shape[1]
    a, b = _multiplied(left), _multiplied(right)
    total = np.zeros((left.shape[0], right.shape[1]), np.float32)
    for first in range(0, k_size, step):
        total = (total + a[:, first : first + step] @ b[first : first + step]).astype(np.float32)
    return total


def _multiplied(x: np.ndarray) -> np.ndarray:
    """What is multiplied, as float64; of float32 the nearest number with 10 bits of mantissa, halfway the greater."""
    if x.dtype != np.float32:
        return x.astype(np.float64)
    bits = (x.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(~0x1FFF & 0xFFFFFFFF)
    return np.where(np.isnan(x), x, bits.view(np.float32)).astype(np.float64)
