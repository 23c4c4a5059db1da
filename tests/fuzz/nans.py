"""Bits of nan. The sign and payload of the nan that an operation returns are not specified: processors, LLVM's
constants and NumPy choose differently. A program sees them by a bitcast. What is only moved keeps all bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes

# Elementwise operations that hand the bits of a nan on, or change its sign only, as IEEE 754 says.
EXACT = frozenset(
    {"select_n", "neg", "abs", "stop_gradient", "real", "imag", "complex", "conj", "bitcast_convert_type"}
)


def with_other_nans(result: np.ndarray, rng: np.random.Generator, variation: int) -> np.ndarray:
    """Return the same numbers with other nans: all of them, or each at random, with another sign and payload."""
    if dtypes.kind(result.dtype) == "c":
        out = np.empty(result.shape, result.dtype)
        out.real, out.imag = (with_other_nans(p, rng, variation) for p in (result.real, result.imag))
        return out
    chosen = result != result
    if not chosen.any():
        return result
    if variation % 2:
        chosen &= rng.random(result.shape) < 0.5
    bits = np.dtype(f"u{result.dtype.itemsize}")
    out = np.array(result)
    payload = (1 << (int(dtypes.finfo(result.dtype).nmant) - 1)) - 1  # all but the bit that makes it quiet
    for mask in (1 << (8 * result.dtype.itemsize - 1), payload):
        flipped = (out.view(bits) ^ bits.type(mask)).view(result.dtype)
        out = np.where(chosen & (flipped != flipped), flipped, out)  # some dtypes have one nan only
    return out


def is_new(result: np.ndarray, operands: Sequence[Any]) -> np.ndarray:
    """Return where a result is a nan with bits that no operand has."""
    if dtypes.kind(result.dtype) == "c":
        parts = [p for a in operands if dtypes.kind(a.dtype) == "c" for p in (a.real, a.imag)]
        return is_new(result.real, parts) | is_new(result.imag, parts)
    bits = f"u{result.dtype.itemsize}"
    known = [np.ravel(a).view(bits) for a in operands if a.dtype == result.dtype]
    # By sorting: NumPy 2.0 has a table for ranges that are narrow, and fails to make one beyond 2^63.
    has = np.isin(np.asarray(result).view(bits), np.concatenate(known), kind="sort") if known else False
    return (result != result) & ~np.asarray(has)
