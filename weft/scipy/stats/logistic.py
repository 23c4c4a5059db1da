"""Logistic distribution, with mean `loc`."""

from __future__ import annotations

from typing import Any

from weft import lax, numpy as wnp
from weft.scipy.special.primitives.information import logit
from weft.scipy.stats.families import exponentiate, log_density, probability, quantile
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@log_density
def logpdf(x: Any) -> Array:
    """Return the logarithm of the density at x."""
    return -abs(x) - 2 * wnp.log1p(wnp.exp(-abs(x)))


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")


@probability
def cdf(x: ArrayLike) -> Array:
    """Return the probability of a value of at most x."""
    return lax.logistic(x)


@probability
def sf(x: Any) -> Array:
    """Return the probability of a value above x."""
    return lax.logistic(-x)


@quantile
def ppf(x: ArrayLike) -> Array:
    """Return the value that is exceeded with probability 1 - x."""
    return logit(x)


@quantile
def isf(x: ArrayLike) -> Array:
    """Return the value that is exceeded with probability x."""
    return -logit(x)
