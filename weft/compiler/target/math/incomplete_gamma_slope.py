"""Derivatives of the incomplete gamma function in its first argument, in float64.

The series and the continued fraction are differentiated with truncated power series in that argument, as the oracle
does: a `Series` has the value and as many coefficients as the order of the derivative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.compiler.target.math.density import gamma_exponent
from weft.compiler.target.math.gamma import digamma
from weft.compiler.target.math.hurwitz import positive_zeta
from weft.compiler.target.math.iteration import Turn, called, repeated
from weft.compiler.target.math.logarithm import log
from weft.compiler.target.math.power import exp_pair
from weft.compiler.target.math.term import Term

Series = list[Term]
LIMIT = 20_000


def igamma_derivative(a: Term, x: Term, order: int) -> Term:
    """Derivative number `order` of the lower function in a."""
    return called(f"igamma_derivative.{order}", lambda a, x: _derivative(a, x, order, relative=False), a, x)


def random_gamma_grad(a: Term, x: Term) -> Term:
    """The first derivative over the density, with the other sign."""
    return called("random_gamma_grad", lambda a, x: -_derivative(a, x, 1, relative=True), a, x)


def _derivative(a: Term, x: Term, order: int, relative: bool) -> Term:
    defined = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    inner_a, inner_x = defined.select(a, 1.0), defined.select(x, 1.0)
    lower = (inner_x <= 1.0) | (inner_x < inner_a)
    series = _lower_series(inner_a, inner_x, order, lower & defined)
    fraction = _upper_fraction(inner_a, inner_x, order, ~lower & defined)
    chosen = [lower.select(s, -f) for s, f in zip(series, fraction, strict=True)]
    made = _with_density(chosen, inner_a, inner_x)
    if not relative:
        pair, factor = gamma_exponent(inner_a, inner_x)
        made = made * (exp_pair(*pair) * factor * inner_a / inner_x)
    known = x.equals(0.0) | (x.equals(math.inf) & (a > 0))
    return defined.select(made, known.select(x.of(0), math.nan))


def _with_density(series: Series, a: Term, x: Term) -> Term:
    """The highest derivative of `series` times the density, over the density."""
    order = len(series) - 1
    logarithm: Series = [a.of(0), log(x) - digamma(a)]
    for n in range(2, order + 1):
        logarithm.append(positive_zeta(a.of(n), a) * ((-1) ** (n + 1) / n))
    return _product(series, _exponential(logarithm[: order + 1]))[order] * float(math.factorial(order))


def _lower_series(a: Term, x: Term, order: int, active: Term) -> Series:
    """x/a * (1 + x/(a + 1) + x**2/((a + 1)*(a + 2)) + ...)."""
    size = order + 1

    def turn(n: Term, *values: Term) -> Turn:
        term, total = list(values[:size]), values[size:]
        term = [t * x for t in _quotient(term, _shifted(a + n, order))]
        total = tuple(s + t for s, t in zip(total, term, strict=True))
        done = a + n > x
        for s, t in zip(total, term, strict=True):
            done = done & (abs(t) <= abs(s) * 1e-17)
        return done, (*term, *total)

    first = _quotient(_constant(x, order), _shifted(a, order))
    return repeated(active, (*first, *first), turn, LIMIT)[size:]


def _upper_fraction(a: Term, x: Term, order: int, active: Term) -> Series:
    """x/(x + 1 - a - 1*(1 - a)/(x + 3 - a - 2*(2 - a)/(x + 5 - a - ...))), from the front (Lentz)."""
    size = order + 1
    one = _constant(a.of(1), order)

    def denominator(amount: Term) -> Series:
        return [amount - a, a.of(-1), *[a.of(0)] * (order - 1)][:size]

    def turn(n: Term, *values: Term) -> Turn:
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
    found = repeated(active, (*_constant(a.of(1e300), order), *first, *first), turn, LIMIT)
    return [part * x for part in found[2 * size :]]


# ------------------------------------------------------------------------------------------- truncated power series


def _constant(value: Term, order: int) -> Series:
    return [value, *[value.of(0)] * order]


def _shifted(value: Term, order: int) -> Series:
    """A sum of the argument and a number."""
    return [value, value.of(1), *[value.of(0)] * (order - 1)][: order + 1]


def _total(terms: Sequence[Term]) -> Term:
    first, *others = terms
    for term in others:
        first = first + term
    return first


def _product(x: Series, y: Series) -> Series:
    return [_total([x[j] * y[n - j] for j in range(n + 1)]) for n in range(len(x))]


def _quotient(x: Series, y: Series) -> Series:
    made: Series = []
    for n, part in enumerate(x):
        rest = part - _total([made[j] * y[n - j] for j in range(n)]) if n else part
        made.append(rest / y[0])
    return made


def _exponential(x: Series) -> Series:
    """exp of a series without constant term."""
    made: Series = [x[0].of(1)]
    for n in range(1, len(x)):
        made.append(_total([x[j] * made[n - j] * float(j) for j in range(1, n + 1)]) / float(n))
    return made
