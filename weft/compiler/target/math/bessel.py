"""Modified Bessel functions of order 0 and 1, scaled by exp(-|x|), in float64; float32 is computed there."""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.target.math.exponential import exp, reduce_argument
from weft.compiler.target.math.term import Term, polynomial, polynomial_pair, power_of_two, two_product, two_sum

# Polynomials of x*x for x up to 8 (for order 1 of I1(x)/x), to be multiplied by exp(-|x|); beyond, polynomials of 16/x
# - 1, divided by sqrt(x). The second of each is accurate enough for float32.
NEAR_0 = (
    (
        1.0, 0.25, 0.015625, 0.0004340277777777775, 6.7816840277779e-06, 6.781684027774682e-08, 4.709502797117512e-10,
        2.4028075489879568e-12, 9.385967031058017e-15, 2.8969031694006886e-17, 7.24226738059922e-20,
        1.4963082361929063e-22, 2.5983662678329974e-25, 3.8341385098710667e-28, 4.997094804003829e-31,
        4.761750049171513e-34, 8.161216834708482e-37,
    ),
    (
        1.000000000000168, 0.249999999998429, 0.01562500000221366, 0.0004340277766406754, 6.781684313533539e-06,
        6.781679958666805e-08, 4.709538507939212e-10, 2.402604652083657e-12, 9.393623814158088e-15,
        2.877604775143829e-17, 7.561709327482825e-20, 1.166312392431679e-22, 4.473813250916753e-25,
    ),
)  # fmt: skip
NEAR_1 = (
    (
        0.5, 0.0625, 0.0026041666666666657, 5.425347222222301e-05, 6.781684027774972e-07, 5.651403356539565e-09,
        3.3639305685672504e-11, 1.5017547252920637e-13, 5.214425678672054e-16, 1.4484536048864976e-18,
        3.2918739490804916e-21, 6.23617047796979e-24, 9.967414359420757e-27, 1.40046177246785e-29,
        1.4214906324044063e-32, 2.628760341496647e-35,
    ),
    (
        0.4999999999992732, 0.06250000000496146, 0.0026041666614177923, 5.425347428384093e-05, 6.781680023628789e-07,
        5.651447602177639e-09, 3.363630041337177e-11, 1.503062730075302e-13, 5.177379942005821e-16,
        1.5160240455661818e-18, 2.5343689631168726e-21, 1.0849476689679142e-23,
    ),
)  # fmt: skip
FAR_0 = (
    (
        0.4021765094450081, 0.0033605519836678614, 0.00013621607438943085, 1.1143033790941243e-05,
        1.4838476427776985e-06, 2.973598586748492e-07, 8.872109859003855e-08, 3.9325845145239685e-08,
        2.1557164831789857e-08, 7.554681507956404e-09, -6.7910978790372514e-09, -1.3408879873833982e-08,
        -5.2644705111744295e-09, 7.552493337424912e-09, 7.125895083813592e-09, -3.5058242366210947e-09,
        -5.505784412617844e-09, 1.519932825207973e-09, 3.1981245164800247e-09, -5.714856906397074e-10,
        -1.3425726301389316e-09, 1.5275445679233088e-10, 3.572155350656672e-10, -2.0254349110569418e-11,
        -4.4600155485522035e-11,
    ),
    (
        0.40217650943110383, 0.003360551959225869, 0.00013621678371018828, 1.114358225703731e-05,
        1.4780183994506368e-06, 2.9377254679431726e-07, 1.0563516057692418e-07, 4.969950623444978e-08,
        1.5221321689432924e-09, -8.03539742767032e-09,
    ),
)  # fmt: skip
FAR_1 = (
    (
        0.38939845902587233, -0.009749577193235737, -0.00021923576383449842, -1.5038547200520028e-05,
        -1.834910114057643e-06, -3.4838557704657994e-07, -1.0001314774474704e-07, -4.312916788455729e-08,
        -2.3371820312474436e-08, -8.427820753933878e-09, 6.724086016362426e-09, 1.4034438687260131e-08,
        6.0078378558326535e-09, -7.642873404678537e-09, -7.960622737251385e-09, 3.4269986527460707e-09,
        6.348684896845945e-09, -1.4395291137319544e-09, -3.898455864618115e-09, 5.300981738404313e-10,
        1.7499632530038582e-09, -1.4032104552395178e-10, -4.994848837572253e-10, 1.8549353406424784e-11,
        6.68277821331911e-11,
    ),
    (
        0.38939845904068615, -0.009749577161620716, -0.00021923651824139266, -1.5039213846791081e-05,
        -1.8287264343916593e-06, -3.4422493836059793e-07, -1.1787504820956249e-07, -5.4714299807903164e-08,
        -2.428562029673997e-09, 8.41775446021239e-09,
    ),
)  # fmt: skip
FARTHER = 8.0


def bessel_i0e(x: Term) -> Term:
    """Compute exp(-|x|) * I0(x)."""
    if x.bits == 32:
        return _order_0(abs(x.long()), 1).short()
    return _order_0(abs(x), 0)


def _order_0(size: Term, table: int) -> Term:
    limited = size.at_most(FARTHER)
    if table:
        near = polynomial(limited * limited, NEAR_0[table]) * exp(-limited)
    else:
        near = _times_exponential(*_near(limited, NEAR_0[table]), limited)
    return (size > FARTHER).select(_far(size, FAR_0[table]), near)


def bessel_i1e(x: Term) -> Term:
    """Compute exp(-|x|) * I1(x)."""
    # The sign is copied last: LLVM moves a copysign behind conversions, and has none from double to half.
    result = _order_1(abs(x.long()), 1).short() if x.bits == 32 else _order_1(abs(x), 0)
    return result.copysign(x)


def _order_1(size: Term, table: int) -> Term:
    limited = size.at_most(FARTHER)
    if table:
        near = limited * (polynomial(limited * limited, NEAR_1[table]) * exp(-limited))
    else:
        value, low = _near(limited, NEAR_1[table])
        product, lost = two_product(limited, value)
        near = _times_exponential(product, limited.fma(low, lost), limited)
    return (size > FARTHER).select(_far(size, FAR_1[table]), near)


def _far(size: Term, coefficients: Sequence[float]) -> Term:
    value, low = polynomial_pair(16 / size.at_least(FARTHER) - 1, coefficients)
    root = size.sqrt()
    result = value / root
    # Correct the errors of the quotient and of the root, except at infinity.
    rest = result.fma(-root, value) + low - (result / (root + root)) * root.fma(-root, size)
    return (size < 1e300).select(result + rest / root, result)


def _near(x: Term, coefficients: Sequence[float]) -> tuple[Term, Term]:
    """Evaluate a polynomial of x*x as a pair; the rounding error of x*x is multiplied by the derivative."""
    square, lost = two_product(x, x)
    derivative = polynomial(square, [n * c for n, c in enumerate(coefficients)][1:])
    fourth = square * square
    product, product_low = two_product(polynomial(fourth, coefficients[1::2]), square)
    value, low = two_sum(polynomial(fourth, coefficients[0::2]), product)
    return value, lost.fma(derivative, low + product_low)


def _times_exponential(value: Term, low: Term, x: Term) -> Term:
    """Compute (value + low) * exp(-x) for x from 0 to FARTHER with one final rounding."""
    part = reduce_argument(-x)
    less_one = part.r + (part.rest + part.low)
    power = 1 + less_one
    lost = less_one - (power - 1)
    return value.fma(power, low.fma(power, value * lost)) * power_of_two(part.n)
