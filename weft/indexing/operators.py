"""Operators of symbolic integers: those of Python's integers, and of arrays where a program computes with a size."""

from __future__ import annotations

import functools
import math
import operator
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from weft.indexing.guards import current, is_asked_outside
from weft.indexing.inconclusive import inconclusive, not_constant

# Texts of dimensions may come from files, and powers are multiplied out.
LARGEST_EXPONENT = 16


class Algebra(NamedTuple):
    """Functions of `expression.py` that the operators call."""

    add: Callable[[Any, Any], Any]
    multiply: Callable[[Any, Any], Any]
    floor_divide: Callable[[Any, Any], Any]
    modulo: Callable[[Any, Any], Any]
    definitely_nonnegative: Callable[[Any], bool]
    linear_in: Callable[[Any, Any], Any]


def as_integer(value: Any) -> Any:
    """Convert a value to an int or expression; return None if it is neither."""
    if type(value) is int or isinstance(value, IntegerOperators):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return None


def _equal_integer(value: Any) -> int | None:
    """Return the integer that a float or complex number is equal to, or None."""
    if not _is_inexact(value) or not math.isfinite(value.real):
        return None
    integer = int(value.real)
    return integer if value == integer else None


def _is_inexact(value: Any) -> bool:
    return isinstance(value, float | complex | np.inexact)


def _operator(
    function: Callable[[Any, Any], Any], of_arrays: Callable[[Any, Any], Any] | None = None
) -> Callable[[Any, Any], Any]:
    """Create the method of a binary operator whose other operand is an integer; `of_arrays` is the operator for other
    numbers and arrays."""

    def method(self: IntegerOperators, other: Any) -> Any:
        value = None if isinstance(other, np.ndarray) else as_integer(other)
        if value is not None:
            return function(self, value)
        if of_arrays is not None and (_is_inexact(other) or isinstance(other, np.ndarray)):
            return of_arrays(_as_operand(self), other)
        return NotImplemented

    return method


