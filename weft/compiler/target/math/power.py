"""pow and cbrt."""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.compiler.target.llvm import double, float_, i32
from weft.compiler.target.math.exponential import LN2, reduced
from weft.compiler.target.math.logarithm import split
from weft.compiler.target.math.term import (
    BIAS,
    MANTISSA,
    SHIFTER,
    SMALLEST_NORMAL,
    Term,
    polynomial,
    quick_two_sum,
    scaled,
    two_product,
    two_sum,
)

# atanh(s)/s = 1 + z/3 + z*z*P(z) with z = s*s, for a logarithm with 12 digits more than a double has.
ATANH_LONG = (
    0.19999999999999987, 0.1428571428572334, 0.11111111108609005, 0.09090909451949693, 0.07692277430795862,
    0.06668193137493847, 0.05836779104723616, 0.05999285983483641,
)  # fmt: skip
# log2(1 + f)/f for 1 + f between sqrt(1/2) and sqrt(2), and 2**r for r up to 1/2, as exact as a power of float32 needs.
LOG2_SHORT = (
    1.4426950408708794, -0.7213475209631551, 0.4808983601762459, -0.3606736553159396, 0.28853739437873954,
    -0.24045433696411997, 0.20617283226751987, -0.1802710257711494, 0.15878356832510718, -0.14349039375280995,
    0.14495052999815844, -0.1414478821058739, 0.07553790398013412,
)  # fmt: skip
EXP2_SHORT = (
    1.0, 0.6931471805599453, 0.24022650922288757, 0.055504108839096185, 0.009618056678524637, 0.001333350238616277,
    0.0001546144469856913, 1.5297323760701075e-05,
)  # fmt: skip
# The same in float32: log2(1 + g) = g*(A + g*(B + g*P(g))) for g up to 0.16, with A and B in two parts, and
# 2**r = 1 + r*P(r). A number is brought so near to 1 by a factor, whose logarithm is in two parts too.
LOG2_FIRST = (1.4426950216293335, 1.925963033500011e-08)
LOG2_SECOND = (-0.7213475108146667, -9.629815167500055e-09)
LOG2_SINGLE = (
    0.480898380279541, -0.3606726825237274, 0.2885057032108307, -0.24070008099079132, 0.21066458523273468,
    -0.17078877985477448,
)  # fmt: skip
EXP2_SINGLE = (
    0.6931471824645996, 0.24022650718688965, 0.05550410971045494, 0.009618056938052177, 0.0013333501992747188,
    0.00015461444854736328,
)  # fmt: skip
ABOVE, BELOW = 0.16, -0.125
ABOVE_FACTOR, ABOVE_LOG2 = 0.75, (0.4150390625, -1.5632211898264359e-06)
BELOW_FACTOR, BELOW_LOG2 = 1.25, (-0.3218994140625, -2.8680824470939115e-05)
THIRD = (1 / 3, 1.850371707708594e-17)


def log_pair(x: Term) -> tuple[Term, Term]:
    """The logarithm of a positive double, with about 12 bits after the last one."""
    k, f = split(x)
    below, below_low = quick_two_sum(x.of(2), f)
    s = f / below
    s_low = (s.fma(-below, f) - s * below_low) / below
    z, z_low = two_product(s, s)
    z_low = z_low + 2 * s * s_low
    # 2*s*(1 + z*(1/3 + z*P(z))); the parts that matter are carried in pairs.
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
    """e**(high + low)."""
    part = reduced(high.at_most(710.0).at_least(-746.0))
    low = (abs(high) < 800.0).select(low, 0.0)  # beyond that it overflows or is 0
    rest = part.rest + part.low
    first, lost = quick_two_sum(part.r.of(1), part.r)
    more = low.fma(first + rest, rest + lost)
    return scaled(first + more, part.n)


def _short_power(x: Term, y: Term) -> Term:
    """x**y of a positive float32, in doubles that are exact enough, rounded once."""
    k, f = (part.long() for part in split(x))
    logarithm = f.fma(polynomial(f, LOG2_SHORT), k)
    power = ((y.long() if y.bits == 32 else y) * logarithm).at_most(300.0).at_least(-300.0)
    # The sum has the exponent of the power of two in its last bits, as in `power_of_two`.
    shift = SHIFTER[64] + BIAS[64]
    shifted = power + shift
    fraction = polynomial(power - (shifted - shift), EXP2_SHORT)
    return (fraction * (shifted.raw() << MANTISSA[64]).cooked()).short()


