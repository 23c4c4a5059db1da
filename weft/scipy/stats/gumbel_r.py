"""The right-skewed Gumbel distribution, of the largest of many values."""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft.scipy.stats.families import exponential_of, log_density, log_less, probability, quantile

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


@log_density
def logpdf(x: Any) -> Any:
    """The logarithm of the density at x."""
    return -x - wnp.exp(-x)


pdf = exponential_of(logpdf, "pdf", "The density at x.")


@probability
def cdf(x: Any) -> Any:
    """The probability of a value of at most x."""
    return wnp.exp(-wnp.exp(-x))


@probability
def logcdf(x: Any) -> Any:
    """The logarithm of the probability of a value of at most x."""
    return -wnp.exp(-x)


@probability
def sf(x: Any) -> Any:
    """The probability of a value above x."""
    return -wnp.expm1(-wnp.exp(-x))


@probability
def logsf(x: Any) -> Any:
    """The logarithm of the probability of a value above x."""
    return log_less(wnp.exp(-x))


@quantile
def ppf(p: Any) -> Any:
    """The value that is exceeded with probability 1 - p."""
    return -wnp.log(-wnp.log(p))
