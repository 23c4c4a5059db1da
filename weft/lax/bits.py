"""Elementwise comparisons and bit operations."""

from __future__ import annotations

from typing import Any

from weft.lax.argument_docs import document
from weft.lax.elementwise import pair
from weft.primitives.elementwise import (
    bitwise,
    compare,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array

# ------------------------------------------------------------------------------------------------------- comparison


@document("An array of booleans.", "lax.eq(wnp.array([1, 2]), 2) -> Array([False,  True], dtype=bool)")
def eq(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute x == y element-wise; false for NaN."""
    return compare.eq(*pair(x, y))


@document("An array of booleans.", "lax.ne(wnp.array([1, 2]), 2) -> Array([ True, False], dtype=bool)")
def ne(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute x != y element-wise; NaN differs from itself."""
    return compare.ne(*pair(x, y))


@document("An array of booleans.", "lax.lt(wnp.array([1, 2]), 2) -> Array([ True, False], dtype=bool)")
def lt(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute x < y element-wise; false for NaN."""
    return compare.lt(*pair(x, y))


@document("An array of booleans.", "lax.le(wnp.array([1, 2]), 1) -> Array([ True, False], dtype=bool)")
def le(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute x <= y element-wise; false for NaN."""
    return compare.le(*pair(x, y))


@document("An array of booleans.", "lax.gt(wnp.array([1, 2]), 1) -> Array([False,  True], dtype=bool)")
def gt(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute x > y element-wise; false for NaN."""
    return compare.gt(*pair(x, y))


@document("An array of booleans.", "lax.ge(wnp.array([1, 2]), 2) -> Array([False,  True], dtype=bool)")
def ge(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute x >= y element-wise; false for NaN."""
    return compare.ge(*pair(x, y))


@document("An array of booleans.", "lax.is_finite(wnp.array([1.0, wnp.inf])) -> Array([ True, False], dtype=bool)")
def is_finite(x: ArrayLike) -> Array:
    """Test element-wise for numbers that are neither infinite nor NaN."""
    return compare.is_finite(x)


# ------------------------------------------------------------------------------------------------------------- bits


@document(
    "An array of the same dtype, of integers or booleans.",
    "lax.bitwise_and(wnp.array([6, 5]), 3) -> Array([2, 1], dtype=int32)",
)
def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the bitwise AND of x and y; the logical AND for booleans."""
    return bitwise.and_(*pair(x, y))


@document(
    "An array of the same dtype, of integers or booleans.",
    "lax.bitwise_or(wnp.array([6, 5]), 3) -> Array([7, 7], dtype=int32)",
)
def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the bitwise OR of x and y; the logical OR for booleans."""
    return bitwise.or_(*pair(x, y))


@document(
    "An array of the same dtype, of integers or booleans.",
    "lax.bitwise_xor(wnp.array([6, 5]), 3) -> Array([5, 6], dtype=int32)",
)
def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the bitwise exclusive OR of x and y; the logical one for booleans."""
    return bitwise.xor(*pair(x, y))


@document("An array of the same integer dtype.", "lax.shift_left(wnp.array([1, 3]), 2) -> Array([ 4, 12], dtype=int32)")
def shift_left(x: ArrayLike, y: ArrayLike) -> Array:
    """Shift the bits of x to the left by y; the result is 0 where y is the bit width or more."""
    return bitwise.shift_left(*pair(x, y))


@document(
    "An array of the same integer dtype.", "lax.shift_right_logical(wnp.array([8, 9]), 2) -> Array([2, 2], dtype=int32)"
)
def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Array:
    """Shift the bits of x to the right by y, filling with zeros."""
    return bitwise.shift_right_logical(*pair(x, y))


@document(
    "An array of the same integer dtype.",
    "lax.shift_right_arithmetic(wnp.array([8, -8]), 2) -> Array([ 2, -2], dtype=int32)",
)
def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Array:
    """Shift the bits of x to the right by y, filling with copies of the sign bit."""
    return bitwise.shift_right_arithmetic(*pair(x, y))


@document(
    "An array of the same dtype, of integers or booleans.",
    "lax.bitwise_not(wnp.array([0, 5])) -> Array([-1, -6], dtype=int32)",
)
def bitwise_not(x: ArrayLike) -> Array:
    """Invert each bit of x; negate booleans."""
    return bitwise.not_(x)


@document(
    "An array of the same integer dtype.", "lax.population_count(wnp.array([7, 8])) -> Array([3, 1], dtype=int32)"
)
def population_count(x: ArrayLike) -> Array:
    """Count the bits of each integer that are set."""
    return bitwise.population_count(x)


@document("An array of the same integer dtype.", "lax.clz(wnp.array([1, 8])) -> Array([31, 28], dtype=int32)")
def clz(x: ArrayLike) -> Array:
    """Count the leading zero bits of each integer."""
    return bitwise.clz(x)


def mulhi(x: Any, y: Any, /) -> Any:
    """Compute the upper half of the bits of the product of two integers."""
    return bitwise.mulhi(*pair(x, y))
