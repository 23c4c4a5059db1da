"""Derivatives of the incomplete gamma function in its first argument: one body for NumPy arrays and for the lanes of
compiled code, in float64.

Its power series and its continued fraction are differentiated with truncated power series in that argument: a `Series`
has a value and as many coefficients as the order of the derivative. Numbers are written with Python's operators and the
methods `of` (a constant of the same kind), `equals` and `select`; whatever else is needed is in `Functions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

Number = Any
Series = list[Number]
# What an iteration returns: where it was the last one, and the values for the next.
Iteration = tuple[Number, Sequence[Number]]
LIMIT = 20_000


class Functions(Protocol):
    """Functions of numbers of one kind, as the series need them."""

    def log(self, x: Number) -> Number: ...
    def digamma(self, x: Number) -> Number: ...

    def zeta(self, s: int, x: Number) -> Number:
        """Return the Hurwitz zeta function of positive numbers."""
        ...

    def density(self, a: Number, x: Number) -> Number:
        """Return the density of a gamma variable of shape `a` at `x`."""
        ...

    def repeat(
        self, active: Number, start: Sequence[Number], body: Callable[..., Iteration], limit: int
    ) -> list[Number]:
        """Iterate `body(n, *values)` for n = 1, 2, ... on all elements that are active at the start, each until it is
        done."""
        ...


def derivative(functions: Functions, a: Number, x: Number, order: int, relative: bool = False) -> Number:
    """Return the derivative of order `order` of the lower incomplete gamma function in `a`, divided by the density if
    `relative`."""
    defined = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    inner_a, inner_x = defined.select(a, 1.0), defined.select(x, 1.0)
    lower = (inner_x <= 1.0) | (inner_x < inner_a)
    series = _lower_series(functions, inner_a, inner_x, order, lower & defined)
    fraction = _upper_fraction(functions, inner_a, inner_x, order, ~lower & defined)
    chosen = [lower.select(s, -f) for s, f in zip(series, fraction, strict=True)]
    result = _with_density(functions, chosen, inner_a, inner_x)
    if not relative:
        result = result * functions.density(inner_a, inner_x)
    known = x.equals(0.0) | (x.equals(math.inf) & (a > 0))
    return defined.select(result, known.select(x.of(0), math.nan))


def _with_density(functions: Functions, series: Series, a: Number, x: Number) -> Number:
    """Return the highest derivative of `series` times the density, divided by the density at `a`."""
    order = len(series) - 1
    logarithm: Series = [a.of(0), functions.log(x) - functions.digamma(a)]
    for n in range(2, order + 1):
        logarithm.append(functions.zeta(n, a) * ((-1) ** (n + 1) / n))
    return _product(series, _exponential(logarithm[: order + 1]))[order] * float(math.factorial(order))


def _lower_series(functions: Functions, a: Number, x: Number, order: int, active: Number) -> Series:
    """Sum x/a * (1 + x/(a + 1) + x**2/((a + 1)*(a + 2)) + ...)."""
    size = order + 1

    def body(n: Number, *values: Number) -> Iteration:
        term, total = list(values[:size]), values[size:]
        term = [t * x for t in _quotient(term, _shift(a + n, order))]
        total = tuple(s + t for s, t in zip(total, term, strict=True))
        done = a + n > x  # until there terms grow, afterwards they shrink
        for s, t in zip(total, term, strict=True):
            done = done & (abs(t) <= abs(s) * 1e-17)
        return done, (*term, *total)

    first = _quotient(_constant(x, order), _shift(a, order))
    return functions.repeat(active, (*first, *first), body, LIMIT)[size:]


def _upper_fraction(functions: Functions, a: Number, x: Number, order: int, active: Number) -> Series:
    """Evaluate x/(x + 1 - a - 1*(1 - a)/(x + 3 - a - 2*(2 - a)/(x + 5 - a - ...))) from the front (Lentz)."""
    size = order + 1
    one = _constant(a.of(1), order)

    def denominator(amount: Number) -> Series:
        return [amount - a, a.of(-1), *[a.of(0)] * (order - 1)][:size]

    def body(n: Number, *values: Number) -> Iteration:
        c, d, fraction = (list(values[start : start + size]) for start in range(0, 3 * size, size))
        numerator = [-n * part for part in denominator(n)]
        b = denominator(x + 1 + n * 2)
        d = [s + t for s, t in zip(b, _product(numerator, d), strict=True)]
        d = _quotient(one, d)
        c = [s + t for s, t in zip(b, _quotient(numerator, c), strict=True)]
        step = _product(c, d)
        done = abs(step[0] - 1) < 1e-15
        for part in step[1:]:
            done = done & (abs(part) < 1e-15)
        return done, (*c, *d, *_product(fraction, step))

    first = _quotient(one, denominator(x + 1))
    found = functions.repeat(active, (*_constant(a.of(1e300), order), *first, *first), body, LIMIT)
    return [part * x for part in found[2 * size :]]


# ------------------------------------------------------------------------------------------- truncated power series


def _constant(value: Number, order: int) -> Series:
    return [value, *[value.of(0)] * order]


def _shift(value: Number, order: int) -> Series:
    """Return the series of the argument plus a number."""
    return [value, value.of(1), *[value.of(0)] * (order - 1)][: order + 1]


def _total(terms: Sequence[Number]) -> Number:
    first, *others = terms
    for term in others:
        first = first + term
    return first


def _product(x: Series, y: Series) -> Series:
    return [_total([x[j] * y[n - j] for j in range(n + 1)]) for n in range(len(x))]


def _quotient(x: Series, y: Series) -> Series:
    result: Series = []
    for n, part in enumerate(x):
        rest = part - _total([result[j] * y[n - j] for j in range(n)]) if n else part
        result.append(rest / y[0])
    return result


def _exponential(x: Series) -> Series:
    """Return exp of a series without constant term."""
    result: Series = [x[0].of(1)]
    for n in range(1, len(x)):
        result.append(_total([x[j] * result[n - j] * float(j) for j in range(1, n + 1)]) / float(n))
    return result
