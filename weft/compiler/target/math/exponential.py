"""Exponential and hyperbolic functions: exp, exp2, expm1, logistic, sinh, cosh, tanh.

All rest on one reduction, x = n*ln(2) + r with |r| <= ln(2)/2, and on the even and odd parts of exp(r): exp(r) = 1 + r
+ z*(even(z) + r*odd(z)) with z = r*r, cosh(r) = 1 + z*even(z), sinh(r) = r + r*z*odd(z).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from weft.compiler.target.math.term import SHIFTER, Term, ldexp, polynomial, power_of_two, quotient

EVEN = {
    32: (0.5, 0.04166645184159279, 0.0013936130562797189),
    64: (0.5000000000000013, 0.04166666666651089, 0.001388888894816722, 2.4801488762952693e-05, 2.763170074270571e-07),
}
ODD = {
    32: (0.1666666716337204, 0.008333192206919193, 0.00019958426128141582),
    64: (0.16666666666666677, 0.0083333333333214, 0.0001984126988675412, 2.755724353574257e-06, 2.5109285330647263e-08),
}  # fmt: skip
# ln(2) in two parts; a fused multiply-add subtracts n times the first part exactly.
LN2 = {32: (0.6931471824645996, -1.9046542121259336e-09), 64: (0.6931471805599453, 2.3190468138462996e-17)}
# Bounds beyond which exp overflows, or is less than half of the smallest number.
LARGEST = {32: 89.0, 64: 710.0}
SMALLEST = {32: -105.0, 64: -746.0}


class Reduced(NamedTuple):
    """Reduction x = n*ln(2) + r + low; `rest` is exp(r) - 1 - r."""

    n: Term
    r: Term
    low: Term
    rest: Term


def reduce_argument(x: Term) -> Reduced:
    """Reduce x, which must not be too large for n to be exact; an unused `low` costs nothing."""
    bits = x.bits
    n = x.fma(1 / math.log(2), SHIFTER[bits]) - SHIFTER[bits]
    high, low = LN2[bits]
    partly = n.fma(-high, x)
    r = n.fma(-low, partly)
    z = r * r
    rest = z * polynomial(z, ODD[bits]).fma(r, polynomial(z, EVEN[bits]))
    return Reduced(n, r, n.fma(-low, partly - r), rest)


def exp(x: Term) -> Term:
    """Compute e**x."""
    bits = x.bits
    part = reduce_argument(x.at_most(LARGEST[bits]).at_least(SMALLEST[bits]))
    return ldexp(1 + (part.r + part.rest), part.n)


def exp2(x: Term) -> Term:
    """Compute 2**x."""
    bits = x.bits
    limited = x.at_most(2.0 * LARGEST[bits]).at_least(2.0 * SMALLEST[bits])
    n = limited.rint()
    fraction = limited - n
    high, low = LN2[bits]
    r = fraction * high
    correction = fraction.fma(high, -r) + fraction * low
    z = r * r
    rest = z * polynomial(z, ODD[bits]).fma(r, polynomial(z, EVEN[bits]))
    return ldexp(1 + (r + (rest + correction)), n)


def expm1(x: Term) -> Term:
    """Compute e**x - 1."""
    bits = x.bits
    part = reduce_argument(x.at_most(LARGEST[bits]).at_least(-40.0))
    # Half of the power: the largest one must not overflow before the sum.
    power = power_of_two(part.n - 1)
    total = power.fma(part.rest + part.low, power.fma(part.r, power - 0.5)) * 2
    return (abs(x) < 2.0 ** (-26 if bits == 32 else -55)).select(x, total)


def logistic(x: Term) -> Term:
    """Compute 1 / (1 + e**-x) with an exponential that cannot overflow."""
    small = exp(-abs(x))
    total = 1 + small
    return quotient((x >= 0).select(1.0, small), total, small - (total - 1))


def tanh(x: Term) -> Term:
    """Compute t / (t + 2) with t = expm1(2|x|); the argument is clamped to where the result is 1."""
    size = abs(x).at_most(9.1 if x.bits == 32 else 19.1)
    part = reduce_argument(size + size)
    power = power_of_two(part.n)
    t = power.fma(part.rest + part.low, power.fma(part.r, power - 1))
    total = t + 2
    # A denormal number loses no digits: the quotient halves what was doubled.
    return quotient(t, total, t - (total - 2)).copysign(x)


def _halves(x: Term) -> tuple[Reduced, Term, Term]:
    """Return the reduction of |x|, and a quarter of the sum and of the difference of 2**n and 2**-n."""
    part = reduce_argument(abs(x).at_most(89.6 if x.bits == 32 else 710.6))
    grown = power_of_two(part.n - 2)
    shrunk = power_of_two((-2 - part.n).at_least(-100.0))
    return part, grown + shrunk, grown - shrunk


def _combine(x: Term, of_sinh: bool) -> Term:
    """Compute a + b*r and smaller terms, where a and b are the sum and the difference of powers; for sinh they are
    swapped."""
    bits = x.bits
    part, total, difference = _halves(x)
    a, b = (difference, total) if of_sinh else (total, difference)
    z = part.r * part.r
    cosh_less_one = z * polynomial(z, EVEN[bits])
    sinh_less_r = part.r * z * polynomial(z, ODD[bits])
    product = b * part.r
    nearly = a + product
    lost = (product - (nearly - a)) + b.fma(part.r, -product)
    inner = b.fma(sinh_less_r + part.low, a * cosh_less_one)
    return (nearly + (inner + lost)) * 2


def sinh(x: Term) -> Term:
    """Compute sinh(n*ln2 + r) = (2**n - 2**-n)/2 * cosh(r) + (2**n + 2**-n)/2 * sinh(r)."""
    result = _combine(x, of_sinh=True)
    return (abs(x) < 2.0 ** (-13 if x.bits == 32 else -28)).select(abs(x), result).copysign(x)


def cosh(x: Term) -> Term:
    """Compute cosh(n*ln2 + r) = (2**n + 2**-n)/2 * cosh(r) + (2**n - 2**-n)/2 * sinh(r)."""
    return _combine(x, of_sinh=False)
