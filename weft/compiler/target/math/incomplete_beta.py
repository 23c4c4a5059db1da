"""Regularized incomplete beta function, in float64.

A continued fraction computes the function or its complement, whichever is smaller on that side of the mean. For b up to
1 near x = 1 the complement may be small all the same; a power series in 1 - x is used there. Where both parameters are
very large and x is near the mean, the fraction would take too long, and the first terms of the normal approximation are
accurate enough.
"""

from __future__ import annotations

import math

from weft.compiler.target.math.density import (
    excess,
    gamma_exponent,
    is_near,
    lgamma_difference,
    lgamma_of_one_more,
    stirling_difference,
)
from weft.compiler.target.math.error import erfc
from weft.compiler.target.math.exponential import exp, expm1
from weft.compiler.target.math.gamma import FAR
from weft.compiler.target.math.iteration import Iteration, call_in_double, repeat
from weft.compiler.target.math.logarithm import log, log1p
from weft.compiler.target.math.power import exp_pair, log_pair
from weft.compiler.target.math.term import Term, two_product, two_sum

# At the mean the fraction needs about as many iterations as the square root of the smaller parameter.
LIMIT = 40_000
NORMAL_FROM = 1e9
NORMAL_WIDTH = 0.1


def regularized_incomplete_beta(a: Term, b: Term, x: Term) -> Term:
    """Compute the cumulative distribution function at x of the beta distribution with parameters a and b."""
    return call_in_double("regularized_incomplete_beta", _beta, a, b, x)


def _beta(a: Term, b: Term, x: Term) -> Term:
    usual = (a > 0) & (b > 0) & (a < math.inf) & (b < math.inf) & (x > 0) & (x < 1.0)
    result = _inside(usual.select(a, 1.0), usual.select(b, 1.0), usual.select(x, 0.5)).at_least(0.0).at_most(1.0)
    none = b.equals(0.0) | a.equals(math.inf)
    everything = a.equals(0.0) | b.equals(math.inf)
    result = none.select(0.0, everything.select(1.0, result))
    result = x.equals(0.0).select(0.0, x.equals(1.0).select(1.0, result))
    defined = (a >= 0) & (b >= 0) & (x >= 0) & (x <= 1.0) & ~(none & everything)
    return defined.select(result, math.nan)


def _inside(a: Term, b: Term, x: Term) -> Term:
    y = 1 - x
    total, total_low = two_sum(a, b)
    # Distance of x beyond the mean, times a + b: x*(a + b) - a.
    distance = x.fma(total, -a) + x * total_low
    least = (a < b).select(a, b)
    normal = (least >= NORMAL_FROM) & (abs(distance) < least * NORMAL_WIDTH)
    small = (b <= 1.0) & (y < 0.3) & (a * y <= 1.0)
    swapped = (b > 1.0) & (distance > 0) & (x * total > 0.7)
    first, second = swapped.select(b, a), swapped.select(a, b)
    at, rest = swapped.select(y, x), swapped.select(x, y)
    fraction = _fraction(first, second, at, rest, swapped.select(distance, -distance), ~(normal | small))
    part = _density(a, b, x, y, total, distance, first) * fraction
    result = swapped.select(1 - part, part)
    result = small.select(_near_one(small.select(a, 1.0), small.select(b, 1.0), y, small), result)
    return normal.select(_normal(a, b, total, normal.select(distance, 0.0)), result)


def _fraction(a: Term, b: Term, x: Term, y: Term, before: Term, active: Term) -> Term:
    """Evaluate the continued fraction of Didonato and Morris from the front (Lentz). `before` is the distance of x
    before the mean, times a + b; where it is positive the terms do not cancel."""
    start = before + 1

    def body(n: Term, c: Term, d: Term, fraction: Term) -> Iteration:
        below = a + n.fma(2.0, -1.0)
        # The first numerator is divided by a, and thus the whole fraction.
        leading = n.equals(1.0).select(1.0, a + (n - 1))
        weight = n * (b - n) * x
        numerator = (leading / below) * ((a + (b + (n - 1))) / below) * (weight * x)
        denominator = n + weight / below + (a + n) / (below + 2) * n.fma(1 + y, start)
        d = 1 / numerator.fma(d, denominator)
        c = denominator + numerator / c
        change = c * d
        return abs(change - 1) < 2.0**-51, (c, d, fraction * change)

    first = start / (a + 1)
    return 1 / repeat(active, (first, a.of(0), first), body, LIMIT)[2]


