"""Arithmetic on sums of products of atoms, whatever the atoms are: they only need an `order` text to sort by.

A monomial is the sorted tuple of the atoms multiplied together (twice for a square), and a polynomial a dict or a
sequence of (monomial, coefficient).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

Monomial: TypeAlias = tuple[Any, ...]
Term: TypeAlias = tuple[Monomial, int]
Terms: TypeAlias = tuple[Term, ...]
Coefficients: TypeAlias = dict[Monomial, int]


def _order(atom: Any) -> str:
    text: str = atom.order
    return text


def term_order(term: Term) -> tuple[int, tuple[str, ...]]:
    """Return a sort key: higher degree first, then by atoms, the constant last."""
    monomial = term[0]
    return -len(monomial), tuple(atom.order for atom in monomial)


def join(left: Monomial, right: Monomial) -> Monomial:
    """Return the product of two monomials."""
    if not left or not right:
        return left or right
    return tuple(sorted(left + right, key=_order))


def take_out(monomial: Monomial, factor: Monomial) -> Monomial | None:
    """Divide a monomial by a factor; None if it does not contain the factor."""
    rest = list(monomial)
    for atom in factor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def products(left: Iterable[Term], right: Terms) -> list[Term]:
    """Return the terms of the product, like terms not yet merged."""
    return [(join(m, n), c * d) for m, c in left for n, d in right]


def scale(terms: Iterable[Term], factor: Monomial, times: int) -> list[Term]:
    """Multiply terms by one monomial and an integer."""
    return products(terms, ((factor, times),))


def accumulate(total: Coefficients, terms: Iterable[Term]) -> None:
    """Add terms to a sum in place; a coefficient that becomes zero stays as zero."""
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient


def covers(present: int, needed: int) -> bool:
    """Return whether a coefficient has the sign of another and is at least as large."""
    return abs(present) >= abs(needed) and present * needed > 0


def contains(total: Coefficients, terms: Terms, factor: Monomial, times: int) -> bool:
    """Return whether a sum contains at least `times * factor * terms`; a constant among the terms does not count."""
    needed = [(join(monomial, factor), times * coefficient) for monomial, coefficient in terms if monomial]
    return bool(needed) and all(covers(total.get(monomial, 0), coefficient) for monomial, coefficient in needed)


def text(terms: Terms, factor_text: Callable[[Any], str]) -> str:
    """Format the sum as people write it: `8*i + j`, `7 - i`. `factor_text` formats an atom so that it can be
    multiplied."""
    ordered = list(terms)
    if ordered[0][1] < 0:
        # `7 - i` reads better than `-i + 7`.
        first = next((i for i, (_, coefficient) in enumerate(ordered) if coefficient > 0), 0)
        ordered.insert(0, ordered.pop(first))
    (monomial, coefficient), *others = ordered
    if coefficient == -1 and len(monomial) == 1:
        # A sign in front binds more tightly than the % in `x%8`.
        result = f"-{factor_text(monomial[0])}"
    else:
        result = "-" * (coefficient < 0) + _term_text(monomial, abs(coefficient), factor_text)
    for monomial, coefficient in others:
        result += f" {'-' if coefficient < 0 else '+'} {_term_text(monomial, abs(coefficient), factor_text)}"
    return result


def _term_text(monomial: Monomial, coefficient: int, factor_text: Callable[[Any], str]) -> str:
    if coefficient == 1 and len(monomial) == 1:
        return str(monomial[0])
    factors = [] if coefficient == 1 and monomial else [str(coefficient)]
    for atom, copies in itertools.groupby(monomial):
        power = len(list(copies))
        factors.append(factor_text(atom) + (f"**{power}" if power > 1 else ""))
    return "*".join(factors)


def divide(dividend: Terms, divisor: Terms) -> tuple[list[Term], list[Term]]:
    """Return quotient and remainder of long division by the first term of the divisor, both polynomials in normal
    order.

    The remainder is what that first term does not divide; it need not be smaller than the divisor.
    """
    lead, lead_coefficient = divisor[0]
    left: Coefficients = dict(dividend)
    quotient: list[Term] = []
    remainder: list[Term] = []
    while left:
        monomial, coefficient = min(left.items(), key=term_order)
        rest = take_out(monomial, lead)
        if rest is None or coefficient % lead_coefficient:
            remainder.append((monomial, coefficient))
            del left[monomial]
            continue
        term = (rest, coefficient // lead_coefficient)
        quotient.append(term)
        accumulate(left, scale(divisor, rest, -term[1]))
        left = {m: c for m, c in left.items() if c}
    return quotient, remainder


def all_negative(terms: Terms) -> bool:
    """Return whether all terms but the constant are subtracted."""
    return all(coefficient < 0 for monomial, coefficient in terms if monomial)
