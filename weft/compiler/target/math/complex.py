"""Functions of complex numbers, represented as two terms.

Sums and products are computed in the format of the parts. The other functions are written for float64 parts; complex64
is computed in float64 and rounded, which keeps intermediate results from overflowing or cancelling in float32.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from weft.compiler.target.math import exponential, inverse, logarithm, trigonometric
from weft.compiler.target.math.term import Operand, Term, two_product


class Complex(NamedTuple):
    """Complex number as its real and imaginary parts."""

    re: Term
    im: Term


def of_parts(re: Operand, im: Operand, like: Term) -> Complex:
    """Build a complex number from terms or constants."""
    return Complex(*(part if isinstance(part, Term) else like.of(part) for part in (re, im)))


def chosen(condition: Term, yes: Complex, no: Complex) -> Complex:
    """Select one of two complex numbers."""
    return Complex(condition.select(yes.re, no.re), condition.select(yes.im, no.im))


def _is_infinite(x: Term) -> Term:
    return abs(x).equals(math.inf)


def add(a: Complex, b: Complex) -> Complex:
    return Complex(a.re + b.re, a.im + b.im)


def sub(a: Complex, b: Complex) -> Complex:
    return Complex(a.re - b.re, a.im - b.im)


def neg(a: Complex) -> Complex:
    return Complex(-a.re, -a.im)


def mul(a: Complex, b: Complex) -> Complex:
    return Complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def div(a: Complex, b: Complex) -> Complex:
    """Divide by Smith's algorithm: by the larger part of the divisor first, so that squares do not overflow."""
    flat = abs(b.re) >= abs(b.im)
    ratio = flat.select(b.im, b.re) / flat.select(b.re, b.im)
    scale = 1 / flat.select(b.re + b.im * ratio, b.im + b.re * ratio)
    re = flat.select(a.re + a.im * ratio, a.re * ratio + a.im) * scale
    im = flat.select(a.im - a.re * ratio, a.im * ratio - a.re) * scale
    zero = (abs(b.re) + abs(b.im)).equals(0.0)
    none = abs(b.re)
    return chosen(zero, Complex(a.re / none, a.im / none), Complex(re, im))


def whole_power(a: Complex, exponent: int) -> Complex:
    """Raise to an integer power by repeated squaring, with each product rounded. It never multiplies by one, which
    would turn infinities into nan."""
    one = of_parts(1.0, 0.0, a.re)
    left, base = abs(exponent), a
    power: Complex | None = None
    while left:
        if left & 1:
            power = base if power is None else mul(power, base)
        left >>= 1
        if left:
            base = mul(base, base)
    if power is None:
        return one
    return div(one, power) if exponent < 0 else power


def absolute(a: Complex) -> Term:
    """Return the magnitude: infinite if a part is infinite, even if the other one is nan."""
    x, y = abs(a.re), abs(a.im)
    steep = y > x
    most, least = steep.select(y, x), steep.select(x, y)
    huge, tiny = most > 2.0**500, most < 2.0**-500
    scale = huge.select(most.of(2.0**-600), tiny.select(most.of(2.0**600), 1.0))
    unscale = huge.select(most.of(2.0**600), tiny.select(most.of(2.0**-600), 1.0))
    most, least = most * scale, least * scale
    square, low = two_product(most, most)
    total = square + least * least
    low = low + least.fma(least, square - total)
    root = total.sqrt()
    # One step of Newton's method restores the digits that were rounded off before the root.
    fine = root + total.equals(0.0).select(0.0, (root.fma(-root, total) + low) / (root + root))
    fine = _is_infinite(root).select(root, fine) * unscale
    infinite = _is_infinite(a.re) | _is_infinite(a.im)
    return infinite.select(math.inf, (a.re.is_nan() | a.im.is_nan()).select(math.nan, fine))


