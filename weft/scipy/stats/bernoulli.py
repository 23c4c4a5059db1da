"""Bernoulli distribution: 1 with probability p, else 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.stats.families import domain, exponentiate, is_probability, log_of_count, plain
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@log_of_count
@domain(p=is_probability)
def logpmf(k: ArrayLike, p: ArrayLike) -> Array:
    """Return the logarithm of the probability of k; minus infinity unless it is 0 or 1."""
    one = k == 1
    chosen = wnp.where(one, p, 1 - p)
    value = wnp.where(one, wnp.log(wnp.where(one, p, wnp.ones_like(p))), wnp.log1p(-wnp.where(one, 0.0, p)))
    value = wnp.where(chosen == 0, -np.inf, value)
    return wnp.where((k == 0) | one, value, -np.inf)


pmf = exponentiate(logpmf, "pmf", "Return the probability of k.")


@plain
@domain(p=is_probability)
def cdf(k: Any, p: Any) -> Array:
    """Return the probability of a value of at most k."""
    value = wnp.where(k < 0, wnp.zeros_like(p), wnp.where(k < 1, 1 - p, wnp.ones_like(p)))
    return wnp.where(wnp.isnan(k), np.nan, value)


@plain
@domain(p=is_probability)
def ppf(q: Any, p: Any) -> Array:
    """Return the least value that is exceeded with probability at most 1 - q."""
    value = wnp.where(q <= 1 - p, wnp.zeros_like(p), wnp.ones_like(p))
    return wnp.where(is_probability(q), value, np.nan)
