"""Tell whether a symbolic integer is at least zero, by ranges and by bounds that are expressions themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.indexing.operators import IntegerOperators
from weft.indexing.ranges import Range

# Bounds that are put in place of symbols and atoms, one after the other.
MOST_BOUNDS = 4


def is_nonnegative(value: Any, depth: int = MOST_BOUNDS) -> bool:
    """Return whether an int or expression is known to be at least zero."""
    if isinstance(value, int):
        return value >= 0
    if value.range.lower >= 0 or not depth or value.range.upper < 0:
        return bool(value.range.lower >= 0)
    if any(is_nonnegative(smaller, depth - 1) for smaller in _below_by_symbols(value)):
        return True
    return any(all(is_nonnegative(smaller, depth - 1) for smaller in group) for group in _below_by_atoms(value))


def _range(value: Any) -> Range:
    return Range(value, value) if isinstance(value, int) else value.range


def _below_by_symbols(value: Any) -> Iterable[Any]:
    """Yield expressions that are not greater: a symbolic bound in place of its symbol, where the value gets smaller."""
    for symbol in value.symbols:
        if not (isinstance(symbol.lower, IntegerOperators) or isinstance(symbol.upper, IntegerOperators)):
            continue
        split = IntegerOperators.algebra.linear_in(value, symbol)
        if split is None:
            continue
        coefficient, rest = split
        sign = _range(coefficient)
        bound = symbol.lower if sign.lower >= 0 else symbol.upper if sign.upper <= 0 else None
        if bound is not None:
            yield coefficient * bound + rest


def _below_by_atoms(value: Any) -> Iterable[tuple[Any, ...]]:
    """Yield groups of expressions such that the value is nonnegative if all of a group are. Each has a bound in place
    of a division, remainder, minimum or maximum that is a term of its own."""
    for monomial, coefficient in value.terms:
        if len(monomial) != 1:
            continue
        atom = monomial[0]
        match getattr(atom, "sign", None):
            case int() as sign:  # 1: a minimum, -1: a maximum
                rest = value - coefficient * atom
                options = [rest + coefficient * argument for argument in atom.arguments]
                yield from [tuple(options)] if (coefficient > 0) == (sign > 0) else [(option,) for option in options]
            case "//" if _range(atom.divisor).lower > 0:
                # divisor * (n // divisor) is from n - divisor + 1 to n
                product = atom.dividend if coefficient < 0 else atom.dividend - atom.divisor + 1
                yield (atom.divisor * (value - coefficient * atom) + coefficient * product,)
            case "%" if _range(atom.divisor).lower > 0:
                rest = value - coefficient * atom
                yield (rest if coefficient > 0 else rest + coefficient * (atom.divisor - 1),)
                if coefficient < 0 and _range(atom.dividend).lower >= 0:
                    yield (rest + coefficient * atom.dividend,)
