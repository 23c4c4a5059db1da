"""Sine, cosine and Fresnel integrals, and Owen's function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.scalar import positive_ramp, precise, unit_ramp
from weft.scipy.special.primitives.defined import DoubleFunction, Fit, polynomial, two_product
from weft.scipy.special.primitives.exponential_integrals import log_over_root
from weft.trace.array import Array

special = lazy("scipy.special")

# The sine integral over x, of x*x; the cosine integral is log(x/root) + (x*x - root*root)*P(x*x).
SINE_0 = Fit(
    0.0,
    16.0,
    (
        0.6488924209268717, -0.26998630593421985, 0.06995436230262994, -0.010180919854579487, 0.000926043940588566,
        -5.729510043974918e-05, 2.562902980424153e-06, -8.669329640074211e-08, 2.294707477809517e-09,
        -4.8820436536706355e-11, 8.535034668454058e-13, -1.2465253208934712e-14,
    ),
)  # fmt: skip
COSINE_ROOT = (0.6165054856207163, -4.209920321433186e-17)
COSINE_0 = Fit(
    0.0,
    16.0,
    (
        -0.17670588667145753, 0.05747638723576476, -0.010615612033194086, 0.0011843609879844267, -8.71597790683044e-05,
        4.527233154693447e-06, -1.7453391008976554e-07, 5.1882454913192155e-09, -1.2250444745488392e-10,
        2.3540759911072055e-12, -3.74843753247827e-14,
    ),
)  # fmt: skip
# Factors of cosine and sine from 4 on, times x and x**2, as polynomials in 1/x.
SICI_F_4 = Fit(
    0.125,
    0.25,
    (
        0.9464912480103463, -0.028596716847277704, -0.0015441761440056487, 0.00047970155091879785,
        -6.501302544118523e-05, 5.190742372642153e-06, 1.8108970477479485e-07, -1.838524725445866e-07,
        4.863479896204022e-08, -9.312541670482669e-09, 1.3861445059733662e-09, -1.3400898260071152e-10,
        -5.815117637349265e-12, 7.31165226912086e-12, -2.5463009397935084e-12, 7.813334492762251e-13,
        -1.619726458027466e-13,
    ),
)  # fmt: skip
SICI_F_8 = Fit(
    1 / 24,
    0.125,
    (
        0.9870883480756537, -0.012073132817189854, -0.002289219563489886, 0.0002763881248487684, -4.606165297378724e-06,
        -4.3421336324400585e-06, 9.742115921613958e-07, -9.922458540287517e-08, -7.4121189599289975e-09,
        6.0447936498126635e-09, -1.5862404700277074e-09, 2.4804592505026097e-10, -7.079942589932218e-12,
        -1.1215072591567191e-11, 4.987309287614787e-12, -1.3031764676702253e-12, 1.7195235785159576e-13,
    ),
)  # fmt: skip
SICI_F_24 = Fit(
    0.0,
    1 / 24,
    (
        0.9991364080762636, -0.0017183689100406065, -0.0008417741118470633, 1.6981159765531444e-05,
        3.7278835343164203e-06, -2.8504903373983856e-07, -2.8181147522500433e-08, 6.629057789210433e-09,
        -2.4267434417418523e-11, -1.6835985988769278e-10, 2.3071771343310426e-11, 2.7295007263852226e-12,
        -1.449206263470632e-12, 8.942285784798322e-14, 4.957784276776702e-14,
    ),
)  # fmt: skip
SICI_G_4 = Fit(
    0.125,
    0.25,
    (
        0.8607010974685133, -0.06645849055858931, -0.00031521447375085644, 0.001138649898380985,
        -0.00024720399154417786, 3.440406892940963e-05, -2.593274624633702e-06, -3.0358470238640476e-07,
        1.862772853593914e-07, -5.15405935238871e-08, 1.0819007370497166e-08, -1.8186854180338805e-09,
        2.175579793382977e-10, -2.9187203400039263e-12, -8.309280392521646e-12, 3.585330162474409e-12,
        -1.346929241833586e-12, 3.135227875382017e-13,
    ),
)  # fmt: skip
SICI_G_8 = Fit(
    1 / 24,
    0.125,
    (
        0.962942082441274, -0.03330314388833934, -0.005209329941378073, 0.0010687031770202284, -6.64521627873869e-05,
        -1.436226274841151e-05, 5.43033673910523e-06, -9.123902041996037e-07, 4.209811670421641e-08,
        2.872182890539104e-08, -1.1993718625482198e-08, 2.8091318382573345e-09, -3.8097902396220903e-10,
        -2.0106001396815944e-11, 3.396569665489079e-11, -1.3755392559197445e-11, 3.3894963846035944e-12,
        -3.8127045174770415e-13,
    ),
)  # fmt: skip
SICI_G_24 = Fit(
    0.0,
    1 / 24,
    (
        0.997418039166223, -0.005120286043775318, -0.0024743788562461956, 8.283617319753595e-05, 1.7214172531683532e-05,
        -1.879381056014217e-06, -1.5086482013718834e-07, 5.283811769517189e-08, -1.7330422071054566e-09,
        -1.4522453262138309e-09, 2.8284848614177987e-10, 1.435598208573503e-11, -1.691648208380113e-11,
        2.734741894158998e-12, 5.096054294262585e-13, -2.4153685108896475e-13,
    ),
)  # fmt: skip
# The Fresnel integrals over x**3 and x, of x**4.
FRESNEL_S = Fit(
    0.0,
    5.0625,
    (
        0.3317014537101536, -0.15462472879775477, 0.033158344302986954, -0.0038273603282742877, 0.00027319592380436916,
        -1.3218316630193985e-05, 4.6177062499591426e-07, -1.2191997668511405e-08, 2.518325929404381e-10,
        -4.1824336065981076e-12, 5.701683306944383e-14,
    ),
)  # fmt: skip
FRESNEL_C = Fit(
    0.0,
    5.0625,
    (
        0.5321015097925993, -0.33317978749623606, 0.11464907315830586, -0.0183018312057431, 0.001665787205011,
        -9.786733752727695e-05, 4.019013747386435e-06, -1.2189463302692873e-07, 2.8428199115550984e-09,
        -5.257682445125931e-11, 7.903992798368805e-13, -9.841734630350274e-15,
    ),
)  # fmt: skip
# Factors of cosine and sine from 1.5 on, times pi*x and pi**2*x**3, as polynomials in 1/x**2.
FRESNEL_F_1 = Fit(
    0.16,
    0.4444444444444444,
    (
        0.9776494204251585, -0.017647994440845863, -0.0018773955119330858, 0.0005372379794085276,
        -8.127461015680864e-05, 6.114213460075122e-06, 1.2163032035697501e-06, -7.329004080248987e-07,
        2.272068743651507e-07, -5.3470823848228014e-08, 9.449648697281372e-09, -7.604272320820958e-10,
        -3.2083026700860733e-10, 2.1948852166662985e-10, -8.751780114185508e-11, 2.979171313303915e-11,
        -9.176891477036959e-12, 1.6949830603129414e-12,
    ),
)  # fmt: skip
FRESNEL_F_2 = Fit(
    1 / 25,
    0.16,
    (
        0.9970589947152051, -0.003420283846710837, -0.0009051946635369562, 6.222562436438603e-05,
        3.0605130676294533e-06, -1.3211481620249595e-06, 1.494682132852873e-07, 6.507755492262916e-09,
        -6.501965316465774e-09, 1.4560020458809675e-09, -1.337948909684769e-10, -3.0716252724272804e-11,
        1.8727344670155916e-11, -5.026945887520563e-12, 3.261779771282571e-13, 1.8316164113554582e-13,
    ),
)  # fmt: skip
FRESNEL_F_5 = Fit(
    0.0,
    1 / 25,
    (
        0.9998785863615312, -0.0002424850756742502, -0.00012056083934214631, 6.763319975648548e-07,
        1.6245696916616187e-07, -3.862735541801785e-09, -5.527143768190512e-10, 3.6152441433879146e-11,
        2.8425829312250045e-12, -4.705743533395632e-13, -9.694155951392119e-15, 7.0143463856412555e-15,
    ),
)  # fmt: skip
FRESNEL_G_1 = Fit(
    0.16,
    0.4444444444444444,
    (
        0.9026454440515636, -0.06890184517396988, -0.0025371933222135814, 0.0023789974832511955, -0.0006015444551738042,
        9.827207885313524e-05, -5.9918479390938795e-06, -3.2684660731507123e-06, 1.817271884364666e-06,
        -6.143591908641187e-07, 1.6284792559378775e-07, -3.380168528155481e-08, 4.188982923364394e-09,
        6.559919492073376e-10, -7.27906751323117e-10, 3.4350004720869285e-10, -1.2910142124801401e-10,
        4.4088089034264996e-11, -1.2226759971456942e-11, 1.7852328193430896e-12,
    ),
)  # fmt: skip
FRESNEL_G_2 = Fit(
    1 / 25,
    0.16,
    (
        0.9856580485595023, -0.016295482630376213, -0.003903717074042545, 0.00047638621133894193,
        5.5254815835832776e-06, -1.1543264135654513e-05, 2.0949345349942165e-06, -7.577678265330204e-08,
        -6.685467531097926e-08, 2.3224430829270813e-08, -3.931420557876919e-09, 1.2619257624234922e-11,
        2.429746919247605e-10, -9.706761805943772e-11, 2.4395676190166163e-11, -2.646617692399059e-12,
        -1.75466208501476e-12, 7.661066239513188e-13,
    ),
)  # fmt: skip
FRESNEL_G_5 = Fit(
    0.0,
    1 / 25,
    (
        0.9993936162101826, -0.0012096985843912803, -0.0005987462047252292, 6.0339797349890555e-06,
        1.423485365109842e-06, -4.912265519861605e-08, -6.6791415624814724e-09, 5.877466491821263e-10,
        3.982673134423407e-11, -9.11113002618957e-12, -2.0670603033688476e-14, 1.518636443537595e-13,
        -1.1108070906477695e-14,
    ),
)  # fmt: skip
HUGE = 1e17  # beyond it the function equals its limit to the last digit


def sine_ratio(x: Any) -> Any:
    """Compute sin(x)/x, which is 1 at 0, with its derivatives."""
    near = abs(x) < 1
    series = polynomial(wnp.square(wnp.where(near, x, 0.0)), [(-1) ** n / math.factorial(2 * n + 1) for n in range(10)])
    return wnp.where(near, series, lax.sin(x) / wnp.where(near, 1.0, x))


def sici_parts(size: Array) -> tuple[Array, Array]:
    """Return the auxiliary functions f and g, the factors of cosine and sine, for arguments from 4 up."""
    inverse = 1 / wnp.maximum(size, 4)
    f = wnp.where(size < 8, SICI_F_4(inverse), wnp.where(size < 24, SICI_F_8(inverse), SICI_F_24(inverse)))
    g = wnp.where(size < 8, SICI_G_4(inverse), wnp.where(size < 24, SICI_G_8(inverse), SICI_G_24(inverse)))
    return f * inverse, g * (inverse * inverse)


@primitive
class sine_integral(DoubleFunction):
    """Integral of sin(t)/t from 0 to x."""

    @precise
    def eval(x: Any) -> Any:
        return special.sici(x)[0]

    def compute(self, x: Array) -> Array:
        size = abs(x)
        f, g = sici_parts(size)
        angle = wnp.minimum(size, 1e300)
        far = math.pi / 2 - f * wnp.cos(angle) - g * wnp.sin(angle)
        return wnp.where(size < 4, x * SINE_0(wnp.square(wnp.minimum(size, 4))), wnp.copysign(far, x))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return tangent * sine_ratio(x)

    def samples(self) -> Any:
        yield Sample(positive_ramp(3, 2))
        yield Sample(np.array([-3, 0, 5, 12, -30, np.inf, np.nan], np.float32), differentiable=False)


@primitive
class cosine_integral(DoubleFunction):
    """Euler's constant + log(|x|) + the integral of (cos(t) - 1)/t from 0 to x."""

    @precise
    def eval(x: Any) -> Any:
        return special.sici(x)[1]

    def compute(self, x: Array) -> Array:
        size = wnp.where(x == 0, 1.0, abs(x))
        small = wnp.minimum(size, 4)
        logarithm, difference = log_over_root(small, COSINE_ROOT)
        near = logarithm + difference * (small + COSINE_ROOT[0]) * COSINE_0(small * small)
        f, g = sici_parts(size)
        angle = wnp.minimum(size, 1e300)
        far = wnp.where(size == np.inf, 0.0, f * wnp.sin(angle) - g * wnp.cos(angle))
        value = wnp.where(x == 0, -np.inf, wnp.where(size < 4, near, far))
        return wnp.where(x == -np.inf, np.nan, value)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return tangent * (lax.cos(x) / x)

    def samples(self) -> Any:
        yield Sample(positive_ramp(3, 2))
        yield Sample(np.array([-3, 0, 0.6165, 5, 12, 30, np.inf, np.nan], np.float32), differentiable=False)


