"""NumPy arrays with the operators in which bodies over lanes are written, so that one body serves both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

Operand: TypeAlias = "ArrayTerm | int | float"


class ArrayTerm:
    """Array of floats or truth values; a Python number is a constant in each element."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    def of(self, value: float) -> ArrayTerm:
        """Return a constant of the same shape and dtype."""
        return ArrayTerm(np.full_like(self.array, value))

    def __add__(self, other: Operand) -> ArrayTerm:
        return ArrayTerm(self.array + get_array(other))

    def __sub__(self, other: Operand) -> ArrayTerm:
        return ArrayTerm(self.array - get_array(other))

    def __mul__(self, other: Operand) -> ArrayTerm:
        return ArrayTerm(self.array * get_array(other))

    def __truediv__(self, other: Operand) -> ArrayTerm:
        return ArrayTerm(self.array / get_array(other))

    def __neg__(self) -> ArrayTerm:
        return ArrayTerm(-self.array)

    def __abs__(self) -> ArrayTerm:
        return ArrayTerm(np.abs(self.array))

    def __and__(self, other: ArrayTerm) -> ArrayTerm:
        return ArrayTerm(self.array & other.array)

    def __or__(self, other: ArrayTerm) -> ArrayTerm:
        return ArrayTerm(self.array | other.array)

    def __invert__(self) -> ArrayTerm:
        return ArrayTerm(~self.array)

    def __lt__(self, other: Operand) -> ArrayTerm:
        return ArrayTerm(self.array < get_array(other))

    def __le__(self, other: Operand) -> ArrayTerm:
        return ArrayTerm(self.array <= get_array(other))

    def __gt__(self, other: Operand) -> ArrayTerm:
        return ArrayTerm(self.array > get_array(other))

    def __ge__(self, other: Operand) -> ArrayTerm:
        return ArrayTerm(self.array >= get_array(other))

    def equals(self, other: Operand) -> ArrayTerm:
        """Return whether elements are equal; nan is equal to nothing."""
        return ArrayTerm(self.array == get_array(other))

    def select(self, yes: Operand, no: Operand) -> ArrayTerm:
        """Select `yes` where this array of truth values is true, else `no`."""
        return ArrayTerm(np.where(self.array, get_array(yes), get_array(no)))


def get_array(x: Operand) -> Any:
    """Return the array of a term, or the Python number itself."""
    return x.array if type(x) is ArrayTerm else x


def repeat(active: ArrayTerm, start: Sequence[ArrayTerm], body: Callable[..., Any], limit: int) -> list[ArrayTerm]:
    """Iterate `body(n, *values)` for n = 1, 2, ... on all elements that are active at the start, each until it is done.
    A finished element keeps its values, because further iterations would round it again."""
    going, values = active, list(start)
    for n in range(1, limit + 1):
        if not going.array.any():
            break
        done, found = body(ArrayTerm(float(n)), *values)
        values = [going.select(new, old) for new, old in zip(found, values, strict=True)]
        going = going & ~done
    return values
