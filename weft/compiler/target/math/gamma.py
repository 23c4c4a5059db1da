"""lgamma and digamma in float64; float32 is computed in float64 with shorter polynomials and rounded once."""

from __future__ import annotations

import math

from weft.compiler.target.math.logarithm import combine, log, split
from weft.compiler.target.math.term import Term, polynomial, two_product, two_sum
from weft.compiler.target.math.trigonometric import ReducedAngle, cosine, sine

# lgamma(z) = (z - 1)*(z - 2)*P(z - 1.75) between 1 and 2.5; the second table of each is accurate enough for float32.
LGAMMA = (
    (
        0.4501393121092563, -0.11948158662524268, 0.044520447198512246, -0.01905395783026027, 0.008776370425115075,
        -0.004226194125208787, 0.0020955338835298154, -0.0010605660934646418, 0.0005448969395004774,
        -0.00028319036373375764, 0.00014851721099891528, -7.846402911900546e-05, 4.1702894591818295e-05,
        -2.226830308635203e-05, 1.1959198693361947e-05, -6.487613952855488e-06, 3.48121755551038e-06,
        -1.7680942690080933e-06, 1.005045965627326e-06, -7.557376468620271e-07, 3.6366184937205366e-07,
        3.369354960200168e-08, 1.3131263973644452e-08, -1.576701146680841e-07, 7.773661018712582e-08,
    ),
    (
        0.45013931210920044, -0.11948158683000489, 0.04452044731957501, -0.01905394431305279, 0.008776362802904817,
        -0.004226450636721115, 0.002095676160843711, -0.00105843778478928, 0.0005437264680346271,
        -0.0002921358237762821, 0.0001534104980757244, -5.882995750807398e-05, 3.100524415117511e-05,
        -4.2879047695044285e-05, 2.314521185393926e-05,
    ),
)  # fmt: skip
# lgamma(x) = (x - 1/2)*log(x) - x + log(2*pi)/2 + P(1/x**2)/x from 8 up.
STIRLING = (
    (
        0.08333333333333329, -0.0027777777775870364, 0.000793650655272733, -0.0005952007678080907,
        0.0008371401406509263, -0.00164865486131456,
    ),
    (0.08333333326173656, -0.0027776962427955056, 0.0007798359552054421),
)  # fmt: skip
# digamma(z) = (z - root)*P(z - 1.5) between 1 and 2, where its root is in two parts.
DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)
DIGAMMA = (
    (
        0.9510558760318328, -0.4236274212814606, 0.24054248424080213, -0.14840492305388472, 0.09498872445132596,
        -0.06192213327522111, 0.04076083401553207, -0.026975796669013154, 0.017907246335219156, -0.011908219923827474,
        0.007927053949423949, -0.005279939470053375, 0.0035177714820063474, -0.0023454775875277993,
        0.0015656594390355606, -0.0010365433246838605, 0.0006807206347662296, -0.00048569094753988623,
        0.0003525238585495775, -0.00014525323567586383, 5.0951510036562586e-05, -0.00017788749469557964,
        0.00015044847353774975,
    ),
    (
        0.9510558760490062, -0.42362742126706576, 0.24054247748637778, -0.14840492145973136, 0.09498915568534728,
        -0.06192232732684924, 0.04075057638475121, -0.026970243765588195, 0.01802236327040993, -0.011976367390018925,
        0.007274866159354608, -0.004872807225370956, 0.005277322446186712, -0.0034834399882679506,
    ),
)  # fmt: skip
# digamma(x) = log(x) - 1/(2*x) - P(1/x**2)/x**2 from 8 up.
DIGAMMA_FAR = (
    (
        0.08333333333333283, -0.008333333331029178, 0.003968252257892506, -0.004166200042609937, 0.007517628998608851,
        -0.017669493376077372,
    ),
    (0.08333333283750183, -0.008332768006930391, 0.0038722391737171353),
)  # fmt: skip
FAR = 8.0
# Closer to 0, gamma(x) is 1/x to all digits. Reflection would use sin(pi*x), which has few digits where x is denormal.
POLE = 2.0**-60


def lgamma(x: Term) -> Term:
    """Compute the logarithm of the magnitude of the gamma function."""
    return _lgamma(x.long(), 1).short() if x.bits == 32 else _lgamma(x, 0)


def digamma(x: Term) -> Term:
    """Compute the derivative of lgamma."""
    return _digamma(x.long(), 1).short() if x.bits == 32 else _digamma(x, 0)


