"""Exponential integrals and the dilogarithm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.scalar import positive_ramp, precise
from weft.scipy.special.primitives.defined import DoubleFunction, Fit, polynomial
from weft.trace.array import Array

special = lazy("scipy.special")

# expi(x) is log(x/root) + (x - root)*P(x), where the root is in two parts; then exp(x)/x times one of these of 1/x.
EXPI_ROOT = (0.3725074107813666, 1.3140183414386028e-17)
EXPI_NEAR = Fit(
    0.0,
    6.0,
    (
        2.986772243435986, 3.8535675550242976, 3.434770585137441, 2.3217200962908175, 1.2664576815080542,
        0.5800776053968245, 0.2292554580841337, 0.07974156050349793, 0.024780457941105134, 0.006961836119615334,
        0.0017851254499828683, 0.0004210738005420688, 9.197224255094417e-05, 1.8706885445050278e-05,
        3.5604015677784285e-06, 6.368736660828254e-07, 1.074275183904224e-07, 1.7060187003561097e-08,
        2.5855149518422466e-09, 4.1160383817922684e-10, 5.6375638000251275e-11,
    ),
)  # fmt: skip
EXPI_6 = Fit(
    1 / 12,
    1 / 6,
    (
        1.181847986987208, 0.09097863630348535, 0.010157308753614763, -0.003353388660169933, -0.0011258914511364376,
        0.00037313842221168794, 4.205947124099479e-05, -4.5551153612023504e-05, 9.19663897399702e-06,
        1.4333396048004571e-06, -1.4452260551969772e-06, 4.245281687484372e-07, -2.9677345061659614e-08,
        -3.0560803589086644e-08, 1.6870987483786506e-08, -4.761318064140845e-09, 5.397253375230443e-10,
        2.7905901089352965e-10, -2.0539947190629477e-10, 5.477529028181542e-11, -3.654037740114076e-12,
    ),
)  # fmt: skip
EXPI_12 = Fit(
    1 / 25,
    1 / 12,
    (
        1.0712124020737062, 0.029367107945548167, 0.00206421083250281, 0.00029470050055074864, 4.745296327727268e-05,
        -5.0413883095184235e-06, -6.4215483422160075e-06, -5.032000239712625e-07, 6.667573985530211e-07,
        3.481441926405454e-08, -7.74864097983575e-08, 7.935206256208758e-09, 7.198007552207221e-09,
        -2.6173600712430947e-09, -1.2484532476382696e-10, 3.4382765501345305e-10, -9.028236785965669e-11,
        -1.1991861982534187e-11, 1.1673511590343939e-11, -1.7937579031812448e-12,
    ),
)  # fmt: skip
EXPI_25 = Fit(
    1 / 60,
    1 / 25,
    (
        1.0300934882838522, 0.013188670195159433, 0.00036241978216011207, 1.6186430867482725e-05,
        1.0588276547171712e-06, 9.72534755799523e-08, 1.2541432922731681e-08, 2.31337691524559e-09,
        5.562223860337793e-10, 1.1682430327608257e-10, -7.288880422792903e-12, -2.1810908322523528e-11,
        -7.160476615816628e-12, 1.0152204848201554e-12, 8.32184560893144e-13,
    ),
)  # fmt: skip
EXPI_60 = Fit(
    0.0,
    1 / 60,
    (
        1.0084758152639228, 0.00862201640681427, 0.00015005216667199773, 3.9887845495546655e-06, 1.4403853413331437e-07,
        6.627822990869455e-09, 3.732918102354434e-10, 2.502943157557305e-11, 1.958954948706026e-12,
        1.8234937044782157e-13, 1.8893292560588704e-14,
    ),
)  # fmt: skip
# exp1(x) + log(x) + EULER is x*P(x); then it is exp(-x)/x times one of these of 1/x.
EULER = 0.5772156649015329
EXP1_NEAR = Fit(
    0.0,
    1.0,
    (
        0.8876841582354967, -0.10074547766076357, 0.010541467229713778, -0.0009496819183999231, 7.387064025369851e-05,
        -5.024388272123079e-06, 3.027425014978342e-07, -1.634832596071036e-08, 7.990920056740073e-10,
        -3.565610231478228e-11, 1.468861577259427e-12, -5.575070247424053e-14,
    ),
)  # fmt: skip
EXP1_1 = Fit(
    1 / 3,
    1.0,
    (
        0.6723850039373744, -0.09048125492171806, 0.017743286294761056, -0.0041416843323691015, 0.0010736734228737744,
        -0.0002990202276056637, 8.779744065315614e-05, -2.6857299725564145e-05, 8.490900380739997e-06,
        -2.7584749263023758e-06, 9.169824703527432e-07, -3.108762650908049e-07, 1.0721958440423146e-07,
        -3.759494949104656e-08, 1.3350973257350958e-08, -4.7081512084501794e-09, 1.6990045216797905e-09,
        -7.207307355752203e-10, 2.7468355910623834e-10, -3.3986757831894436e-11, 9.39797519199912e-12,
        -3.09527253290226e-11, 1.2417553443322163e-11,
    ),
)  # fmt: skip
EXP1_3 = Fit(
    0.1,
    1 / 3,
    (
        0.8428890885422876, -0.06341020263378075, 0.007815695522597765, -0.0012318219411488881, 0.000226521523620011,
        -4.6417831128764566e-05, 1.0317519577218235e-05, -2.444751861611122e-06, 6.101863515291339e-07,
        -1.59036504799482e-07, 4.3006832838891063e-08, -1.200522258198613e-08, 3.4401870761474085e-09,
        -1.0111219810962158e-09, 3.1148287639312904e-10, -9.623652022585499e-11, 2.3690844900599655e-11,
        -7.151201030758731e-12, 5.290428357107053e-12, -1.8055747545356618e-12,
    ),
)  # fmt: skip
EXP1_10 = Fit(
    0.0,
    0.1,
    (
        0.9543709099192168, -0.04178910830355355, 0.0033892905312570675, -0.0003846822247703579, 5.463711876942711e-05,
        -9.149509097935612e-06, 1.7415311978754892e-06, -3.6763885452363333e-07, 8.458132686597381e-08,
        -2.0935011340531943e-08, 5.518942817122841e-09, -1.5339278376577014e-09, 4.4788413811599823e-10,
        -1.4200727484570597e-10, 4.59030882411572e-11, -1.0396199592614046e-11, 3.1044202247027e-12,
        -3.440568197068729e-12, 1.3378754854893143e-12,
    ),
)  # fmt: skip
# The dilogarithm of -w, over -w, of w.
SPENCE = Fit(
    -0.5,
    0.5,
    (
        1.0, -0.12500000000000003, 0.02777777777777675, -0.007812499999997531, 0.0025000000000569684,
        -0.0008680555556434655, 0.0003188775497828706, -0.00012207031104564493, 4.8225322574110015e-05,
        -1.9531263523484897e-05, 8.070671430460835e-06, -3.390763831610521e-06, 1.4450160423722336e-06,
        -6.231054460210578e-07, 2.701394974071265e-07, -1.1843830095479673e-07, 5.49719307377638e-08,
        -2.4922253504495736e-08, 7.732498663981535e-09, -3.090532640354942e-09, 4.598525468795842e-09,
        -2.3458533920064897e-09, -8.365969024146411e-10, 4.754555293222241e-10, 4.4513979483915824e-10,
        -2.2039356220366022e-10,
    ),
)  # fmt: skip


def log_over_root(x: Array, root: tuple[float, float]) -> tuple[Array, Array]:
    """Compute log(x/root) and x - root, both small near the root, which is given as the sum of two numbers."""
    difference = (x - root[0]) - root[1]
    near = abs(difference) < 0.25 * root[0]
    far_value = wnp.log(wnp.where(near, 1.0, x) / root[0])
    return wnp.where(near, wnp.log1p(wnp.where(near, difference, 0.0) / root[0]), far_value), difference


def positive_exp1(x: Array) -> Array:
    """Compute exp1 of a positive number."""
    small = wnp.minimum(x, 1)
    near = (small * EXP1_NEAR(small) - EULER) - wnp.log(small)
    inverse = 1 / wnp.maximum(x, 1)
    ratio = wnp.where(x < 3, EXP1_1(inverse), wnp.where(x < 10, EXP1_3(inverse), EXP1_10(inverse)))
    return wnp.where(x < 1, near, wnp.exp(-x) * (inverse * ratio))


@primitive
class expi(DoubleFunction):
    """Principal value of the integral of exp(t)/t from minus infinity to x."""

    @precise
    def eval(x: Any) -> Any:
        return np.where(np.isposinf(x), x, special.expi(x))  # before 1.17 SciPy says nan there

    def compute(self, x: Array) -> Array:
        positive = x > 0
        size = wnp.where(positive, x, 1.0)
        logarithm, difference = log_over_root(wnp.minimum(size, 6), EXPI_ROOT)
        near = logarithm + difference * EXPI_NEAR(size)
        inverse = 1 / wnp.maximum(size, 6)
        upper = wnp.where(size < 60, EXPI_25(inverse), EXPI_60(inverse))
        ratio = wnp.where(size < 12, EXPI_6(inverse), wnp.where(size < 25, EXPI_12(inverse), upper))
        power = wnp.exp(size / 2)  # the whole may be too large where the result is not
        value = wnp.where(size < 6, near, power * (power * (inverse * ratio)))
        value = wnp.where(positive, wnp.where(x == np.inf, np.inf, value), -positive_exp1(wnp.where(x < 0, -x, 1.0)))
        return wnp.where(x == 0, -np.inf, wnp.where(wnp.isnan(x), np.nan, value))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return tangent * (lax.exp(x) / x)

    def samples(self) -> Any:
        yield Sample(positive_ramp(3, 2))
        values = np.array([-3, 0, 0.3725074, 20, 50, 80, -np.inf, np.inf, np.nan], np.float32)
        yield Sample(values, differentiable=False)


@primitive
class exp1(DoubleFunction):
    """Integral of exp(-t)/t from x to infinity; nan for negative x."""

    @precise
    def eval(x: Any) -> Any:
        return np.where(x < 0, np.nan, special.exp1(np.abs(x)))

    def compute(self, x: Array) -> Array:
        positive = x > 0
        value = positive_exp1(wnp.where(positive, x, 1.0))
        return wnp.where(positive, value, wnp.where(x == 0, np.inf, np.nan))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return -(tangent * (lax.exp(-x) / x))

    def samples(self) -> Any:
        yield Sample(positive_ramp(3, 2))
        yield Sample(np.array([-3, 0, 1e-20, 20, 90, np.inf, np.nan], np.float32), differentiable=False)


SERIES_END, SERIES_TERMS, FRACTION_LEVELS = 2.0, 30, 64


@primitive
class expn(DoubleFunction):
    """Integral of exp(-x*t)/t**n from t = 1 to infinity, of an integer n."""

    one_kernel = False
    weight = 1000

    @precise
    def eval(n: Any, x: Any) -> Any:
        return np.where(n != np.floor(n), np.nan, special.expn(n.astype(np.int64), x))

    def compute(self, n: Array, x: Array) -> Array:
        n, x = wnp.broadcast_arrays(n, x)
        order = wnp.maximum(n, 1)
        inside = (x > 0) & (x < SERIES_END)
        small = wnp.where(inside, x, 1.0)
        total = wnp.zeros_like(x)
        power = wnp.ones_like(x)
        for m in range(SERIES_TERMS):
            divisor = m - order + 1
            total = total - wnp.where(divisor == 0, 0.0, power / wnp.where(divisor == 0, 1.0, divisor))
            power = power * (-small / (m + 1))
        sign = wnp.where(wnp.remainder(order, 2.0) == 1, 1.0, -1.0)
        factor = sign * wnp.exp((order - 1) * wnp.log(small) - lax.lgamma(order))
        near = total + factor * (lax.digamma(order) - wnp.log(small))
        near = wnp.where(order == 1, positive_exp1(small), near)

        large = wnp.maximum(x, SERIES_END)

        def level(i: Any, rest: Array) -> Array:
            k = FRACTION_LEVELS - wnp.asarray(i, dtype=rest.dtype)
            return k * (order + k - 1) / (large + order + 2 * k - rest)

        rest = lax.fori_loop(0, FRACTION_LEVELS, level, wnp.zeros_like(x))
        value = wnp.where(x < SERIES_END, near, wnp.exp(-large) / (large + order - rest))
        at_zero = wnp.where(n > 1, 1 / wnp.where(n > 1, n - 1, 1.0), np.inf)
        value = wnp.where(x == 0, at_zero, wnp.where(n == 0, wnp.exp(-x) / x, value))
        value = wnp.where(x == np.inf, 0.0, value)
        return wnp.where((x >= 0) & (n >= 0) & (n == wnp.floor(n)), value, np.nan)

    def partial(self, i: int, tangent: Any, out: Any, n: Any, x: Any) -> Any:
        if i == 0:
            return wnp.zeros_like(out)  # of an integer
        below = expn(wnp.maximum(n - 1, 0), x)
        first = lax.exp(-x) / x * (1 + 1 / x)
        return -(tangent * wnp.where(wnp.broadcast_to(n, out.shape) == 0, first, below))

    def samples(self) -> Any:
        yield Sample(np.array([1, 2, 5], np.float32), positive_ramp(3), differentiable=False)
        edges = np.array([0, 1, 3, 40, 2, 2.5], np.float32), np.array([1.5, 0, 0, 3, np.inf, 1], np.float32)
        yield Sample(*edges, differentiable=False)


def log_ratio(x: Any) -> Any:
    """log(x)/(1 - x), which is -1 at 1, with its derivatives."""
    u = x - 1
    near = abs(u) < 0.3
    series = polynomial(wnp.where(near, u, 0.0), [(-1) ** (n + 1) / (n + 1) for n in range(32)])
    return wnp.where(near, series, lax.log(wnp.where(near, 2.0, x)) / wnp.where(near, 1.0, -u))


@primitive
class spence(DoubleFunction):
    """Integral of log(t)/(1 - t) from 1 to x: the dilogarithm of 1 - x."""

    @precise
    def eval(x: Any) -> Any:
        return special.spence(x)

    def compute(self, x: Array) -> Array:
        positive = (x > 0) & (x < np.inf)
        size = wnp.where(positive, x, 1.0)
        large = size > 1.5
        mirrored = wnp.where(large, 1 / size, size)
        small = mirrored < 0.5
        other = wnp.where(small, mirrored, 0.5)
        w = wnp.where(small, -mirrored, wnp.where(large, 1 / size - 1, size - 1))
        value = -w * SPENCE(w)
        value = wnp.where(small, math.pi**2 / 6 - wnp.log(other) * wnp.log1p(-other) - value, value)
        logarithm = wnp.log(wnp.where(large, size, 1.0))
        value = wnp.where(large, -0.5 * logarithm * logarithm - value, value)
        edge = wnp.where(x == 0, math.pi**2 / 6, wnp.where(x == np.inf, -np.inf, np.nan))
        return wnp.where(positive, value, edge)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return tangent * log_ratio(x)

    def samples(self) -> Any:
        yield Sample(positive_ramp(3, 2))
        yield Sample(np.array([0, 1, 3, 1e10, -1, np.nan], np.float32), differentiable=False)
