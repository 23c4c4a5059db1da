"""Gamma function, its logarithm and derivatives; beta functions, factorials, zeta."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.api.jit import jit
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError, NotSupportedError
from weft.numpy.util import concrete_or_error
from weft.scipy.argument_docs import document
from weft.scipy.special.arguments import promote, promote_and_jit
from weft.scipy.special.primitives import gamma as primitives
from weft.scipy.special.primitives.parameters import bernoulli_fractions, hurwitz_zeta, incomplete_beta, riemann_zeta
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@document("Floats of the shape of `x`; inf at 0 and the negative integers.", x="real numbers.")
def gammaln(x: ArrayLike) -> Array:
    """Compute the logarithm of the magnitude of the gamma function.

    >>> import weft.numpy as wnp
    >>> from weft.scipy import special
    >>> special.gammaln(wnp.array([1.0, 5.0, 100.0]))
    Array([  0.       ,   3.1780539, 359.13422  ], dtype=float32)
    """
    return lax.lgamma(*promote("gammaln", x))


def gamma(x: ArrayLike) -> Array:
    """Compute the gamma function, also of complex numbers. It is NaN at the negative integers and infinite at 0."""
    (x,) = promote("gamma", x, kinds="fc")
    return wnp.exp(_complex_log_gamma(x)) if x.dtype.kind == "c" else primitives.gamma(x)


def loggamma(x: ArrayLike) -> Array:
    """Compute the principal branch of the logarithm of the gamma function: NaN for negative real numbers, which need a
    complex dtype.
    """
    (x,) = promote("loggamma", x, kinds="fc")
    if x.dtype.kind == "c":
        return _complex_log_gamma(x)
    return wnp.where(x < 0, wnp.full_like(x, np.nan), lax.lgamma(x))


STIRLING = [float(b / ((2 * n + 2) * (2 * n + 1))) for n, b in enumerate(bernoulli_fractions(22)[2::2])]
SHIFT = 10


@jit
def _complex_log_gamma(z: Array) -> Array:
    """Compute log(gamma(z)) by Stirling's formula at z + 10, or by the reflection formula left of 1/2."""
    lower = lax.imag(z) < 0
    up = lax.complex(lax.real(z), abs(lax.imag(z)))
    left = lax.real(z) < 0.5
    right = wnp.where(left, 1 - up, up)
    total = wnp.zeros_like(right)
    for k in range(SHIFT):
        total = total + wnp.log(right + k)
    far = right + SHIFT
    inverse = 1 / far
    square = inverse * inverse
    series = wnp.zeros_like(far)
    for coefficient in STIRLING[::-1]:
        series = series * square + coefficient
    value = (far - 0.5) * wnp.log(far) - far + 0.5 * math.log(2 * math.pi) + series * inverse - total
    # In the upper half plane sin(pi*z) is exp(-i*pi*z) * (1 - exp(2*i*pi*z)) * i/2.
    safe = wnp.where(left, up, wnp.full_like(up, 0.25 + 0.5j))
    nearest = wnp.round(lax.real(safe))
    reduced = lax.complex(lax.real(safe) - nearest, lax.imag(safe))
    log_sine = wnp.log(-wnp.expm1(2j * math.pi * reduced)) - 1j * math.pi * safe + complex(-math.log(2), math.pi / 2)
    value = wnp.where(left, math.log(math.pi) - log_sine - value, value)
    return wnp.where(lower, wnp.conj(value), value)


@promote_and_jit
def gammasgn(x: Any) -> Array:
    """Return the sign of the gamma function: NaN at the negative integers, that of x at 0."""
    whole = wnp.floor(x)
    sign = wnp.where(x > 0, 1.0, wnp.where(wnp.remainder(whole, 2.0) == 0, 1.0, -1.0))
    poles = (x < 0) & (x == whole)
    return wnp.where(poles | wnp.isnan(x), np.nan, wnp.where(x == 0, wnp.copysign(1.0, x), sign)).astype(x.dtype)


def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized lower incomplete gamma function, with derivatives in both arguments."""
    return lax.igamma(*promote("gammainc", a, x))


def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized upper incomplete gamma function, 1 - gammainc(a, x), accurate where that is small."""
    return lax.igammac(*promote("gammaincc", a, x))


def digamma(x: ArrayLike) -> Array:
    """Compute the derivative of `gammaln`; NaN at 0 and the negative integers."""
    return lax.digamma(*promote("digamma", x))


def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """Compute the derivative of order n of `digamma`; NaN unless n is an integer from 0 up."""
    return lax.polygamma(*promote("polygamma", n, x))


def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """Compute the Hurwitz zeta function, the sum of (q + k)**-x over k from 0 up, with derivatives in both arguments.
    Without q, compute Riemann's zeta function of a real number.
    """
    if q is None:
        return riemann_zeta(*promote("zeta", x), order=0)
    return hurwitz_zeta(*promote("zeta", x, q), order=0)


def multigammaln(a: ArrayLike, d: Any) -> Array:
    """Compute the logarithm of the multivariate gamma function of dimension d, an integer known when tracing."""
    size = concrete_or_error(d, "The dimension d of multigammaln", "make it static: a Python int")
    if size.ndim or size != int(size) or size < 1:
        raise ArgumentError("The dimension d of multigammaln must be a positive integer.", received=f"d={d}")
    count = int(size)
    (a,) = promote("multigammaln", a)
    return _multigammaln(a, count=count)


