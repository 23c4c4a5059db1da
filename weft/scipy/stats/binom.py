"""Binomial distribution: how many of n independent events of probability p occur."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.special.primitives.gamma import log_beta_density
from weft.scipy.stats.edges import beta_density
from weft.scipy.stats.families import domain, is_count, is_probability, log_of_count, of_count
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@log_of_count
@domain(n=is_count, p=is_probability)
def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Return the logarithm of the probability of k; minus infinity unless 0 <= k <= n."""
    inside, count, total = _within(k, n)
    value = log_beta_density(*wnp.broadcast_arrays(count + 1, total - count + 1, p)) - wnp.log1p(total)
    return wnp.where(inside, value, -np.inf)


@of_count
@domain(n=is_count, p=is_probability)
def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Return the probability of k."""
    inside, count, total = _within(k, n)
    value = beta_density(count + 1, total - count + 1, p) / (total + 1)
    return wnp.where(inside, value, 0.0)


def _within(k: Any, n: Any) -> tuple[Any, Any, Any]:
    """Return whether k is a possible count, with k and n there and 0 elsewhere."""
    inside = (k >= 0) & (k <= n)
    return inside, wnp.where(inside, k, wnp.zeros_like(k)), wnp.where(inside, n, wnp.zeros_like(n))
