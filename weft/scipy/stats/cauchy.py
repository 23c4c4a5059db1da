"""Cauchy distribution, with median `loc`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.stats.families import exponentiate, log_density, log_probability, probability, quantile
from weft.trace.array import Array


@log_density
def logpdf(x: Any) -> Array:
    """Return the logarithm of the density at x."""
    large = abs(x) > 1e8  # the square may overflow
    near = wnp.log1p(wnp.square(wnp.where(large, wnp.zeros_like(x), x)))
    return -math.log(math.pi) - wnp.where(large, 2 * wnp.log(wnp.where(large, abs(x), wnp.ones_like(x))), near)


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")


def _below(x: Array) -> Array:
    return wnp.arctan2(wnp.ones_like(x), -x) / math.pi


@probability
def cdf(x: Any) -> Array:
    """Return the probability of a value of at most x."""
    return _below(x)


@probability
def logcdf(x: Any) -> Array:
    """Return the logarithm of the probability of a value of at most x."""
    return log_probability(_below(x), _below(-x))


@probability
def sf(x: Any) -> Array:
    """Return the probability of a value above x."""
    return _below(-x)


@probability
def logsf(x: Any) -> Array:
    """Return the logarithm of the probability of a value above x."""
    return log_probability(_below(-x), _below(x))


def _quantile(q: Array) -> Array:
    low, high = q < 0.25, q > 0.75
    tail = wnp.where(low, q, wnp.where(high, 1 - q, 0.25))
    far = 1 / wnp.tan(math.pi * tail)
    middle = wnp.tan(math.pi * (wnp.where(low | high, 0.5, q) - 0.5))
    far = wnp.where(tail == 0, np.inf, far)
    return wnp.where(low, -far, wnp.where(high, far, middle))


@quantile
def ppf(q: Any) -> Array:
    """Return the value that is exceeded with probability 1 - q."""
    return _quantile(q)


@quantile
def isf(q: Any) -> Array:
    """Return the value that is exceeded with probability q."""
    return -_quantile(q)
