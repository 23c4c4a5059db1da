"""Beta-binomial distribution: a binomial one whose probability is beta distributed."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.special.primitives.gamma import log_beta
from weft.scipy.stats.families import domain, exponentiate, is_count, is_positive, log_of_count
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@log_of_count
@domain(n=is_count, a=is_positive, b=is_positive)
def logpmf(k: Any, n: Any, a: ArrayLike, b: ArrayLike) -> Array:
    """Return the logarithm of the probability of k; minus infinity unless 0 <= k <= n."""
    inside = (k >= 0) & (k <= n)
    count, total = wnp.where(inside, k, wnp.zeros_like(k)), wnp.where(inside, n, wnp.zeros_like(n))
    ways = -wnp.log1p(total) - log_beta(*wnp.broadcast_arrays(total - count + 1, count + 1))
    mixed = log_beta(*wnp.broadcast_arrays(count + a, total - count + b)) - log_beta(*wnp.broadcast_arrays(a, b))
    return wnp.where(inside, ways + mixed, -np.inf)


pmf = exponentiate(logpmf, "pmf", "Return the probability of k.")