def _sin_cos_pi(size: Term) -> tuple[Term, Term, Term]:
    """Return the magnitudes of sin(pi*x) and cos(pi*x), and the signed distance of x from the nearest integer."""
    distance = size - size.rint()
    d = abs(distance)
    upper = d > 0.25
    d = upper.select(0.5 - d, d)
    r, low = two_product(d, math.pi)
    part = ReducedAngle(d, r, d.fma(1.2246467991473532e-16, low))
    s, c = (a.high + a.low for a in (sine(part), cosine(part)))
    return upper.select(c, s), upper.select(s, c), distance


def _lgamma(x: Term, table: int) -> Term:
    size = abs(x)
    negative = x < -POLE
    small = size < 1.0
    below_one = small & ~negative
    # u is the argument minus one: of lgamma(|x|), and of lgamma(1 + |x|) for x between -1 and 1.
    u = small.select(size, size - 1)
    far = size >= FAR
    u = far.select(1.0, u)
    product = u.of(1)
    for _ in range(6):
        reduce = u >= 1.5
        product = reduce.select(product * u, product)
        u = reduce.select(u - 1, u)
    near = u * (u - 1) * polynomial(u - 0.75, LGAMMA[table])
    # One logarithm serves all cases: of the argument, of the product of the reduction's factors, or of x.
    high, low = combine(split(far.select(size, below_one.select(size, product))))
    near_high, near_low = two_sum(below_one.select(-high, high), near)
    near_low = near_low + below_one.select(-low, low)
    inverse = 1 / size
    lowered = size - 0.5
    leading, lost = two_product(lowered, high)
    leading, lost_too = two_sum(leading, -size)
    series = inverse.fma(polynomial(inverse * inverse, STIRLING[table]), 0.5 * math.log(2 * math.pi))
    lost = lost + lost_too + lowered.fma(low, series)
    result, rest = far.select(leading, near_high), far.select(lost, near_low)
    # gamma(-x) * gamma(x) = -pi / (x * sin(pi*x)), whose logarithms may cancel; and gamma(x) * x = gamma(1 + x).
    sine_of, _, distance = _sin_cos_pi(size)
    sine_high, sine_low = combine(split(small.select(sine_of, sine_of * size)))
    total, lost = two_sum(-sine_high, -result)
    reflected = total + ((lost - sine_low) + (math.log(math.pi) - rest))
    result = result + rest
    result = negative.select(distance.equals(0.0).select(math.inf, reflected), result)
    result = size.equals(0.0).select(math.inf, result)
    return (size < 2.0**1014).select(result, (size < math.inf).select(_huge(size, negative), size))


def _huge(size: Term, negative: Term) -> Term:
    """Compute x*(log(x) - 1), which overflows only where the result does; negative numbers this large are integers."""
    return negative.select(math.inf, size * (log(size) - 1))


def _digamma(x: Term, table: int) -> Term:
    size = abs(x)
    negative = x < -POLE
    below_one = (size < 1.0) & ~negative
    u = (negative | below_one).select(size, size - 1)
    argument = negative.select(size + 1, size)
    far = argument >= FAR
    z = u = far.select(0.5, u)
    # The sum of 1/u over the steps of the reduction, as one fraction.
    above, below = u.of(0), u.of(1)
    for _ in range(6):
        reduce = u >= 1.0
        above = reduce.select(above.fma(u, below), above)
        below = reduce.select(below * u, below)
        u = reduce.select(u - 1, u)
    above, below = below_one.select(-1.0, above), below_one.select(x, below)
    near = ((u - (DIGAMMA_ROOT[0] - 1)) - DIGAMMA_ROOT[1]) * polynomial(u - 0.5, DIGAMMA[table]) + above / below
    inverse = 1 / argument
    square = inverse * inverse
    beyond = log(argument) - inverse.fma(0.5, square * polynomial(square, DIGAMMA_FAR[table]))
    result = far.select(beyond, near)
    # digamma(-x) = digamma(1 + x) + pi/tan(pi*x)
    s, c, distance = _sin_cos_pi(size)
    cotangent = (c * math.pi / s).copysign(distance)
    result = negative.select(distance.equals(0.0).select(math.nan, result + cotangent), result)
    return size.equals(0.0).select(math.nan, (z.is_nan() | x.equals(-math.inf)).select(math.nan, result))
