"""Logarithms and inverse hyperbolic functions: log, log1p, asinh, acosh, atanh.

A positive number is 2**k * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), and its logarithm k*ln(2) + log1p(f).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from weft.compiler.target.math.exponential import LN2
from weft.compiler.target.math.term import (
    MANTISSA,
    SMALLEST_NORMAL,
    Term,
    polynomial,
    powers_of_two,
    quick_two_sum,
    two_product,
    two_sum,
)

# log1p(f) = f - f**2/2 + f**3 * P(f), where a division costs more than a longer polynomial.
LOG_SINGLE = (
    0.3333335518836975, -0.2500085234642029, 0.1999976634979248, -0.16621315479278564, 0.14228099584579468,
    -0.1320345103740692, 0.12615185976028442, -0.07353828102350235,
)  # fmt: skip
# log1p(f) = 2*atanh(s) with s = f/(2 + f); atanh(s)/s = 1 + z*P(z) with z = s*s.
ATANH_DOUBLE = (
    0.3333333333333368, 0.19999999999702692, 0.1428571437204994, 0.11111099210482026, 0.09091785691958444,
    0.07656943045147599, 0.07398735796698117,
)  # fmt: skip
# Bits of sqrt(1/2): the bits of a positive number minus these have the exponent k in their upper part.
SQRT_HALF_BITS = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}


class SplitNumber(NamedTuple):
    """Positive number as 2**k * (1 + f)."""

    k: Term
    f: Term


def _whole_exponent(x: Term) -> Term:
    """Return k of a positive normal number, as an i32."""
    above = x.raw() - SQRT_HALF_BITS[x.bits]
    if x.bits == 32:
        return above >> MANTISSA[32]
    # Only the upper half has the exponent; all machines convert 32-bit integers.
    return above.lshr(32).narrow(32) >> (MANTISSA[64] - 32)


def get_exponent(x: Term) -> Term:
    """Return k of a positive normal number, as a float."""
    return _whole_exponent(x).to_float(x.type.element)


def split(x: Term) -> SplitNumber:
    """Split a positive number, which may be denormal."""
    bits = x.bits
    tiny = x < SMALLEST_NORMAL[bits]
    lift = MANTISSA[bits] + 1
    normal = tiny.select(x * 2.0**lift, x)
    whole = _whole_exponent(normal)
    k = whole.to_float(x.type.element)
    shifted = (whole if bits == 32 else whole.wide(64)) << MANTISSA[bits]
    return SplitNumber(tiny.select(k - float(lift), k), (normal.raw() - shifted).as_float() - 1)


def combine(part: SplitNumber, f_low: Term | None = None) -> tuple[Term, Term]:
    """Compute k*ln(2) + log1p(f + f_low), as the sum of a large part and a small one."""
    k, f = part
    high, low = LN2[f.bits]
    half_square = f * f * 0.5
    if f.bits == 32:
        rest = (f * f * f).fma(polynomial(f, LOG_SINGLE), -half_square)
    else:
        s = f / (2 + f)
        z = s * s
        # f - log1p(f) = f**2/2 - s*(f**2/2 + 2*z*P(z)), where the largest part is exact.
        rest = s * (half_square + z * polynomial(z, ATANH_DOUBLE) * 2) - half_square
    rest = k.fma(low, rest)
    if f_low is not None:
        rest = rest + f_low
    # k*ln(2) is the greater of the two if it is not 0.
    total, lost = quick_two_sum(k * high, f)
    return total, rest + (lost + k.fma(high, -(k * high)))


def log(x: Term) -> Term:
    """Compute the natural logarithm."""
    total, rest = combine(split(x))
    result = x.equals(0.0).select(-math.inf, total + rest)
    result = (x < 0.0).select(math.nan, result)
    return (x < math.inf).select(result, x)


def log1p(x: Term, low: Term | None = None, doublings: Term | None = None) -> Term:
    """Compute log(1 + x + low) plus `doublings` times ln(2)."""
    k = get_exponent(1 + x)
    first, second = powers_of_two(-k)
    # 1 + x is 2**k * (1 + f), and f does not have the rounding error of that sum.
    f = (x * first).fma(second, first.fma(second, -1.0))
    part = SplitNumber(k if doublings is None else k + doublings, f)
    total, rest = combine(part, None if low is None else low * first * second)
    result = (abs(x) < 2.0 ** (-2 - MANTISSA[x.bits])).select(x, total + rest)
    result = x.equals(-1.0).select(-math.inf, result)
    result = (x < -1.0).select(math.nan, result)
    return (x < math.inf).select(result, x)


def atanh(x: Term) -> Term:
    """Compute log1p(2x / (1 - x)) / 2."""
    size = abs(x)
    rest = 1 - size
    inverse = 1 / rest
    double = size + size
    first = double * inverse
    low = inverse * (first.fma(-rest, double) - first * ((1 - rest) - size))
    return (log1p(first, low) * 0.5).copysign(x)


def _far(x: Term) -> Term:
    """Return whether x is so large that 1 + x*x is x*x, and the square may overflow."""
    return x > 2.0 ** (60 if x.bits == 32 else 500)


def asinh(x: Term) -> Term:
    """Compute log1p(|x| + x**2 / (1 + sqrt(1 + x**2)))."""
    size = abs(x)
    far = _far(size)
    near = far.select(1.0, size)
    square = near * near
    more = square / (1 + (1 + square).sqrt())
    total, low = quick_two_sum(near, more)
    result = log1p(far.select(size, total), far.select(0.0, low), far.select(x.of(1), 0.0))
    return result.copysign(x)


def acosh(x: Term) -> Term:
    """Compute log1p(t + sqrt(t * (t + 2))) with t = x - 1."""
    far = _far(x)
    near = far.select(1.0, x)
    t = near - 1
    t_low = (near - t) - 1
    more = t + 2
    product, product_low = two_product(t, more)
    product_low = t.fma((t - (more - 2)), product_low) + t_low * (more + t)
    root = product.sqrt()
    # One step of Newton's method restores the digits that were rounded off; at 0 it would divide by 0.
    root_low = (product_low + root.fma(-root, product)) / (root + root)
    total, low = two_sum(root, t)
    low = low + (t_low + product.equals(0.0).select(0.0, root_low))
    result = log1p(far.select(x, total), far.select(0.0, low), far.select(x.of(1), 0.0))
    return (x < 1.0).select(math.nan, result)
