"""Geometric distribution: the first of independent trials of probability p that succeeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.special.primitives.information import xlog1py
from weft.scipy.stats.families import domain, is_nonzero_probability, log_of_count, of_count
from weft.trace.array import Array


@log_of_count
@domain(p=is_nonzero_probability)
def logpmf(k: Any, p: Any) -> Array:
    """Return the logarithm of the probability of k; minus infinity below 1."""
    inside = k >= 1
    failures = wnp.where(inside, k - 1, wnp.zeros_like(k))
    value = xlog1py(*wnp.broadcast_arrays(failures, -p)) + wnp.log(p)
    return wnp.where(inside, value, -np.inf)


@of_count
@domain(p=is_nonzero_probability)
def pmf(k: Any, p: Any) -> Array:
    """Return the probability of k."""
    inside, certain = k >= 1, p == 1
    failures, p = wnp.broadcast_arrays(wnp.where(inside, k - 1, wnp.zeros_like(k)), p)
    value = p * wnp.exp(xlog1py(failures, -wnp.where(certain, wnp.full_like(p, 0.5), p)))
    at_edge = p * wnp.power(1 - wnp.where(certain, p, wnp.full_like(p, 0.5)), failures)
    return wnp.where(inside, wnp.where(certain, at_edge, value), 0.0)
