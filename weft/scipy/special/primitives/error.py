"""Relatives of the error function: erfcx, Dawson's integral with all derivatives, the inverse normal distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base import dtypes
from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.arithmetic import mul, square
from weft.primitives.elementwise.exponential import exp
from weft.primitives.elementwise.scalar import constant_like, precise, unit_ramp
from weft.scipy.special.primitives.defined import DefinedFunction, DoubleFunction, Fit, exp_of_square, two_product
from weft.trace.array import Array

special = lazy("scipy.special")

# erfcx(x) * (1 + 2*x) of (x - 4)/(x + 4), for x from 0 up.
ERFCX = Fit(
    -1.0,
    1.0,
    (
        1.2329951186255526, -0.1396211168405625, 0.015379652102619604, 0.0680970542546904, -0.10103906603630056,
        0.09373283499843826, -0.06633036581218697, 0.03716751553592911, -0.016197734059799265, 0.005031969992669933,
        -0.0007577732613730956, -0.0001992567757633648, 0.0001506214900124047, -2.4398944545280832e-05,
        -1.1221287012353484e-05, 5.709206053072183e-06, 2.919733377963008e-07, -8.249198427508348e-07,
        7.746992727017988e-08, 1.1009737295274828e-07, -2.0560649275699505e-08, -1.4709550868668898e-08,
        3.1695881915649323e-09, 1.7903326159488478e-09, -2.659599690242881e-10, -1.374652989000947e-10,
    ),
)  # fmt: skip
# dawsn(x)/x of x*x.
DAWSON_0 = Fit(
    0.0,
    2.25,
    (
        0.5014241400133203, -0.31481422752164534, 0.131142594864667, -0.04040863347418886, 0.009838627648841376,
        -0.0019765135732559415, 0.0003376577196608458, -5.0151763199420845e-05, 6.586752812624009e-06,
        -7.751958612158781e-07, 8.263603768235818e-08, -8.049747146971687e-09, 7.21726962057095e-10,
        -5.996019168520379e-11, 4.732821357698001e-12, -3.4231365883966134e-13,
    ),
)  # fmt: skip
# dawsn(x) of x.
DAWSON_1 = Fit(
    1.5,
    3.0,
    (
        0.25655426284484917, -0.1158706371013659, 0.0512199272583273, -0.01417092925260621, -0.002448882984518315,
        0.004841455096391591, -0.002264152932118625, 0.000313554166001817, 0.00018611584225608848,
        -0.00010898771117099387, 1.5845320490440818e-05, 6.284836307410129e-06, -3.2531097846687903e-06,
        3.006818031689128e-07, 1.889265960020062e-07, -6.506736159265573e-08, 4.385184277958573e-10,
        4.22751582847546e-09, -8.173012702908359e-10, -1.1119819231713114e-10, 6.295580012454027e-11,
        -1.7370999901105696e-12, -2.2918815125060223e-12,
    ),
)  # fmt: skip
DAWSON_3 = Fit(
    3.0,
    6.0,
    (
        0.11408861022682498, -0.04019623806213724, 0.014625233909070069, -0.0055191954976083965, 0.002173896656731459,
        -0.0009022450253650146, 0.0003996288143510797, -0.00019069805360035015, 9.701175959633722e-05,
        -5.0168618498529476e-05, 2.407232593489317e-05, -9.019748702162536e-06, 1.1201818550617561e-06,
        1.958820340429482e-06, -2.2492184036139066e-06, 1.4370082778278686e-06, -5.791713452153136e-07,
        7.888446291846279e-08, 8.442827505796716e-08, -7.782317958366175e-08, 3.4958720220570906e-08,
        -6.538793216073914e-09, -4.299550577901338e-09, 4.224250892810256e-09, -9.501109574645716e-10,
        -3.874547905645491e-10, 1.7060227582818082e-10,
    ),
)  # fmt: skip
# x*dawsn(x) of 1/x**2.
DAWSON_6 = Fit(
    0.0,
    1 / 36,
    (
        0.5035472022911592, 0.0036249638178872876, 8.069209879325313e-05, 3.0903139065238023e-06, 1.713284763297423e-07,
        1.2651897232928527e-08, 1.1855722905404628e-09, 1.3665768304357756e-10, 1.8999348371179054e-11,
        3.1393707046060177e-12, 5.721811026565469e-13, 1.2244463717478527e-13, 5.888923475152961e-14,
        2.101404875356702e-14,
    ),
)  # fmt: skip
# -ndtri(p) of sqrt(-log(p)).
NDTRI_1 = Fit(
    1.5,
    4.0,
    (
        3.2797070271072073, 1.9397697269574132, -0.05681405226963665, 0.019998873625656284, -0.007301174625453665,
        0.002733680052729381, -0.0010439843229565957, 0.000405408065455453, -0.00015975180317176138,
        6.377341879470905e-05, -2.575344928450672e-05, 1.0506150720783843e-05, -4.3248132318424445e-06,
        1.7940837111721129e-06, -7.478169025550021e-07, 3.138686638872969e-07, -1.353743501977679e-07,
        5.782554433247121e-08, -2.0722868241179758e-08, 8.459230498104627e-09, -7.2424514082823845e-09,
        3.364067496029503e-09, 7.095851692340291e-10, -3.975006317964971e-10, -5.791169777795169e-10,
        2.658491549142859e-10,
    ),
)  # fmt: skip
NDTRI_4 = Fit(
    4.0,
    10.0,
    (
        9.571999579954285, 4.341396761625176, -0.033820767427369614, 0.012177895848912898, -0.00450782649021796,
        0.0016985209562888582, -0.0006480148244635243, 0.00024953760806873315, -9.679338099730171e-05,
        3.7768294198393506e-05, -1.481099683594483e-05, 5.833441510166193e-06, -2.3056649238253706e-06,
        9.146945393670245e-07, -3.65997563982462e-07, 1.4642728465374883e-07, -5.5690661268796224e-08,
        2.2056685618014957e-08, -1.19696573166751e-08, 5.050983080688943e-09, 2.802546676579527e-12,
        -8.88275789844641e-11, -7.436028087866416e-10, 3.1827108164147477e-10,
    ),
)  # fmt: skip
NDTRI_10 = Fit(
    10.0,
    28.0,
    (
        26.71308710639023, 12.784847070837666, -0.02289986207338137, 0.009585878067563993, -0.004100664381631844,
        0.0017787552689771482, -0.0007791568595380391, 0.00034379904285705096, -0.0001525645871333988,
        6.801153863253923e-05, -3.04328844406889e-05, 1.3663354223734403e-05, -6.150398930971463e-06,
        2.7660832312994748e-06, -1.2486039194116266e-06, 5.838923963903061e-07, -2.6760475163098805e-07,
        9.43619253750429e-08, -3.999898362334234e-08, 4.49119352783987e-08, -2.2401672556509275e-08,
        -6.563517993203211e-09, 3.7337629044223485e-09, 4.3963801933293076e-09, -2.1334539976371027e-09,
    ),
)  # fmt: skip

FAR = 8.0  # from here on the derivatives are those of the asymptotic series
TERMS = 18
TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def far_series(x: Array, order: int, sign: int) -> Array:
    """Evaluate a derivative of 1/x + s/(2*x**3) + 3*s**2/(4*x**5) + 15*s**3/(8*x**7) + ... for large x."""
    far = wnp.maximum(x, FAR)
    inverse_square = 1 / (far * far)
    total: Any = 0.0
    coefficient = math.prod(range(1, 2 * TERMS, 2)) / 2**TERMS
    for m in range(TERMS, -1, -1):
        total = total * inverse_square + sign**m * coefficient * math.prod(range(2 * m + 1, 2 * m + 1 + order))
        coefficient = coefficient * 2 / max(2 * m - 1, 1)
    return (-1) ** order * total / far ** (order + 1)


class DerivativeFunction(DoubleFunction):
    """Derivative of some order, a parameter, of a function."""

    def partial(self, i: int, tangent: Any, out: Any, x: Any, *, order: int) -> Any:
        return mul(tangent, self(x, order=order + 1))

    def samples(self) -> Any:
        for order in (0, 1):
            yield Sample(unit_ramp(3, 2), order=order)
        edges = np.array([-3, 0, 2.5, 40, np.nan], np.float32)
        yield Sample(edges, differentiable=False, order=0)


@primitive
class scaled_erfc(DerivativeFunction):
    """Derivative of an order of exp(x*x) * erfc(x)."""

    @precise
    def eval(x: Any, *, order: int) -> Any:
        values = [special.erfcx(x)]
        values.append(2 * x * values[0] - TWO_OVER_ROOT_PI)
        for n in range(2, order + 1):
            values.append(2 * x * values[-1] + 2 * (n - 1) * values[-2])
        return values[order]

    def compute(self, x: Array, *, order: int) -> Array:
        size = abs(x)
        positive = ERFCX(1 - 8 / (size + 4)) / (1 + 2 * size)
        negative = 2 * exp_of_square(x, 1) - positive
        values = [wnp.where(x < 0, negative, positive)]
        if order == 0:
            return values[0]
        values.append(2 * x * values[0] - TWO_OVER_ROOT_PI)
        for n in range(2, order + 1):
            values.append(2 * x * values[-1] + 2 * (n - 1) * values[-2])
        return wnp.where(x > FAR, far_series(x, order, -1) / math.sqrt(math.pi), values[order])


@primitive
class dawson(DerivativeFunction):
    """Derivative of an order of Dawson's integral, exp(-x*x) times the integral of exp(t*t) from 0 to x."""

    @precise
    def eval(x: Any, *, order: int) -> Any:
        values = [special.dawsn(x)]
        values.append(1 - 2 * x * values[0])
        for n in range(2, order + 1):
            values.append(-2 * x * values[-1] - 2 * (n - 1) * values[-2])
        return values[order]

    def compute(self, x: Array, *, order: int) -> Array:
        size = abs(x)
        inner = wnp.where(size < 3, DAWSON_1(size), DAWSON_3(size))
        far = wnp.maximum(size, 6)
        outer = DAWSON_6(1 / (far * far)) / far
        value = wnp.where(size < 6, inner, outer) * wnp.sign(x)
        values = [wnp.where(size < 1.5, x * DAWSON_0(wnp.minimum(size, 2) ** 2), value)]
        if order == 0:
            return values[0]
        values.append(1 - 2 * x * values[0])
        for n in range(2, order + 1):
            values.append(-2 * x * values[-1] - 2 * (n - 1) * values[-2])
        far_value = far_series(size, order, 1) / 2
        return wnp.where(size > FAR, far_value if order % 2 else far_value * wnp.sign(x), values[order])


