"""Elementary functions of float32 by the GPU's own instructions, which have about 22 bits, within the cards' budgets.

A thread has about 60 instructions for an element before arithmetic takes longer than memory, and the bodies that CPUs
use have two or three times as many. What is exact in them stays: reductions of arguments, and results that are summed
from a large part and a small one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.compiler.target import llvm
from weft.compiler.target.math import trigonometric
from weft.compiler.target.math.exponential import LARGEST, SMALLEST
from weft.compiler.target.math.term import MANTISSA, SHIFTER, Term, polynomial, scaled

# log2(e) in two parts.
LOG2_E = (1.4426950216293335, 1.9259629911266175e-08)
# tanh(x) = x + x*z*P(z) with z = x*x, to a quarter of an ulp below 0.7.
TANH = (-0.3333319127559662, 0.1332911103963852, -0.05355885997414589, 0.020091965794563293, -0.005138658918440342)
TANH_SMALL = 0.7
# sin(r) = r + r*z*P(z) and cos(r) = 1 + z*P(z) with z = r*r, for |r| <= pi/4.
SIN = trigonometric.SIN[32]
COS = (-0.5, *trigonometric.COS[32])
# pi/2 in three parts, of which n times the first is exact.
HALF_PI = trigonometric.HALF_PI[32]
# From here on the parts are too few.
FARTHEST = 2e4


def _each(x: Term, instruction: str) -> Term:
    """One instruction of a float32, lane by lane."""
    f = x.function

    def of(value: llvm.Value) -> llvm.Value:
        return f.assembly(f"{instruction} $0, $1;", "=f,f", llvm.float_, value)

    if not x.type.is_vector:
        return Term(f, of(x.value))
    result = llvm.zero(x.type)
    for n in range(x.type.count):
        result = f.insert(result, of(f.extract(x.value, n)), n)
    return Term(f, result)


def power(x: Term) -> Term:
    """2**x of a number that is neither large nor denormal."""
    return _each(x, "ex2.approx.ftz.f32")


def reciprocal(x: Term) -> Term:
    """1/x of a number that is neither large nor denormal; a step of Newton's makes it nearly exact."""
    first = _each(x, "rcp.approx.ftz.f32")
    return first.fma((-x).fma(first, 1.0), first)


def exp(x: Term) -> Term:
    """e**x = 2**n * 2**(x*log2(e) - n), with the difference in two parts."""
    limited = x.at_most(LARGEST[32]).at_least(SMALLEST[32])
    n = limited.fma(sum(LOG2_E), SHIFTER[32]) - SHIFTER[32]
    return scaled(power(_fraction(limited, n)), n)


def _fraction(x: Term, n: Term) -> Term:
    """x*log2(e) - n."""
    high, low = LOG2_E
    return x.fma(low, x.fma(high, -n))


def _exp_within(x: Term) -> Term:
    """e**x where that is a normal number."""
    shifted = x.fma(sum(LOG2_E), SHIFTER[32])
    fraction = power(_fraction(x, shifted - SHIFTER[32]))
    return (fraction.raw() + (shifted.raw() << MANTISSA[32])).cooked()


def logistic(x: Term) -> Term:
    """1 / (1 + e**-x); by the smaller of the exponentials, so that nothing overflows."""
    small = exp(-abs(x))
    total = 1 + small
    inverse = reciprocal(total)
    # What rounding the sum has lost.
    lost = small - (total - 1)
    above = (x >= 0).select(x.of(1.0), small)
    first = above * inverse
    return inverse.fma(first.fma(-total, above) - first * lost, first)


def tanh(x: Term) -> Term:
    """A polynomial, or 1 - 2 / (e**(2|x|) + 1)."""
    size = abs(x)
    z = x * x
    small = (x * z).fma(polynomial(z, TANH), x)
    doubled = (size + size).at_most(20.0)
    large = reciprocal(_exp_within(doubled) + 1).fma(-2.0, 1.0).copysign(x)
    return (size < TANH_SMALL).select(small, x.is_nan().select(x, large))


def tanh_of_short(x: Term) -> Term:
    """tanh with 11 bits, which are enough for bfloat16."""
    return _each(x, "tanh.approx.f32")


def _reduced(x: Term) -> tuple[Term, Term]:
    """The quarter, and the angle within it."""
    shifted = x.fma(2 / math.pi, SHIFTER[32])
    n = shifted - SHIFTER[32]
    r = x
    for part in HALF_PI:
        r = n.fma(-part, r)
    far = abs(x) > FARTHEST
    f = x.function
    with f.when(far.any(), shifted.raw().value, r.value, unlikely=True) as region:
        exact = trigonometric.from_far(x)
        region.give(far.select(exact.quarter, shifted.raw()).value, far.select(exact.r + exact.low, r).value)
    quarter, r = (Term(f, value) for value in region.results)
    return quarter, r


def _of_quarter(quarter: Term, r: Term) -> Term:
    """The sine of a quarter and an angle within it."""
    z = r * r
    sine = (r * z).fma(polynomial(z, SIN), r)
    cosine = z.fma(polynomial(z, COS), 1.0)
    chosen = (quarter & 1).equals(0).select(sine, cosine)
    return (chosen.raw() ^ ((quarter & 2) << 30)).cooked()


def sin(x: Term) -> Term:
    """The sine."""
    quarter, r = _reduced(x)
    return x.equals(0.0).select(x, _of_quarter(quarter, r))


def cos(x: Term) -> Term:
    """The cosine, which is the sine a quarter further."""
    quarter, r = _reduced(x)
    return _of_quarter(quarter + 1, r)


def single(quick: Callable[[Term], Term], exact: Callable[[Term], Term]) -> Callable[[Term], Term]:
    """One body for float32 and what is computed in it, and one for float64."""
    return lambda x: quick(x) if x.bits == 32 else exact(x)
