"""Powers: pow and cbrt."""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.compiler.target.llvm import double, float_, i32
from weft.compiler.target.math.exponential import LN2, reduce_argument
from weft.compiler.target.math.logarithm import split
from weft.compiler.target.math.term import (
    BIAS,
    MANTISSA,
    SHIFTER,
    SMALLEST_NORMAL,
    Term,
    ldexp,
    polynomial,
    quick_two_sum,
    two_product,
    two_sum,
)

# atanh(s)/s = 1 + z/3 + z*z*P(z) with z = s*s, for a logarithm with 12 digits more than a double has.
ATANH_LONG = (
    0.19999999999999987, 0.1428571428572334, 0.11111111108609005, 0.09090909451949693, 0.07692277430795862,
    0.06668193137493847, 0.05836779104723616, 0.05999285983483641,
)  # fmt: skip
# log2(1 + f)/f for 1 + f between sqrt(1/2) and sqrt(2), and 2**r for r up to 1/2, with the accuracy that a power of
# float32 needs.
LOG2_SHORT = (
    1.4426950408708794, -0.7213475209631551, 0.4808983601762459, -0.3606736553159396, 0.28853739437873954,
    -0.24045433696411997, 0.20617283226751987, -0.1802710257711494, 0.15878356832510718, -0.14349039375280995,
    0.14495052999815844, -0.1414478821058739, 0.07553790398013412,
)  # fmt: skip
EXP2_SHORT = (
    1.0, 0.6931471805599453, 0.24022650922288757, 0.055504108839096185, 0.009618056678524637, 0.001333350238616277,
    0.0001546144469856913, 1.5297323760701075e-05,
)  # fmt: skip
INFINITY_BITS = {32: 0x7F800000, 64: 0x7FF0000000000000}
THIRD = (1 / 3, 1.850371707708594e-17)


def log_pair(x: Term) -> tuple[Term, Term]:
    """Compute the logarithm of a positive double as a pair, with about 12 additional bits."""
    k, f = split(x)
    below, below_low = quick_two_sum(x.of(2), f)
    s = f / below
    s_low = (s.fma(-below, f) - s * below_low) / below
    z, z_low = two_product(s, s)
    z_low = z_low + 2 * s * s_low
    # 2*s*(1 + z*(1/3 + z*P(z))); the significant parts are pairs.
    tail = z * polynomial(z, ATANH_LONG)
    c, c_low = quick_two_sum(z.of(THIRD[0]), tail)
    c_low = c_low + THIRD[1]
    p, p_low = two_product(z, c)
    p_low = p_low + (z * c_low + z_low * c)
    q, q_low = two_product(s, p)
    q_low = q_low + (s * p_low + s_low * p)
    high, low = quick_two_sum(s, q)
    low = low + (s_low + q_low)
    base, base_low = two_product(k, LN2[64][0])
    total, lost = two_sum(base, high + high)
    return total, lost + (base_low + k.fma(LN2[64][1], low + low))


def exp_pair(high: Term, low: Term) -> Term:
    """Compute e**(high + low)."""
    part = reduce_argument(high.at_most(710.0).at_least(-746.0))
    low = (abs(high) < 800.0).select(low, 0.0)  # beyond that the result overflows or is 0
    rest = part.rest + part.low
    first, lost = quick_two_sum(part.r.of(1), part.r)
    more = low.fma(first + rest, rest + lost)
    return ldexp(first + more, part.n)


def _short_power(x: Term, y: Term) -> Term:
    """Compute x**y of a positive float32 in double arithmetic, rounded once."""
    k, f = (part.long() for part in split(x))
    logarithm = f.fma(polynomial(f, LOG2_SHORT), k)
    power = ((y.long() if y.bits == 32 else y) * logarithm).at_most(300.0).at_least(-300.0)
    # The sum has the exponent of the power of two in its last bits, as in `power_of_two`.
    shift = SHIFTER[64] + BIAS[64]
    shifted = power + shift
    fraction = polynomial(power - (shifted - shift), EXP2_SHORT)
    return (fraction * (shifted.raw() << MANTISSA[64]).as_float()).short()