def _scale(*values: Complex) -> Term:
    """Return a power of two that keeps the squares of these numbers, which are not all 0, from overflow and
    underflow."""
    most = functools.reduce(
        lambda a, b: (b > a).select(b, a.is_nan().select(b, a)), [abs(p) for value in values for p in value]
    )
    return (most > 2.0**500).select(most.of(2.0**-600), (most < 2.0**-500).select(most.of(2.0**600), 1.0))


def _times(a: Complex, factor: Term) -> Complex:
    return Complex(a.re * factor, a.im * factor)


def sign(a: Complex) -> Complex:
    """Scale to magnitude 1; 0 stays 0. A first scaling by a power of two keeps the magnitude finite and normal."""
    scaled = _times(a, _scale(a))
    size = absolute(scaled)
    zero = size.equals(0.0)
    result = div(scaled, of_parts(zero.select(1.0, size), 0.0, size))
    return chosen(zero, of_parts(0.0, 0.0, size), result)


def _power(x: Term) -> tuple[Term, Term]:
    """Return e**x as two factors; the second is 1 unless the first alone would overflow."""
    return exponential.exp(x.at_most(709.0)), exponential.exp((x - 709).at_least(0.0))


def _hyperbolic(x: Term) -> tuple[Term, Term, Term]:
    """Return sinh(x) and cosh(x), and a common factor as in `_power`."""
    size = abs(x)
    far = size > 709.0
    half = 0.5 * math.exp(709.0)
    more = exponential.exp((size - 709).at_least(0.0))
    return (
        far.select(x.of(half).copysign(x), exponential.sinh(x)),
        far.select(x.of(half), exponential.cosh(x)),
        more,
    )


def exp(a: Complex) -> Complex:
    """Compute e**re * (cos(im) + i*sin(im)), where the power alone may overflow."""
    e, more = _power(a.re)
    s, c = trigonometric.sin_cos(a.im)
    result = Complex(c * e * more, s * e * more)
    result = chosen(a.im.equals(0.0), Complex(e * more, a.im), result)
    unknown = a.im.is_nan() | _is_infinite(a.im)
    result = chosen(unknown & a.re.equals(-math.inf), of_parts(0.0, 0.0, e), result)
    return chosen(unknown & a.re.equals(math.inf), of_parts(math.inf, math.nan, e), result)


def exp2(a: Complex) -> Complex:
    """Compute 2**a."""
    return exp(Complex(a.re * math.log(2), a.im * math.log(2)))


def expm1(a: Complex) -> Complex:
    """Compute e**a - 1: expm1(re)*cos(im) - 2*sin(im/2)**2 keeps the digits that the difference would lose."""
    half = trigonometric.sin(a.im * 0.5)
    s, c = trigonometric.sin_cos(a.im)
    less = exponential.expm1(a.re)
    e, more = _power(a.re)
    re = (a.re > 40.0).select(c * e * more, less * c - 2 * half * half)
    im = s * e * more
    result = chosen(a.im.equals(0.0), Complex(less, a.im), Complex(re, im))
    unknown = a.im.is_nan() | _is_infinite(a.im)
    result = chosen(unknown & a.re.equals(-math.inf), of_parts(-1.0, 0.0, less), result)
    return chosen(unknown & a.re.equals(math.inf), of_parts(math.inf, math.nan, less), result)


def _log_of_size(a: Complex) -> Term:
    x, y = abs(a.re), abs(a.im)
    steep = y > x
    most, least = steep.select(y, x), steep.select(x, y)
    ratio = least / most.equals(0.0).select(1.0, most)
    near = (most > 0.5) & (most < 2.0)
    # Near 1 the logarithm is that of 1 + (|a|**2 - 1).
    excess = least.fma(least, (most - 1) * (most + 1))
    total = logarithm.log1p(near.select(excess, ratio * ratio)) * 0.5
    result = near.select(total, logarithm.log(most) + total)
    return (_is_infinite(a.re) | _is_infinite(a.im)).select(math.inf, result)


