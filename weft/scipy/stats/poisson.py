"""Poisson distribution, of mean `mu`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.scipy.special.arguments import promote_and_jit
from weft.scipy.special.primitives.gamma import log_gamma_density
from weft.scipy.special.primitives.information import entr
from weft.scipy.stats.edges import gamma_density
from weft.scipy.stats.families import domain, is_nonnegative, log_of_count, of_count
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array

__all__ = ["cdf", "entropy", "logpmf", "pmf"]


@log_of_count
@domain(mu=is_nonnegative)
def logpmf(k: Any, mu: ArrayLike) -> Array:
    """Return the logarithm of the probability of k; minus infinity below 0."""
    inside = k >= 0
    count = wnp.where(inside, k, wnp.zeros_like(k))
    value = log_gamma_density(*wnp.broadcast_arrays(count + 1, mu))
    return wnp.where(inside, value, -np.inf)


@of_count
@domain(mu=is_nonnegative)
def pmf(k: Any, mu: ArrayLike) -> Array:
    """Return the probability of k."""
    inside = k >= 0
    value = gamma_density(wnp.where(inside, k, wnp.zeros_like(k)) + 1, mu)
    return wnp.where(inside, value, 0.0)


@promote_and_jit
def cdf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """Return the probability of a value of at most k."""
    count = wnp.floor(k - loc)
    inside = count >= 0
    shape, mean = wnp.broadcast_arrays(wnp.where(inside, count, wnp.zeros_like(count)) + 1, mu)
    value = wnp.where(inside, lax.igammac(shape, mean), 0.0)
    return wnp.where((mu >= 0) & ~wnp.isnan(count), value, np.nan)


LARGE, TERMS = 200, 480  # means from LARGE on use a series; below it, terms beyond TERMS are negligible


@promote_and_jit
def entropy(mu: Any, loc: Any = 0) -> Array:
    """Return the entropy in units of the natural logarithm; `loc` does not change it."""
    mu = wnp.asarray(mu) + 0 * loc
    small = (mu > 0) & (mu < LARGE)
    mean = wnp.where(small, mu, wnp.ones_like(mu))
    count = wnp.arange(TERMS, dtype=mean.dtype).reshape((TERMS, *(1,) * mean.ndim))
    near = wnp.sum(entr(wnp.exp(log_gamma_density(*wnp.broadcast_arrays(count + 1, mean)))), axis=0)
    far = wnp.where(mu >= LARGE, mu, wnp.full_like(mu, LARGE))
    series = 0.5 * wnp.log(2 * math.pi * math.e * far) - (1 / 12 + (1 / 24 + 19 / 360 / far) / far) / far
    value = wnp.where(small, near, wnp.where(mu == 0, wnp.zeros_like(mu), series))
    return wnp.where(mu >= 0, value, np.nan)
