"""The geometric distribution: the first of independent trials of probability p that succeeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.special.primitives.information import xlog1py
from weft.scipy.stats.families import exponential_of, of_count

__all__ = ["logpmf", "pmf"]


@of_count
def logpmf(k: Any, p: Any) -> Any:
    """The logarithm of the probability of k; minus infinity below 1."""
    inside = k >= 1
    failures = wnp.where(inside, k - 1, wnp.zeros_like(k))
    value = xlog1py(*wnp.broadcast_arrays(failures, -p)) + wnp.log(p)
    return wnp.where((p > 0) & (p <= 1), wnp.where(inside, value, -np.inf), np.nan)


pmf = exponential_of(logpmf, "pmf", "The probability of k.")
