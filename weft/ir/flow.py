"""What the rules of a card are asked about values that nobody has computed yet: which integers they can be, and where.

The compiler's passes implement the two interfaces here; a card's `bounds` and `bounds_where` read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weft.base import dtypes
from weft.indexing.ranges import Range
from weft.ir.types import ArrayType, Type

BOTH, NO, YES = Range(0, 1), Range(0, 0), Range(1, 1)


class OperandRanges(Protocol):
    """The integers that the operands of one equation can be."""

    @property
    def types(self) -> Sequence[Type]:
        """The types of the operands."""
        ...

    @property
    def result(self) -> int:
        """The result that is asked about."""
        ...

    def __call__(self, operand: int) -> Range:
        """An operand at the index of the result's element."""
        ...

    def anywhere(self, operand: int) -> Range:
        """All elements of an operand."""
        ...

    def where(self, operand: int, condition: int, holds: bool) -> Range:
        """An operand at the index of the result's element, if operand `condition` there is true, or is not."""
        ...


class Condition(Protocol):
    """A condition of which it is known whether it holds, asked what that says about some value."""

    @property
    def types(self) -> Sequence[Type]:
        """The types of the operands."""
        ...

    def is_value(self, operand: int) -> bool:
        """Whether an operand of the condition is the value."""
        ...

    def where(self, operand: int, holds: bool) -> Range:
        """What the value can be where an operand, a condition too, holds or does not."""
        ...

    def anywhere(self, operand: int) -> Range:
        """All that an operand can be."""
        ...


def limits_of(aval: Type) -> Range:
    """The integers that a type can hold; everything where it holds others too."""
    if not isinstance(aval, ArrayType):
        return Range.EVERYTHING
    if dtypes.kind(aval.dtype) == "b":
        return BOTH
    if dtypes.kind(aval.dtype) not in "iu":
        return Range.EVERYTHING
    limits = dtypes.iinfo(aval.dtype)
    return Range(int(limits.min), int(limits.max))


def union_of(ranges: Sequence[Range]) -> Range:
    """The smallest range that contains all of these."""
    return Range(min(r.lower for r in ranges), max(r.upper for r in ranges))
