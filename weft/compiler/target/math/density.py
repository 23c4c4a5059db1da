"""Densities of the gamma and the beta distribution, as accurate as their exponents allow; used by functions that
iterate.

Both are powers of large numbers with much cancellation: near the mean the exponent is small, though its terms are
large. So it is computed from mu - log(1 + mu), where mu is the distance from the mean relative to the mean, and where
that does not help, from logarithms with more digits than a double has.
"""

from __future__ import annotations

import math

from weft.compiler.target.math.gamma import FAR, LGAMMA, STIRLING
from weft.compiler.target.math.logarithm import ATANH_DOUBLE, log, log1p
from weft.compiler.target.math.power import log_pair
from weft.compiler.target.math.term import Term, polynomial, two_product, two_sum

# Unevaluated sum of two numbers; the second holds the digits after those of the first.
Pair = tuple[Term, Term]
# mu - log(1 + mu) cancels between these bounds, which are the domain of its polynomial.
LEAST_NEAR, MOST_NEAR = -0.29, 0.41


def excess(mu: Term) -> Term:
    """Compute mu - log(1 + mu) for mu between LEAST_NEAR and MOST_NEAR: s*(mu - 2*s*s*P(s*s)) with s = mu/(2 + mu)."""
    s = mu / (2 + mu)
    z = s * s
    return s * (mu - z * polynomial(z, ATANH_DOUBLE) * 2)


def is_near(mu: Term) -> Term:
    """Return whether mu is in the domain of `excess`."""
    return (mu > LEAST_NEAR) & (mu < MOST_NEAR)


def stirling_rest(a: Term) -> Term:
    """Return the error of Stirling's formula for lgamma, for a from 8 up."""
    inverse = 1 / a
    return inverse * polynomial(inverse * inverse, STIRLING[0])


def stirling_difference(a: Term, b: Term) -> Term:
    """Compute stirling_rest(a + b) - stirling_rest(a), accurate relative to b."""
    u, v = 1 / (a + b), 1 / a
    # u**n - v**n is u - v times the sum of u**i * v**(n - 1 - i), here for odd n.
    total, sums, power = u * 0.0, u.of(1), v
    for coefficient in STIRLING[0]:
        total = sums.fma(coefficient, total)
        for _ in range(2):
            sums, power = u.fma(sums, power), power * v
    return total * (-b * u * v)


def lgamma_of_one_more(a: Term) -> Term:
    """Compute lgamma(1 + a) for a from 0 to 8, accurate relative to a where that is small."""
    u, product = a, a.of(1)
    for _ in range(7):
        reduce = u >= 1.5
        product = reduce.select(product * u, product)
        u = reduce.select(u - 1, u)
    return log(product) + u * (u - 1) * polynomial(u - 0.75, LGAMMA[0])


def lgamma_difference(a: Term, b: Term) -> Term:
    """Compute lgamma(a + b) - lgamma(a) for b up to 8, accurate relative to b."""
    small = a < 10.0
    # Gamma(a + b)/Gamma(a) is the ratio at a + 10, divided by ten factors 1 + b/(a + k). Their product minus 1 is
    # accumulated.
    factors = a * 0.0
    for k in range(10):
        more = b / (a + float(k))
        factors = factors + factors.fma(more, more)
    z = small.select(a + 10, a)
    result = (z - 0.5).fma(log1p(b / z), b.fma(log(z + b), -b)) + stirling_difference(z, b)
    return small.select(result - log1p(factors), result)


def gamma_exponent(a: Term, x: Term, beyond: Term | None = None) -> tuple[Pair, Term]:
    """Return x**a * exp(-x) / Gamma(a + 1) as a pair, to be exponentiated, and a factor. `beyond` is x - a, if the
    caller has it more accurately."""
    large = a >= FAR
    distance, distance_low = two_sum(x, -a) if beyond is None else (beyond, beyond.of(0))
    ratio = x / a
    # From 8 up a*log(x/a) - (x - a) remains after Stirling's formula; below, a*log(x) - x.
    high, low = log_pair(large.select(ratio, x))
    low = low + large.select(ratio.fma(-a, x) / x, 0.0)
    product, product_low = two_product(a, high)
    total, total_low = two_sum(product, -large.select(distance, x))
    total_low = total_low + (a.fma(low, product_low) - large.select(distance_low, 0.0))
    mu = distance / a
    near = large & is_near(mu)
    total = near.select(-(a * excess(mu)), total)
    total_low = near.select(0.0, total_low)
    rest = large.select(stirling_rest(a), lgamma_of_one_more(large.select(1.0, a)))
    total, lost = two_sum(total, -rest)
    factor = large.select(1 / (a * (2 * math.pi)).sqrt(), 1.0)
    return (total, total_low + lost), factor
