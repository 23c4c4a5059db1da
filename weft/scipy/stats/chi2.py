"""Chi-square distribution, with `df` degrees of freedom."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.scipy.special.primitives.gamma import log_gamma_density
from weft.scipy.stats.edges import gamma_density
from weft.scipy.stats.families import density, domain, is_positive, log_density, probability, within
from weft.scipy.stats.gamma import log_above, log_below
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@log_density
@domain(df=is_positive)
def logpdf(x: Any, df: Any) -> Array:
    """Return the logarithm of the density at x, for `df` degrees of freedom; minus infinity below `loc`."""
    return within((x >= 0) & (x < np.inf), x, 1, lambda x: log_gamma_density(0.5 * df, 0.5 * x) - math.log(2), -np.inf)


@density
@domain(df=is_positive)
def pdf(x: Any, df: Any) -> Array:
    """Return the density at x."""
    return within(x >= 0, x, 1, lambda x: 0.5 * gamma_density(0.5 * df, 0.5 * x), 0.0)


@probability
@domain(df=is_positive)
def cdf(x: Any, df: ArrayLike) -> Array:
    """Return the probability of a value of at most x, for `df` degrees of freedom."""
    end = wnp.where(x > 0, 1.0, 0.0)
    value = lambda x: lax.igamma(*wnp.broadcast_arrays(0.5 * df, 0.5 * x))
    return within((x >= 0) & (x < np.inf), x, 1, value, end)


@probability
@domain(df=is_positive)
def logcdf(x: Any, df: Any) -> Array:
    """Return the logarithm of the probability of a value of at most x."""
    return within(x > 0, x, 1, lambda x: log_below(0.5 * df, 0.5 * x), -np.inf)


@probability
@domain(df=is_positive)
def sf(x: Any, df: ArrayLike) -> Array:
    """Return the probability of a value above x, for `df` degrees of freedom."""
    end = wnp.where(x > 0, 0.0, 1.0)
    value = lambda x: lax.igammac(*wnp.broadcast_arrays(0.5 * df, 0.5 * x))
    return within((x >= 0) & (x < np.inf), x, 1, value, end)


@probability
@domain(df=is_positive)
def logsf(x: Any, df: Any) -> Array:
    """Return the logarithm of the probability of a value above x."""
    return within(x >= 0, x, 1, lambda x: log_above(0.5 * df, 0.5 * x), 0.0)
