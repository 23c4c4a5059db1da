"""Integers over lanes. Integers below a byte are stored in a byte, and wrapped to their own width after each
operation."""

from __future__ import annotations

import math

from weft.compiler.target.llvm import double, float_, i128, vector
from weft.compiler.target.math.term import BIAS, MANTISSA, SMALLEST_NORMAL, Term


def wrap(x: Term, bits: int, signed: bool) -> Term:
    """Wrap to `bits` bits, extended to the width of the lane."""
    if bits >= x.bits:
        return x
    if not signed:
        return x & ((1 << bits) - 1)
    unused = x.bits - bits
    return (x << unused) >> unused


def code(x: Term, bits: int) -> Term:
    """Return the low `bits` bits, without sign extension."""
    return x if bits >= x.bits else x & ((1 << bits) - 1)


def quotient(x: Term, y: Term, signed: bool) -> Term:
    """Divide, truncated towards zero; by zero it is -1 (all bits set), and the most negative number by -1 is itself."""
    zero = y.equals(0)
    safe = zero.select(1, y)
    if not signed:
        return zero.select(-1, _divide(x, safe, signed))
    minus = y.equals(-1)
    return zero.select(-1, minus.select(0 - x, _divide(x, minus.select(1, safe), signed)))


def remainder(x: Term, y: Term, signed: bool) -> Term:
    """Return the remainder of the truncated division; modulo zero a number is itself."""
    zero = y.equals(0)
    safe = zero.select(1, y)
    if signed:
        safe = y.equals(-1).select(1, safe)
    return zero.select(x, x - _divide(x, safe, signed) * safe)


def _divide(x: Term, y: Term, signed: bool) -> Term:
    """Divide where the quotient exists. Processors only divide vectors of floats; up to 32 bits their quotients are
    exact."""
    f = x.function
    if not x.type.is_vector or x.bits == 64:
        return Term(f, (f.sdiv if signed else f.udiv)(x.value, y.value))
    element = double if x.bits == 32 else float_
    kind = x.vector_type(element)
    to_float, to_integer = (f.sitofp, f.fptosi) if signed else (f.uitofp, f.fptoui)
    ratio = f.fdiv(to_float(x.value, kind), to_float(y.value, kind))
    return Term(f, to_integer(ratio, x.type))


def shift(x: Term, amount: Term, bits: int, signed: bool, direction: str) -> Term:
    """Shift bits "left", or right with zeros ("logical") or copies of the top bit ("arithmetic")."""
    amount = code(amount, bits)
    inside = amount.below(bits)
    safe = inside.select(amount, 0)
    if direction == "left":
        result = inside.select(code(x, bits) << safe, 0)
    elif direction == "logical":
        result = inside.select(code(x, bits).lshr(safe), 0)
    else:  # the top bit of the width is the sign, for unsigned numbers too
        result = wrap(x, bits, True) >> inside.select(amount, bits - 1)
    return wrap(result, bits, signed)


def mulhi(x: Term, y: Term, bits: int, signed: bool) -> Term:
    """Return the upper half of the product in twice the width."""
    if bits < 8:
        return wrap((x * y) >> bits if signed else (x * y).lshr(bits), bits, signed)
    wide = i128 if bits == 64 else None
    if wide is None:
        return (x.wide(2 * bits, signed) * y.wide(2 * bits, signed)).lshr(bits).narrow(bits)
    f, kind = x.function, vector(i128, x.type.count)
    extend = f.sext if signed else f.zext
    product = Term(f, f.mul(extend(x.value, kind), extend(y.value, kind)))
    return product.lshr(64).narrow(64)


def population(x: Term, bits: int) -> Term:
    """Count the bits that are set."""
    return Term(x.function, x.function.ctpop(code(x, bits).value))


def leading_zeros(x: Term, bits: int) -> Term:
    """Count the zeros before the first bit that is set."""
    counted = Term(x.function, x.function.ctlz(code(x, bits).value))
    return counted if bits >= x.bits else counted - (x.bits - bits)


def float_remainder(x: Term, y: Term) -> Term:
    """Compute the exact remainder of the truncated division, with the sign of x.

    Each iteration subtracts an exact multiple of y times a power of two, so the loop ends for quotients of any size;
    the usual quotient of few digits takes one iteration.
    """
    bits = x.bits
    mantissa = MANTISSA[bits]
    f = x.function
    divisor = abs(y)
    usual = (abs(x) < math.inf) & (divisor > 0.0) & (divisor < math.inf)
    divisor = usual.select(divisor, 1.0)
    # Exponents of denormal numbers are those of their normalised form.
    lifted = (divisor * 2.0**mantissa).raw().lshr(mantissa) - mantissa
    exponent = (divisor < SMALLEST_NORMAL[bits]).select(lifted, divisor.raw().lshr(mantissa))
    with f.repeat(usual.select(abs(x), 0.0).value) as region:
        rest = Term(f, region.values[0])
        apart = rest.raw().lshr(mantissa) - exponent - (mantissa - 2)
        apart = (apart > 0).select(apart, 0)
        # The power may exceed any float, so it is applied in three parts.
        half = apart.lshr(1)
        quarter = half.lshr(1)
        multiple = divisor * _power(half, bits) * _power(quarter, bits) * _power(apart - half - quarter, bits)
        # The exponent of a denormal remainder is taken too large, but then its quotient is small.
        multiple = (multiple > rest).select(divisor, multiple)
        step = (rest / multiple).trunc()
        rest = step.fma(-multiple, rest)
        # The quotient may have been rounded up to an integer.
        rest = (rest < 0.0).select(rest + multiple, rest)
        region.again((rest >= divisor).any(), rest.value)
    result = Term(f, region.results[0]).copysign(x)
    result = usual.select(result, x)
    wrong = ~(abs(x) < math.inf) | y.equals(0.0) | y.is_nan()
    return wrong.select(math.nan, result)


def _power(n: Term, bits: int) -> Term:
    """Compute 2**n for an integer."""
    return ((n + BIAS[bits]) << MANTISSA[bits]).as_float()
