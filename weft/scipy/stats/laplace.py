"""Laplace distribution, with median `loc`."""

from __future__ import annotations

import math
from typing import Any

from weft import numpy as wnp
from weft.scipy.stats.families import exponentiate, log_density, probability, quantile
from weft.trace.array import Array


@log_density
def logpdf(x: Any) -> Array:
    """Return the logarithm of the density at x."""
    return -abs(x) - math.log(2)


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")


def _below(x: Array) -> Array:
    half = 0.5 * wnp.exp(-abs(x))
    return wnp.where(x < 0, half, 1 - half)


@probability
def cdf(x: Any) -> Array:
    """Return the probability of a value of at most x."""
    return _below(x)


@probability
def sf(x: Any) -> Array:
    """Return the probability of a value above x."""
    return _below(-x)


@quantile
def ppf(q: Any) -> Array:
    """Return the value that is exceeded with probability 1 - q."""
    low = q < 0.5
    far = wnp.log(2 * wnp.where(low, q, 1 - q))
    return wnp.where(low, far, -far)
