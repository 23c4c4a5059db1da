"""Contractions of block-scaled arrays, and accuracy hints for elementwise functions."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentError, ShapeMismatchError
from weft.base.source import user_line
from weft.ir.context import with_aval
from weft.lax.contraction import DotDimensionNumbers, dot_general
from weft.lax.elementwise import convert_element_type, mul
from weft.lax.shape import broadcast_in_dim, reshape
from weft.trace.annotations import DTypeLike
from weft.trace.array import Array


class AccuracyMode(enum.Enum):
    """Accuracy hints for functions of `lax`; without effect, since every result is within its stated error."""

    HIGHEST = 1
    DEFAULT = 2


class Tolerance:
    """Tolerated errors of a function of `lax`: absolute, relative, and in units of the last place.

    A hint without effect, since every result is within its stated error.
    """

    def __init__(self, atol: float = 0.0, rtol: float = 0.0, ulps: int = 0):
        if atol < 0 or rtol < 0 or ulps < 0:
            raise ArgumentError("Tolerances must be non-negative.", received=f"{atol}, {rtol}, {ulps}")
        if not (atol or rtol or ulps):
            raise ArgumentError("At least one of atol, rtol, or ulps must be set.")
        self.atol, self.rtol, self.ulps = atol, rtol, ulps

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tolerance) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.atol, self.rtol, self.ulps))

    def __repr__(self) -> str:
        return f"Tolerance(atol={self.atol}, rtol={self.rtol}, ulps={self.ulps})"


def scaled_dot(
    lhs: Any,
    rhs: Any,
    *,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    dimension_numbers: DotDimensionNumbers | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Compute `dot_general(lhs * lhs_scale, rhs * rhs_scale, dimension_numbers)` in `preferred_element_type`.

    The default type is bfloat16. A scale has the dimensions of its operand; along a contracting dimension it may have
    fewer elements, each the scale of a block. Without `dimension_numbers` the last dimension of `lhs` is contracted
    with the last but one of `rhs`, and those before the last two are a batch.
    """
    lhs, rhs = with_aval(lhs), with_aval(rhs)
    if dimension_numbers is None:
        batch = tuple(range(lhs.ndim - 2))
        dimension_numbers = (((lhs.ndim - 1,), (rhs.ndim - 2,)), (batch, batch))
    dtype = dtypes.bfloat16 if preferred_element_type is None else preferred_element_type
    dtype = dtypes.requested_dtype(dtype, "scaled_dot")
    wide = np.dtype(np.float64 if dtypes.itemsize_bits(dtype) > 32 else np.float32)
    (left, right), _ = dimension_numbers
    first, second = _apply_scale("lhs", lhs, lhs_scale, left, wide), _apply_scale("rhs", rhs, rhs_scale, right, wide)
    return convert_element_type(dot_general(first, second, dimension_numbers, preferred_element_type=wide), dtype)


def _apply_scale(word: str, x: Any, scale: Any, contracting: Sequence[int], dtype: Any) -> Any:
    """Multiply an operand by its scale in a wider type; `word` names the operand in error messages."""
    x = convert_element_type(x, dtype)
    if scale is None:
        return x
    scale = convert_element_type(with_aval(scale), dtype)
    received = f"{word} of shape {x.shape} and a scale of shape {scale.shape}"
    if scale.ndim != x.ndim:
        raise _misfit(f"scaled_dot: the scale must have as many dimensions as {word}.", received)
    split: list[Any] = []
    for i, (size, blocks) in enumerate(zip(x.shape, scale.shape, strict=True)):
        if i not in contracting:
            if size != blocks:
                raise _misfit(f"scaled_dot: dimension {i} of {word} and of its scale must be equal.", received)
            split.append(size)
            continue
        if not blocks or size % blocks:
            raise _misfit(f"scaled_dot: the scale must divide dimension {i} of {word} into equal blocks.", received)
        split.extend((blocks, size // blocks))
    dimensions, position = [], 0
    for i in range(x.ndim):
        dimensions.append(position)
        position += 2 if i in contracting else 1
    repeated = broadcast_in_dim(scale, tuple(split), tuple(dimensions))
    return mul(x, reshape(repeated, x.shape))


def _misfit(what: str, received: str) -> ShapeMismatchError:
    return ShapeMismatchError(what, received=received, at=user_line())
