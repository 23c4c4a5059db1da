"""Functions made of gamma functions, without the digits that are lost when their logarithms are subtracted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.arithmetic import add, div, mul, sub
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.exponential import log, log1p
from weft.primitives.elementwise.scalar import constant_like, positive_ramp, precise, unit_ramp
from weft.primitives.elementwise.select import where
from weft.primitives.elementwise.special_gamma import digamma, log_gamma, polygamma
from weft.scipy.special.primitives.defined import DoubleFunction, Fit, excess, polynomial, sine_of_pi_times
from weft.trace.array import Array

special = lazy("scipy.special")

# gamma(x) of x.
GAMMA = Fit(
    1.0,
    2.0,
    (
        0.886226925452758, 0.01616919872444251, 0.10370336342207546, -0.013411850570596785, 0.009040334940280947,
        -0.0024225953843625588, 0.0009157859972898092, -0.0002968901216342163, 0.00010092814881772948,
        -3.363758331914599e-05, 1.1252464319176403e-05, -3.7549903559493654e-06, 1.2528146115226586e-06,
        -4.178087483704399e-07, 1.393836052045693e-07, -4.647752736990225e-08, 1.5383437137601306e-08,
        -5.1195862785237635e-09, 1.8224856202885499e-09, -6.135264478698891e-10, 1.2766019342198785e-10,
        -4.014703919780222e-11, 4.265918684193356e-11, -1.4638348885682684e-11,
    ),
)  # fmt: skip
# gamma(x) / (sqrt(2*pi) * x**(x - 1/2) * exp(-x)) of 1/x, and x times its logarithm of 1/x**2.
STIRLING_FACTOR = Fit(
    0.0,
    0.1,
    (
        1.0041750108677654, 0.004183017771648701, 7.668909419003242e-06, -3.3844695292880717e-07,
        -2.0892527243155326e-10, 2.419250174936469e-10, -2.070323363721101e-12, -4.218939930048901e-13,
        1.1394394498281576e-14, 1.2265923527948644e-15,
    ),
)  # fmt: skip
STIRLING = Fit(
    0.0,
    0.01,
    (
        0.08331946421182973, -1.3849427488491179e-05, 1.9621153654303385e-08, -7.235837979288893e-11,
        4.975590506154813e-13, -5.439384008668355e-15, 8.586182395144636e-17,
    ),
)  # fmt: skip
# digamma(x) = log(x) - 1/(2*x) - P(1/x**2)/x**2.
DIGAMMA_FAR = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
FAR = 10.0  # from here on by Stirling's formula
LARGEST = 171.7  # gamma(x) is infinite for larger x
HALF_LOG_TWO_PI = math.log(2 * math.pi) / 2


def gamma_samples() -> Any:
    """Yield pairs of positive operands."""
    yield Sample(positive_ramp(3, 2), positive_ramp(3, 2)[::-1].copy())
    yield Sample(np.array([0.5, 30, 1000], np.float32), np.array([20, 3, 1010], np.float32), differentiable=False)


@primitive
class gamma(DoubleFunction):
    """Gamma function; nan at the negative integers."""

    @precise
    def eval(x: Any) -> Any:
        poles = (x < 0) & (x == np.floor(x))
        return np.where(poles, np.nan, np.where(x == 0, np.copysign(np.inf, x), special.gamma(x)))

    def compute(self, x: Array) -> Array:
        size = abs(x)
        # Below 10 by factors from between 1 and 2, where x less an integer is exact.
        small = wnp.where(size < FAR, size, 1.5)
        start = wnp.where(small < 1, small + 1, small)
        product = wnp.ones_like(x)
        for n in range(1, int(FAR) - 1):
            product = product * wnp.where(start >= n + 1, start - n, 1.0)
        near = GAMMA(start - wnp.floor(start) + 1) * product / wnp.where(small < 1, small, 1.0)
        large = wnp.clip(size, FAR, LARGEST)
        root = large ** (large / 2 - 0.25)  # the power itself may be too large
        far = (math.sqrt(2 * math.pi) * STIRLING_FACTOR(1 / large)) * (root * wnp.exp(-large)) * root
        value = wnp.where(size < FAR, near, wnp.where(size < LARGEST, far, np.inf))
        mirrored = math.pi / (size * sine_of_pi_times(size)) / value
        poles = (x < 0) & (x == wnp.floor(x))
        value = wnp.where(x < 0, -mirrored, value)
        value = wnp.where(x == 0, wnp.copysign(np.inf, x), value)
        return wnp.where(poles | wnp.isnan(x), np.nan, value)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, mul(out, digamma(x)))

    def samples(self) -> Any:
        yield Sample(positive_ramp(3, 2))
        yield Sample(np.array([-1.5, 0, -1, np.inf, np.nan, 30, -20.5], np.float32), differentiable=False)


def stirling(x: Array) -> Array:
    """Compute lgamma(x) - ((x - 1/2)*log(x) - x + log(2*pi)/2) for x from 10 up."""
    far = wnp.maximum(x, FAR)
    return STIRLING(1 / (far * far)) / far


def lgamma_difference(x: Array, h: Array) -> Array:
    """Compute lgamma(x + h) - lgamma(x), by Stirling's formula where both are large."""
    total = x + h
    far = (x >= FAR) & (total >= FAR)
    base, shift = wnp.where(far, x, FAR), wnp.where(far, h, 0.0)
    end = base + shift
    value = (base - 0.5) * wnp.log1p(shift / base) + shift * (wnp.log(end) - 1)
    return wnp.where(far, value + (stirling(end) - stirling(base)), lax.lgamma(total) - lax.lgamma(x))


