"""Elementary functions of float32 by the GPU's approximate instructions (about 22 bits), within the ulp budgets of the
primitives.

A thread has about 60 instructions per element before arithmetic takes longer than memory; the polynomials for CPUs need
two or three times as many. Exact steps remain: argument reduction, and results that are the sum of a large and a small
term.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from weft.compiler.target import llvm
from weft.compiler.target.math import exponential, trigonometric
from weft.compiler.target.math.term import MANTISSA, SHIFTER, SMALLEST_NORMAL, Term, polynomial
from weft.primitives.elementwise.special import CENTRAL, TAIL

# log2(e) as a sum of two floats.
LOG2_E = (1.4426950216293335, 1.9259629911266175e-08)
# The exponents of normal numbers.
LEAST_EXPONENT, EXPONENTS = -126, 253
# tanh(x) = x + x*z*P(z) with z = x*x, to a quarter of an ulp below 0.9.
TANH = (
    -0.3333321213722229, 0.13330359756946564, -0.053721487522125244, 0.020904121920466423, -0.006860050838440657,
    0.001303957775235176,
)  # fmt: skip
TANH_SMALL = 0.9
# sin(r) = r + r*z*P(z) with z = r*r, for |r| <= pi/2, to a tenth of an ulp; and for |r| <= pi/4 cos(r) = 1 + z*P(z).
SIN = (-0.16666659712791443, 0.00833306647837162, -0.0001980959059437737, 2.6057505237986334e-06)
COS = (-0.5, *trigonometric.COS[32])
# pi as a sum of three floats; n times the first is exact. All are positive, so that -0 stays -0.
PI = (3.141592502593994, 1.5099578831723193e-07, 1.0780605906948477e-14)
# Angles beyond this need a longer reduction.
FARTHEST = 2e4
FAR_ANGLE = "weft.far_angle"
RECIPROCAL = "rcp.approx.ftz.f32"


def each_lane(of: Callable[..., llvm.Value], element: llvm.Type, *operands: Term) -> Term:
    """Apply a function of scalars to each lane."""
    f, type = operands[0].function, operands[0].type
    if not type.is_vector:
        return Term(f, of(*(x.value for x in operands)))
    result = llvm.zero(llvm.vector(element, type.count))
    for n in range(type.count):
        result = f.insert(result, of(*(f.extract(x.value, n) for x in operands)), n)
    return Term(f, result)


def _each(instruction: str, *operands: Term) -> Term:
    """Apply one float32 instruction to each lane."""
    f, registers = operands[0].function, ", ".join(f"${n}" for n in range(len(operands) + 1))

    def of(*values: llvm.Value) -> llvm.Value:
        return f.assembly(f"{instruction} {registers};", "=f" + ",f" * len(values), llvm.float_, *values)

    return each_lane(of, llvm.float_, *operands)


def power(x: Term) -> Term:
    """Compute 2**x for x that is neither large nor denormal."""
    return _each("ex2.approx.ftz.f32", x)


def reciprocal(x: Term) -> Term:
    """Compute 1/x for x that is neither large nor denormal; a Newton step makes it nearly exact."""
    first = _each(RECIPROCAL, x)
    return first.fma((-x).fma(first, 1.0), first)


def exp(x: Term) -> Term:
    """Compute e**x = 2**n * 2**(x*log2(e) - n), with the difference in two terms. A multiply-add saturated to [0, 1]
    clamps n to the exponents of normal numbers; outside them the difference exceeds 1."""
    share = _each("fma.rn.sat.f32", x, x.of(sum(LOG2_E) / EXPONENTS), x.of(-LEAST_EXPONENT / EXPONENTS))
    # Rounds down: `ex2` is slightly more exact for positive arguments.
    shifted = _each("fma.rm.f32", share, x.of(EXPONENTS), x.of(SHIFTER[32] + 1))
    n = shifted - (SHIFTER[32] + 1 - LEAST_EXPONENT)
    high, low = LOG2_E
    # The last bits of the sum are the biased exponent of 2**n.
    return power(x.fma(low, x.fma(high, -n))) * (shifted.raw() << MANTISSA[32]).as_float()


def logistic(x: Term) -> Term:
    """Compute 1 / (1 + e**-x) from e**-|x|, which cannot overflow."""
    small = exponential.exp(-abs(x))
    total = 1 + small
    inverse = reciprocal(total)
    # Rounding error of the sum.
    lost = small - (total - 1)
    above = (x >= 0).select(x.of(1.0), small)
    first = above * inverse
    return inverse.fma(first.fma(-total, above) - first * lost, first)


def tanh(x: Term) -> Term:
    """Compute tanh by a polynomial near 0, else as 1 - 2 / (e**(2|x|) + 1), where cancellation costs few bits."""
    size = abs(x)
    z = x * x
    small = (x * z).fma(polynomial(z, TANH), x)
    large = _each(RECIPROCAL, power(size * (2 * sum(LOG2_E))) + 1).fma(-2.0, 1.0)
    return (size >= TANH_SMALL).select(large, small).copysign(x)  # NaN takes the polynomial


def tanh_of_short(x: Term) -> Term:
    """Compute tanh with 11 bits, enough for bfloat16."""
    return _each("tanh.approx.f32", x)


def sin(x: Term) -> Term:
    """Compute the sine of r with x = n*pi + r, with the sign of the parity of n. Integer operations, comparisons and
    selects take twice as long as floating-point sums and products, so one polynomial covers |r| <= pi/2."""
    shifted = x.fma(1 / math.pi, SHIFTER[32])
    n, r = shifted - SHIFTER[32], x
    for part in PI:
        r = n.fma(-part, r)

    def far() -> Term:
        quarter, angle = _from_far(x)
        # An odd quarter has a cosine, which is a sine that far from pi/2.
        angle = (quarter & 1).equals(0).select(angle, math.pi / 2 - abs(angle))
        return _signed_sine(angle, quarter >> 1)

    return _unless_far(x, _signed_sine(r, shifted.raw()), far)


def cos(x: Term) -> Term:
    """Compute the cosine or sine of r with x = n*pi/2 + r, by the last bits of n, so that cos(0) is 1."""
    shifted = x.fma(2 / math.pi, SHIFTER[32])
    n, r = shifted - SHIFTER[32], x
    for part in PI:
        r = n.fma(-part / 2, r)

    def far() -> Term:
        quarter, angle = _from_far(x)
        return _cosine(angle, quarter)

    return _unless_far(x, _cosine(r, shifted.raw()), far)


def erf_inv(x: Term) -> Term:
    """Evaluate the CPU's polynomials in w = -log(1 - x*x), whose absolute error matters; x*x is rounded as on CPUs,
    so that random normals nearly agree. Few numbers need the tail polynomial, so each lane has a branch."""
    if not x.type.is_vector:
        return _erf_inv_of_lane(x)
    f, result = x.function, llvm.zero(x.type)
    for n in range(x.type.count):
        result = f.insert(result, _erf_inv_of_lane(Term(f, f.extract(x.value, n))).value, n)
    return Term(f, result)


def _erf_inv_of_lane(x: Term) -> Term:
    f, logarithm = x.function, _each("lg2.approx.ftz.f32", 1.0 - x * x)
    t = logarithm.fma(-math.log(2), -2.5)

    def times(t: Term, coefficients: Sequence[float]) -> Term:
        value = t.of(coefficients[0])
        for coefficient in coefficients[1:]:
            value = value.fma(t, coefficient)
        return value * x

    near = t < 2.5
    with f.when((~near).value, times(t, CENTRAL).value, unlikely=True) as region:
        far = times(_each("sqrt.approx.ftz.f32", logarithm * -math.log(2)) - 3, TAIL)
        region.give(abs(x).equals(1.0).select(x * math.inf, far).value)
    return Term(f, region.results[0])


def _unless_far(x: Term, near: Term, far: Callable[[], Term]) -> Term:
    """Return `near`, or for lanes with large angles the result of `far`. `near` is computed before the branch, which
    shortens the live ranges of shared operands."""
    f, is_far = x.function, abs(x) > FARTHEST
    with f.when(_any(is_far.value, f), near.value, unlikely=True) as region:
        region.give(is_far.select(far(), near).value)
    return Term(f, region.results[0])


def _from_far(x: Term) -> tuple[Term, Term]:
    """Reduce a large angle to quarter turns and a remainder, by a call for each lane: calls take scalars in
    registers."""
    f = x.function
    name = f.module.helper(FAR_ANGLE, [llvm.Parameter("x", llvm.float_)], _write_far_angle, llvm.i64)

    def of(value: llvm.Value) -> Term:
        pair = f.call(name, llvm.i64, value)
        assert pair is not None
        return Term(f, pair)

    if not x.type.is_vector:
        pairs = of(x.value)
    else:
        both = llvm.zero(x.vector_type(llvm.i64))
        for n in range(x.type.count):
            both = f.insert(both, of(f.extract(x.value, n)).value, n)
        pairs = Term(f, both)
    return pairs.lshr(32).narrow(32), pairs.narrow(32).as_float()


def _write_far_angle(f: llvm.Function) -> None:
    """Write the reduction of one angle; it returns both results in one integer, the quarter turns in the upper half."""
    exact = trigonometric.argument_reduction(Term(f, f.arguments[0]).long())
    angle = (exact.r + exact.low).short().raw().wide(64, signed=False)
    f.ret((angle | (exact.quarter << 32)).value)


def _cosine(r: Term, quarter: Term) -> Term:
    """Compute the cosine of `quarter` quarter turns plus r."""
    z = r * r
    chosen = (quarter & 1).equals(0).select(z.fma(polynomial(z, COS), 1.0), _sine(r))
    return (chosen.raw() ^ (((quarter + 1) & 2) << 30)).as_float()


def _signed_sine(r: Term, halves: Term) -> Term:
    """Compute the sine of `halves` half turns plus r."""
    return (_sine(r).raw() ^ (halves << 31)).as_float()


def _sine(r: Term) -> Term:
    """Compute the sine of |r| <= pi/2."""
    z = r * r
    # The smallest normal keeps the factor positive, so that -0 stays -0.
    return r.fma(z.fma(polynomial(z, SIN), SMALLEST_NORMAL[32]), r)


def _any(mask: llvm.Value, f: llvm.Function) -> llvm.Value:
    """Return whether any lane is set. Lanes are predicate registers; packing them into one integer is slower."""
    if not mask.type.is_vector:
        return mask
    lanes = [f.extract(mask, n) for n in range(mask.type.count)]
    return functools.reduce(f.or_, lanes)


def single(quick: Callable[[Term], Term], exact: Callable[[Term], Term]) -> Callable[[Term], Term]:
    """Combine a function for float32 (and types computed in it) with one for float64."""
    return lambda x: quick(x) if x.bits == 32 else exact(x)
