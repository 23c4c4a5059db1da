"""Zeta and incomplete beta functions with derivatives in all their arguments, which are those of their series."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.api.differentiate import jvp
from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.scalar import positive_ramp, precise, unit_ramp
from weft.scipy.special.primitives.defined import DoubleFunction
from weft.scipy.special.primitives.gamma import gamma, log_beta_density
from weft.trace.array import Array

special = lazy("scipy.special")


def derivative(function: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
    """Return the elementwise derivative of an order of a function."""
    if order == 0:
        return function
    below = derivative(function, order - 1)
    return lambda x: jvp(below, (x,), (wnp.ones_like(x),))[1]


def by_differences(function: Callable[[float], Any]) -> Any:
    """Differentiate a function of a number at 0 by central differences, to about ten digits."""
    step = 2.0**-10
    below, inner, above, outer = (function(k * step) for k in (-2, -1, 1, 2))
    return (below - 8 * inner + 8 * above - outer) / (12 * step)


def bernoulli_fractions(count: int) -> list[Fraction]:
    """Return the first `count` Bernoulli numbers: B_0, B_1 = -1/2, B_2, ..."""
    found: list[Fraction] = []
    for n in range(count):
        rest = sum((math.comb(n + 1, k) * b for k, b in enumerate(found)), start=Fraction(0))
        found.append(-rest / (n + 1) if n else Fraction(1))
    return found


TERMS, CORRECTIONS = 12, 12
EULER_MACLAURIN = [
    float(b / math.factorial(2 * j)) for j, b in enumerate(bernoulli_fractions(2 * CORRECTIONS + 2)[::2])
]


def zeta_by_sum(s: Array, q: Array) -> Array:
    """Compute the sum of (q + k)**-s over k for positive q, continued to s from about -20 up, except 1."""
    total = sum((wnp.exp(-s * wnp.log(q + k)) for k in range(TERMS)), start=wnp.zeros_like(s + q))
    end = q + TERMS
    power = wnp.exp(-s * wnp.log(end))
    total = total + power * (end / (s - 1) + 0.5)
    factor = s * power / end
    for j in range(1, CORRECTIONS + 1):
        total = total + EULER_MACLAURIN[j] * factor
        factor = factor * ((s + 2 * j - 1) * (s + 2 * j) / (end * end))
    return total


@primitive
class hurwitz_zeta(DoubleFunction):
    """Derivative of an order in x of the sum of (q + k)**-x over k from 0 up."""

    one_kernel = False
    weight = 1000

    @precise
    def eval(x: Any, q: Any, *, order: int) -> Any:
        if order == 0:
            return special.zeta(x, q)
        return by_differences(lambda h: hurwitz_zeta.eval(x + h, q, order=order - 1))

    def compute(self, x: Array, q: Array, *, order: int) -> Array:
        x, q = wnp.broadcast_arrays(x, q)
        if order == 0:
            return lax.zeta(x, q)
        inside = (x > 1) & (q > 0)
        s, start = wnp.where(inside, x, 2.0), wnp.where(inside, q, 1.0)
        return wnp.where(inside, derivative(lambda s: zeta_by_sum(s, start), order)(s), np.nan)

    def partial(self, i: int, tangent: Any, out: Any, x: Any, q: Any, *, order: int) -> Any:
        if i == 0:
            return tangent * hurwitz_zeta(x, q, order=order + 1)
        change = x * hurwitz_zeta(x + 1, q, order=order)
        if order:
            change = change + order * hurwitz_zeta(x + 1, q, order=order - 1)
        return -(tangent * change)

    def samples(self) -> Any:
        yield Sample(positive_ramp(3, 2) + 1, positive_ramp(3, 2)[::-1].copy(), order=0)
        yield Sample(positive_ramp(3) + 1, positive_ramp(3), order=1, differentiable=False)


@primitive
class riemann_zeta(DoubleFunction):
    """Derivative of an order of Riemann's zeta function of a real number."""

    one_kernel = False
    weight = 1000

    @precise
    def eval(x: Any, *, order: int) -> Any:
        if order == 0:
            return special.zeta(x)
        return by_differences(lambda h: riemann_zeta.eval(x + h, order=order - 1))

    def compute(self, x: Array, *, order: int) -> Array:
        pole = x == 1
        value = derivative(self._continue_analytically, order)(wnp.where(pole | wnp.isinf(x), 2.0, x))
        value = wnp.where(x == np.inf, 0.0 if order else 1.0, wnp.where(x == -np.inf, np.nan, value))
        return wnp.where(pole, np.inf if not order else np.nan, value)

    @staticmethod
    def _continue_analytically(x: Array) -> Array:
        negative = x < 0
        mirrored = wnp.where(negative, 1 - x, x)
        value = zeta_by_sum(mirrored, wnp.ones_like(x))
        below = wnp.where(negative, x, -1.0)
        angle = wnp.sin(math.pi / 2 * wnp.fmod(below, 4.0))
        angle = wnp.where(wnp.fmod(below, 2.0) == 0, 0.0 * angle, angle)
        factor = 2 * wnp.exp((below - 1) * math.log(2 * math.pi)) * angle * gamma(1 - below)
        return wnp.where(negative, factor * value, value)

    def partial(self, i: int, tangent: Any, out: Any, x: Any, *, order: int) -> Any:
        return tangent * riemann_zeta(x, order=order + 1)

    def samples(self) -> Any:
        yield Sample(positive_ramp(3, 2) + 1, order=0)
        yield Sample(np.array([0, 1, 0.5, -2, -3.5, 50, np.nan], np.float32), order=0, differentiable=False)