# ------------------------------------------------------------------------------------------------------------- Fresnel


def square_modulo_4(x: Array) -> Array:
    """Compute x*x modulo 4, with the digits that rounding the square would lose."""
    square, lost = two_product(x, x)
    return wnp.fmod(square, 4.0) + lost


def fresnel_parts(size: Array) -> tuple[Array, Array]:
    """Return the auxiliary functions f and g, the factors of cosine and sine, for arguments from 1.5 up."""
    far = wnp.maximum(size, 1.5)
    v = 1 / (far * far)
    f = wnp.where(size < 2.5, FRESNEL_F_1(v), wnp.where(size < 5, FRESNEL_F_2(v), FRESNEL_F_5(v)))
    g = wnp.where(size < 2.5, FRESNEL_G_1(v), wnp.where(size < 5, FRESNEL_G_2(v), FRESNEL_G_5(v)))
    return f / (math.pi * far), g * v / (math.pi**2 * far)


class QuadraticAngle(DoubleFunction):
    """Sine or cosine of pi/2 * x*x."""

    def samples(self) -> Any:
        yield Sample(unit_ramp(3, 2))
        yield Sample(np.array([-3, 0, 5.5, 1000.25, np.nan], np.float32), differentiable=False)


@primitive
class quadratic_sine(QuadraticAngle):
    """sin(pi/2 * x*x)."""

    @precise
    def eval(x: Any) -> Any:
        return np.sin(np.pi / 2 * np.fmod(x * x, 4.0))

    def compute(self, x: Array) -> Array:
        return wnp.sin(math.pi / 2 * square_modulo_4(x))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return tangent * (math.pi * x * quadratic_cosine(x))