def pow(x: Term, y: Term) -> Term:
    """Compute x**y, with C's results for zeros, infinities and negative numbers."""
    return _special_powers(x, y, _short_power if x.bits == 32 else _long_power)


def pow_of_short(x: Term, y: Term) -> Term:
    """Raise a float32 to a float64, whose digits float32 may not represent."""
    return _special_powers(x, y, _short_power)


def _long_power(x: Term, y: Term) -> Term:
    high, low = log_pair(x)
    product, product_low = two_product(y, high)
    return exp_pair(product, y.fma(low, product_low))


def _special_powers(x: Term, y: Term, power: Callable[[Term, Term], Term]) -> Term:
    """Compute positive bases by `power`; a branch taken for all lanes handles the special cases."""
    f = x.function
    result = power(abs(x), y)
    # Bits between those of 0 and of infinity are a positive finite number.
    plain = (x.raw() - 1).below(INFINITY_BITS[x.bits] - 1) & (abs(y) < 2.0**80)
    with f.when((~plain).any(), result.value, unlikely=True) as region:
        region.give(_exceptions(x, y, result).value)
    return Term(f, region.results[0])


def _exceptions(x: Term, y: Term, result: Term) -> Term:
    """Apply C's rules for bases that are negative, 0 or infinite, for infinite exponents, and for nan."""
    size = abs(x)
    usual = (size > 0.0) & (size < math.inf)
    # 0 and inf: a negative power exchanges them.
    to_zero = size.equals(0.0) ^ (y < 0)
    result = usual.select(result, to_zero.select(size.of(0), math.inf))
    # A negative base needs an integer exponent; odd powers are negative.
    whole = y.trunc().equals(y)
    half = y * 0.5
    odd = whole & half.trunc().differs(half)
    negative = x.raw() < 0
    result = (negative & odd).select(-result, result)
    result = ((x < 0) & (x > -math.inf) & ~whole).select(math.nan, result)
    result = (x.is_nan() | y.is_nan()).select(math.nan, result)
    # For an infinite exponent only |x| = 1 is special; 1 to any power and any number to 0 are 1, even with nan.
    result = (abs(y).equals(math.inf) & size.equals(1.0)).select(1.0, result)
    return (x.equals(1.0) | y.equals(0.0)).select(1.0, result)


def cbrt(x: Term) -> Term:
    """Compute the cube root: a third of the exponent, then steps that each triple the digits, the last one with its
    error."""
    bits = x.bits
    size = abs(x)
    # Scaled by powers whose exponents are multiples of 3, away from denormals and from cubes that overflow.
    tiny, huge = size < SMALLEST_NORMAL[bits], size > 2.0**100
    size = tiny.select(size * 2.0**54, huge.select(size * 2.0**-60, size))
    if bits == 32:
        guess = ((size.raw().to_float(float_) * (1 / 3)).to_integer(i32) + 0x2A514067).as_float()
    else:
        upper = size.raw().lshr(32).narrow(32)
        upper = (upper.to_float(double) * (1 / 3)).to_integer(i32) + 0x2A9F7893
        guess = (upper.wide(64) << 32).as_float()
    steps = 2 if bits == 32 else 3
    for _ in range(steps):
        cube = guess * guess * guess
        guess = guess * (size.fma(2.0, cube) / cube.fma(2.0, size))
    square, square_low = two_product(guess, guess)
    error = square.fma(guess, -size) + square_low * guess
    guess = guess - error / (square * 3)
    guess = tiny.select(guess * 2.0**-18, huge.select(guess * 2.0**20, guess))
    usual = (size > 0.0) & (size < math.inf)
    return usual.select(guess.copysign(x), x + x)
