"""A model of the tile registers of x86 (AMX) on NumPy arrays: `out + left @ right` for one tile of each.

Integers are exact. For bfloat16, the products of even and of odd elements along K are summed separately, each by fused
multiply-adds starting from zero; the two sums are added to each other and then to the accumulator. Denormal operands
and results are flushed to zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.kernel.operations import evaluate

INT8, UINT8 = np.dtype(np.int8), np.dtype(np.uint8)
SUPPORTED = (INT8, UINT8, dtypes.bfloat16)


def tile_matmul(out: np.ndarray, left: np.ndarray, right: np.ndarray, kinds: tuple[Any, Any]) -> np.ndarray:
    """Multiply two tiles and add the result to `out`. `left` has 16 rows along K; `right` is (K / group, columns,
    group), with 4 bytes in a group.
    """
    if kinds[0] == dtypes.bfloat16:
        return _add(out, _bfloat16_sums(left.view(kinds[0]), right.view(kinds[1])))
    flat = right.transpose(0, 2, 1).reshape(left.shape[1], -1)
    return out + left.astype(np.int32) @ flat.astype(np.int32)


def _bfloat16_sums(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    a, b = _flush(left.astype(np.float32)), _flush(right.astype(np.float32))
    sums = [np.zeros((a.shape[0], b.shape[1]), np.float32) for _ in range(2)]
    for k in range(a.shape[1]):
        group, parity = divmod(k, 2)
        operands = np.broadcast_arrays(a[:, k, None], b[group, None, :, parity])
        sums[parity] = _flush(evaluate("fma", [*operands, sums[parity]], {}))
    return _add(*sums)


def _add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _flush(a + b)


def _flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)