@primitive
class quadratic_cosine(QuadraticAngle):
    """cos(pi/2 * x*x)."""

    @precise
    def eval(x: Any) -> Any:
        return np.cos(np.pi / 2 * np.fmod(x * x, 4.0))

    def compute(self, x: Array) -> Array:
        return wnp.cos(math.pi / 2 * square_modulo_4(x))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return -(tangent * (math.pi * x * quadratic_sine(x)))


class FresnelIntegral(DoubleFunction):
    """Integral of the sine or cosine of pi/2 * t*t from 0 to x."""

    def samples(self) -> Any:
        yield Sample(unit_ramp(3, 2))
        yield Sample(np.array([-3, 0, 1.8, 4, 60, np.inf, np.nan], np.float32), differentiable=False)


@primitive
class fresnel_sine(FresnelIntegral):
    """Integral of sin(pi/2 * t*t) from 0 to x."""

    @precise
    def eval(x: Any) -> Any:
        return special.fresnel(x)[0]

    def compute(self, x: Array) -> Array:
        size = wnp.minimum(abs(x), HUGE)
        square = wnp.square(wnp.minimum(size, 1.5))
        f, g = fresnel_parts(size)
        angle = math.pi / 2 * square_modulo_4(size)
        far = 0.5 - f * wnp.cos(angle) - g * wnp.sin(angle)
        return wnp.where(size < 1.5, x * (square * FRESNEL_S(square * square)), wnp.copysign(far, x))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return tangent * quadratic_sine(x)