def digamma_difference(x: Array, h: Array) -> Array:
    """Compute digamma(x + h) - digamma(x)."""
    total = x + h
    far = (x >= FAR) & (total >= FAR)
    base, shift = wnp.where(far, x, FAR), wnp.where(far, h, 0.0)
    end = base + shift

    def rest(x: Array) -> Array:
        return polynomial(1 / (x * x), DIGAMMA_FAR) / (x * x)

    value = wnp.log1p(shift / base) + shift / (2 * base * end) - (rest(end) - rest(base))
    return wnp.where(far, value, lax.digamma(total) - lax.digamma(x))


@primitive
class gamma_difference(DoubleFunction):
    """lgamma(x + h) - lgamma(x), or its derivative of an order in x."""

    @precise
    def eval(x: Any, h: Any, *, order: int) -> Any:
        if order == 0:
            return special.gammaln(x + h) - special.gammaln(x)
        return special.polygamma(order - 1, x + h) - special.polygamma(order - 1, x)

    def compute(self, x: Array, h: Array, *, order: int) -> Array:
        if order == 0:
            return lgamma_difference(x, h)
        if order == 1:
            return digamma_difference(x, h)
        n = wnp.full_like(x, order - 1.0)
        return lax.polygamma(wnp.full_like(x + h, order - 1.0), x + h) - lax.polygamma(n, x)

    def partial(self, i: int, tangent: Any, out: Any, x: Any, h: Any, *, order: int) -> Any:
        if i == 0:
            return mul(tangent, gamma_difference(x, h, order=order + 1))
        total = add(x, h)
        return mul(tangent, polygamma(constant_like(x, order), total) if order else digamma(total))

    def samples(self) -> Any:
        for sample in gamma_samples():
            yield Sample(*sample.args, differentiable=sample.differentiable, order=0)
        yield Sample(positive_ramp(3), positive_ramp(3), order=1)


def log_sine_of_pi_times(x: Array, y: Array | float) -> Array:
    """log(|sin(pi*(x + y))|), with the digits of x + y that rounding it would lose."""
    total = x + y
    part = total - x
    lost = (x - (total - part)) + (y - part)
    distance = (total - wnp.round(total)) + (lost - wnp.round(lost))
    distance = abs(distance - wnp.round(distance))
    near = distance < 1e-9
    sine = wnp.sin(np.pi * wnp.where(near, 0.5, distance))
    return wnp.where(near, math.log(math.pi) + wnp.log(distance), wnp.log(sine))


def positive_log_beta(a: Array, b: Array) -> Array:
    """Compute betaln(a, b) of positive numbers."""
    less, more = wnp.minimum(a, b), wnp.maximum(a, b)
    # Both large: what the logarithms have in common is left out.
    both = less >= FAR
    p, q = wnp.where(both, less, FAR), wnp.where(both, more, FAR)
    value = HALF_LOG_TWO_PI - 0.5 * wnp.log(q) + (p - 0.5) * wnp.log(p / (p + q)) - q * wnp.log1p(p / q)
    value = value + (stirling(p) + (stirling(q) - stirling(p + q)))
    return wnp.where(both, value, lax.lgamma(less) - lgamma_difference(more, less))


