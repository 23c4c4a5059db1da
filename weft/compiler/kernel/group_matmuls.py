"""A model of the matrix units of GPUs on NumPy arrays: products are exact, sums are float32.

A unit adds 32 bytes of a row of each operand along K at a time: 16 terms of bfloat16 or float16, 8 of float32, rounded
to 10 bits of mantissa. In this model such a sum is exact and is rounded once together with the accumulator; a GPU drops
bits of smaller terms, so its last bits may differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes

# Dtypes of operands, and bytes of a row that are multiplied at a time.
SUPPORTED = (dtypes.bfloat16, np.dtype(np.float16), np.dtype(np.float32))
STEP_BYTES = 32
# Rows and columns that a unit multiplies at a time, and supported numbers of threads in a block.
UNIT_ROWS, UNIT_COLUMNS = 16, 8
THREADS = (128, 256)


def k_step(dtype: Any) -> int:
    """Return the number of elements along K that are multiplied at a time."""
    result: int = STEP_BYTES // dtype.itemsize
    return result


def group_matmul(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply two matrices. Both have K along the inner dimension of the contraction: `left` is (rows, K), `right` (K,
    columns).
    """
    step, k_size = k_step(left.dtype), left.shape[1]
    a, b = _round_operand(left), _round_operand(right)
    total = np.zeros((left.shape[0], right.shape[1]), np.float32)
    for first in range(0, k_size, step):
        total = (total + a[:, first : first + step] @ b[first : first + step]).astype(np.float32)
    return total


def _round_operand(x: np.ndarray) -> np.ndarray:
    """Convert an operand to the exact float64 values that units multiply: float32 is rounded to 10 bits of mantissa,
    ties away from zero.
    """
    if x.dtype != np.float32:
        return x.astype(np.float64)
    bits = (x.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(~0x1FFF & 0xFFFFFFFF)
    return np.where(np.isnan(x), x, bits.view(np.float32)).astype(np.float64)
