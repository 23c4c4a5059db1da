"""Left-skewed Gumbel distribution, of the least of many values."""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft.scipy.stats.families import exponentiate, log_density, log_less, probability, quantile
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@log_density
def logpdf(x: ArrayLike) -> Any:
    """Return the logarithm of the density at x."""
    return x - wnp.exp(x)


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")


@probability
def cdf(x: ArrayLike) -> Array:
    """Return the probability of a value of at most x."""
    return -wnp.expm1(-wnp.exp(x))


@probability
def logcdf(x: ArrayLike) -> Array:
    """Return the logarithm of the probability of a value of at most x."""
    return log_less(wnp.exp(x))


@probability
def sf(x: ArrayLike) -> Array:
    """Return the probability of a value above x."""
    return wnp.exp(-wnp.exp(x))


@probability
def logsf(x: ArrayLike) -> Array:
    """Return the logarithm of the probability of a value above x."""
    return -wnp.exp(x)


@quantile
def ppf(p: Any) -> Array:
    """Return the value that is exceeded with probability 1 - p."""
    return wnp.log(-wnp.log1p(-p))
