"""Memory for arrays: aligned to cache lines, so that vectors do not straddle them."""

from __future__ import annotations

import ctypes
import math
import threading
from typing import Any

import numpy as np

ALIGNMENT = 64
# Temporaries up to this size are kept for the next call of the same thread.
MOST_KEPT = 1 << 28
_kept = threading.local()


def aligned_bytes(size: int) -> np.ndarray:
    """So many bytes that begin with a cache line."""
    whole = np.empty(size + ALIGNMENT, np.uint8)
    start = -whole.ctypes.data % ALIGNMENT
    return whole[start : start + size]


def empty(shape: Any, dtype: Any) -> np.ndarray:
    """An array whose numbers are not set yet."""
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    return aligned_bytes(size).view(dtype).reshape(shape)


def temporary(size: int) -> np.ndarray:
    """A block for one call; `release` gives it back."""
    block = getattr(_kept, "block", None)
    if block is not None and block.size >= size:
        _kept.block = None
        return block
    return aligned_bytes(max(size, 4096))


def release(block: np.ndarray) -> None:
    """Keep the block of a call that has ended, if it is the larger one."""
    kept = getattr(_kept, "block", None)
    if block.size <= MOST_KEPT and (kept is None or kept.size < block.size):
        _kept.block = block


def view(address: int, shape: Any, dtype: Any) -> np.ndarray:
    """Memory at an address as an array."""
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)