def log(a: Complex) -> Complex:
    """Compute log|a| + i*angle."""
    return Complex(_log_of_size(a), inverse.atan2(a.im, a.re))


def log1p(a: Complex) -> Complex:
    """Compute log(1 + a)."""
    small = (abs(a.re) < 0.5) & (abs(a.im) < 0.5)
    near = logarithm.log1p(a.re.fma(a.re, 2 * a.re) + a.im * a.im) * 0.5
    one_more = Complex(1 + a.re, a.im)
    return Complex(small.select(near, _log_of_size(one_more)), inverse.atan2(a.im, one_more.re))


def logistic(a: Complex) -> Complex:
    """Compute 1 / (1 + e**-a), or e**a / (1 + e**a), whichever power does not overflow."""
    right = a.re >= 0
    e = exp(chosen(right, neg(a), a))
    return div(chosen(right, of_parts(1.0, 0.0, a.re), e), Complex(1 + e.re, e.im))


def sqrt(a: Complex) -> Complex:
    """Return the root whose real part is not negative."""
    x, y = abs(a.re), abs(a.im)
    most = (x > y).select(x, y)
    huge, tiny = most > 2.0**1000, most < 2.0**-1000
    scale = huge.select(most.of(2.0**-4), tiny.select(most.of(2.0**100), 1.0))
    unscale = huge.select(most.of(2.0**2), tiny.select(most.of(2.0**-50), 1.0))
    re, im = a.re * scale, a.im * scale
    size = absolute(Complex(re, im))
    t = ((abs(re) + size) * 0.5).sqrt()
    zero = most.equals(0.0)
    other = y * scale * 0.5 / zero.select(1.0, t)
    right = a.re >= 0.0
    result = Complex(right.select(t, other) * unscale, (right.select(other, t) * unscale).copysign(a.im))
    result = chosen(zero, Complex(x, a.im), result)
    unknown = a.re.is_nan() | a.im.is_nan()
    result = chosen(unknown, of_parts(math.nan, math.nan, x), result)
    zero_im = a.im.is_nan().select(math.nan, x.of(0).copysign(a.im))
    right_end = of_parts(math.inf, zero_im, x)
    left_end = of_parts(a.im.is_nan().select(math.nan, x.of(0)), x.of(math.inf).copysign(a.im), x)
    ending = chosen(a.re < 0, left_end, right_end)
    result = chosen(_is_infinite(a.re), ending, result)
    return chosen(_is_infinite(a.im), of_parts(math.inf, a.im, x), result)


def rsqrt(a: Complex) -> Complex:
    """Compute 1 / sqrt(a)."""
    return div(of_parts(1.0, 0.0, a.re), sqrt(a))


def pow(a: Complex, b: Complex) -> Complex:
    """Compute e**(b*log(a)); anything to the power of 0 is 1, and 0 to a power with a positive real part is 0."""
    result = exp(mul(b, log(a)))
    zero = a.re.equals(0.0) & a.im.equals(0.0)
    none = b.re.equals(0.0) & b.im.equals(0.0)
    nothing = (b.re > 0.0).select(a.re.of(0), math.nan)
    result = chosen(zero, Complex(nothing, nothing), result)
    return chosen(none, of_parts(1.0, 0.0, a.re), result)


def sinh(a: Complex) -> Complex:
    """Compute sinh(re)*cos(im) + i*cosh(re)*sin(im)."""
    s, c = trigonometric.sin_cos(a.im)
    sh, ch, more = _hyperbolic(a.re)
    unknown = ~(abs(a.im) < math.inf)
    result = Complex(sh * c * more, a.im.equals(0.0).select(a.im, ch * s * more))
    return chosen(unknown & (_is_infinite(a.re) | a.re.equals(0.0)), of_parts(a.re, math.nan, s), result)


