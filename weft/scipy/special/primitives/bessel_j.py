"""Bessel functions of the first kind and integer order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.scalar import precise, unit_ramp
from weft.scipy.special.primitives.defined import DoubleFunction, Fit
from weft.trace.array import Array

special = lazy("scipy.special")

# J0 and J1/x as polynomials in x*x; then as polynomials in x.
J0_0 = Fit(
    0.0,
    16.0,
    (
        -0.1965480952704682, -0.565959973761085, 0.4795280821510107, -0.1310320635136455, 0.01835270061006565,
        -0.0015789541366878427, 9.228173990226533e-05, -3.9103419791529915e-06, 1.2577280629362694e-07,
        -3.177438769960179e-09, 6.474430237321259e-11, -1.0874323451174138e-12, 1.529983196324343e-14,
    ),
)  # fmt: skip
J1_0 = Fit(
    0.0,
    16.0,
    (
        0.14148999344027124, -0.23976404107550536, 0.09827404763523412, -0.01835270061006565, 0.0019736926708597224,
        -0.00013842260985339657, 6.843098463778058e-06, -2.5154561259096733e-07, 7.1492368977101096e-09,
        -1.6186075180699704e-10, 2.9905877047589106e-12, -4.5901146303500886e-14,
    ),
)  # fmt: skip
J0_4 = Fit(
    4.0,
    9.0,
    (
        0.2600946055816064, 0.3846032535249296, -0.8867578065819295, -0.2774591620729121, 0.4648454000346712,
        0.050258101428215775, -0.09071885286298238, -0.004176732558236107, 0.009373132695353085, 0.00018688163448636591,
        -0.0006040437613168751, -4.246607816473912e-06, 2.6694464479269122e-05, 6.857758396699049e-10,
        -8.608601238826982e-07, 3.4374443407166693e-09, 2.117026877716758e-08, -1.3432186572969677e-10,
        -4.093796086854996e-10, 2.9202682047592465e-12, 5.991759217272322e-12,
    ),
)  # fmt: skip
J1_4 = Fit(
    4.0,
    9.0,
    (
        -0.15384130140997185, 0.7094062452655435, 0.3329509944874946, -0.7437526400554735, -0.10051620285643371,
        0.21772524687114944, 0.011694851163085352, -0.02999402462505817, -0.0006727738842860344, 0.002416175044932904,
        1.868507481284965e-05, -0.00012813342858795777, -3.566798665260354e-09, 4.820815196251365e-06,
        -2.0623859750873887e-08, -1.3548826546760598e-07, 9.129317873537998e-10, 2.946763043923899e-09,
        -2.2086532566020073e-11, -4.776293182446787e-11,
    ),
)  # fmt: skip
# Factors of cosine and sine from 9 on, the latter times x, as polynomials in 1/x**2.
HANKEL_P0 = Fit(
    0.0,
    1 / 81,
    (
        0.9995701189720512, -0.00042585373239848747, 3.914432305835365e-06, -1.0683625514672654e-07,
        5.529267883538366e-09, -4.413152106366447e-10, 4.8281997046294335e-11, -6.7174223986402545e-12,
        1.114053083742722e-12, -2.156455903862794e-13, 6.102061060444271e-14, -1.6073331901118366e-14,
    ),
)  # fmt: skip
HANKEL_Q0 = Fit(
    0.0,
    1 / 81,
    (
        -0.12455616632083075, 0.00043590245864856027, -7.608619854905718e-06, 3.0039435364229997e-07,
        -1.9993515333813588e-08, 1.9225354248595096e-09, -2.431840562934338e-10, 3.803607979650246e-11,
        -7.04654510640297e-12, 1.506457365309275e-12, -3.6141496411316614e-13, 8.56467013320828e-14,
        -2.305615740647774e-14, 1.333230542203105e-14, -4.792624089567467e-15,
    ),
)  # fmt: skip
HANKEL_P1 = Fit(
    0.0,
    1 / 81,
    (
        1.0007180352965201, 0.0007128328135156925, -5.068154625173774e-06, 1.274355571495726e-07, -6.33675601914769e-09,
        4.940043671793684e-10, -5.3218396584050126e-11, 7.323966368050012e-12, -1.2051792043644314e-12,
        2.31865043534708e-13, -6.514720028134364e-14, 1.7087662758413125e-14,
    ),
)  # fmt: skip
HANKEL_Q1 = Fit(
    0.0,
    1 / 81,
    (
        0.37437718570039785, -0.0006130741431249658, 9.365307990459238e-06, -3.4980714619913687e-07,
        2.2592116037918752e-08, -2.1319936977452423e-09, 2.6624301788727154e-10, -4.125918437309176e-11,
        7.606633716568145e-12, -1.6135610778288812e-12, 3.6110225338996253e-13, -9.110538792162534e-14,
        4.2103810102034583e-14, -1.4054147063580304e-14,
    ),
)  # fmt: skip
EXTRA = 40  # how far above the order recurrences start


def first_orders(x: Array) -> tuple[Array, Array]:
    """Compute the functions of order 0 and 1 for numbers from 0 up."""
    square = wnp.square(wnp.minimum(x, 4))
    far = wnp.clip(x, 9, 1e300)
    inverse = 1 / far
    v = inverse * inverse
    sine, cosine = wnp.sin(far), wnp.cos(far)
    scale = wnp.sqrt(inverse / math.pi)
    plus, minus = cosine + sine, sine - cosine
    far_0 = scale * (HANKEL_P0(v) * plus - HANKEL_Q0(v) * inverse * minus)
    far_1 = scale * (HANKEL_P1(v) * minus + HANKEL_Q1(v) * inverse * plus)
    zero = wnp.where(x < 4, J0_0(square), wnp.where(x < 9, J0_4(x), far_0))
    one = wnp.where(x < 4, x * J1_0(square), wnp.where(x < 9, J1_4(x), far_1))
    return wnp.where(x == np.inf, 0.0, zero), wnp.where(x == np.inf, 0.0, one)


@primitive
class bessel_j(DoubleFunction):
    """Bessel function of the first kind of an integer order, a parameter."""

    weight = 1000

    @precise
    def eval(x: Any, *, order: int) -> Any:
        return np.where(np.isinf(x), 0.0, special.jv(order, x))

    def compute(self, x: Array, *, order: int) -> Array:
        size = abs(x)
        zero, one = first_orders(size)
        if order == 0:
            return wnp.where(wnp.isnan(x), np.nan, zero)
        if order == 1:
            return wnp.where(wnp.isnan(x), np.nan, wnp.where(x < 0, -one, one))
        # Upwards where x is larger than the order; elsewhere by ratios of neighbours, which are found downwards.
        large = size > order
        inverse = 2 / wnp.where(large, size, order + 1.0)
        below, value = zero, one
        for n in range(1, order):
            below, value = value, n * inverse * value - below
        small = wnp.where(large | (size == 0), 1.0, size)
        ratio = wnp.zeros_like(x)
        ratios = []
        for n in range(order + EXTRA, 0, -1):
            divisor = 2 * n / small - ratio
            ratio = 1 / wnp.where(divisor == 0, 1e-300, divisor)
            if n <= order:
                ratios.append(ratio)
        product = wnp.ones_like(x)
        for ratio in ratios[:-1]:
            product = product * ratio
        # From the larger of the first two, since the other may be 0.
        near = wnp.where(abs(zero) > abs(one), zero * (product * ratios[-1]), one * product)
        value = wnp.where(large, value, wnp.where(size == 0, 0.0, near))
        value = wnp.where(size == np.inf, 0.0, value)
        return wnp.where(wnp.isnan(x), np.nan, wnp.where(x < 0, (-1) ** order * value, value))

    def partial(self, i: int, tangent: Any, out: Any, x: Any, *, order: int) -> Any:
        above = bessel_j(x, order=order + 1)
        return tangent * (0.5 * (bessel_j(x, order=order - 1) - above) if order else -above)

    def samples(self) -> Any:
        yield Sample(unit_ramp(3, 2), order=0)
        yield Sample(np.array([-3, 0, 1e-10, 2.5, 7, 20, np.inf, np.nan], np.float32), order=3, differentiable=False)
