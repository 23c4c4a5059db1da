"""Comparisons: a boolean for each pair of elements."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from weft.indexing.ranges import INFINITY, Range
from weft.ir.flow import BOTH, NO, YES, Condition, OperandRanges, dtype_range
from weft.ir.primitive import Sample, lookup, primitive
from weft.primitives.elementwise.elementwise import Comparison
from weft.primitives.elementwise.scalar import COMPUTED_IN, bfloat16, complex_ramp
from weft.primitives.movement.shape import ramp


def comparison_rule(function: Callable[..., Any]) -> Any:
    """Create the `eval` rule of a comparison; types that NumPy does not support are compared in a wider one, which is
    exact."""

    def evaluate(*arrays: Any) -> Any:
        wider = COMPUTED_IN.get(arrays[0].dtype)
        return function(*arrays) if wider is None else function(*[a.astype(wider) for a in arrays])

    return staticmethod(evaluate)


class PairComparison(Comparison):
    """Comparison of two arrays of one dtype."""

    kinds = "biuf"
    zero_derivative = True
    # The comparison that holds with its sides exchanged, and the one that holds where this does not, by name.
    other_side: ClassVar[str]
    opposite: ClassVar[str]

    def mirror(self, constant: Any) -> str | None:
        return self.other_side

    def decide(self, first: Range, second: Range) -> bool | None:
        """Return whether the comparison holds for all members of two ranges (True) or for none (False); None if neither
        is known."""
        raise NotImplementedError

    def left(self, right: Range) -> Range:
        """Return the range of the left operand where the comparison holds."""
        raise NotImplementedError

    def bounds(self, operands: OperandRanges) -> Range:
        decided = self.decide(operands(0), operands(1))
        return BOTH if decided is None else YES if decided else NO

    def bounds_where(self, holds: bool, condition: Condition) -> Range:
        if dtype_range(condition.types[0]) is BOTH:
            return self.bounds_where_equal(holds, condition)
        for position in (0, 1):
            if condition.is_value(position):
                operation: Any = self if position == 0 else lookup(self.other_side)
                if not holds:
                    operation = lookup(operation.opposite)
                result: Range = operation.left(condition.anywhere(1 - position))
                return result
        return Range.EVERYTHING

    def bounds_where_equal(self, holds: bool, condition: Condition) -> Range:
        """Return the range that `bounds_where` returns for operands that are conditions themselves."""
        return Range.EVERYTHING

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), ramp(3, 2)[::-1])
        yield Sample(ramp(3), ramp(3)[1])
        yield Sample(ramp(4, dtype=np.int32), ramp(4, dtype=np.int32)[::-1].copy())
        yield Sample(np.array([True, False]), np.array([True, True]))
        yield Sample(np.array([np.nan, 1, -0.0], np.float32), np.array([np.nan, np.nan, 0], np.float32))
        yield Sample(ramp(3, dtype=bfloat16), ramp(3, dtype=bfloat16))
        yield Sample(ramp(0), ramp(0))


class Equality(PairComparison):
    """Equality also compares complex numbers and random keys."""

    kinds = "biufck"
    # Whether the comparison holds of an element and itself.
    reflexive: ClassVar[bool]

    def decide(self, first: Range, second: Range) -> bool | None:
        if first.is_constant and first == second:
            return self.reflexive
        return not self.reflexive if first.intersect(second) is None else None

    def bounds_where_equal(self, holds: bool, condition: Condition) -> Range:
        # The same as one of two conditions if the other is known.
        for one, other in ((0, 1), (1, 0)):
            known = condition.anywhere(other)
            if known.is_constant:
                return condition.where(one, holds == (self.reflexive == (known == YES)))
        return Range.EVERYTHING

    def samples(self) -> Any:
        yield from super().samples()
        yield Sample(complex_ramp(3), complex_ramp(3)[::-1])


@primitive
class eq(Equality):
    """Whether elements are equal; nan is equal to nothing."""

    eval = comparison_rule(operator.eq)
    other_side = "eq"
    opposite = "ne"
    reflexive = True

    def left(self, right: Range) -> Range:
        return right


@primitive
class ne(Equality):
    """Whether elements differ; nan differs from everything."""

    eval = comparison_rule(operator.ne)
    other_side = "ne"
    opposite = "eq"
    reflexive = False

    def left(self, right: Range) -> Range:
        return Range.EVERYTHING


@primitive
class lt(PairComparison):
    """Whether the first element is less."""

    eval = comparison_rule(np.less)
    other_side = "gt"
    opposite = "ge"

    def decide(self, first: Range, second: Range) -> bool | None:
        return True if first.upper < second.lower else False if first.lower >= second.upper else None

    def left(self, right: Range) -> Range:
        return Range(-INFINITY, right.upper - 1)


@primitive
class le(PairComparison):
    """Whether the first element is less or equal."""

    eval = comparison_rule(np.less_equal)
    other_side = "ge"
    opposite = "gt"

    def decide(self, first: Range, second: Range) -> bool | None:
        return True if first.upper <= second.lower else False if first.lower > second.upper else None

    def left(self, right: Range) -> Range:
        return Range(-INFINITY, right.upper)


@primitive
class gt(PairComparison):
    """Whether the first element is greater."""

    eval = comparison_rule(np.greater)
    other_side = "lt"
    opposite = "le"

    def decide(self, first: Range, second: Range) -> bool | None:
        return True if first.lower > second.upper else False if first.upper <= second.lower else None

    def left(self, right: Range) -> Range:
        return Range(right.lower + 1, INFINITY)


@primitive
class ge(PairComparison):
    """Whether the first element is greater or equal."""

    eval = comparison_rule(np.greater_equal)
    other_side = "le"
    opposite = "lt"

    def decide(self, first: Range, second: Range) -> bool | None:
        return True if first.lower >= second.upper else False if first.upper < second.lower else None

    def left(self, right: Range) -> Range:
        return Range(right.lower, INFINITY)


@primitive
class is_finite(Comparison):
    """Whether an element is neither infinite nor nan."""

    kinds = "f"
    zero_derivative = True
    eval = comparison_rule(np.isfinite)

    def samples(self) -> Any:
        yield Sample(np.array([0, np.inf, -np.inf, np.nan, 1], np.float32))
        yield Sample(np.array([0, np.inf, np.nan], bfloat16))
        yield Sample(np.float32(2).reshape(()))