def _density(a: Term, b: Term, x: Term, y: Term, total: Term, distance: Term, divisor: Term) -> Term:
    """Compute x**a * y**b / B(a, b) / divisor, where y is 1 - x and the divisor is a or b."""
    mirrored = a < b
    large, little = mirrored.select(b, a), mirrored.select(a, b)
    above, below = mirrored.select(y, x), mirrored.select(x, y)
    beyond = mirrored.select(-distance, distance)
    # The direct formula is used for parameters below 8, or if one of them is and the product `reach` may be denormal
    # with few digits.
    reach = total * below
    simple = (large < FAR) | ((little < FAR) & (reach < 2.0**-1000))
    # Otherwise the smaller parameter contributes a gamma density of total * below ...
    (high, low), factor = gamma_exponent(little, reach, -beyond)
    # ... and the larger one an exponent that is small near the mean.
    mu = beyond / large
    near = is_near(mu)
    far_ratio = above * total / large
    far = mu - log(far_ratio)
    exponent = large * near.select(excess(near.select(mu, 0.0)), far)
    # Gamma(large + little)/Gamma(large), without the part that the powers already contain.
    wide = simple.select(FAR, large)
    corrections = stirling_difference(wide, little) - log1p(little / wide) * 0.5
    high, lost = two_sum(high, corrections - exponent)
    # The result may be denormal with few digits before the division, even if the divisor is the smaller parameter.
    result = exp_pair(high, low + lost) * factor * (little / divisor)
    # The direct formula x**a*y**b*Gamma(a + b)/(Gamma(a)*Gamma(b)).
    lesser, greater = simple.select(little, 1.0), simple.select(large, 1.0)
    gammas = lgamma_difference(greater + 1, lesser) - lgamma_of_one_more(lesser)
    (high, low), (more, more_low) = _log_power(lesser, below), _log_power(greater, above)
    high, lost = two_sum(high, more)
    high, lost_too = two_sum(high, gammas)
    direct = exp_pair(high, low + more_low + (lost + lost_too))
    direct = direct * (lesser / divisor) * (greater / (greater + lesser))
    return simple.select(direct, result)


def _log_power(exponent: Term, base: Term) -> tuple[Term, Term]:
    """Compute exponent*log(base) as a pair: an absolute error of it is a relative error of the power."""
    high, low = log_pair(base)
    product, lost = two_product(exponent, high)
    return product, exponent.fma(low, lost)


def _near_one(a: Term, b: Term, y: Term, active: Term) -> Term:
    """Compute 1 - y**b/(b*B(a, b)) * (1 + b*((1 - a)*y/(b + 1) + (1 - a)*(2 - a)*y**2/(2*(b + 2)) + ...))."""

    def body(n: Term, factor: Term, total: Term) -> Iteration:
        factor = factor * ((n - a) / n * y)
        term = factor / (b + n)
        total = total + term
        return abs(term) <= abs(total) * 2.0**-55, (factor, total)

    total = repeat(active, (a.of(1), a.of(0)), body, LIMIT)[1]
    exponent = b * log(y) - (lgamma_of_one_more(b) - lgamma_difference(a, b))
    return -expm1(exponent) - exp(exponent) * b * total


def _normal(a: Term, b: Term, total: Term, distance: Term) -> Term:
    """Compute erfc and one further term of the normal approximation; both parameters must be very large."""
    exponent = a * excess(distance / a) + b * excess(-distance / b)
    root = exponent.sqrt().copysign(distance)
    deviation = (a / total * b).sqrt()
    t = distance / deviation
    skew = 1 / (root * math.sqrt(2)) - 1 / t
    skew = (abs(t) < 1e-3).select((b - a) / total / (deviation * 3), skew)
    return erfc(-root) * 0.5 + exp(-exponent) * skew * (1 / math.sqrt(2 * math.pi))
