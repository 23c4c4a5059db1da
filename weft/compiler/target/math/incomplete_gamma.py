"""Regularized incomplete gamma functions, in float64.

A power series below the mean, a continued fraction above it, and for a from 100 up near the mean Temme's expansion: the
error function and a series in 1/a whose coefficients are polynomials. So no case needs many iterations.
"""

from __future__ import annotations

import math

from weft.compiler.target.math.density import excess, gamma_exponent, lgamma_of_one_more
from weft.compiler.target.math.error import erfc
from weft.compiler.target.math.exponential import exp, expm1
from weft.compiler.target.math.iteration import Iteration, call_in_double, repeat
from weft.compiler.target.math.logarithm import log
from weft.compiler.target.math.power import exp_pair
from weft.compiler.target.math.term import Term, polynomial

# Temme's expansion is used from this a on, up to this relative distance from the mean.
UNIFORM_FROM = 100.0
UNIFORM_WIDTH = 0.3
# Its coefficients: row k is a polynomial of eta, to be divided by a**k.
TEMME = (
    (
        -0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073, 0.0003527336860670194,
        -0.0001787551440329218, 3.919263178522438e-05, -2.185448510679992e-06, -1.85406221071516e-06,
        8.296711340953087e-07, -1.7665952736826078e-07, 6.707853543401498e-09, 1.0261809784240309e-08,
        -4.382036018453353e-09, 9.14769958223679e-10,
    ),
    (
        -0.001851851851851852, -0.003472222222222222, 0.0026455026455026454, -0.0009902263374485596,
        0.00020576131687242798, -4.018775720164609e-07, -1.8098550334489977e-05, 7.64916091608111e-06,
        -1.6120900894563446e-06, 4.647127802807434e-09, 1.378633446915721e-07, -5.752545603517705e-08,
        1.1951628599778148e-08,
    ),
    (
        0.004133597883597883, -0.0026813271604938273, 0.0007716049382716049, 2.0093878600823047e-06,
        -0.0001073665322636516, 5.2923448829120125e-05, -1.2760635188618728e-05, 3.423578734096138e-08,
        1.3721957309062934e-06, -6.298992138380055e-07, 1.4280614206064242e-07,
    ),
    (
        0.0006494341563786008, 0.00022947209362139917, -0.0004691894943952557, 0.00026772063206283885,
        -7.561801671883977e-05, -2.396505113867297e-07, 1.1082654115347302e-05, -5.6749528269915965e-06,
        1.4230900732435883e-06,
    ),
    (
        -0.0008618882909167117, 0.0007840392217200666, -0.0002990724803031902, -1.4638452578843418e-06,
        6.641498215465122e-05, -3.968365047179435e-05, 1.1375726970678419e-05,
    ),
    (
        -0.00033679855336635813, -6.972813758365857e-05, 0.0002772753244959392, -0.00019932570516188847,
        6.797780477937208e-05,
    ),
    (
        0.0005313079364639922, -0.0005921664373536939, 0.0002708782096718045,
    ),
)  # fmt: skip
LIMIT = 2000


def igamma(a: Term, x: Term) -> Term:
    """Compute the lower function."""
    return call_in_double("igamma", lambda a, x: _incomplete(a, x, upper=False), a, x)


def igammac(a: Term, x: Term) -> Term:
    """Compute the upper function, which is 1 minus the lower one."""
    return call_in_double("igammac", lambda a, x: _incomplete(a, x, upper=True), a, x)


def _incomplete(a: Term, x: Term, upper: bool) -> Term:
    defined = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    result = _inside(defined.select(a, 1.0), defined.select(x, 1.0), upper).at_least(0.0).at_most(1.0)
    all_of_it, nothing = (0.0, 1.0) if upper else (1.0, 0.0)
    # Limits; later ones take precedence.
    result = x.equals(math.inf).select(all_of_it, result)
    result = a.equals(math.inf).select(x.equals(math.inf).select(x.of(math.nan), nothing), result)
    result = x.equals(0.0).select(nothing, result)
    result = a.equals(0.0).select((x > 0).select(x.of(all_of_it), math.nan), result)
    return ((a >= 0) & (x >= 0)).select(result, math.nan)


