"""Gamma distribution, of shape `a`."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.scipy.special.primitives.gamma import log_gamma_density
from weft.scipy.stats.edges import gamma_density
from weft.scipy.stats.families import density, domain, is_positive, log_density, log_probability, probability, within
from weft.trace.array import Array

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


@log_density
@domain(a=is_positive)
def logpdf(x: Any, a: Any) -> Array:
    """Return the logarithm of the density at x, for the shape `a`; minus infinity below `loc`."""
    return within((x >= 0) & (x < np.inf), x, 1, lambda x: log_gamma_density(a, x), -np.inf)


@density
@domain(a=is_positive)
def pdf(x: Any, a: Any) -> Array:
    """Return the density at x."""
    return within(x >= 0, x, 1, lambda x: gamma_density(a, x), 0.0)


def log_below(a: Any, x: Any) -> Any:
    """Return the logarithm of the lower incomplete gamma function."""
    a, x = wnp.broadcast_arrays(a, x)
    return log_probability(lax.igamma(a, x), lax.igammac(a, x))


def log_above(a: Any, x: Any) -> Any:
    """Return the logarithm of the upper incomplete gamma function."""
    a, x = wnp.broadcast_arrays(a, x)
    return log_probability(lax.igammac(a, x), lax.igamma(a, x))


@probability
@domain(a=is_positive)
def cdf(x: Any, a: Any) -> Array:
    """Return the probability of a value of at most x, for the shape `a`."""
    end = wnp.where(x > 0, 1.0, 0.0)
    return within((x >= 0) & (x < np.inf), x, 1, lambda x: lax.igamma(*wnp.broadcast_arrays(a, x)), end)


@probability
@domain(a=is_positive)
def logcdf(x: Any, a: Any) -> Array:
    """Return the logarithm of the probability of a value of at most x."""
    return within(x > 0, x, 1, lambda x: log_below(a, x), -np.inf)


@probability
@domain(a=is_positive)
def sf(x: Any, a: Any) -> Array:
    """Return the probability of a value above x, for the shape `a`."""
    end = wnp.where(x > 0, 0.0, 1.0)
    return within((x >= 0) & (x < np.inf), x, 1, lambda x: lax.igammac(*wnp.broadcast_arrays(a, x)), end)


@probability
@domain(a=is_positive)
def logsf(x: Any, a: Any) -> Array:
    """Return the logarithm of the probability of a value above x."""
    return within(x >= 0, x, 1, lambda x: log_above(a, x), 0.0)
