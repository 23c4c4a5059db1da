"""Products with logarithms, entropies and powers near 1: finite wherever their limits are, with their derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.scalar import positive_ramp, precise, unit_ramp
from weft.scipy.special.primitives.defined import DefinedFunction, DoubleFunction, excess, polynomial
from weft.trace.array import Array

special = lazy("scipy.special")


def pairs(edges: Any, first: Any = unit_ramp, second: Any = positive_ramp) -> Any:
    """Yield samples of two operands, and of edges without derivative."""
    yield Sample(first(3, 2), second(3, 2)[::-1].copy())
    yield Sample(*(np.array(e, np.float32) for e in edges), differentiable=False)


def quotient(x: Any, y: Any) -> Any:
    """Divide x by y, with 0 for 0/0; the derivatives at x = 0 are those of x/y unless y is 0 too."""
    absent = (x == 0) & (y == 0)
    return wnp.where(absent, wnp.zeros_like(x), x / wnp.where(absent, wnp.ones_like(y), y))


def log_ratio_at_edge(p: Any, q: Any) -> Any:
    """Compute log(p/q) where p or q is not positive: -inf at p = 0, as a constant in p, so that the mixed derivative
    -1/q is no product of 0 and infinity."""
    return lax.log(lax.stop_gradient(p)) - lax.log(q)


@primitive
class xlogy(DefinedFunction):
    """x*log(y), which is 0 where x is 0 and y is any number."""

    kinds = "fc"
    ulp = {"": 4.0, "complex128": 16.0}

    @staticmethod
    def eval(x: Any, y: Any) -> Any:
        if np.iscomplexobj(x):
            return special.xlogy(x.astype(np.complex128), y).astype(x.dtype)
        return special.xlogy(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)

    def compute(self, x: Array, y: Array) -> Array:
        absent = (x == 0) & ~wnp.isnan(y)
        return wnp.where(absent, wnp.zeros_like(x), x * wnp.log(wnp.where(absent, wnp.ones_like(y), y)))

    def partial(self, i: int, tangent: Any, out: Any, x: Any, y: Any) -> Any:
        return tangent * (lax.log(y) if i == 0 else quotient(x, y))

    def samples(self) -> Any:
        yield from pairs(([0, 0, 0, 1, 2], [0, np.inf, np.nan, 0, -1]))
        yield Sample(positive_ramp(3) * np.complex64(1 + 2j), positive_ramp(3) * np.complex64(2 - 1j))


@primitive
class xlog1py(DefinedFunction):
    """x*log(1 + y), which is 0 where x is 0 and y is any number."""

    kinds = "fc"
    ulp = {"": 4.0, "complex128": 16.0}

    @staticmethod
    def eval(x: Any, y: Any) -> Any:
        if np.iscomplexobj(x):
            return special.xlog1py(x.astype(np.complex128), y).astype(x.dtype)
        return special.xlog1py(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)

    def compute(self, x: Array, y: Array) -> Array:
        absent = (x == 0) & ~wnp.isnan(y)
        return wnp.where(absent, wnp.zeros_like(x), x * wnp.log1p(wnp.where(absent, wnp.zeros_like(y), y)))

    def partial(self, i: int, tangent: Any, out: Any, x: Any, y: Any) -> Any:
        return tangent * (lax.log1p(y) if i == 0 else quotient(x, 1 + y))

    def samples(self) -> Any:
        yield from pairs(([0, 0, 0, 1, 2], [-1, np.inf, np.nan, -1, -2]))
        yield Sample(positive_ramp(3) * np.complex64(1 + 2j), positive_ramp(3) * np.complex64(2 - 1j))


@primitive
class rel_entr(DefinedFunction):
    """p*log(p/q) of positive numbers, 0 for p = 0 and q >= 0, and infinite elsewhere."""

    @precise
    def eval(p: Any, q: Any) -> Any:
        return special.rel_entr(p, q)

    def compute(self, p: Array, q: Array) -> Array:
        both = (p > 0) & (q > 0)
        x, y = wnp.where(both, p, 1.0), wnp.where(both, q, 1.0)
        ratio = x / y
        near = (ratio > 0.5) & (ratio < 2)
        # Near 1 the rounding of the ratio counts, elsewhere its overflow.
        inner = wnp.log1p(wnp.where(near, (x - y) / y, 0.0))
        plain = (ratio > 2.0**-120) & (ratio < 2.0**120)
        outer = wnp.where(plain, wnp.log(wnp.where(plain, ratio, 1.0)), wnp.log(x) - wnp.log(y))
        value = x * wnp.where(near, inner, outer)
        edge = wnp.where((p == 0) & (q >= 0), 0.0, wnp.where(wnp.isnan(p) | wnp.isnan(q), np.nan, np.inf))
        return wnp.where(both, value, edge)

    def partial(self, i: int, tangent: Any, out: Any, p: Any, q: Any) -> Any:
        if i == 1:
            return -(tangent * quotient(p, q))
        both = (p > 0) & (q > 0)
        one = wnp.ones_like(p)
        inside = out / wnp.where(both, p, one) + 1
        return tangent * wnp.where(both, inside, log_ratio_at_edge(p, q) + 1)

    def samples(self) -> Any:
        yield from pairs(([0, 0, 1, -1, 1], [0, 2, 0, 1, np.nan]), positive_ramp)


@primitive
class kl_div(DoubleFunction):
    """p*log(p/q) - p + q of positive numbers, q for p = 0 and q >= 0, and infinite elsewhere."""

    @precise
    def eval(p: Any, q: Any) -> Any:
        return special.kl_div(p, q)

    def compute(self, p: Array, q: Array) -> Array:
        both = (p > 0) & (q > 0)
        x, y = wnp.where(both, p, 1.0), wnp.where(both, q, 1.0)
        u = (y - x) / x
        near = abs(u) < 0.3  # there the terms cancel
        value = wnp.where(near, x * excess(wnp.where(near, u, 0.0)), rel_entr(x, y) - x + y)
        edge = wnp.where((p == 0) & (q >= 0), q, wnp.where(wnp.isnan(p) | wnp.isnan(q), np.nan, np.inf))
        return wnp.where(both, value, edge)

    def partial(self, i: int, tangent: Any, out: Any, p: Any, q: Any) -> Any:
        if i == 1:
            return tangent * (1 - quotient(p, q))
        both = (p > 0) & (q > 0)
        one = wnp.ones_like(p)
        x, y = wnp.where(both, p, one), wnp.where(both, q, one)
        return tangent * wnp.where(both, rel_entr(x, y) / x, log_ratio_at_edge(p, q))

    def samples(self) -> Any:
        yield from pairs(([0, 0, 1, -1, 1], [0, 2, 0, 1, np.nan]), positive_ramp)


@primitive
class entr(DefinedFunction):
    """-x*log(x), 0 at 0, and minus infinity for negative x."""

    @precise
    def eval(x: Any) -> Any:
        return special.entr(x)

    def compute(self, x: Array) -> Array:
        positive = x > 0
        value = -x * wnp.log(wnp.where(positive, x, 1.0))
        edge = wnp.where(x == 0, 0.0, wnp.where(x < 0, -np.inf, np.nan))
        return wnp.where(positive, value, edge)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return -(tangent * (lax.log(x) + 1))

    def samples(self) -> Any:
        yield Sample(positive_ramp(3, 2))
        yield Sample(np.array([0, -1, np.inf, np.nan], np.float32), differentiable=False)


@primitive
class logit(DefinedFunction):
    """log(x/(1 - x)), the inverse of the logistic function."""

    @precise
    def eval(x: Any) -> Any:
        return special.logit(x)

    def compute(self, x: Array) -> Array:
        # Near 1/2 by a function of 2*x - 1, which is exact there.
        near = (x > 0.25) & (x < 0.75)
        inner = 2 * wnp.arctanh(wnp.where(near, 2 * x - 1, 0.0))
        return wnp.where(near, inner, wnp.log(x) - wnp.log1p(-x))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return tangent / (x * (1 - x))

    def samples(self) -> Any:
        yield Sample((unit_ramp(3, 2) + 1) / 2)
        yield Sample(np.array([0, 1, 0.5, -1, 2, np.nan, 1e-20], np.float32), differentiable=False)


class PowerTransform(DoubleFunction):
    """(y**power - 1)/power for a power, whose limit at 0 is log(y)."""

    ulp = {"": 8.0}

    @staticmethod
    def transform(logarithm: Array, power: Array, whole: Array | None = None) -> Array:
        """Compute the transform of exp(logarithm). `whole`, its power, is used where it is more accurate."""
        u = power * logarithm
        small = (abs(u) < 1e-5) | (power == 0)
        near = logarithm * (1 + wnp.where(small & (power != 0), u, 0.0) * (0.5 + u / 6))
        far = wnp.expm1(u)
        if whole is not None:
            far = wnp.where(abs(u) > 0.5, whole - 1, far)
        return wnp.where(small, wnp.where(power == 0, logarithm, near), far / wnp.where(small, 1.0, power))

    @staticmethod
    def in_power(logarithm: Any, power: Any) -> Any:
        """Differentiate in the power: logarithm**2 times ((u - 1)*exp(u) + 1)/u**2 of u = power*logarithm."""
        u = power * logarithm
        small = abs(u) < 0.5
        safe = wnp.where(small, u, wnp.zeros_like(u))
        series = polynomial(safe, [1 / ((n + 2) * math.factorial(n)) for n in range(14)])
        other = wnp.where(small, wnp.ones_like(u), u)
        whole = ((other - 1) * lax.exp(other) + 1) / (other * other)
        return logarithm * logarithm * wnp.where(small, series, whole)


@primitive
class boxcox(PowerTransform):
    """(x**power - 1)/power, log(x) for the power 0."""

    @precise
    def eval(x: Any, power: Any) -> Any:
        return special.boxcox(x, power)

    def compute(self, x: Array, power: Array) -> Array:
        return self.transform(wnp.log(x), power, wnp.power(abs(x), power))

    def partial(self, i: int, tangent: Any, out: Any, x: Any, power: Any) -> Any:
        if i == 0:
            return tangent * lax.pow(x, power - 1)
        absent = x == 0
        inside = self.in_power(lax.log(wnp.where(absent, wnp.ones_like(x), x)), power)
        limit = wnp.where(absent, power, wnp.ones_like(power)) ** -2
        return tangent * wnp.where(absent, limit, inside)

    def samples(self) -> Any:
        yield Sample(positive_ramp(3, 2), unit_ramp(3, 2))
        yield Sample(positive_ramp(3), np.float32(0).reshape(()))
        edges = np.array([0, 0, 0, 1, 2], np.float32), np.array([2, 0, -1, 0, 0], np.float32)
        yield Sample(*edges, differentiable=False)


@primitive
class boxcox1p(PowerTransform):
    """((1 + x)**power - 1)/power, log(1 + x) for the power 0."""

    @precise
    def eval(x: Any, power: Any) -> Any:
        return special.boxcox1p(x, power)

    def compute(self, x: Array, power: Array) -> Array:
        return self.transform(wnp.log1p(x), power)

    def partial(self, i: int, tangent: Any, out: Any, x: Any, power: Any) -> Any:
        logarithm = lax.log1p(x)
        return tangent * (lax.exp((power - 1) * logarithm) if i == 0 else self.in_power(logarithm, power))

    def samples(self) -> Any:
        yield Sample(positive_ramp(3, 2), unit_ramp(3, 2))
        yield Sample(positive_ramp(3), np.float32(0).reshape(()))
        edges = np.array([-1, -1, 1e-9, 2], np.float32), np.array([2, -1, 0.5, 0], np.float32)
        yield Sample(*edges, differentiable=False)
