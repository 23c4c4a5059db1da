"""The gamma function's family: its logarithm and derivatives, incomplete gamma and beta functions, zeta.

The incomplete gamma function has a derivative of every order in its first argument: `gamma_derivatives` has them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.base.errors import MissingRuleError
from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.arithmetic import add, div, mul, neg, sub
from weft.primitives.elementwise.array_terms import ArrayTerm, repeat
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.exponential import exp, log, log1p
from weft.primitives.elementwise.gamma_derivatives import derivative
from weft.primitives.elementwise.scalar import bfloat16, constant_like, float_samples, positive_ramp, precise, unit_ramp
from weft.primitives.elementwise.select import where
from weft.primitives.elementwise.special import IteratedFunction, SpecialFunction

special = lazy("scipy.special")


def _no_derivative(name: str, argument: str) -> MissingRuleError:
    return MissingRuleError(
        f"`{name}` has no derivative in {argument} here: it is not known in closed form. Keep {argument} constant, for "
        f"example with lax.stop_gradient."
    )


def log_gamma(x: Any) -> Any:
    """Return SciPy's `gammaln`, corrected at denormal numbers, where it is infinite; near 0 gamma(x) is 1/x to all
    digits."""
    near_pole = (np.abs(x) < 2.0**-60) & (x != 0)
    return np.where(near_pole, -np.log(np.where(near_pole, np.abs(x), 1.0)), special.gammaln(x))


def _digamma(x: Any) -> Any:
    """Return SciPy's `psi`, corrected near the negative integers, where it loses digits, by digamma(1 - x), and by 1/x
    near 0."""
    size = np.where(x < 0, -x, 1.5)
    # Rounding pi*x before the nearest integer is taken off would be an error of the distance from it.
    distance = size - np.rint(size)
    reflected = special.psi(1 + size) + np.pi / np.tan(np.pi * np.where(distance == 0, np.nan, distance))
    near_pole = (np.abs(x) < 2.0**-60) & (x != 0)
    value = np.where(near_pole, -1 / np.where(near_pole, x, 1.0), np.where(x < 0, reflected, special.psi(x)))
    return np.where(x == 0, np.nan, value)


@primitive
class lgamma(SpecialFunction):
    """Logarithm of the magnitude of the gamma function."""

    @precise
    def eval(x: Any) -> Any:
        return np.where(np.isinf(x), np.inf, log_gamma(x))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, digamma(x))

    def samples(self) -> Any:
        yield from float_samples(positive_ramp)
        yield Sample(np.array([-1.5, 0, -1, np.inf, np.nan], np.float32), differentiable=False)


@primitive
class digamma(SpecialFunction):
    """Derivative of `lgamma`; nan at 0 and the negative integers."""

    @precise
    def eval(x: Any) -> Any:
        return _digamma(x)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, polygamma(constant_like(x, 1), x))

    def samples(self) -> Any:
        yield from float_samples(positive_ramp)


@primitive
class zeta(IteratedFunction):
    """Hurwitz zeta function: the sum of (q + k) ** -x over k from 0 up."""

    @precise
    def eval(x: Any, q: Any) -> Any:
        return special.zeta(x, q)

    def partial(self, i: int, tangent: Any, out: Any, x: Any, q: Any) -> Any:
        if i == 0:
            raise _no_derivative("zeta", "x")
        return mul(tangent, mul(neg(x), zeta(add(x, constant_like(x, 1)), q)))

    def samples(self) -> Any:
        # Laws differentiate in every operand, and there is no derivative in x.
        yield Sample(positive_ramp(3, 2) + 1, positive_ramp(3, 2)[::-1].copy(), differentiable=False)
        yield Sample(np.float32(2).reshape(()), positive_ramp(3), differentiable=False)
        yield Sample(np.array([1, 0.5, 3], np.float32), np.array([1, 1, -1.5], np.float32), differentiable=False)


@primitive
class polygamma(IteratedFunction):
    """Derivative of order `m` of `digamma`."""

    @precise
    def eval(m: Any, x: Any) -> Any:
        sign = np.where(np.mod(m, 2) == 0, -1.0, 1.0)
        value = sign * special.gamma(m + 1) * special.zeta(m + 1, x)
        value = np.where(m == 0, np.where(x == 0, special.psi(x), _digamma(x)), value)
        return np.where((m < 0) | (m != np.floor(m)), np.nan, value)

    def partial(self, i: int, tangent: Any, out: Any, m: Any, x: Any) -> Any:
        if i == 0:
            raise _no_derivative("polygamma", "m")
        return mul(tangent, polygamma(add(m, constant_like(m, 1)), x))

    def samples(self) -> Any:
        yield Sample(np.array([0, 1, 2], np.float32), positive_ramp(3), differentiable=False)
        yield Sample(np.float32(1).reshape(()), positive_ramp(2, 2), differentiable=False)
        yield Sample(np.array([1, 2], bfloat16), positive_ramp(2, dtype=bfloat16), differentiable=False)


def gamma_log_density(a: Any, x: Any) -> Any:
    """Return the logarithm of the derivative of `igamma(a, x)` in x, the density of a gamma variable."""
    return sub(sub(_times_logarithm(sub(a, constant_like(a, 1)), log(x)), x), lgamma(a))


def _times_logarithm(factor: Any, logarithm: Any) -> Any:
    """Multiply by a logarithm, where 0 times the logarithm of 0 is 0: the limit, as of x**0 at 0."""
    zero = constant_like(factor, 0)
    return where(eq(factor, zero), zero, mul(factor, logarithm))


def _density_derivatives(a: Any, x: Any, order: int) -> Any:
    """Return the derivative of order `order` in `a` of the gamma density, from those of its logarithm by Leibniz'
    rule."""
    log_derivatives = [sub(log(x), digamma(a))]
    log_derivatives += [neg(polygamma(constant_like(a, n), a)) for n in range(1, order)]
    results = [exp(gamma_log_density(a, x))]
    for n in range(1, order + 1):
        terms = [
            mul(constant_like(a, math.comb(n - 1, j)), mul(results[j], log_derivatives[n - 1 - j])) for j in range(n)
        ]
        total = terms[0]
        for term in terms[1:]:
            total = add(total, term)
        results.append(total)
    return results[order]


def _incomplete_gamma(a: Any, x: Any, upper: bool) -> Any:
    """SciPy's `gammainc` or `gammaincc`, which fail where 1/a overflows or x is denormal, and for `a` near the largest
    number. For small `a` the upper function is `a` times the exponential integral; as a function of small x the lower
    one is proportional to x**a; for large `a` it is 0 unless x is large too. Older versions have a limit where one
    argument is not-a-number and the other 0 or infinite."""
    nothing = np.isnan(a) | np.isnan(x)
    inside = (a > 0) & (x > 0)
    small = inside & (a < 2.0**-70)
    safe = np.where(small, 1.0, np.where(inside & (a < np.inf) & (x < 2.0**800), np.minimum(a, 2.0**900), a))
    if upper:
        return np.where(nothing, np.nan, np.where(small, a * special.exp1(x), special.gammaincc(safe, x)))
    denormal = inside & (x < np.finfo(np.float64).tiny)
    value = special.gammainc(safe, np.where(denormal, x * 2.0**100, x))
    value = np.where(small, 1.0, value * np.where(denormal, np.exp2(-100 * safe), 1.0))
    return np.where(nothing, np.nan, value)


class GammaFunction(IteratedFunction):
    """Of a shape parameter `a` and a bound `x`, both positive. Derivatives in `a` are sums of terms that cancel:
    those of order n are off by the units of igamma(a, x) * (|log(x)| + |digamma(a)| + 1/a)**n, where that is more."""

    def samples(self) -> Any:
        shape = positive_ramp(3, 2) * 0.8
        yield Sample(shape, positive_ramp(3, 2)[::-1].copy())
        yield Sample(np.float32(1.5).reshape(()), positive_ramp(3))
        yield Sample(positive_ramp(3), np.float32(2.5).reshape(()))
        yield Sample(positive_ramp(2, dtype=bfloat16), positive_ramp(2, dtype=bfloat16), differentiable=False)
        yield Sample(np.array([0.5, 30, 1000], np.float32), np.array([20, 3, 1010], np.float32), differentiable=False)


@primitive
class igamma(GammaFunction):
    """Regularized lower incomplete gamma function."""

    @precise
    def eval(a: Any, x: Any) -> Any:
        return _incomplete_gamma(a, x, upper=False)

    def partial(self, i: int, tangent: Any, out: Any, a: Any, x: Any) -> Any:
        return mul(tangent, igamma_grad_a(a, x) if i == 0 else exp(gamma_log_density(a, x)))


@primitive
class igammac(GammaFunction):
    """Regularized upper incomplete gamma function, 1 - igamma(a, x) accurate where that is small."""

    @precise
    def eval(a: Any, x: Any) -> Any:
        return _incomplete_gamma(a, x, upper=True)

    def partial(self, i: int, tangent: Any, out: Any, a: Any, x: Any) -> Any:
        return neg(mul(tangent, igamma_grad_a(a, x) if i == 0 else exp(gamma_log_density(a, x))))


@primitive
class igamma_grad_a(GammaFunction):
    """Derivative of `igamma` in `a`."""

    @precise
    def eval(a: Any, x: Any) -> Any:
        return _incomplete_gamma_derivative(a, x, 1)

    def partial(self, i: int, tangent: Any, out: Any, a: Any, x: Any) -> Any:
        return mul(tangent, igamma_derivative(a, x, order=2) if i == 0 else _density_derivatives(a, x, 1))


@primitive
class igamma_derivative(GammaFunction):
    """Derivative of `igamma` in `a`, of an order from 2 up."""

    @precise
    def eval(a: Any, x: Any, *, order: int) -> Any:
        return _incomplete_gamma_derivative(a, x, order)

    def partial(self, i: int, tangent: Any, out: Any, a: Any, x: Any, *, order: int) -> Any:
        if i == 0:
            return mul(tangent, igamma_derivative(a, x, order=order + 1))
        return mul(tangent, _density_derivatives(a, x, order))

    def samples(self) -> Any:
        for sample in super().samples():
            yield Sample(*sample.args, differentiable=sample.differentiable, order=2)


@primitive
class random_gamma_grad(GammaFunction):
    """How a gamma variable `x` of shape `a` moves with `a` while its probability stays: -igamma_grad_a / density."""

    @precise
    def eval(a: Any, x: Any) -> Any:
        return -_incomplete_gamma_derivative(a, x, 1, relative=True)

    def partial(self, i: int, tangent: Any, out: Any, a: Any, x: Any) -> Any:
        in_shape = sub(log(x), digamma(a))
        if i == 0:
            curvature = div(igamma_derivative(a, x, order=2), exp(gamma_log_density(a, x)))
            return neg(mul(tangent, add(curvature, mul(out, in_shape))))
        one = constant_like(x, 1)
        return neg(mul(tangent, add(in_shape, mul(out, sub(div(sub(a, one), x), one)))))


class ArrayFunctions:
    """What the derivatives of the incomplete gamma function need of arrays."""

    repeat = staticmethod(repeat)

    def log(self, x: ArrayTerm) -> ArrayTerm:
        return ArrayTerm(np.log(x.array))

    def digamma(self, x: ArrayTerm) -> ArrayTerm:
        return ArrayTerm(special.psi(x.array))

    def zeta(self, s: int, x: ArrayTerm) -> ArrayTerm:
        return ArrayTerm(special.zeta(float(s), x.array))

    def density(self, a: ArrayTerm, x: ArrayTerm) -> ArrayTerm:
        return ArrayTerm(np.exp((a.array - 1) * np.log(x.array) - x.array - log_gamma(a.array)))


def _incomplete_gamma_derivative(a: Any, x: Any, order: int, relative: bool = False) -> Any:
    """Return the derivative of the lower incomplete gamma function in `a`, divided by the density if `relative`."""
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    return derivative(ArrayFunctions(), ArrayTerm(a), ArrayTerm(x), order, relative).array


# ----------------------------------------------------------------------------------------------------------- beta


def _incomplete_beta(a: Any, b: Any, x: Any) -> Any:
    """SciPy's `betainc`, which fails where 1/a or 1/b overflows, and has few digits at denormal x. So small a parameter
    is far in the limit: the function is proportional to b, or 1 for small a, or b/(a + b) if both are small. As a
    function of small x it is proportional to x**a, or the incomplete gamma function of b*x if b is very large. Where a
    parameter is 0 or infinite, all of the distribution is at 0 or at 1, which older versions do not know."""
    small, least = 2.0**-100, 2.0**-300
    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1)
    tiny = inside & (np.minimum(a, b) < least)
    raised_a, raised_b = (np.where(tiny, np.maximum(parameter, least), parameter) for parameter in (a, b))
    denormal = inside & (x < np.finfo(np.float64).tiny)
    limit = denormal & (b >= 2.0**800) & (b < np.inf)
    denormal = denormal & ~limit
    value = special.betainc(raised_a, raised_b, np.where(denormal, x * 2.0**100, x))
    value = value * np.where(denormal, np.exp2(-100 * a), 1.0) * np.where(tiny, np.minimum(b, least) / least, 1.0)
    value = np.where(limit, _incomplete_gamma(a, np.where(limit, b, 1.0) * x, upper=False), value)
    within = (x >= 0) & (x <= 1)
    at_zero = within & (((a == 0) & (b > 0)) | ((b == np.inf) & (a >= 0) & (a < np.inf)))
    at_one = within & (((b == 0) & (a > 0)) | ((a == np.inf) & (b >= 0) & (b < np.inf)))
    value = np.where(at_zero, np.where(x > 0, 1.0, 0.0), np.where(at_one, np.where(x < 1, 0.0, 1.0), value))
    both = tiny & (np.maximum(a, b) < small)
    return np.where(both, b / (np.minimum(a, small) + np.minimum(b, small)), value)


@primitive
class regularized_incomplete_beta(IteratedFunction):
    """Regularized incomplete beta function of a, b and x."""

    @precise
    def eval(a: Any, b: Any, x: Any) -> Any:
        return _incomplete_beta(a, b, x)

    def partial(self, i: int, tangent: Any, out: Any, a: Any, b: Any, x: Any) -> Any:
        if i != 2:
            raise _no_derivative("regularized_incomplete_beta", "ab"[i])
        one = constant_like(x, 1)
        log_beta = sub(add(lgamma(a), lgamma(b)), lgamma(add(a, b)))
        powers = add(_times_logarithm(sub(a, one), log(x)), _times_logarithm(sub(b, one), log1p(neg(x))))
        return mul(tangent, exp(sub(powers, log_beta)))

    def samples(self) -> Any:
        x = unit_ramp(3, 2) * 0.5 + np.float32(0.5)
        yield Sample(positive_ramp(3, 2), positive_ramp(3, 2)[::-1].copy(), x, differentiable=False)
        yield Sample(np.float32(2).reshape(()), np.float32(1.5).reshape(()), x, differentiable=False)
        edges = np.array([0, 1, 2, np.nan], np.float32)
        yield Sample(edges + 1, edges + 1, edges, differentiable=False)
