"""Inverse trigonometric functions: asin, acos, atan, atan2."""

from __future__ import annotations

import math

from weft.compiler.target.math.term import Term, polynomial, quick_two_sum
from weft.compiler.target.math.trigonometric import HALF_PI

# asin(x) = x + x*z*P(z) for |x| <= 1/2 and atan(x) = x + x*z*P(z) for |x| <= tan(pi/8), with z = x*x.
ASIN = {
    32: (0.16666753590106964, 0.07495276629924774, 0.04547145217657089, 0.024178795516490936, 0.04216250032186508),
    64: (
        0.1666666666666676, 0.07499999999971095, 0.04464285717422415, 0.030381942729506325, 0.02237221431827572,
        0.017351624731167713, 0.013980662410723464, 0.011400237886834398, 0.010772702102413361, 0.0037352287831913466,
        0.021636871714973457, -0.02089883204899637, 0.03256585439139974,
    ),
}  # fmt: skip
ATAN = {
    32: (-0.3333331346511841, 0.1999838948249817, -0.1424223929643631, 0.10585491359233856, -0.06059392914175987),
    64: (
        -0.33333333333333187, 0.199999999999512, -0.14285714279992967, 0.11111110774550974, -0.09090897528863917,
        0.0769205652605045, -0.06663065650551783, 0.05847631327908592, -0.050382243661860684, 0.03803891546350054,
        -0.01788085559735426,
    ),
}  # fmt: skip
TAN_EIGHTH = math.tan(math.pi / 8)


def _root(size: Term) -> tuple[Term, Term, Term]:
    """Return whether |x| > 1/2; s, which is sqrt((1 - |x|)/2) there, with asin(x) = pi/2 - 2*asin(s), and |x|
    elsewhere; s*s."""
    large = size > 0.5
    half = (1 - size) * 0.5
    return large, large.select(half.sqrt(), size), large.select(half, size * size)


def asin(x: Term) -> Term:
    """Compute the inverse sine."""
    size = abs(x)
    large, s, z = _root(size)
    rest = s * z * polynomial(z, ASIN[x.bits])
    high, low, _ = HALF_PI[x.bits]
    most, lost = quick_two_sum(s.of(high), -(s + s))
    far = most + (lost + (low - (rest + rest)))
    return large.select(far, s + rest).copysign(x)


def acos(x: Term) -> Term:
    """Compute the inverse cosine: pi/2 - asin(x), or twice the inverse sine of the root."""
    size = abs(x)
    large, s, z = _root(size)
    rest = s * z * polynomial(z, ASIN[x.bits])
    high, low, _ = HALF_PI[x.bits]
    near = high - (x - (low - rest.copysign(x)))
    twice = (s + rest) * 2
    far = (x < 0).select((2 * high - (s + s)) + (2 * low - (rest + rest)), twice)
    return large.select(far, near)


def atan(x: Term) -> Term:
    """Compute the inverse tangent as the angle of the point (1, x)."""
    size = abs(x)
    large = size > 1.0
    # An infinite x is replaced by a finite one with the same angle.
    limited = size.at_most(2.0**100)
    one = x.of(1)
    return _first_octants(large.select(one, limited), large.select(limited, one), large).copysign(x)


def _first_octants(lesser: Term, greater: Term, steep: Term, left: Term | None = None) -> Term:
    """Return the angle of a point from the magnitudes of its coordinates; `steep` where the second coordinate is
    larger, `left` where the first is negative."""
    # Beyond pi/8 the angle is measured from pi/4, that of the rotated point.
    beyond = lesser > greater * TAN_EIGHTH
    total = lesser + greater
    ratio = beyond.select(lesser - greater, lesser) / beyond.select(total, greater)
    z = ratio * ratio
    rest = ratio * z * polynomial(z, ATAN[z.bits])
    high, low, _ = HALF_PI[z.bits]
    # The angle is base + ratio + rest with base 0 or pi/4, subtracted from pi/2 where it is steep: one sum for all.
    base = beyond.select(z.of(0.5 * high), 0.0)
    base_low = beyond.select(z.of(0.5 * low), 0.0)
    base, base_low = steep.select(high - base, base), steep.select(low - base_low, base_low)
    ratio, rest = steep.select(-ratio, ratio), steep.select(-rest, rest)
    if left is not None:
        base, base_low = left.select(2 * high - base, base), left.select(2 * low - base_low, base_low)
        ratio, rest = left.select(-ratio, ratio), left.select(-rest, rest)
    nearly, lost = quick_two_sum(base, ratio)
    # quick_two_sum needs the larger operand first; where the base is 0 the sum is exact anyway.
    return nearly + (rest + (base_low + lost))


def atan2(y: Term, x: Term) -> Term:
    """Compute the angle of the point (x, y)."""
    bits = x.bits
    across, up = abs(x), abs(y)
    steep = up > across
    lesser, greater = steep.select(across, up), steep.select(up, across)
    # Two infinities are a diagonal, one is an axis. Very large coordinates are scaled down, so that their sum is
    # finite.
    infinite = greater.equals(math.inf)
    lesser = infinite.select(lesser.equals(math.inf).select(x.of(1), 0.0), lesser)
    greater = infinite.select(1.0, greater)
    huge = greater > 2.0 ** (100 if bits == 32 else 1000)
    shrink = huge.select(x.of(2.0**-60), 1.0)
    lesser, greater = lesser * shrink, greater * shrink
    nothing = greater.equals(0.0)
    result = _first_octants(lesser, nothing.select(1.0, greater), steep, x.raw() < 0).copysign(y)
    # The comparisons above lose a nan in either operand.
    return (x.is_nan() | y.is_nan()).select(math.nan, result)
