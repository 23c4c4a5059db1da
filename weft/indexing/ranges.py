"""Closed integer intervals with arithmetic, for integers whose value is not known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

INFINITY = math.inf

# A bound is an int, or plus or minus infinity where nothing is known on that side.
Bound = int | float


def _times(left: Bound, right: Bound) -> Bound:
    """Return the product of two bounds; zero times infinity is zero, since zero is attained and infinity never is."""
    return 0 if left == 0 or right == 0 else left * right


def _floor_divide(dividend: Bound, divisor: Bound) -> Bound:
    """Return the limit of `dividend // divisor` for a positive divisor; either may be infinite."""
    if isinstance(divisor, float):
        return 0 if dividend >= 0 else -1
    return dividend if isinstance(dividend, float) else dividend // divisor


def _cut(dividend: Bound, divisor: Bound) -> int:
    """Divide finite bounds, rounding towards 0."""
    quotient = int(abs(dividend) // abs(divisor))
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


@dataclass(frozen=True, slots=True)
class Range:
    """All integers from `lower` to `upper`, both included; an infinite end is open.

    The result of an operation contains every value the operation can take on members of its operands.
    """

    lower: Bound = -INFINITY
    upper: Bound = INFINITY

    EVERYTHING: ClassVar[Range]

    @staticmethod
    def constant(value: int) -> Range:
        """Return the range of one value."""
        return Range(value, value)

    @property
    def is_constant(self) -> bool:
        """Whether exactly one value is possible."""
        return self.lower == self.upper

    @property
    def is_bounded(self) -> bool:
        """Whether both ends are known."""
        return self.lower != -INFINITY and self.upper != INFINITY

    def __contains__(self, value: int) -> bool:
        return self.lower <= value <= self.upper

    def within(self, other: Range) -> bool:
        """Return whether every member is a member of `other`."""
        return other.lower <= self.lower and self.upper <= other.upper

    def intersect(self, other: Range) -> Range | None:
        """Return the range of the common members, or None if it is empty."""
        lower, upper = max(self.lower, other.lower), min(self.upper, other.upper)
        return Range(lower, upper) if lower <= upper else None

    def __neg__(self) -> Range:
        return Range(-self.upper, -self.lower)

    def __add__(self, other: Range | int) -> Range:
        other = _as_range(other)
        return Range(self.lower + other.lower, self.upper + other.upper)

    __radd__ = __add__

    def __sub__(self, other: Range | int) -> Range:
        return self + -_as_range(other)

    def __rsub__(self, other: int) -> Range:
        return -self + other

    def __mul__(self, other: Range | int) -> Range:
        other = _as_range(other)
        corners = [_times(a, b) for a in (self.lower, self.upper) for b in (other.lower, other.upper)]
        return Range(min(corners), max(corners))

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Range:
        """Range of one value multiplied by itself, tighter than the product of independent values."""
        if exponent == 0:
            return Range(1, 1)
        result = self
        for _ in range(exponent - 1):
            result = result * self
        return Range(max(result.lower, 0), result.upper) if exponent % 2 == 0 else result

    def __floordiv__(self, other: Range | int) -> Range:
        other = _as_range(other)
        if other.upper < 0:
            return (-self) // (-other)
        if other.lower <= 0:
            return Range.EVERYTHING
        corners = [_floor_divide(a, b) for a in (self.lower, self.upper) for b in (other.lower, other.upper)]
        return Range(min(corners), max(corners))

    def __mod__(self, other: Range | int) -> Range:
        other = _as_range(other)
        if other.upper < 0:
            return -((-self) % (-other))
        if other.lower <= 0:
            return Range.EVERYTHING
        if self.lower >= 0 and self.upper < other.lower:
            return self
        if other.is_constant and self.is_bounded and self.lower // other.lower == self.upper // other.lower:
            return Range(self.lower % other.lower, self.upper % other.lower)
        largest = other.upper - 1
        return Range(0, min(largest, self.upper) if self.lower >= 0 else largest)

    def quotient(self, divisor: Range) -> Range:
        """Return the range of the quotient rounded towards 0; everything if the divisor may be 0."""
        if 0 in divisor or not divisor.is_bounded or not self.is_bounded:
            return Range.EVERYTHING
        corners = [_cut(a, b) for a in (self.lower, self.upper) for b in (divisor.lower, divisor.upper)]
        if 0 in self:
            corners.append(0)
        return Range(min(corners), max(corners))

    def remainder(self, divisor: Range) -> Range:
        """Return the range of the remainder of a quotient rounded towards 0; it has the sign of the dividend."""
        if 0 in divisor or not divisor.is_bounded:
            return Range.EVERYTHING
        most = max(abs(divisor.lower), abs(divisor.upper)) - 1
        return Range(max(-most, self.lower) if self.lower < 0 else 0, min(most, self.upper) if self.upper > 0 else 0)

    def minimum(self, other: Range) -> Range:
        """Return the range of the smaller of two values."""
        return Range(min(self.lower, other.lower), min(self.upper, other.upper))

    def maximum(self, other: Range) -> Range:
        """Return the range of the larger of two values."""
        return Range(max(self.lower, other.lower), max(self.upper, other.upper))

    def __str__(self) -> str:
        low = "-inf" if self.lower == -INFINITY else str(self.lower)
        high = "inf" if self.upper == INFINITY else str(self.upper)
        return f"[{low}, {high}]"


Range.EVERYTHING = Range()


def _as_range(value: Range | int) -> Range:
    return value if isinstance(value, Range) else Range(value, value)
