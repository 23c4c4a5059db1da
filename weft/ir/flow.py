"""Interfaces for integer range analysis: the ranges of operands, and what conditions imply about values.

The compiler's passes implement the two protocols; the rules `bounds` and `bounds_where` of primitives read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weft.base import dtypes
from weft.indexing.ranges import Range
from weft.ir.types import ArrayType, Type

BOTH, NO, YES = Range(0, 1), Range(0, 0), Range(1, 1)


class OperandRanges(Protocol):
    """Ranges of integers in the operands of one equation."""

    @property
    def types(self) -> Sequence[Type]:
        """Types of the operands."""
        ...

    @property
    def result(self) -> int:
        """Index of the result in question."""
        ...

    def __call__(self, operand: int) -> Range:
        """Return the range of an operand's element at the index of the result's element."""
        ...

    def anywhere(self, operand: int) -> Range:
        """Return the range of all elements of an operand."""
        ...

    def where(self, operand: int, condition: int, holds: bool) -> Range:
        """Return the range of an operand's element at the result's index, given that operand `condition` is `holds`
        there."""
        ...


class Condition(Protocol):
    """Condition with a known outcome, and the value whose range it may restrict."""

    @property
    def types(self) -> Sequence[Type]:
        """Types of the condition's operands."""
        ...

    def is_value(self, operand: int) -> bool:
        """Return whether an operand of the condition is the value."""
        ...

    def where(self, operand: int, holds: bool) -> Range:
        """Return the range of the value given that an operand, itself a condition, is `holds`."""
        ...

    def anywhere(self, operand: int) -> Range:
        """Return the range of all elements of an operand."""
        ...


def dtype_range(aval: Type) -> Range:
    """Return the range of the integers that a type can hold; unbounded for types of other numbers."""
    if not isinstance(aval, ArrayType):
        return Range.EVERYTHING
    if dtypes.kind(aval.dtype) == "b":
        return BOTH
    if dtypes.kind(aval.dtype) not in "iu":
        return Range.EVERYTHING
    limits = dtypes.iinfo(aval.dtype)
    return Range(int(limits.min), int(limits.max))


def union(ranges: Sequence[Range]) -> Range:
    """Return the smallest range that contains all `ranges`."""
    return Range(min(r.lower for r in ranges), max(r.upper for r in ranges))
