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
# sin(r) = r + r*z*P(z) with z = r*r, for |r| <= pi/2, to a tenth of an ulp; and for |r| <= pi/4 cos(r) = 1 + z*P(z).
SIN = (-0.16666659712791443, 0.00833306647837162, -0.0001980959059437737, 2.6057505237986334e-06)
COS = (-0.5, *trigonometric.COS[32])
# pi in three parts, of which n times the first is exact. All are positive, so that -0 stays -0.
PI = (3.141592502593994, 1.5099578831723193e-07, 1.0780605906948477e-14)
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


def sin(x: Term) -> Term:
    """The sine of r with x = n*pi + r, and the sign of n's last bit. Integers, comparisons and choices take twice as
    long as sums and products, so there is no other polynomial for angles that are nearer to pi/2."""
    shifted = x.fma(1 / math.pi, SHIFTER[32])
    multiple, n = shifted.raw(), shifted - SHIFTER[32]
    r = x
    for part in PI:
        r = n.fma(-part, r)
    far = abs(x) > FARTHEST
    f = x.function
    with f.when(_any(far.value, f), multiple.value, r.value, unlikely=True) as region:
        exact = trigonometric.from_far(x)
        angle = exact.r + exact.low
        # An odd quarter has a cosine, which is a sine that far from pi/2.
        angle = (exact.quarter & 1).equals(0).select(angle, math.pi / 2 - abs(angle))
        region.give(far.select(exact.quarter >> 1, multiple).value, far.select(angle, r).value)
    multiple, r = (Term(f, value) for value in region.results)
    return (_sine(r).raw() ^ (multiple << 31)).cooked()


def cos(x: Term) -> Term:
    """The cosine or the sine of r with x = n*pi/2 + r, by the last bits of n; so that it is 1 at 0."""
    shifted = x.fma(2 / math.pi, SHIFTER[32])
    quarter, n = shifted.raw(), shifted - SHIFTER[32]
    r = x
    for part in PI:
        r = n.fma(-part / 2, r)
    far = abs(x) > FARTHEST
    f = x.function
    with f.when(_any(far.value, f), quarter.value, r.value, unlikely=True) as region:
        exact = trigonometric.from_far(x)
        region.give(far.select(exact.quarter, quarter).value, far.select(exact.r + exact.low, r).value)
    quarter, r = (Term(f, value) for value in region.results)
    z = r * r
    chosen = (quarter & 1).equals(0).select(z.fma(polynomial(z, COS), 1.0), _sine(r))
    return (chosen.raw() ^ (((quarter + 1) & 2) << 30)).cooked()


def _sine(r: Term) -> Term:
    """The sine of at most pi/2."""
    z = r * r
    return (r * z).fma(polynomial(z, SIN), r).copysign(r)  # also of -0


def _any(mask: llvm.Value, f: llvm.Function) -> llvm.Value:
    """Whether a lane is set. They are predicates; to make one integer of them would take longer."""
    if not mask.type.is_vector:
        return mask
    lanes = [f.extract(mask, n) for n in range(mask.type.count)]
    return functools.reduce(f.or_, lanes)


def single(quick: Callable[[Term], Term], exact: Callable[[Term], Term]) -> Callable[[Term], Term]:
    """One body for float32 and what is computed in it, and one for float64."""
    return lambda x: quick(x) if x.bits == 32 else exact(x)