def cosh(a: Complex) -> Complex:
    """Compute cosh(re)*cos(im) + i*sinh(re)*sin(im)."""
    s, c = trigonometric.sin_cos(a.im)
    sh, ch, more = _hyperbolic(a.re)
    unknown = ~(abs(a.im) < math.inf)
    zero = s.of(0).copysign(s.of(1).copysign(a.re) * s.of(1).copysign(a.im))
    im = a.im.equals(0.0).select(a.re.is_nan().select(0.0, zero), sh * s * more)
    result = Complex(ch * c * more, (unknown & a.re.equals(0.0)).select(0.0, im))
    return chosen(_is_infinite(a.re) & unknown, of_parts(math.inf, math.nan, s), result)


def tanh(a: Complex) -> Complex:
    """Compute tanh by Kahan's algorithm, with t = tan(im) and s = sinh(re); far from 0 it is 1 up to e**(-2|re|)."""
    t = trigonometric.tan(a.im)
    far = abs(a.re) > 20.0
    s = exponential.sinh(far.select(0.0, a.re))
    beta = t.fma(t, 1.0)
    below = (beta * s).fma(s, 1.0)
    near = Complex(beta * (s.fma(s, 1.0)).sqrt() * s / below, t / below)
    # Near its pole tan is finite in both formats, but its square may be infinite.
    small = exponential.exp(-abs(a.re))
    sine, cosine = trigonometric.sin_cos(a.im)
    one = a.re.of(1).copysign(a.re)
    unknown = ~(abs(a.im) < math.inf)
    away = Complex(unknown.select(math.nan, one), 4 * sine * cosine * small * small)
    away = chosen(unknown & _is_infinite(a.re), of_parts(one, 0.0, t), away)
    result = chosen(far, away, near)
    return Complex(a.re.equals(0.0).select(a.re, result.re), a.im.equals(0.0).select(a.im, result.im))


def _multiply_by_i(a: Complex) -> Complex:
    """Multiply by i."""
    return Complex(-a.im, a.re)


def _multiply_by_minus_i(a: Complex) -> Complex:
    """Multiply by -i."""
    return Complex(a.im, -a.re)


def sin(a: Complex) -> Complex:
    """Compute -i*sinh(i*a)."""
    return _multiply_by_minus_i(sinh(_multiply_by_i(a)))


def cos(a: Complex) -> Complex:
    """Compute cosh(i*a)."""
    return cosh(_multiply_by_i(a))


def tan(a: Complex) -> Complex:
    """Compute -i*tanh(i*a)."""
    return _multiply_by_minus_i(tanh(_multiply_by_i(a)))


def _is_huge(a: Complex) -> Term:
    """Return whether squares, or the sum of 1 and a square, would overflow or be nan."""
    return (abs(a.re) > 2.0**500) | (abs(a.im) > 2.0**500)


def _log_of_double(a: Complex) -> Term:
    """Compute log|2a|, the limit of inverse functions for huge `a`."""
    return _log_of_size(a) + math.log(2)


def _known_sign(x: Term) -> Term:
    """Return `x`, or 1 for nan, whose sign is undefined."""
    return x.is_nan().select(1.0, x)


def asin(a: Complex) -> Complex:
    """Compute asin by Kahan's algorithm from the roots of 1 - a and 1 + a, which keeps both branch cuts."""
    below, above = sqrt(Complex(1 - a.re, -a.im)), sqrt(Complex(1 + a.re, a.im))
    re = inverse.atan2(a.re, below.re * above.re - below.im * above.im)
    result = Complex(re, logarithm.asinh(below.re * above.im - below.im * above.re))
    far = Complex(inverse.atan2(a.re, abs(a.im)), _log_of_double(a).copysign(_known_sign(a.im)))
    result = chosen(_is_huge(a), far, result)
    return Complex(a.re.equals(0.0).select(a.re, result.re), result.im)