@primitive
class log_beta(DoubleFunction):
    """lgamma(a) + lgamma(b) - lgamma(a + b)."""

    @precise
    def eval(a: Any, b: Any) -> Any:
        by_parts = log_gamma(a) + log_gamma(b) - log_gamma(a + b)
        return np.where(np.minimum(np.abs(a), np.abs(b)) < 2.0**-60, by_parts, special.betaln(a, b))

    def compute(self, a: Array, b: Array) -> Array:
        """Compute the beta function. If an argument is not positive, use the beta function of two positive numbers,
        since gamma(x)*gamma(1 - x) = pi/sin(pi*x): the difference of logarithms of gamma functions would lose digits.
        """
        less, more = wnp.minimum(a, b), wnp.maximum(a, b)
        total = less + more
        negative, both, below = less <= 0, more <= 0, total <= 0
        # The beta function of these, or where `inverse` holds one divided by it.
        inverse = negative & (both | ~below)
        p = wnp.where(inverse, 1 - less, wnp.where(negative, 1 - total, less))
        q = wnp.where(both, 1 - more, wnp.where(inverse, total, more))
        known = positive_log_beta(p, q)
        sines = wnp.where(below, log_sine_of_pi_times(less, more), 0.0) - log_sine_of_pi_times(less, 0.0)
        factor = -wnp.log(wnp.where(both, 1 - total, more)) - wnp.where(both, log_sine_of_pi_times(more, 0.0), 0.0)
        factor = wnp.where(inverse, math.log(math.pi) + factor, 0.0)
        return wnp.where(negative, sines + (factor + wnp.where(inverse, -known, known)), known)

    def partial(self, i: int, tangent: Any, out: Any, a: Any, b: Any) -> Any:
        x, h = (a, b) if i == 0 else (b, a)
        zero = constant_like(x, 0)
        return mul(tangent, sub(zero, gamma_difference(x, h, order=1)))

    def samples(self) -> Any:
        yield from gamma_samples()


@primitive
class gamma_ratio(DoubleFunction):
    """gamma(x + h)/gamma(x) of positive numbers, or the magnitude of it."""

    @precise
    def eval(x: Any, h: Any) -> Any:
        small = (np.abs(x) < LARGEST) & (np.abs(x + h) < LARGEST)
        direct = special.gamma(np.where(small, x + h, 1.0)) / special.gamma(np.where(small, x, 1.0))
        return np.where(small, np.abs(direct), np.exp(special.gammaln(x + h) - special.gammaln(x)))

    def compute(self, x: Array, h: Array) -> Array:
        total = x + h
        small = (abs(x) < LARGEST) & (abs(total) < LARGEST)
        direct = gamma(wnp.where(small, total, 1.0)) / gamma(wnp.where(small, x, 1.0))
        return wnp.where(small, abs(direct), wnp.exp(lgamma_difference(x, h)))

    def partial(self, i: int, tangent: Any, out: Any, x: Any, h: Any) -> Any:
        change = gamma_difference(x, h, order=1) if i == 0 else digamma(add(x, h))
        return mul(tangent, mul(out, change))

    def samples(self) -> Any:
        yield from gamma_samples()


@primitive
class beta(DoubleFunction):
    """gamma(a)*gamma(b)/gamma(a + b)."""

    @precise
    def eval(a: Any, b: Any) -> Any:
        return special.beta(a, b)

    def compute(self, a: Array, b: Array) -> Array:
        small = (abs(a) < 60) & (abs(b) < 60)
        p, q = wnp.where(small, a, 1.0), wnp.where(small, b, 1.0)
        total = p + q
        pole = (total <= 0) & (total == wnp.floor(total))
        direct = gamma(p) * (gamma(q) / gamma(wnp.where(pole, 1.0, total)))
        direct = wnp.where(pole & wnp.isfinite(direct), 0.0, direct)
        positive = (a > 0) & (b > 0)
        sign = _sign(a) * _sign(b) * _sign(a + b)
        return wnp.where(small, direct, wnp.where(positive, 1.0, sign) * wnp.exp(log_beta(a, b)))

    def partial(self, i: int, tangent: Any, out: Any, a: Any, b: Any) -> Any:
        x, h = (a, b) if i == 0 else (b, a)
        return mul(tangent, mul(out, sub(constant_like(x, 0), gamma_difference(x, h, order=1))))

    def samples(self) -> Any:
        yield from gamma_samples()


