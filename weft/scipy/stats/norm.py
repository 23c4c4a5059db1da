"""Normal distribution, of mean `loc` and standard deviation `scale`."""

from __future__ import annotations

import math
from typing import Any

from weft import numpy as wnp
from weft.scipy.special.primitives import error
from weft.scipy.stats.families import density, log_density, probability, quantile
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@log_density
def logpdf(x: ArrayLike) -> Array:
    """Return the logarithm of the density at x.

    Args:
        x: where.
        loc: the mean.
        scale: the standard deviation; nan unless it is positive.

    Returns:
        Floats of the broadcast shape.

    >>> from weft.scipy import stats
    >>> stats.norm.logpdf(1.0, loc=1.0, scale=2.0)
    Array(-1.6120857, dtype=float32, weak_type=True)
    """
    return -0.5 * wnp.square(x) - 0.5 * math.log(2 * math.pi)


@density
def pdf(x: ArrayLike) -> Array:
    """Return the density at x."""
    return error.normal_density(x)


@probability
def cdf(x: ArrayLike) -> Array:
    """Return the probability of a value of at most x."""
    return error.ndtr(x)


@probability
def logcdf(x: ArrayLike) -> Array:
    """Return the logarithm of the probability of a value of at most x, finite however far out x is."""
    return error.log_ndtr(x)


@probability
def sf(x: Any) -> Array:
    """Return the probability of a value above x."""
    return error.ndtr(-x)


@probability
def logsf(x: Any) -> Array:
    """Return the logarithm of the probability of a value above x."""
    return error.log_ndtr(-x)


@quantile
def ppf(q: ArrayLike) -> Array:
    """Return the value that is exceeded with probability 1 - q."""
    return error.ndtri(q)


@quantile
def isf(q: ArrayLike) -> Array:
    """Return the value that is exceeded with probability q."""
    return -error.ndtri(q)