@primitive
class fresnel_cosine(FresnelIntegral):
    """Integral of cos(pi/2 * t*t) from 0 to x."""

    @precise
    def eval(x: Any) -> Any:
        return special.fresnel(x)[1]

    def compute(self, x: Array) -> Array:
        size = wnp.minimum(abs(x), HUGE)
        square = wnp.square(wnp.minimum(size, 1.5))
        f, g = fresnel_parts(size)
        angle = math.pi / 2 * square_modulo_4(size)
        far = 0.5 + f * wnp.sin(angle) - g * wnp.cos(angle)
        return wnp.where(size < 1.5, x * FRESNEL_C(square * square), wnp.copysign(far, x))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return tangent * quadratic_cosine(x)


# --------------------------------------------------------------------------------------------------------------- Owen

NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)
REACH = 8.7  # exp(-x*x/2) beyond is less than the last digit of its integral


@primitive
class owens_t(DoubleFunction):
    """1/(2*pi) times the integral of exp(-h*h*(1 + t*t)/2)/(1 + t*t) from t = 0 to a."""

    one_kernel = False
    weight = 2000

    @precise
    def eval(h: Any, a: Any) -> Any:
        return special.owens_t(h, a)

    def compute(self, h: Array, a: Array) -> Array:
        height, size = abs(h), abs(a)
        beyond = size > 1
        other = wnp.where(height == 0, 0.0, height * size)
        q, q_other = (0.5 * lax.erfc(x * math.sqrt(0.5)) for x in (height, other))
        value = _owen(wnp.where(beyond, other, height), wnp.where(beyond, 1 / wnp.where(beyond, size, 1.0), size))
        value = wnp.where(beyond, 0.5 * q + (0.5 * q_other - value) - q * q_other, value)
        value = wnp.where(wnp.isnan(h) | wnp.isnan(a), np.nan, wnp.where(height == np.inf, 0.0, value))
        return wnp.where(a < 0, -value, value)

    def partial(self, i: int, tangent: Any, out: Any, h: Any, a: Any) -> Any:
        half_square = 0.5 * h * h
        if i == 0:
            change = lax.erf(math.sqrt(0.5) * (a * h)) * lax.exp(-half_square)
            return tangent * (change * (-0.5 / math.sqrt(2 * math.pi)))
        return tangent * (lax.exp(-half_square * (1 + a * a)) / (2 * math.pi * (1 + a * a)))

    def samples(self) -> Any:
        yield Sample(unit_ramp(3, 2), positive_ramp(3, 2))
        edges = np.array([0, 0, 3, np.inf, 5], np.float32), np.array([0, np.inf, np.inf, 1, 0.5], np.float32)
        yield Sample(*edges, differentiable=False)


def _owen(h: Array, a: Array) -> Array:
    """Evaluate for `a` from 0 to 1, by quadrature over the range where the integrand is not negligible."""
    h, a = wnp.broadcast_arrays(h, a)
    h = wnp.minimum(h, 50)
    end = wnp.minimum(a, REACH / wnp.maximum(h, 1))
    axes = (slice(None), *[None] * end.ndim)
    t = end * ((NODES + 1) / 2)[axes]
    total = wnp.sum(wnp.exp(-0.5 * wnp.square(h * t)) / (1 + t * t) * WEIGHTS[axes], axis=0)
    return wnp.exp(-0.5 * h * h) * (total * end / (4 * math.pi))
