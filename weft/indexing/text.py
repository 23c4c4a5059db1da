"""Text of sizes that were declared for an export, in the notation of `jax.export`.

Larger terms come first and the constant last: `2*a^2*b - mod(a, 4) + 3`. `parse_dimension` reads this text.
"""

from __future__ import annotations

import itertools
from typing import Any

from weft.indexing.expression import Division, Expression, Extremum, FloorDivide, Integer, Symbol, as_terms
from weft.indexing.operators import IntegerOperators


def dimension_text(size: Any) -> str:
    """Return the text of one size."""
    if not isinstance(size, Expression):
        return str(size)
    result = " ".join(_term_text(monomial, coefficient) for monomial, coefficient in _sort_terms(size))
    return result.removeprefix("+ ")


def shape_text(shape: Any) -> str:
    """Return the text of a shape as Python writes a tuple."""
    texts = [dimension_text(size) for size in shape]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _term_text(monomial: tuple[Expression, ...], coefficient: int) -> str:
    sign = "+" if coefficient > 0 else "-"
    factors = [_factor_text(atom) + (f"^{n}" if n > 1 else "") for atom, n in _sort_factors(monomial)]
    if not factors or abs(coefficient) != 1:
        factors.insert(0, str(abs(coefficient)))
    return f"{sign} {'*'.join(factors)}"


def _factor_text(atom: Expression) -> str:
    if isinstance(atom, Symbol):
        return atom.name
    name, operands = _operation(atom)
    return f"{name}({', '.join(map(dimension_text, operands))})"


def _operation(atom: Expression) -> tuple[str, list[Integer]]:
    """Return the name and operands of an atom; a number is the last operand of an extremum."""
    if isinstance(atom, Division):
        return "floordiv" if isinstance(atom, FloorDivide) else "mod", [atom.dividend, atom.divisor]
    assert isinstance(atom, Extremum)
    operands = sorted(atom.arguments, key=lambda a: (isinstance(a, int), "" if isinstance(a, int) else a.order))
    return "min" if atom.sign > 0 else "max", operands


# JAX sorts by the number of nodes first, then by names; every key below starts with that number.


def _expression_key(value: Integer) -> tuple[Any, ...]:
    terms = tuple((_term_key(monomial), coefficient) for monomial, coefficient in _sort_terms(value))
    return sum(1 + abs(coefficient) * key[0] for key, coefficient in terms), terms


def _term_key(monomial: tuple[Expression, ...]) -> tuple[Any, ...]:
    factors = tuple((_factor_key(atom), n) for atom, n in _sort_factors(monomial))
    return sum(1 + n * key[0] for key, n in factors), factors


def _factor_key(atom: Expression) -> tuple[Any, ...]:
    if isinstance(atom, Symbol):
        return 1, atom.name, ()
    name, operands = _operation(atom)
    keys = tuple(map(_expression_key, operands))
    return 1 + sum(key[0] for key in keys), name, keys


def _sort_terms(value: Integer) -> list[tuple[tuple[Expression, ...], int]]:
    return sorted(as_terms(value), key=lambda term: _term_key(term[0]), reverse=True)


def _sort_factors(monomial: tuple[Expression, ...]) -> list[tuple[Expression, int]]:
    counted = [(atom, len(list(copies))) for atom, copies in itertools.groupby(monomial)]
    return sorted(counted, key=lambda pair: _factor_key(pair[0]))


IntegerOperators.declared_text = staticmethod(dimension_text)
