"""Error functions: erf, erfc and the inverse of erf."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.compiler.target.math.exponential import reduce_argument
from weft.compiler.target.math.logarithm import log
from weft.compiler.target.math.term import Term, ldexp, polynomial, polynomial_pair, power_of_two
from weft.primitives.elementwise.special import (
    CENTRAL as GILES_CENTRAL,
    LOG1P_BOUND,
    LOG1P_DENOMINATOR,
    LOG1P_NUMERATOR,
    LOG_LN2,
    LOG_PARTS,
    TAIL as GILES_TAIL,
)

# erf(x) = x + x*P(x*x) for |x| up to this bound.
NEAREST = 0.9375
ERF = {
    32: (
        0.12837916612625122, -0.37612631916999817, 0.11283674091100693, -0.026858337223529816, 0.005198554135859013,
        -0.0008115707896649837, 8.259452442871407e-05,
    ),
    64: (
        0.12837916709551256, -0.3761263890318356, 0.11283791670948053, -0.026866170643939192, 0.005223977614250633,
        -0.000854832637602067, 0.00012055308552827172, -1.4925030793151515e-05, 1.6451448734302887e-06,
        -1.6242459084241198e-07, 1.3881363128387957e-08, -8.125362473753668e-10,
    ),
}  # fmt: skip
# -log(erfc(x)) up to 3.95, where erf is 1 in float32.
ERF_TAIL_SINGLE = (
    -0.0001742080639814958, 1.1295086145401, 0.6333708763122559, 0.10823594033718109, -0.025073200464248657,
    0.00414208322763443, -0.00042368879076093435, 1.8905735487351194e-05, 1.8711740779053798e-07,
)  # fmt: skip
# erfc(x) = exp(-x*x) * P(t) / (1 + 2*x) with t = (x - center)/(x + center), for x from 0 to where erfc is 0.
ERFC = {
    32: (
        1.2769783735275269, -0.09276381134986877, -0.16603021323680878, 0.1640508472919464, -0.05422082170844078,
        -0.0080300597473979, 0.00872158631682396, 0.0012535296846181154, -0.0014446522109210491,
        -0.00040927264490164816, 0.00018659158376976848, 8.963470463640988e-05,
    ),
    64: (
        1.2329951186255526, -0.13962111684056253, 0.01537965210261426, 0.06809705425469295, -0.10103906603611011,
        0.09373283499837752, -0.0663303658153641, 0.03716751553645108, -0.016197734029945315, 0.0050319699921649,
        -0.0007577734349690551, -0.00019925679629192322, 0.00015062214674374232, -2.4398789339625508e-05,
        -1.1222942452718502e-05, 5.708655128906668e-06, 2.947708555614089e-07, -8.23791550486332e-07,
        7.432069197180619e-08, 1.0869797240742417e-07, -1.8234535524943238e-08, -1.364355967698725e-08,
        2.0828812300495974e-09, 1.282478968177498e-09,
    ),
}  # fmt: skip
ERFC_CENTER = {32: 2.0, 64: 4.0}
ERFC_END = {32: 10.1, 64: 27.3}
# erf_inv(x)/x by w = -log(1 - x*x): in w - 3 up to 6, in sqrt(w) - 3.25 up to 16, then in sqrt(w) - 5.
INVERSE_CENTRAL = (
    1.6235420064648298, 0.24163040416615825, -0.005738135221004973, -0.0008361817769089218, 0.00019506132441079506,
    -1.2716422639845545e-05, -1.7480020927252116e-06, 4.499854269439887e-07, -2.368872925446812e-08,
    -5.467180078613657e-09, 1.110798793021147e-09, -3.142505844173253e-11, -1.7328941137672435e-11,
    2.6988225715419956e-12, 6.268162951305232e-15, -5.2902635005725615e-14, 6.329311701010146e-15,
    2.707050209842367e-16, -1.6178602990795165e-16, 1.3135336999007414e-17, 2.0070651918829746e-18,
    -4.0318793721156394e-19, -9.546337403552756e-21, 4.5597427107736785e-21,
)  # fmt: skip
INVERSE_MIDDLE = (
    3.0838856104922208, 1.0052589676941655, 0.005370914553544628, -0.003751208508228719, 0.0024914420983251227,
    -0.0016882755353667218, 0.0009532893355713658, -0.000355037814629631, 2.403156705060986e-05,
    6.828712240468312e-05, -4.732097589923274e-05, 1.2465009818092767e-05, 2.933591486776363e-06,
    -3.985663172459223e-06, 1.479393162015578e-06, -2.767875578920361e-08, -2.425442742909991e-07,
    1.3163699601574334e-07, -2.313835645378972e-08, -1.5323305810242007e-08, 8.40035501253893e-09,
)  # fmt: skip
INVERSE_TAIL = (
    4.849906401408584, 1.0103004648645455, -0.00013871931838286557, -0.00021503011983689486, 7.599527810991729e-05,
    -1.9681770562368054e-05, 4.526052676107423e-06, -9.930302995557052e-07, 2.290511676183882e-07,
    -6.755301475566059e-08, 2.902512753382686e-08, -1.5261297939893396e-08, 7.808350978529312e-09,
    -3.4644309974238094e-09, 1.3304875989995255e-09, -4.4158563421862303e-10, 6.119627373366817e-11,
    4.38283422354672e-11, -1.8418203520052476e-11,
)  # fmt: skip


def erf(x: Term) -> Term:
    """Compute the error function."""
    size = abs(x)
    near = x.fma(polynomial(x * x, ERF[x.bits], "erf_near"), x)
    if x.bits == 32:
        limited = size.at_most(3.95)
        part = reduce_argument(-polynomial(limited, ERF_TAIL_SINGLE, "erf_tail"))
        power = power_of_two(part.n)
        far = 1 - (part.r + part.rest).fma(power, power)
    else:
        far = 1 - _erfc_of_size(size)
    return (size < NEAREST).select(near, far.copysign(x))


def _erfc_of_size(size: Term) -> Term:
    """Compute erfc of a non-negative number."""
    bits = size.bits
    a = size.at_most(ERFC_END[bits])
    square = a * a
    square_low = a.fma(a, -square)
    center = ERFC_CENTER[bits]
    above, above_low = polynomial_pair((a - center) / (a + center), ERFC[bits])
    twice = a + a
    below = 1 + twice
    inverse = 1 / below
    ratio = above * inverse
    # Error of the quotient, including the part of 1 + 2*a that was rounded off.
    ratio_low = inverse * (ratio.fma(-below, above) + (above_low - ratio * (twice - (below - 1))))
    part = reduce_argument(-square)
    less_one = part.r + (part.rest + part.low)
    power = 1 + less_one
    # Rounding errors of the square and the sum, in units of the power.
    lost = (less_one - (power - 1)) - square_low * power
    return ldexp(ratio.fma(power, ratio_low.fma(power, ratio * lost)), part.n)


def erfc(x: Term) -> Term:
    """Compute 1 - erf(x), accurate where that is small."""
    size = abs(x)
    result = _erfc_of_size(size)
    # Near 0 the result is near 1, and the sum is rounded only once.
    near = (1 - x) - x * polynomial(x * x, ERF[x.bits])
    return (size < 0.25).select(near, (x < 0).select(2 - result, result))


def erf_inv(x: Term) -> Term:
    """Compute the inverse of the error function."""
    if x.bits == 32:
        return _erf_inv_single(x)
    w = -log(x.fma(-x, 1.0))
    central, middle = w < 6.0, w < 16.0
    t = central.select(w, w.sqrt()) - central.select(w.of(3), middle.select(w.of(3.25), 5.0))
    parts = [polynomial_pair(t, table) for table in (INVERSE_CENTRAL, INVERSE_MIDDLE, INVERSE_TAIL)]
    (near, near_low), (between, between_low), (far, far_low) = parts
    # The difference above is inexact where w is small.
    near_low = near_low + (w - (t + 3)) * INVERSE_CENTRAL[1]
    high = central.select(near, middle.select(between, far))
    low = central.select(near_low, middle.select(between_low, far_low))
    return abs(x).equals(1.0).select(x * math.inf, x.fma(high, x * low))


def _erf_inv_single(x: Term) -> Term:
    """Compute the inverse for float32 by the polynomials that define it: random normal numbers depend on their bits."""
    w = -_log1p_single(-(x * x))
    central = w < 5.0
    t = central.select(w - 2.5, w.sqrt() - 3)
    value = central.select(x.of(GILES_CENTRAL[0]), GILES_TAIL[0])
    for near, far in zip(GILES_CENTRAL[1:], GILES_TAIL[1:], strict=True):
        value = value.fma(t, central.select(x.of(near), far))
    return (abs(x) < 1.0).select(value * x, abs(x).equals(1.0).select(x * math.inf, math.nan))


def _log1p_single(v: Term) -> Term:
    """Compute log1p between -1 and 0 with the same bits as the primitive's `single_log1p`."""
    square = v * v
    small = v + ((v * square) * (_horner(v, LOG1P_NUMERATOR) / _horner(v, LOG1P_DENOMINATOR)) - square * 0.5)
    bits = (v + 1.0).raw()
    mantissa = ((bits & 0x007FFFFF) | 0x3F000000).as_float()
    low = mantissa < math.sqrt(0.5)
    f = low.select(mantissa + mantissa, mantissa) - 1.0
    exponent = ((bits >> 23) - 126).to_float(v.type.element)
    e = low.select(exponent - 1.0, exponent)
    square = f * f
    cube = square * f
    first, second, third = (_horner(f, part) for part in LOG_PARTS)
    rest = first.fma(cube, second).fma(cube, third).fma(cube, e * LOG_LN2[1])
    return (abs(v) < LOG1P_BOUND).select(small, ((f - square * 0.5) + rest) + e * LOG_LN2[0])


def _horner(x: Term, coefficients: Sequence[float]) -> Term:
    """Evaluate a polynomial whose highest power comes first."""
    value = x.of(coefficients[0])
    for coefficient in coefficients[1:]:
        value = value.fma(x, coefficient)
    return value
