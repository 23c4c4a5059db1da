"""Hurwitz zeta function and derivatives of digamma, in float64.

The terms (q + k)**-x are summed for k up to 9, and the remainder follows from the Euler-Maclaurin formula; both stop
where terms are negligible. For negative q the terms before 0 are those of positive ones, with signs.
"""

from __future__ import annotations

import math

from weft.compiler.target.llvm import constant, double, i1, i32, vector
from weft.compiler.target.math.gamma import digamma
from weft.compiler.target.math.iteration import Iteration, call_in_double, repeat
from weft.compiler.target.math.power import pow
from weft.compiler.target.math.term import Term

# (2k)! divided by Bernoulli numbers.
EULER_MACLAURIN = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
    1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18,
)  # fmt: skip
TERMS = 9
LAST = 2.0**-53
# From this q on only the first terms of the asymptotic series matter.
FARTHEST = 1e8
FACTORIALS = 171


def zeta(x: Term, q: Term) -> Term:
    """Sum (q + k)**-x over k from 0 up."""
    return call_in_double("zeta", _zeta, x, q)


def polygamma(m: Term, x: Term) -> Term:
    """Compute the m-th derivative of digamma."""
    return call_in_double("polygamma", _polygamma, m, x)


def _zeta(x: Term, q: Term) -> Term:
    negative = q <= 0
    size = -q
    pole = negative & size.floor().equals(size)
    # Lanes outside of the domain are computed for 2, which has no special case.
    inside = (x > 1.0) & ~pole & ~(negative & x.floor().differs(x))
    argument = inside.select(x, 2.0)
    result = positive_zeta(argument, (inside & ~negative).select(q, 1.0))
    f = x.function
    reflected = inside & negative
    with f.when(reflected.any(), result.value, unlikely=True) as region:
        region.give(reflected.select(_negative_zeta(argument, reflected.select(size, 1.5)), result).value)
    result = Term(f, region.results[0])
    result = inside.select(result, pole.select(x.of(math.inf), math.nan))
    result = (x.is_nan() & ~pole | q.is_nan()).select(math.nan, result)
    return x.equals(1.0).select(math.inf, (x < 1.0).select(math.nan, result))


def _negative_zeta(x: Term, size: Term) -> Term:
    """Compute zeta(x, -size): the terms below 0 are a difference of two sums of positive terms."""
    fraction = size - size.floor()
    half = x * 0.5
    odd = half.floor().differs(half)
    # Powers of numbers above 1 vanish by then, and their series would be nan.
    none = x > 2.0**60
    after = none.select(0.0, positive_zeta(x, none.select(1.0, size + 1)))
    before = positive_zeta(x, fraction)
    # The largest terms first: for odd x they may cancel.
    near = positive_zeta(x, 1 - fraction) + odd.select(-before, before)
    return near + odd.select(after, -after)


def positive_zeta(x: Term, q: Term) -> Term:
    """Compute zeta for x above 1 and positive q, as a call."""
    return call_in_double("positive_zeta", _positive_zeta, x, q)


def _positive_zeta(x: Term, q: Term) -> Term:
    first = pow(q, -x)
    always = q.equals(q)

    def body(n: Term, total: Term, power: Term) -> Iteration:
        power = pow(q + n, -x)
        total = total + power
        return abs(power / total) < LAST, (total, power)

    total, power = repeat(always, (first, first), body, TERMS)
    # The sum is complete where terms have become negligible.
    done = abs(power / total) < LAST
    last = q + float(TERMS)
    total = done.select(total, total + power * last / (x - 1) - power * 0.5)
    rising = q.of(1)
    for k, divisor in enumerate(EULER_MACLAURIN):
        rising = rising * (x + 2.0 * k)
        power = power / last
        term = rising * power / divisor
        total = done.select(total, total + term)
        done = done | (abs(term / total) < LAST)
        rising = rising * (x + (2.0 * k + 1))
        power = power / last
    far = (1 / (x - 1) + 0.5 / q) * pow(q, 1 - x)
    return (q > FARTHEST).select(far, total)


def _polygamma(m: Term, x: Term) -> Term:
    defined = (m >= 0) & m.floor().equals(m)
    half = m * 0.5
    even = half.floor().equals(half) & (m < math.inf)
    order = defined.select(m, 1.0)
    result = factorial(order.at_most(float(FACTORIALS))) * zeta(order + 1, x)
    result = even.select(-result, result)
    # digamma is undefined at 0; here the limits from both sides are used.
    first = x.equals(0.0).select(x.of(math.inf).copysign(-x), digamma(x))
    return defined.select(m.equals(0.0).select(first, result), math.nan)


def factorial(n: Term) -> Term:
    """Return n! for integers up to FACTORIALS, where it is infinite."""
    f = n.function
    values = [float(math.factorial(k)) for k in range(FACTORIALS)] + [math.inf]
    table = f.module.table("weft.factorials", double, values)
    addresses = f.offset(table, double, n.to_integer(i32).wide(64).value)
    if not n.type.is_vector:
        return Term(f, f.load(double, addresses, 8))
    return Term(f, f.gather(n.type, addresses, constant(True, vector(i1, n.type.count)), 8))