@primitive
class ndtri(DoubleFunction):
    """Argument at which the normal distribution function has a value."""

    @precise
    def eval(p: Any) -> Any:
        return special.ndtri(p)

    def compute(self, p: Array) -> Array:
        central = (p > 0.1) & (p < 0.9)
        middle = math.sqrt(2) * lax.erf_inv(wnp.where(central, 2 * p - 1, 0.0))
        low = p < 0.5
        tail = wnp.where(low, p, 1 - p)
        inside = (tail > 0) & (tail < 0.5)
        r = wnp.sqrt(-wnp.log(wnp.where(inside, tail, 0.1)))
        outer = wnp.where(r < 4, NDTRI_1(r), wnp.where(r < 10, NDTRI_4(r), NDTRI_10(r)))
        value = wnp.where(central, middle, wnp.where(low, -outer, outer))
        edge = wnp.where(p == 0, -np.inf, wnp.where(p == 1, np.inf, np.nan))
        return wnp.where((p > 0) & (p < 1), value, edge)

    def partial(self, i: int, tangent: Any, out: Any, p: Any) -> Any:
        half = constant_like(p, 0.5)
        return mul(tangent, mul(constant_like(p, math.sqrt(2 * math.pi)), exp(mul(half, square(out)))))

    def samples(self) -> Any:
        yield Sample((unit_ramp(3, 2) + 1) / 2)
        yield Sample(np.array([0, 1, -1, 1e-30, 1e-4, 0.999], np.float32), differentiable=False)