def _sign(x: Array) -> Array:
    """Return the sign of gamma(x) where it is not a pole."""
    return wnp.where((x > 0) | (wnp.remainder(wnp.floor(x), 2.0) == 0), 1.0, -1.0)


@primitive
class log_gamma_density(DoubleFunction):
    """(a - 1)*log(x) - x - lgamma(a), where 0*log(0) is 0: of a gamma variable x, or a Poisson one a - 1 of mean x."""

    @precise
    def eval(a: Any, x: Any) -> Any:
        return special.xlogy(a - 1, x) - x - special.gammaln(a)

    def compute(self, a: Array, x: Array) -> Array:
        power = wnp.where(a == 1, 0.0, (a - 1) * wnp.log(wnp.where(a == 1, 1.0, x)))
        plain = power - x - lax.lgamma(a)
        far = (a >= FAR) & (x > 0) & (x < np.inf)
        shape, value = wnp.where(far, a, FAR), wnp.where(far, x, FAR)
        # By the distance of x and a, which is small next to the terms where the density is not small.
        near = 0.5 * wnp.log(shape) - HALF_LOG_TWO_PI - wnp.log(value) - stirling(shape)
        return wnp.where(far, near - shape * excess((value - shape) / shape, value / shape), plain)

    def partial(self, i: int, tangent: Any, out: Any, a: Any, x: Any) -> Any:
        if i == 0:
            return mul(tangent, sub(log(x), digamma(a)))
        one = constant_like(x, 1)
        return mul(tangent, sub(_ratio(sub(a, one), x), one))

    def samples(self) -> Any:
        yield from gamma_samples()


def _ratio(x: Any, y: Any) -> Any:
    """Compute x/y, and 0 where x is 0, whatever y is."""
    zero, one = constant_like(x, 0), constant_like(x, 1)
    absent = eq(x, zero)
    return where(absent, zero, div(x, where(absent, one, y)))


@primitive
class log_beta_density(DoubleFunction):
    """(a - 1)*log(x) + (b - 1)*log(1 - x) - betaln(a, b), where 0*log(0) is 0: the density of a beta variable x."""

    @precise
    def eval(a: Any, b: Any, x: Any) -> Any:
        return special.xlogy(a - 1, x) + special.xlog1py(b - 1, -x) - special.betaln(a, b)

    def compute(self, a: Array, b: Array, x: Array) -> Array:
        below = wnp.where(a == 1, 0.0, (a - 1) * wnp.log(wnp.where(a == 1, 1.0, x)))
        above = wnp.where(b == 1, 0.0, (b - 1) * wnp.log1p(-wnp.where(b == 1, 0.0, x)))
        positive = (a > 0) & (b > 0)
        p, q = wnp.where(positive, a, 1.0), wnp.where(positive, b, 1.0)
        plain = below + above - positive_log_beta(p, q)
        far = positive & (a >= FAR) & (b >= FAR) & (x > 0) & (x < 1)
        p, q, y = wnp.where(far, a, FAR), wnp.where(far, b, FAR), wnp.where(far, x, 0.5)
        total = p + q
        distance = total * y - p
        near = 0.5 * (wnp.log(p / total) + wnp.log(q)) - HALF_LOG_TWO_PI - wnp.log(y) - wnp.log1p(-y)
        near = near - (stirling(p) + (stirling(q) - stirling(total)))
        near = near - p * excess(distance / p, total * y / p) - q * excess(-distance / q, total * (1 - y) / q)
        return wnp.where(positive, wnp.where(far, near, plain), np.nan)

    def partial(self, i: int, tangent: Any, out: Any, a: Any, b: Any, x: Any) -> Any:
        if i == 0:
            return mul(tangent, add(log(x), gamma_difference(a, b, order=1)))
        negative = sub(constant_like(x, 0), x)
        if i == 1:
            return mul(tangent, add(log1p(negative), gamma_difference(b, a, order=1)))
        one = constant_like(x, 1)
        return mul(tangent, sub(_ratio(sub(a, one), x), _ratio(sub(b, one), add(one, negative))))

    def samples(self) -> Any:
        x = unit_ramp(3, 2) * 0.5 + np.float32(0.5)
        yield Sample(positive_ramp(3, 2), positive_ramp(3, 2)[::-1].copy(), x)
        large = np.array([30, 1000, 12], np.float32)
        yield Sample(large, large[::-1].copy(), np.array([0.01, 0.9, 0.5], np.float32), differentiable=False)
