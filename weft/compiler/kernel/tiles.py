"""What the tile registers of x86 (AMX) compute, on NumPy arrays: `out + left @ right` for one tile of each.

Integers are exact. Of bfloat16, the products of even and of odd elements along K are summed apart, each by fused
multiply-adds from zero on, and the two sums are added to each other and then to what was there. Denormals are read as
zeros, and become zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.kernel.operations import evaluate

INT8, UINT8 = np.dtype(np.int8), np.dtype(np.uint8)
SUPPORTED = (INT8, UINT8, dtypes.bfloat16)


def tile_matmul(out: np.ndarray, left: np.ndarray, right: np.ndarray, kinds: tuple[Any, Any]) -> np.ndarray:
    """`left` is 16 rows along K; `right` is (K / group, columns, group), where a group has 4 bytes."""
    if kinds[0] == dtypes.bfloat16:
        return _add(out, _bfloat16_sums(left.view(kinds[0]), right.view(kinds[1])))
    flat = right.transpose(0, 2, 1).reshape(left.shape[1], -1)
    return out + left.astype(np.int32) @ flat.astype(np.int32)


def _bfloat16_sums(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    a, b = _flushed(left.astype(np.float32)), _flushed(right.astype(np.float32))
    sums = [np.zeros((a.shape[0], b.shape[1]), np.float32) for _ in range(2)]
    for k in range(a.shape[1]):
        group, parity = divmod(k, 2)
        operands = np.broadcast_arrays(a[:, k, None], b[group, None, :, parity])
        sums[parity] = _flushed(evaluate("fma", [*operands, sums[parity]], {}))
    return _add(*sums)


def _add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _flushed(a + b)


def _flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)
