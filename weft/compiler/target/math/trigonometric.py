"""Trigonometric functions: sin, cos, tan.

x = n*pi/2 + r with |r| <= pi/4. Up to 1e5 fused multiply-adds subtract the product in parts; a lane beyond that sends
the whole vector through a function that multiplies with as many bits of 2/pi as needed.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

from weft.compiler.target.llvm import Function, Parameter, constant, double, i32, i64, ptr, void
from weft.compiler.target.math.term import SHIFTER, Term, polynomial, quick_two_sum, two_sum

# sin(r) = r + r*z*P(z) and cos(r) = 1 - z/2 + z*z*P(z) with z = r*r.
SIN = {
    32: (-0.16666655242443085, 0.008332191035151482, -0.00019518598855938762),
    64: (
        -0.16666666666666666, 0.008333333333333097, -0.0001984126984105181, 2.7557319126292835e-06,
        -2.5052085182130324e-08, 1.6056149622422837e-10, -7.480077628246516e-13,
    ),
}  # fmt: skip
COS = {
    32: (0.04166664555668831, -0.0013887312961742282, 2.4432958525721915e-05),
    64: (
        0.041666666666666595, -0.0013888888888873448, 2.480158728910544e-05, -2.7557314253061303e-07,
        2.0875710774527485e-09, -1.1359041437557831e-11,
    ),
}  # fmt: skip
# pi/2 in three parts. n times the first is subtracted exactly: the weight of its last bit is at least that of r.
HALF_PI = {
    32: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    64: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
FARTHEST = 1e5
# Number of 64-bit words of 2/pi that the largest double needs; the first is 0.
TWO_OVER_PI_WORDS = 22


class ReducedAngle(NamedTuple):
    """Reduction x = quarter*pi/2 + r + low; only the last two bits of `quarter` matter."""

    quarter: Term
    r: Term
    low: Term


def reduce_angle(x: Term) -> ReducedAngle:
    """Reduce an angle to a quarter of a full circle."""
    bits = x.bits
    shifted = x.fma(2 / math.pi, SHIFTER[bits])
    n = shifted - SHIFTER[bits]
    first, second, third = HALF_PI[bits]
    exact = n.fma(-first, x)
    product = n * second
    # The sum may cancel, so both parts of it are used.
    r, low = two_sum(exact, -product)
    low = n.fma(-third, low - n.fma(second, -product))
    near = ReducedAngle(shifted.raw(), r, low)
    far = abs(x) > FARTHEST
    f = x.function
    with f.when(far.any(), *(part.value for part in near), unlikely=True) as region:
        region.give(*(far.select(a, b).value for a, b in zip(from_far(x), near, strict=True)))
    return ReducedAngle(*(Term(f, value) for value in region.results))


QUARTER_TURNS = "weft.quarter_turns"
_PARAMETERS = (*(Parameter(name, ptr) for name in ("x", "quarters", "rs", "lows")), Parameter("count", i32))


def from_far(x: Term) -> ReducedAngle:
    """Reduce large angles by one call for all lanes."""
    f, count = x.function, x.type.count
    name = f.module.helper(QUARTER_TURNS, _PARAMETERS, write_argument_reduction)
    wide = x.long() if x.bits == 32 else x
    rooms = [f.alloca(wide.type), f.alloca(wide.vector_type(i64)), f.alloca(wide.type), f.alloca(wide.type)]
    f.store(wide.value, rooms[0], 8)
    f.call(name, void, *rooms, constant(count, i32))
    quarter = Term(f, f.load(wide.vector_type(i64), rooms[1], 8))
    r, low = (Term(f, f.load(wide.type, room, 8)) for room in rooms[2:])
    if x.bits == 32:
        short = r.short()
        return ReducedAngle(quarter.narrow(32), short, (r - short.long() + low).short())
    return ReducedAngle(quarter, r, low)


def write_argument_reduction(f: Function) -> None:
    """Write the reduction of an array of doubles."""
    x, quarters, rs, lows, count = f.arguments
    with f.loop(constant(0, i32), count) as i:
        reduced = argument_reduction(Term(f, f.load(double, f.offset(x, double, i), 8)))
        f.store(reduced.quarter.value, f.offset(quarters, i64, i), 8)
        f.store(reduced.r.value, f.offset(rs, double, i), 8)
        f.store(reduced.low.value, f.offset(lows, double, i), 8)
    f.ret()


def argument_reduction(angle: Term) -> ReducedAngle:
    """Reduce a double by the algorithm of Payne and Hanek.

    A double is m * 2**e with 53 bits of m. Bits of 2/pi that weigh 4 or more after the multiplication only add full
    circles: the 192 bits after those are multiplied by m, which yields the quarter in the two upper bits and then the
    fraction.
    """
    f = angle.function
    table = f.module.table("weft.two_over_pi", i64, [0, *_two_over_pi(TWO_OVER_PI_WORDS - 1)])
    raw = angle.raw()
    mantissa = (raw & ((1 << 52) - 1)) | (1 << 52)
    # The table has 64 zeros before the binary point, and the first bit taken weighs 2 after multiplication by 2**e.
    start = (raw.lshr(52) & 0x7FF) - 1075 + 62
    # Lanes that are not far away read inside of the table too; their results are unused.
    start = start.below(64 * (TWO_OVER_PI_WORDS - 4)).select(start, 0)
    digits = [Term(f, f.load(i64, f.offset(table, i64, (start.lshr(6) + k).value), 8)) for k in range(4)]
    shift = (start & 63).value
    upper, middle, lower = (Term(f, f.fshl(a.value, b.value, shift)) for a, b in itertools.pairwise(digits))
    product = (
        (_double(upper * mantissa) << 64)
        + _double(middle) * _double(mantissa)
        + (_double(lower) * _double(mantissa)).lshr(64)
    )
    # The nearest quarter, so that the signed fraction is between -1/2 and 1/2.
    quarter = (product + (1 << 125)).lshr(126).narrow(64)
    fraction = product << 2
    size = (fraction < 0).select(0 - fraction, fraction)
    zeros = Term(f, f.ctlz(size.value))
    top = (size << (zeros & 127)).lshr(64).narrow(64)
    scale = ((1023 - zeros.narrow(64)) << 52).as_float()
    scale = ((fraction < 0) ^ (raw < 0)).select(-scale, scale)
    high = top.lshr(11).to_float(double) * scale * 2.0**-53
    rest = (top & 0x7FF).to_float(double) * scale * 2.0**-64
    first, second, _ = HALF_PI[64]
    r = high * first
    low = high.fma(first, -r) + high.fma(second, rest * first)
    # An infinity becomes nan.
    return ReducedAngle((raw < 0).select(0 - quarter, quarter), r + (angle - angle), low)


def _double(x: Term) -> Term:
    return x.wide(128, signed=False)


@functools.cache
def _two_over_pi(count: int) -> tuple[int, ...]:
    """Return the first bits of 2/pi in words of 64: pi by Machin's formula in integers."""
    bits = 64 * count + 64

    def inverse_tangent(n: int) -> int:
        total = term = (1 << bits) // n
        k = 1
        while term:
            term //= n * n
            k += 2
            total += -(term // k) if k % 4 == 3 else term // k
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    two_over_pi = (2 << (2 * bits)) // pi >> 64
    return tuple((two_over_pi >> (64 * (count - 1 - k))) & ((1 << 64) - 1) for k in range(count))


class FloatPair(NamedTuple):
    """Unevaluated sum of a number and its lower digits."""

    high: Term
    low: Term


def sine(part: ReducedAngle) -> FloatPair:
    """Compute the sine of r + low."""
    z = part.r * part.r
    return FloatPair(part.r, (part.r * z).fma(polynomial(z, SIN[z.bits]), part.low))


def cosine(part: ReducedAngle) -> FloatPair:
    """Compute the cosine of r + low."""
    z = part.r * part.r
    half = z * 0.5
    high = 1 - half
    return FloatPair(high, ((1 - high) - half) + (z * z).fma(polynomial(z, COS[z.bits]), -(part.r * part.low)))


def _apply_sign(x: Term, quarter: Term) -> Term:
    """Negate x where bit 1 of the quarter is set."""
    return (x.raw() ^ ((quarter & 2) << (x.bits - 2))).as_float()


def sin(x: Term) -> Term:
    """Compute the sine."""
    part = reduce_angle(x)
    a, b = sine(part), cosine(part)
    even = (part.quarter & 1).equals(0)
    result = even.select(a.high, b.high) + even.select(a.low, b.low)
    return x.equals(0.0).select(x, _apply_sign(result, part.quarter))


def cos(x: Term) -> Term:
    """Compute the cosine."""
    part = reduce_angle(x)
    a, b = sine(part), cosine(part)
    even = (part.quarter & 1).equals(0)
    result = even.select(b.high, a.high) + even.select(b.low, a.low)
    return _apply_sign(result, part.quarter + (part.quarter & 1))


def sin_cos(x: Term) -> tuple[Term, Term]:
    """Compute sine and cosine for little more than the cost of one."""
    part = reduce_angle(x)
    a, b = sine(part), cosine(part)
    even = (part.quarter & 1).equals(0)
    s, c = a.high + a.low, b.high + b.low
    result = _apply_sign(even.select(s, c), part.quarter)
    return x.equals(0.0).select(x, result), _apply_sign(even.select(c, s), part.quarter + (part.quarter & 1))


def tan(x: Term) -> Term:
    """Compute sin/cos or -cos/sin according to the quarter, with the additional digits of both."""
    part = reduce_angle(x)
    a, b = (FloatPair(*quick_two_sum(*pair)) for pair in (sine(part), cosine(part)))
    even = (part.quarter & 1).equals(0)
    above = FloatPair(even.select(a.high, -b.high), even.select(a.low, -b.low))
    below = FloatPair(even.select(b.high, a.high), even.select(b.low, a.low))
    inverse = 1 / below.high
    first = above.high * inverse
    result = inverse.fma(first.fma(-below.high, above.high) + (above.low - first * below.low), first)
    return x.equals(0.0).select(x, result)