def acos(a: Complex) -> Complex:
    """Compute acos by Kahan's algorithm; see `asin`."""
    below, above = sqrt(Complex(1 - a.re, -a.im)), sqrt(Complex(1 + a.re, a.im))
    re = 2 * inverse.atan2(below.re, above.re)
    result = Complex(re, logarithm.asinh(above.re * below.im - above.im * below.re))
    far = Complex(inverse.atan2(abs(a.im), a.re), _log_of_double(a).copysign(-_known_sign(a.im)))
    result = chosen(_is_huge(a), far, result)
    return Complex(a.re.equals(0.0).select(0.5 * math.pi, result.re), result.im)


def acosh(a: Complex) -> Complex:
    """Compute acosh by Kahan's algorithm from the roots of a - 1 and a + 1."""
    below, above = sqrt(Complex(a.re - 1, a.im)), sqrt(Complex(a.re + 1, a.im))
    re = logarithm.asinh(below.re * above.re + below.im * above.im)
    result = Complex(re, 2 * inverse.atan2(below.im, above.re))
    result = chosen(_is_huge(a), Complex(_log_of_double(a), inverse.atan2(a.im, a.re)), result)
    right_angle = a.im.of(0.5 * math.pi).copysign(_known_sign(a.im))
    return Complex(result.re, a.re.equals(0.0).select(right_angle, result.im))


def asinh(a: Complex) -> Complex:
    """Compute i*asin(-i*a)."""
    return _multiply_by_i(asin(_multiply_by_minus_i(a)))


def atanh(a: Complex) -> Complex:
    """Compute log((1 + a)/(1 - a))/2 from its real and imaginary parts."""
    x, y = abs(a.re), abs(a.im)
    less, more = 1 - x, 1 + x
    square = a.im * a.im
    # At 1 the square of a small imaginary part may be 0.
    pole = less.equals(0.0) & (y < 2.0**-400)
    size = pole.select((math.log(2) - logarithm.log(y)) * 0.5, logarithm.log1p(4 * x / (less * less + square)) * 0.25)
    result = Complex(size.copysign(a.re), inverse.atan2(2 * a.im, less * more - square) * 0.5)
    infinite = _is_infinite(a.re) | _is_infinite(a.im)
    unknown = _unknown(a)
    nothing = (unknown & ~infinite).select(math.nan, a.re.of(0).copysign(_known_sign(a.re)))
    right_angle = (a.im.is_nan() | (unknown & ~infinite)).select(math.nan, a.im.of(0.5 * math.pi).copysign(a.im))
    result = chosen(_is_huge(a), Complex(nothing, right_angle), result)
    return Complex(a.re.equals(0.0).select(a.re, result.re), result.im)


def atan(a: Complex) -> Complex:
    """Compute -i*atanh(i*a)."""
    return _multiply_by_minus_i(atanh(_multiply_by_i(a)))


def atan2(y: Complex, x: Complex) -> Complex:
    """Compute -i*log((x + i*y)/sqrt(x*x + y*y))."""
    scale = _scale(y, x)
    y, x = _times(y, scale), _times(x, scale)
    size = sqrt(add(mul(x, x), mul(y, y)))
    return _multiply_by_minus_i(log(div(add(x, _multiply_by_i(y)), size)))


def less(a: Complex, b: Complex) -> Term:
    """Compare by real, then by imaginary part; false if a part is nan."""
    return (a.re < b.re) | (a.re.equals(b.re) & (a.im < b.im))


def greatest(a: Complex, b: Complex) -> Complex:
    """Return the greater number in the order of `less`; a number with a nan part wins, the first of two."""
    return chosen(less(a, b) & ~_unknown(a) | (_unknown(b) & ~_unknown(a)), b, a)


def least(a: Complex, b: Complex) -> Complex:
    """Return the lesser number in the order of `less`; a number with a nan part wins, the first of two."""
    return chosen(less(b, a) & ~_unknown(a) | (_unknown(b) & ~_unknown(a)), b, a)


def _unknown(a: Complex) -> Term:
    return a.re.is_nan() | a.im.is_nan()
