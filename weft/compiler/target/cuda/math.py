"""Elementary functions of float32 by the GPU's own instructions, which have about 22 bits, within the cards' budgets.

A thread has about 60 instructions for an element before arithmetic takes longer than memory, and the bodies that CPUs
use have two or three times as many. What is exact in them stays: reductions of arguments, and results that are summed
from a large part and a small one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from weft.compiler.target import llvm
from weft.compiler.target.math import exponential, trigonometric
from weft.compiler.target.math.exponential import LARGEST, SMALLEST
from weft.compiler.target.math.term import SHIFTER, Term, polynomial, scaled

# log2(e) in two parts.
LOG2_E = (1.4426950216293335, 1.9259629911266175e-08)
# tanh(x) = x + x*z*P(z) with z = x*x, to a quarter of an ulp below 0.9.
TANH = (
    -0.3333321213722229, 0.13330359756946564, -0.053721487522125244, 0.020904121920466423, -0.006860050838440657,
    0.001303957775235176,
)  # fmt: skip
TANH_SMALL = 0.9
# sin(r) = r + r*z*P(z) and cos(r) = 1 + z*P(z) with z = r*r, for |r| <= pi/4.
SIN = trigonometric.SIN[32]
COS = (-0.5, *trigonometric.COS[32])
# pi/2 in three parts, of which n times the first is exact. All are positive, so that -0 stays -0.
HALF_PI = (1.5707962512969971, 7.549789415861596e-08, 5.390302953474238e-15)
# From here on the parts are too few.
FARTHEST = 2e4
RECIPROCAL = "rcp.approx.ftz.f32"


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
    first = _each(x, RECIPROCAL)
    return first.fma((-x).fma(first, 1.0), first)


def exp(x: Term) -> Term:
    """e**x = 2**n * 2**(x*log2(e) - n), with the difference in two parts."""
    f = x.function
    limited = Term(f, f.maximum(f.minimum(x.value, x.of(LARGEST[32]).value), x.of(SMALLEST[32]).value))
    n = limited.fma(sum(LOG2_E), SHIFTER[32]) - SHIFTER[32]
    high, low = LOG2_E
    return scaled(power(limited.fma(low, limited.fma(high, -n))), n)


def logistic(x: Term) -> Term:
    """1 / (1 + e**-x); by the smaller of the exponentials, so that nothing overflows."""
    small = exponential.exp(-abs(x))
    total = 1 + small
    inverse = reciprocal(total)
    # What rounding the sum has lost.
    lost = small - (total - 1)
    above = (x >= 0).select(x.of(1.0), small)
    first = above * inverse
    return inverse.fma(first.fma(-total, above) - first * lost, first)


def tanh(x: Term) -> Term:
    """A polynomial, or 1 - 2 / (e**(2|x|) + 1), of which a few bits more are lost than are of 1."""
    size = abs(x)
    z = x * x
    small = (x * z).fma(polynomial(z, TANH), x)
    large = _each(power(size * (2 * sum(LOG2_E))) + 1, RECIPROCAL).fma(-2.0, 1.0)
    return (size >= TANH_SMALL).select(large, small).copysign(x)  # a nan is small


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
    with f.when(_any(far.value, f), shifted.raw().value, r.value, unlikely=True) as region:
        exact = trigonometric.from_far(x)
        region.give(far.select(exact.quarter, shifted.raw()).value, far.select(exact.r + exact.low, r).value)
    quarter, r = (Term(f, value) for value in region.results)
    return quarter, r


def _any(mask: llvm.Value, f: llvm.Function) -> llvm.Value:
    """Whether a lane is set. They are predicates; to make one integer of them would take longer."""
    if not mask.type.is_vector:
        return mask
    lanes = [f.extract(mask, n) for n in range(mask.type.count)]
    return functools.reduce(f.or_, lanes)


def _of_quarter(quarter: Term, r: Term) -> Term:
    """The sine of a quarter and an angle within it."""
    z = r * r
    sine = (r * z).fma(polynomial(z, SIN), r).copysign(r)  # also of -0
    cosine = z.fma(polynomial(z, COS), 1.0)
    chosen = (quarter & 1).equals(0).select(sine, cosine)
    return (chosen.raw() ^ ((quarter & 2) << 30)).cooked()


def sin(x: Term) -> Term:
    """The sine."""
    return _of_quarter(*_reduced(x))


def cos(x: Term) -> Term:
    """The cosine, which is the sine a quarter further."""
    quarter, r = _reduced(x)
    return _of_quarter(quarter + 1, r)


def single(quick: Callable[[Term], Term], exact: Callable[[Term], Term]) -> Callable[[Term], Term]:
    """One body for float32 and what is computed in it, and one for float64."""
    return lambda x: quick(x) if x.bits == 32 else exact(x)