LEVELS = 300


def _beta_by_fraction(a: Array, b: Array, x: Array) -> Array:
    """Evaluate the incomplete beta function by its continued fraction, for x below the mean."""

    def level(i: Any, rest: Array) -> Array:
        m = LEVELS - wnp.asarray(i, dtype=rest.dtype)
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        return even / (1 + odd / (1 + rest))

    rest = lax.fori_loop(0, LEVELS, level, wnp.zeros_like(x))
    first = -(a + b) * x / (a + 1)
    return wnp.exp(log_beta_density(a, b, x)) * x * (1 - x) / (a * (1 + first / (1 + rest)))


@primitive
class incomplete_beta(DoubleFunction):
    """Regularized incomplete beta function, or its derivative of some orders in a and b."""

    one_kernel = False
    weight = 4000

    @precise
    def eval(a: Any, b: Any, x: Any, *, orders: tuple[int, int]) -> Any:
        if orders == (0, 0):
            return special.betainc(a, b, x)
        first, second = orders
        if first:
            return by_differences(lambda h: incomplete_beta.eval(a + h, b, x, orders=(first - 1, second)))
        return by_differences(lambda h: incomplete_beta.eval(a, b + h, x, orders=(first, second - 1)))

    def compute(self, a: Array, b: Array, x: Array, *, orders: tuple[int, int]) -> Array:
        a, b, x = wnp.broadcast_arrays(a, b, x)
        if orders == (0, 0):
            return lax.betainc(a, b, x)
        inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & (a < np.inf) & (b < np.inf)
        p, q, y = (wnp.where(inside, v, 0.5) for v in (a, b, x))
        mirrored = y > (p + 1) / (p + q + 2)
        y = wnp.where(mirrored, 1 - y, y)

        def value(p: Array, q: Array) -> Array:
            return _beta_by_fraction(wnp.where(mirrored, q, p), wnp.where(mirrored, p, q), y)

        def in_first(p: Array) -> Array:
            return derivative(lambda q: value(p, q), orders[1])(q)

        found = derivative(in_first, orders[0])(p)
        edge = wnp.where((x == 0) | (x == 1), 0.0, np.nan)
        return wnp.where(inside, wnp.where(mirrored, -found, found), edge)

    def partial(self, i: int, tangent: Any, out: Any, a: Any, b: Any, x: Any, *, orders: tuple[int, int]) -> Any:
        if i < 2:
            more = (orders[0] + (i == 0), orders[1] + (i == 1))
            return tangent * incomplete_beta(a, b, x, orders=more)

        def density(a: Any, b: Any) -> Any:
            return lax.exp(log_beta_density(a, b, x))

        def in_first(a: Any) -> Any:
            return derivative(lambda b: density(a, b), orders[1])(b)

        return tangent * derivative(in_first, orders[0])(a)

    def samples(self) -> Any:
        x = unit_ramp(3, 2) * 0.5 + np.float32(0.5)
        yield Sample(positive_ramp(3, 2), positive_ramp(3, 2)[::-1].copy(), x, orders=(0, 0))
        edges = np.array([0, 1, 2, np.nan], np.float32)
        yield Sample(edges + 1, edges + 1, edges, orders=(0, 0), differentiable=False)
