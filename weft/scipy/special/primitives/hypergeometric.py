"""Hypergeometric functions of real numbers, with derivatives in all arguments, which are those of their series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.scalar import positive_ramp, precise, unit_ramp
from weft.scipy.special.primitives.defined import DoubleFunction
from weft.scipy.special.primitives.gamma import gamma
from weft.scipy.special.primitives.parameters import by_differences, derivative
from weft.trace.array import Array

special = lazy("scipy.special")


def series(upper: Sequence[Array], lower: Sequence[Array], x: Array, terms: int) -> Array:
    """Sum the products of (u)_k over products of (l)_k, times x**k/k!."""

    def step(i: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        term, total = state
        k = wnp.asarray(i, dtype=term.dtype)
        for u in upper:
            term = term * (u + k)
        for b in lower:
            term = term / (b + k)
        term = term * (x / (k + 1))
        return term, total + term

    start = wnp.ones_like(x)
    return lax.fori_loop(0, terms, step, (start, start))[1]


def partial_derivative(function: Callable[..., Array], orders: Sequence[int], values: Sequence[Array]) -> Array:
    """Differentiate a function of parameters, with the given order in each."""
    if not orders:
        return function()

    def of_first(first: Array) -> Array:
        return partial_derivative(lambda *rest: function(first, *rest), orders[1:], values[1:])

    return derivative(of_first, orders[0])(values[0])


class ParametricFunction(DoubleFunction):
    """Function of parameters and a number x, or its derivative of some orders in the parameters."""

    one_kernel = False
    weight = 10000
    ulp = {"": 16.0, "float64": 1e5}

    def raise_order(self, orders: tuple[int, ...], i: int) -> tuple[int, ...]:
        """Return the orders with one more in the parameter i."""
        return tuple(order + (n == i) for n, order in enumerate(orders))


TERMS, FAR = 400, 100.0


def kummer(a: Array, b: Array, x: Array) -> Array:
    """Evaluate the confluent function by its series, or asymptotically for large x; negative x by Kummer's formula."""
    negative = x < 0
    first, size = wnp.where(negative, b - a, a), abs(x)
    ends = (first <= 0) & (first == wnp.floor(first))  # the series is a polynomial
    far = (size > FAR) & ~ends
    near = series((first,), (b,), wnp.where(far, 1.0, size), TERMS)
    large = wnp.where(far, size, FAR)

    def step(i: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        term, total = state
        k = wnp.asarray(i, dtype=term.dtype)
        term = term * ((b - first + k) * (1 - first + k) / ((k + 1) * large))
        return term, total + term

    one = wnp.ones_like(large)
    asymptotic = lax.fori_loop(0, 40, step, (one, one))[1]
    ratio = gamma(b) * reciprocal_gamma(wnp.where(far, first, 1.0))
    # exp(x) is left out where it comes back with the other sign.
    power = ratio * wnp.exp((first - b) * wnp.log(large)) * asymptotic
    whole = power * wnp.where(negative, 1.0, wnp.exp(wnp.where(negative, 0.0, large)))
    return wnp.where(far, whole, near * wnp.where(negative, wnp.exp(-size), 1.0))


@primitive
class confluent(ParametricFunction):
    """Confluent hypergeometric function 1F1(a; b; x), or its derivative of some orders in a and b."""

    @precise
    def eval(a: Any, b: Any, x: Any, *, orders: tuple[int, int]) -> Any:
        first, second = orders
        if first:
            return by_differences(lambda h: confluent.eval(a + h, b, x, orders=(first - 1, second)))
        if second:
            return by_differences(lambda h: confluent.eval(a, b + h, x, orders=(first, second - 1)))
        return special.hyp1f1(a, b, x)

    def compute(self, a: Array, b: Array, x: Array, *, orders: tuple[int, int]) -> Array:
        a, b, x = wnp.broadcast_arrays(a, b, x)
        pole = (b <= 0) & (b == wnp.floor(b))
        value = partial_derivative(lambda a, b: kummer(a, b, x), orders, (a, wnp.where(pole, 1.0, b)))
        return wnp.where(pole, np.inf if not any(orders) else np.nan, value)

    def partial(self, i: int, tangent: Any, out: Any, a: Any, b: Any, x: Any, *, orders: tuple[int, int]) -> Any:
        if i < 2:
            return tangent * confluent(a, b, x, orders=self.raise_order(orders, i))
        if not any(orders):
            return tangent * (a / b * confluent(a + 1, b + 1, x, orders=orders))
        return tangent * partial_derivative(
            lambda a, b: a / b * confluent(a + 1, b + 1, x, orders=(0, 0)), orders, (a, b)
        )

    def samples(self) -> Any:
        yield Sample(
            positive_ramp(3, 2), positive_ramp(3, 2)[::-1].copy(), unit_ramp(3, 2), orders=(0, 0), differentiable=False
        )


GAUSS_TERMS, NEAR_ONE, BESIDE = 400, 0.9, 1e-3


def gauss(a: Array, b: Array, c: Array, x: Array) -> Array:
    """Evaluate the hypergeometric function for x below 1: by the series of x, of x/(x - 1) for negative x, of 1 - x
    near 1.
    """
    ends = ((a <= 0) & (a == wnp.floor(a))) | ((b <= 0) & (b == wnp.floor(b)))
    negative = (x < 0) & ~ends
    second = wnp.where(negative, c - b, b)
    y = wnp.where(negative, x / (x - 1), x)
    gap = c - a - second
    close = (y > NEAR_ONE) & ~ends
    direct = series((a, second), (c,), wnp.where(close, 0.5, y), GAUSS_TERMS)
    rest = wnp.where(close, 1 - y, 0.1)
    p, q, r = (wnp.where(close, v, u) for v, u in ((a, 1.0), (second, 1.0), (c, 2.5)))
    # The two terms have poles where the gap is an integer, which cancel: there by values beside it.
    distance = abs(gap - wnp.round(gap))
    apart = wnp.where(close & (distance < BESIDE / 2), BESIDE, 0.0)
    values = [near_one(p, q, r + k * apart, rest) for k in (-2, -1, 1, 2)]
    beside = (4 * (values[1] + values[2]) - (values[0] + values[3])) / 6
    safe = wnp.where(apart > 0, r + BESIDE, r)
    near = wnp.where(apart > 0, beside, near_one(p, q, safe, rest))
    value = wnp.where(close, near, direct)
    return value * wnp.where(negative, wnp.exp(-a * wnp.log1p(-wnp.where(negative, x, 0.0))), 1.0)


def near_one(a: Array, b: Array, c: Array, rest: Array) -> Array:
    """Evaluate the hypergeometric function at 1 - rest, by series of rest; c - a - b must not be an integer."""
    gap = c - a - b
    first = gamma(gap) * reciprocal_gamma(c - a) * reciprocal_gamma(c - b) * series((a, b), (1 - gap,), rest, 100)
    power = wnp.exp(gap * wnp.log(rest))
    other = gamma(-gap) * reciprocal_gamma(a) * reciprocal_gamma(b)
    return gamma(c) * (first + other * power * series((c - a, c - b), (1 + gap,), rest, 100))


def reciprocal_gamma(x: Array) -> Array:
    """Compute 1/gamma(x), which is 0 at the poles."""
    pole = (x <= 0) & (x == wnp.floor(x))
    return wnp.where(pole, 0.0, 1 / gamma(wnp.where(pole, 1.0, x)))


@primitive
class hypergeometric(ParametricFunction):
    """Hypergeometric function 2F1(a, b; c; x) for x up to 1, or its derivative of some orders in a, b and c."""

    @precise
    def eval(a: Any, b: Any, c: Any, x: Any, *, orders: tuple[int, int, int]) -> Any:
        i = next((n for n, order in enumerate(orders) if order), None)
        if i is not None:
            less = tuple(order - (n == i) for n, order in enumerate(orders))

            def shift_parameter(h: float) -> Any:
                return hypergeometric.eval(*(v + h * (n == i) for n, v in enumerate((a, b, c))), x, orders=less)

            return by_differences(shift_parameter)
        return special.hyp2f1(a, b, c, x)

    def compute(self, a: Array, b: Array, c: Array, x: Array, *, orders: tuple[int, int, int]) -> Array:
        a, b, c, x = wnp.broadcast_arrays(a, b, c, x)
        ends = ((a <= 0) & (a == wnp.floor(a))) | ((b <= 0) & (b == wnp.floor(b)))
        at_one = (x == 1) & ~ends
        outside = (x > 1) & ~ends
        pole = (c <= 0) & (c == wnp.floor(c))
        argument = wnp.where(at_one | outside, 0.5, x)
        value = partial_derivative(lambda a, b, c: gauss(a, b, c, argument), orders, (a, b, wnp.where(pole, 1.0, c)))
        gap = c - a - b
        safe = wnp.where(at_one & (gap > 0), gap, 1.0)
        limit = gamma(c) * gamma(safe) * reciprocal_gamma(c - a) * reciprocal_gamma(c - b)
        limit = wnp.where(gap > 0, limit, np.inf) if not any(orders) else wnp.full_like(x, np.nan)
        value = wnp.where(at_one, limit, wnp.where(outside, np.inf, value))
        return wnp.where(wnp.isnan(x), np.nan, wnp.where(pole, np.inf, value))

    def partial(
        self, i: int, tangent: Any, out: Any, a: Any, b: Any, c: Any, x: Any, *, orders: tuple[int, int, int]
    ) -> Any:
        if i < 3:
            return tangent * hypergeometric(a, b, c, x, orders=self.raise_order(orders, i))

        def change(a: Any, b: Any, c: Any) -> Any:
            return a * b / c * hypergeometric(a + 1, b + 1, c + 1, x, orders=(0, 0, 0))

        return tangent * partial_derivative(change, orders, (a, b, c))

    def samples(self) -> Any:
        ramps = positive_ramp(3, 2), positive_ramp(3, 2)[::-1].copy(), positive_ramp(3, 2) + 1
        yield Sample(*ramps, unit_ramp(3, 2) * np.float32(0.5), orders=(0, 0, 0), differentiable=False)
