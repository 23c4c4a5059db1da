"""Exponential distribution, of mean `scale`, from `loc` up."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.stats.families import exponentiate, log_density, log_less, probability, quantile, within
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@log_density
def logpdf(x: Any) -> Array:
    """Return the logarithm of the density at x; minus infinity below `loc`."""
    return within(x >= 0, x, 0, lambda x: -x, -np.inf)


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")


@probability
def cdf(x: Any) -> Array:
    """Return the probability of a value of at most x."""
    return within(x >= 0, x, 0, lambda x: -wnp.expm1(-x), 0.0)


@probability
def logcdf(x: Any) -> Array:
    """Return the logarithm of the probability of a value of at most x."""
    return within(x >= 0, x, 0, log_less, -np.inf)


@probability
def sf(x: Any) -> Array:
    """Return the probability of a value above x."""
    return within(x >= 0, x, 0, lambda x: wnp.exp(-x), 1.0)


@probability
def logsf(x: Any) -> Array:
    """Return the logarithm of the probability of a value above x."""
    return within(x >= 0, x, 0, lambda x: -x, 0.0)


@quantile
def ppf(q: Any) -> Array:
    """Return the value that is exceeded with probability 1 - q."""
    return -wnp.log1p(-q)


@quantile
def isf(q: ArrayLike) -> Array:
    """Return the value that is exceeded with probability q."""
    return -wnp.log(q)