def _inside(a: Term, x: Term, upper: bool) -> Term:
    mu = (x - a) / a
    uniform = (a >= UNIFORM_FROM) & (abs(mu) < UNIFORM_WIDTH)
    pair, factor = gamma_exponent(a, x)
    density = exp_pair(*pair) * factor
    if upper:
        logarithm = log(x)
        # Where the lower function is so large that 1 minus the upper one would have few digits.
        slow = ((x > 0.5).select(a > x * 1.1, -(a * logarithm) > 0.4)) & (x <= 1.1)
        beside = (x <= 1.1) & ~slow & ~uniform
        lower = (slow | ((x > 1.1) & (x < a))) & ~uniform
        result = lower.select(
            1 - density * _series(a, x, lower), density * a * _fraction(a, x, ~(lower | beside | uniform))
        )
        result = beside.select(_small_upper(a, x, logarithm, beside), result)
    else:
        lower = ((x <= 1.1) | (x <= a)) & ~uniform
        result = 1 - density * a * _fraction(a, x, ~(lower | uniform))
        result = lower.select(density * _series(a, x, lower), result)
    return uniform.select(_uniform(a, uniform.select(mu, 0.0), upper), result)


def _series(a: Term, x: Term, active: Term) -> Term:
    """Compute 1 + x/(a + 1) + x**2/((a + 1)*(a + 2)) + ..."""

    def body(n: Term, term: Term, total: Term) -> Iteration:
        term = term * (x / (a + n))
        total = total + term
        return term <= total * 2.0**-56, (term, total)

    one = a.of(1)
    return repeat(active, (one, one), body, LIMIT)[1]


def _fraction(a: Term, x: Term, active: Term) -> Term:
    """Compute 1/(x + 1 - a - 1*(1 - a)/(x + 3 - a - 2*(2 - a)/(x + 5 - a - ...))) from the front (Lentz)."""
    distance = x - a

    def body(n: Term, c: Term, d: Term, fraction: Term) -> Iteration:
        numerator = n * (a - n)
        b = distance + n.fma(2.0, 1.0)
        d = 1 / numerator.fma(d, b)
        c = b + numerator / c
        step = c * d
        return abs(step - 1) < 2.0**-51, (c, d, fraction * step)

    first = 1 / (distance + 1)
    return repeat(active, (a.of(1e300), first, first), body, LIMIT)[2]


def _small_upper(a: Term, x: Term, logarithm: Term, active: Term) -> Term:
    """Compute 1 - x**a/Gamma(a + 1) - x**a/Gamma(a) * (-x/(a + 1) + x**2/(2*(a + 2)) - ...), for small a and x."""

    def body(n: Term, factor: Term, total: Term) -> Iteration:
        factor = factor * (-x / n)
        term = factor / (a + n)
        total = total + term
        return abs(term) <= abs(total) * 2.0**-55, (factor, total)

    total = repeat(active, (a.of(1), a.of(0)), body, LIMIT)[1]
    exponent = a * logarithm - lgamma_of_one_more(active.select(a, 1.0))
    return -expm1(exponent) - exp(exponent) * a * total


def _uniform(a: Term, mu: Term, upper: bool) -> Term:
    """Compute erfc(eta*sqrt(a/2))/2 and exp(-a*eta**2/2)/sqrt(2*pi*a) times the series, with eta**2/2 = mu - log(1 +
    mu)."""
    half_square = excess(mu)
    eta = (half_square * 2).sqrt().copysign(mu)
    exponent = a * half_square
    inverse = 1 / a
    series = polynomial(eta, TEMME[-1])
    for row in TEMME[-2::-1]:
        series = series.fma(inverse, polynomial(eta, row))
    rest = exp(-exponent) / (a * (2 * math.pi)).sqrt() * series
    root = exponent.sqrt().copysign(mu)
    return erfc(root) * 0.5 + rest if upper else erfc(-root) * 0.5 - rest