def _single_power(x: Term, y: Term) -> Term:
    """x**y of a positive float32 in pairs of them, which takes half as long as in float64."""
    k, f = split(x)
    above, below = f > ABOVE, f < BELOW
    factor = above.select(f.of(ABOVE_FACTOR), below.select(f.of(BELOW_FACTOR), 1.0))
    whole = k + above.select(f.of(ABOVE_LOG2[0]), below.select(f.of(BELOW_LOG2[0]), 0.0))
    rest = above.select(f.of(ABOVE_LOG2[1]), below.select(f.of(BELOW_LOG2[1]), 0.0))
    # Exact, since the product differs from 1 by little: (1 + f)*factor - 1.
    g = f.fma(factor, factor - 1)
    square, square_low = two_product(g, g)
    third = polynomial(g, LOG2_SINGLE)
    inner, inner_low = two_product(square, third)
    second, second_low = two_product(g, LOG2_SECOND[0])
    total, lost = quick_two_sum(g.of(LOG2_FIRST[0]), second)
    low = (lost + LOG2_FIRST[1]) + (second_low + square_low.fma(third, inner_low)) + inner
    product, product_low = two_product(g, total)
    product_low = g.fma(low, product_low)
    high, lost = quick_two_sum(whole, product)
    high, lost = quick_two_sum(high, product_low + (lost + rest))
    power, power_low = two_product(y, high)
    power_low = y.fma(lost, power_low)
    limited = power.at_most(300.0).at_least(-300.0)
    power_low = power.equals(limited).select(power_low, 0.0)
    n = (limited + SHIFTER[32]) - SHIFTER[32]
    r = limited - n
    less_one = r * polynomial(r, EXP2_SINGLE)
    more = power_low * LN2[32][0]
    return scaled(1 + less_one.fma(more, less_one + more), n)


def pow(x: Term, y: Term) -> Term:
    """x**y, as C's pow has it for zeros, infinities and negative numbers."""
    return _special_powers(x, y, _single_power if x.bits == 32 else _long_power)


def pow_of_short(x: Term, y: Term) -> Term:
    """float32 to the power of a float64 that may have digits a float32 has not."""
    return _special_powers(x, y, _short_power)


def _long_power(x: Term, y: Term) -> Term:
    high, low = log_pair(x)
    product, product_low = two_product(y, high)
    return exp_pair(product, y.fma(low, product_low))


def _special_powers(x: Term, y: Term, power: Callable[[Term, Term], Term]) -> Term:
    """`power` has only positive bases and exponents that are not too large; a branch for all lanes sees to the rest."""
    f = x.function
    size = abs(x)
    usual = (size > 0.0) & (size < math.inf)
    # An exponent this large overflows, or the logarithm is 0; an infinite one would make nan of it.
    limited = y.at_most(2.0**80).at_least(-(2.0**80))
    made = power(usual.select(size, 1.0), limited)
    plain = (x > 0.0) & (x < math.inf) & (abs(y) < 2.0**80)
    with f.when((~plain).any(), made.value, unlikely=True) as region:
        region.give(_exceptions(x, y, size, usual, made).value)
    return Term(f, region.results[0])


def _exceptions(x: Term, y: Term, size: Term, usual: Term, made: Term) -> Term:
    """What C says of bases that are negative, 0 or infinite, of infinite exponents, and of nan."""
    # 0 and inf: to a negative power they change places.
    to_zero = size.equals(0.0) ^ (y < 0)
    made = usual.select(made, to_zero.select(size.of(0), math.inf))
    # A negative base has powers with whole exponents; odd ones are negative.
    whole = y.trunc().equals(y)
    half = y * 0.5
    odd = whole & half.trunc().differs(half)
    negative = x.raw() < 0
    made = (negative & odd).select(-made, made)
    made = ((x < 0) & (x > -math.inf) & ~whole).select(math.nan, made)
    made = (x.is_nan() | y.is_nan()).select(math.nan, made)
    # Of an infinite exponent only whether |x| is 1 counts; 1 to any power and any number to 0 are 1, even nan.
    made = (abs(y).equals(math.inf) & size.equals(1.0)).select(1.0, made)
    return (x.equals(1.0) | y.equals(0.0)).select(1.0, made)


def cbrt(x: Term) -> Term:
    """The cube root: a third of the exponent, then steps that each triple the digits, the last with its own error."""
    bits = x.bits
    size = abs(x)
    # Away from denormal numbers and from where a cube overflows; the exponents are multiples of 3.
    tiny, huge = size < SMALLEST_NORMAL[bits], size > 2.0**100
    size = tiny.select(size * 2.0**54, huge.select(size * 2.0**-60, size))
    if bits == 32:
        guess = ((size.raw().to_float(float_) * (1 / 3)).to_integer(i32) + 0x2A514067).cooked()
    else:
        upper = size.raw().lshr(32).narrow(32)
        upper = (upper.to_float(double) * (1 / 3)).to_integer(i32) + 0x2A9F7893
        guess = (upper.wide(64) << 32).cooked()
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
