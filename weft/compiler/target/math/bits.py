"""Operations on the bits of floats: the next float, rounding to fewer bits, the sign."""

from __future__ import annotations

import math

from weft.compiler.target.math.term import Term


def next_code(code: Term, x: Term, y: Term, bits: int, signed_zero: bool = True) -> Term:
    """Return the bits of the neighbour of x towards y, for encodings with a sign and a magnitude in `bits` bits.

    The caller handles equal operands and nan.
    """
    top = 1 << (bits - 1)
    up = (x < y) ^ (code & top).differs(0)
    result = up.select(code + 1, code - 1)
    if not signed_zero:  # the bits of -0 would be nan
        result = result.equals(top).select(0, result)
    smallest = (y < x).select(top | 1, code.of(1))
    return x.equals(0.0).select(smallest, result)


def next_power_code(code: Term, x: Term, y: Term) -> Term:
    """Return the bits of the neighbour of x towards y, for encodings of exponents without a sign."""
    return (x < y).select(code + 1, code - 1)


def fewer_bits(
    code: Term, mantissa: int, exponents: int, new_exponents: int, new_mantissa: int, narrower: bool
) -> Term:
    """Round the mantissa to nearest even; exponents beyond the new range become infinite or zero."""
    sign = code & (1 << (mantissa + exponents))
    size = code ^ sign
    drop = mantissa - new_mantissa
    if drop > 0:
        last = size.lshr(drop) & 1
        size = (size + ((1 << (drop - 1)) - 1) + last) & -(1 << drop)
    if narrower:
        bias, new_bias = (1 << (exponents - 1)) - 1, (1 << (new_exponents - 1)) - 1
        infinite = ((1 << exponents) - 1) << mantissa
        exponent = size & infinite
        size = (exponent > ((bias + new_bias) << mantissa)).select(infinite, size)
        size = (exponent <= ((bias - new_bias) << mantissa)).select(0, size)
    return size | sign


def round_half_away(x: Term) -> Term:
    """Round to the nearest integer, halfway cases away from zero."""
    whole = x.trunc()
    # The difference is exact, so a value just below one half is not rounded up.
    away = abs(x - whole) >= 0.5
    return away.select(whole + x.of(1).copysign(x), whole)


def sign(x: Term) -> Term:
    """Return -1 or 1; zeros keep their sign and nan stays nan."""
    return (x.equals(0.0) | x.is_nan()).select(x, x.of(1).copysign(x))


def is_finite(x: Term) -> Term:
    """Return whether x is neither infinite nor nan."""
    return abs(x) < math.inf
