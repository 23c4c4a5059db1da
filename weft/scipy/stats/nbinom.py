"""Negative binomial distribution: failures before the n-th success, of probability p."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.special.primitives.gamma import log_beta_density
from weft.scipy.stats.edges import beta_density
from weft.scipy.stats.families import domain, is_nonzero_probability, is_positive, log_of_count, of_count
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@log_of_count
@domain(n=is_positive, p=is_nonzero_probability)
def logpmf(k: Any, n: ArrayLike, p: ArrayLike) -> Array:
    """Return the logarithm of the probability of k; minus infinity below 0."""
    inside = k >= 0
    count = wnp.where(inside, k, wnp.zeros_like(k))
    value = log_beta_density(*wnp.broadcast_arrays(n, count + 1, p)) + wnp.log(p) - wnp.log(n + count)
    return wnp.where(inside, value, -np.inf)


@of_count
@domain(n=is_positive, p=is_nonzero_probability)
def pmf(k: Any, n: ArrayLike, p: ArrayLike) -> Array:
    """Return the probability of k."""
    inside = k >= 0
    count = wnp.where(inside, k, wnp.zeros_like(k))
    value = beta_density(n, count + 1, p) * p / (n + count)
    return wnp.where(inside, value, 0.0)