# ---------------------------------------------------------------------------------------------- the normal distribution

ROOT_HALF = math.sqrt(0.5)
ROOT_HALF_REST = {dtypes.float32: ROOT_HALF - float(np.float32(ROOT_HALF)), dtypes.float64: -4.833646656726457e-17}


class NormalFunction(DefinedFunction):
    """Of a number that may be far out, where an error of its square is one of the exponent."""

    def samples(self) -> Any:
        yield Sample(unit_ramp(3, 2))
        yield Sample(np.array([-12, 0, 3.3, 40, np.inf, -np.inf, np.nan], np.float32), differentiable=False)


@primitive
class normal_density(NormalFunction):
    """exp(-x*x/2)/sqrt(2*pi)."""

    @precise
    def eval(x: Any) -> Any:
        return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)

    def compute(self, x: Array) -> Array:
        return exp_of_square(x, -0.5) * (1 / math.sqrt(2 * math.pi))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return -(tangent * (wnp.where(out == 0, wnp.zeros_like(x), x) * out))  # not infinity times 0


@primitive
class ndtr(NormalFunction):
    """Integral of the normal density up to x."""

    @precise
    def eval(x: Any) -> Any:
        return special.ndtr(x)

    def compute(self, x: Array) -> Array:
        # The rounding error of x*sqrt(1/2) matters in the tail, where the derivative is 2*y times the value.
        safe = wnp.clip(x, -50, 50)
        y, lost = two_product(-safe, wnp.full_like(x, ROOT_HALF))
        lost = lost - safe * ROOT_HALF_REST[x.dtype]
        tail = wnp.maximum(y, 0)
        ratio = tail + wnp.sqrt(tail * tail + 4 / math.pi)
        value = 0.5 * lax.erfc(y)
        return wnp.where(wnp.isnan(x), np.nan, wnp.where(y > 0, value - value * (lost * ratio), value))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return tangent * normal_density(x)


@primitive
class log_ndtr(NormalFunction):
    """log(ndtr(x)), which is finite however far out x is."""

    @precise
    def eval(x: Any) -> Any:
        return special.log_ndtr(x)

    def compute(self, x: Array) -> Array:
        low = x < -1
        tail = scaled_erfc(wnp.where(low, -x, 1.0) * ROOT_HALF, order=0)
        far = wnp.log(0.5 * tail) - 0.5 * x * x
        upper = wnp.log1p(-ndtr(-wnp.where(low, 0.0, x)))
        return wnp.where(x == -np.inf, -np.inf, wnp.where(low, far, upper))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        # density / ndtr, both scaled; far to the right that would be infinite over infinite.
        low = x < 0
        scaled = scaled_erfc(-wnp.where(low, x, wnp.zeros_like(x)) * ROOT_HALF, order=0)
        left = math.sqrt(2 / math.pi) / scaled
        right = normal_density(x) / ndtr(wnp.where(low, wnp.zeros_like(x), x))
        return tangent * wnp.where(low, left, right)
