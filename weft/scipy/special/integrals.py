"""Integrals that have names: exponential, sine, cosine and Fresnel integrals, the dilogarithm."""

from __future__ import annotations

from weft.scipy.special.arguments import promote
from weft.scipy.special.primitives import exponential_integrals, integrals
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def expi(x: ArrayLike) -> Array:
    """Compute the exponential integral Ei: the principal value of the integral of exp(t)/t up to x."""
    return exponential_integrals.expi(*promote("expi", x))


def exp1(x: ArrayLike) -> Array:
    """Compute the exponential integral E1: the integral of exp(-t)/t from x to infinity; NaN for negative x."""
    return exponential_integrals.exp1(*promote("exp1", x))


def expn(n: ArrayLike, x: ArrayLike) -> Array:
    """Compute the integral of exp(-x*t)/t**n from t = 1 to infinity, for integers n from 0 up and x from 0 up; else
    NaN.
    """
    return exponential_integrals.expn(*promote("expn", n, x))


def sici(x: ArrayLike) -> tuple[Array, Array]:
    """Compute the sine integral of x, and the cosine integral of its magnitude."""
    (x,) = promote("sici", x)
    return integrals.sine_integral(x), integrals.cosine_integral(x)


def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    """Compute the integrals of sin(pi/2 * t*t) and of cos(pi/2 * t*t) from 0 to x."""
    (x,) = promote("fresnel", x)
    return integrals.fresnel_sine(x), integrals.fresnel_cosine(x)


def spence(x: ArrayLike) -> Array:
    """Compute the integral of log(t)/(1 - t) from 1 to x: the dilogarithm of 1 - x."""
    return exponential_integrals.spence(*promote("spence", x))