def _comparison(
    relation: str, of_arrays: Callable[[Any, Any], Any], difference: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """Create the method for `left relation right`, which holds if the difference is not negative."""

    def method(self: IntegerOperators, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return of_arrays(_as_operand(self), other)
        value = as_integer(other)
        return NotImplemented if value is None else _decide(self, relation, value, difference(self, value))

    return method


def _decide(left: Any, relation: str, right: Any, difference: Any) -> bool:
    """Return whether `difference >= 0` for all values of its symbols, or for the current sizes; raise if neither is
    known."""
    nonnegative = IntegerOperators.algebra.definitely_nonnegative
    if nonnegative(difference):
        return True
    if nonnegative(-1 - difference):
        return False
    if current.answers is not None and current.answers.cover(difference):
        return current.answers.is_nonnegative(difference)
    symbols = [s for side in (left, right) if isinstance(side, IntegerOperators) for s in side.symbols]  # type: ignore[attr-defined]
    raise inconclusive(f"whether {left} {relation} {right}", symbols)


def _add(left: Any, right: Any) -> Any:
    return IntegerOperators.algebra.add(left, right)


def _multiply(left: Any, right: Any) -> Any:
    return IntegerOperators.algebra.multiply(left, right)


def _subtract(left: Any, right: Any) -> Any:
    return _add(left, _multiply(right, -1))


def _floor_divide(left: Any, right: Any) -> Any:
    return IntegerOperators.algebra.floor_divide(left, right)


def _modulo(left: Any, right: Any) -> Any:
    return IntegerOperators.algebra.modulo(left, right)


def _swap(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda right, left: function(left, right)


def _bit_length(fixed: None, sizes: tuple[int, ...]) -> int:
    return sizes[0].bit_length()


def _shift_left(left: Any, right: Any) -> Any:
    return NotImplemented if not isinstance(right, int) else _multiply(left, 1 << right)


def _shift_right(left: Any, right: Any) -> Any:
    return NotImplemented if not isinstance(right, int) else _floor_divide(left, 1 << right)


def _and(left: Any, right: Any) -> Any:
    """Return `n & 7`: the remainder by a power of two."""
    is_mask = isinstance(right, int) and right > 0 and not right & (right + 1)
    return _modulo(left, right + 1) if is_mask else NotImplemented


def _quotient(self: IntegerOperators, other: Any, reflected: bool = False) -> Any:
    """Return the result of `/`, an array even if both operands are integers."""
    if not isinstance(other, np.ndarray) and as_integer(other) is None and not _is_inexact(other):
        return NotImplemented
    left, right = (other, self) if reflected else (self, other)
    return operator.truediv(*(_as_operand(s) if isinstance(s, IntegerOperators) else s for s in (left, right)))


def _as_operand(size: IntegerOperators) -> Any:
    """Convert a size to an operand of an array operation: an array of the program, or its value under the current
    sizes, because a decision depends on the result then."""
    answers = current.answers
    return size.__jax_array__() if answers is None or answers.declared else size.__index__()


class IntegerOperators:
    """Base of expressions with their operators. The other operand may be an integer; with other numbers the result is
    an array."""

    __slots__ = ()

    algebra: ClassVar[Algebra]
    # Makes an array of rank 0 of an expression, where a program computes with it.
    as_array: ClassVar[Callable[[Any], Any]]
    # Text of a size that was declared for an export.
    declared_text: ClassVar[Callable[[Any], str]]
    # NumPy integers and arrays leave operators with an expression to the expression.
    __array_ufunc__ = None

    __add__ = _operator(_add, operator.add)
    __radd__ = _operator(_swap(_add), _swap(operator.add))
    __mul__ = _operator(_multiply, operator.mul)
    __rmul__ = _operator(_swap(_multiply), _swap(operator.mul))
    __sub__ = _operator(_subtract, operator.sub)
    __rsub__ = _operator(_swap(_subtract), _swap(operator.sub))
    __truediv__ = _quotient
    __rtruediv__ = functools.partialmethod(_quotient, reflected=True)
    __floordiv__ = _operator(_floor_divide, operator.floordiv)
    __rfloordiv__ = _operator(_swap(_floor_divide), _swap(operator.floordiv))
    __mod__ = _operator(_modulo, operator.mod)
    __rmod__ = _operator(_swap(_modulo), _swap(operator.mod))
    __divmod__ = _operator(lambda left, right: (_floor_divide(left, right), _modulo(left, right)))
    __rdivmod__ = _operator(lambda right, left: (_floor_divide(left, right), _modulo(left, right)))
    __lshift__ = _operator(_shift_left)
    __rshift__ = _operator(_shift_right)
    __and__ = _operator(_and)
    __rand__ = _operator(_and)
    __lt__ = _comparison("<", operator.lt, lambda left, right: right - left - 1)
    __le__ = _comparison("<=", operator.le, lambda left, right: right - left)
    __gt__ = _comparison(">", operator.gt, lambda left, right: left - right - 1)
    __ge__ = _comparison(">=", operator.ge, lambda left, right: left - right)

    def __hash__(self) -> int:
        # Equal expressions are one object. User code that looks one up in a table needs its value.
        answers = current.answers
        if answers is not None and answers.user_code:
            answers.seen_outside(self)
        return object.__hash__(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        answers = current.answers
        if answers is None:
            return NotImplemented
        if type(other) is int and other not in self.range:  # type: ignore[attr-defined]
            return False
        value = as_integer(other)
        if value is None and (value := _equal_integer(other)) is None:
            return NotImplemented
        difference = self - value
        if isinstance(difference, int):
            return difference == 0
        return 0 in difference.range and answers.know(difference) and answers.is_zero(difference)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """`int` for code that is not Weft's, where sizes become symbols by themselves: `isinstance(n, int)` is True for
        every size, as it was for the first. `type(n)` cannot be answered so; see `api/agreement.py`."""
        answers = current.answers
        if answers is None or answers.declared or not answers.user_code or not is_asked_outside():
            return type(self)
        return int

    @abstractmethod
    def _text(self) -> str: ...

    def _shown(self, specification: str = "") -> str:
        """Format for printing: the expression, or its value if user code prints a size that became a symbol by
        itself."""
        answers = current.answers
        value = None if answers is None or answers.declared else answers.seen_outside(self, 3)
        if value is None and self.scope is not None and is_asked_outside(3):  # type: ignore[attr-defined]
            return format(IntegerOperators.declared_text(self), specification)
        return format(self._text() if value is None else value, specification)

    def __repr__(self) -> str:
        return self._shown()

    def __format__(self, specification: str) -> str:
        return self._shown(specification)

    def __neg__(self) -> Any:
        return _multiply(self, -1)

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        return _subtract(-1, self)

    def __pow__(self, exponent: Any) -> Any:
        if isinstance(exponent, float):
            return _as_operand(self) ** exponent
        if not isinstance(exponent, int) or exponent < 0:
            return NotImplemented
        if exponent > LARGEST_EXPONENT:
            raise ValueError(f"A symbolic size may have exponents up to {LARGEST_EXPONENT}. Received: {exponent}")
        return math.prod([self] * exponent)

    def __bool__(self) -> bool:
        if 0 not in self.range:  # type: ignore[attr-defined]
            return True
        if current.answers is not None and current.answers.cover(self):
            return not current.answers.is_zero(self)
        raise inconclusive(f"whether {self} is zero", self.symbols)  # type: ignore[attr-defined]

    def __index__(self) -> int:
        answers = current.answers
        if answers is None or answers.declared or not answers.know(self):
            raise not_constant("int(n), range(n) or an index of Python", self)
        return answers.constant(self)

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def bit_length(self) -> int:
        """Return the number of bits, as `int.bit_length` does; it is the same for many sizes."""
        if current.answers is None or not current.answers.cover(self):
            raise not_constant("n.bit_length()", self)
        bits: int = current.answers.decide(_bit_length, None, (self,))
        return bits

    def __jax_array__(self) -> Any:
        return IntegerOperators.as_array(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        # NumPy's integers have a dtype of their own, so a computation by NumPy needs the value of the size.
        answers = current.answers
        value = None if answers is None or answers.declared else answers.seen_outside(self)
        array = np.empty((), object)
        array[()] = self
        return array if value is None else np.array(value, dtype)
