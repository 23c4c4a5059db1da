"""Integrals that have names: exponential, sine, cosine and Fresnel integrals, the dilogarithm."""

from __future__ import annotations

from typing import Any

from weft.scipy.special.arguments import promoted
from weft.scipy.special.primitives import exponential_integrals, integrals
from weft.trace.array import Array


def expi(x: Any) -> Array:
    """The exponential integral Ei: the principal value of the integral of exp(t)/t up to x."""
    return exponential_integrals.expi(*promoted("expi", x))


def exp1(x: Any) -> Array:
    """The exponential integral E1: the integral of exp(-t)/t from x to infinity; nan for negative x."""
    return exponential_integrals.exp1(*promoted("exp1", x))


def expn(n: Any, x: Any) -> Array:
    """The integral of exp(-x*t)/t**n from t = 1 to infinity, for integers n from 0 up and x from 0 up; else nan."""
    return exponential_integrals.expn(*promoted("expn", n, x))


def sici(x: Any) -> tuple[Array, Array]:
    """The sine integral of x, and the cosine integral of its magnitude."""
    (x,) = promoted("sici", x)
    return integrals.sine_integral(x), integrals.cosine_integral(x)


def fresnel(x: Any) -> tuple[Array, Array]:
    """The integrals of sin(pi/2 * t*t) and of cos(pi/2 * t*t) from 0 to x."""
    (x,) = promoted("fresnel", x)
    return integrals.fresnel_sine(x), integrals.fresnel_cosine(x)


def spence(x: Any) -> Array:
    """The integral of log(t)/(1 - t) from 1 to x: the dilogarithm of 1 - x."""
    return exponential_integrals.spence(*promoted("spence", x))