@functools.partial(jit, static_argnames=("count",))
def _multigammaln(a: Array, *, count: int) -> Array:
    total = wnp.full_like(a, count * (count - 1) / 4 * math.log(math.pi))
    for j in range(count):
        total = total + lax.lgamma(a - j / 2)
    return wnp.where(a > (count - 1) / 2, total, np.nan).astype(a.dtype)


# ---------------------------------------------------------------------------------------------------------------- beta


def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """Compute the logarithm of the magnitude of the beta function, without cancellation for large arguments."""
    return primitives.log_beta(*promote("betaln", a, b))


def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """Compute the beta function gamma(a)*gamma(b)/gamma(a + b)."""
    return primitives.beta(*promote("beta", a, b))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized incomplete beta function: the probability that a beta variable is at most x.

    Args:
        a, b: positive parameters.
        x: numbers from 0 to 1.

    It has derivatives in all three.

    Returns:
        Floats of the broadcast shape, from 0 to 1.

    >>> from weft.scipy import special
    >>> special.betainc(2.0, 3.0, 0.5)
    Array(0.6875, dtype=float32, weak_type=True)
    """
    return incomplete_beta(*promote("betainc", a, b, x), orders=(0, 0))


# ---------------------------------------------------------------------------------------------------------- factorials


def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """Compute n! as gamma(n + 1); 0 for negative n. Results that floats hold exactly are exact. `exact=True`, for
    integers of any size, is not supported."""
    if exact:
        raise NotSupportedError(
            "factorial with exact=True needs integers of any size, which arrays do not have.",
            received="exact=True",
            fix="math.factorial(n), or exact=False",
        )
    (n,) = promote("factorial", n)
    return _factorial(n)


@jit
def _factorial(n: Array) -> Array:
    value = _round_exact(primitives.gamma(n + 1), n == wnp.floor(n))
    return wnp.where(n < 0, wnp.zeros_like(value), value)


def _round_exact(value: Array, whole: Array) -> Array:
    """Round values to integers where `whole` and floats represent them exactly; the derivative is that of the value."""
    limit = 2.0 ** (dtypes.finfo(value.dtype).nmant - 2)
    nearest = value + lax.stop_gradient(wnp.round(value) - value)
    return wnp.where(whole & (abs(value) < limit), nearest, value)


def comb(N: Any, k: ArrayLike, *, repetition: bool = False) -> Array:
    """Return the number of ways to choose k of N things; with `repetition` each may be chosen repeatedly. 0 unless k is
    from 0 to N.
    """
    N, k = promote("comb", N, k)
    return _comb(N + k - 1, k, N) if repetition else _comb(N, k, N)


@jit
def _comb(n: Array, k: Array, things: Array) -> Array:
    inside = (k >= 0) & (n >= k) & (things >= 0)
    total, part = wnp.where(inside, n, 1.0), wnp.where(inside, k, 0.0)
    whole = (total == wnp.floor(total)) & (part == wnp.floor(part))
    value = _round_exact(1 / ((total + 1) * primitives.beta(total - part + 1, part + 1)), whole)
    return wnp.where(inside, value, wnp.where(wnp.isnan(n) | wnp.isnan(k), np.nan, 0.0)).astype(value.dtype)


@promote_and_jit
def poch(z: Any, m: Any) -> Array:
    """Compute the rising factorial gamma(z + m)/gamma(z)."""
    total = z + m
    # Where both are poles or nearly so, by the reflection formula: (-1)**m * gamma(1 - z)/gamma(1 - z - m).
    whole = m == wnp.floor(m)
    mirrored = (z <= 0) & (total <= 0) & whole
    base = wnp.where(mirrored, 1 - z - m, z)
    shift = m
    sign = wnp.where(mirrored, wnp.where(wnp.remainder(m, 2.0) == 0, 1.0, -1.0), 1.0)
    pole = (z <= 0) & (z == wnp.floor(z)) & ~mirrored
    above = (total <= 0) & (total == wnp.floor(total)) & ~mirrored
    safe_base = wnp.where(pole | above, 1.0, base)
    safe_shift = wnp.where(pole | above, 0.0, shift)
    end = safe_base + safe_shift
    signs = wnp.where(safe_base > 0, 1.0, gammasgn(safe_base)) * wnp.where(end > 0, 1.0, gammasgn(end))
    value = sign * signs * primitives.gamma_ratio(safe_base, safe_shift)
    value = wnp.where(pole, wnp.where(m == 0, 1.0, 0.0), wnp.where(above, np.inf, value))
    # 1 at m = 0 whatever z is; the derivative in m is that of the ratio, so the value stays where it is a number.
    return wnp.where((m == 0) & ~(wnp.isfinite(z) & ~pole), wnp.ones_like(value), value)


def bernoulli(n: int) -> Array:
    """Return the Bernoulli numbers B_0, B_1 = -1/2, ..., B_n, as an array of n + 1 floats."""
    count = index(n)
    if count < 0:
        raise ArgumentError("bernoulli needs an n from 0 up.", received=f"n={n}")
    dtype = dtypes.default_float_dtype()
    values = [_as_float(b) for b in bernoulli_fractions(min(count, 300) + 1)]
    values += [0.0 if k % 2 else math.inf * (-1) ** (k // 2 + 1) for k in range(301, count + 1)]
    with np.errstate(over="ignore"):
        return wnp.asarray(np.array(values, np.float64).astype(dtype))


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
