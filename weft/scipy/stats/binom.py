"""The binomial distribution: how many of n independent events of probability p occur."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.special.primitives.gamma import log_beta_density
from weft.scipy.stats.families import exponential_of, of_count

__all__ = ["logpmf", "pmf"]


@of_count
def logpmf(k: Any, n: Any, p: Any) -> Any:
    """The logarithm of the probability of k; minus infinity unless 0 <= k <= n."""
    inside = (k >= 0) & (k <= n)
    count, total = wnp.where(inside, k, wnp.zeros_like(k)), wnp.where(inside, n, wnp.zeros_like(n))
    value = log_beta_density(*wnp.broadcast_arrays(count + 1, total - count + 1, p)) - wnp.log1p(total)
    valid = (p >= 0) & (p <= 1) & (n >= 0) & (n == wnp.floor(n))
    return wnp.where(valid, wnp.where(inside, value, -np.inf), np.nan)


pmf = exponential_of(logpmf, "pmf", "The probability of k.")
