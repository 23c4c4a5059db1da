"""Uniform distribution, on the numbers from `loc` to `loc + scale`."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.stats.families import exponentiate, log_density, probability, quantile, within
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@log_density
def logpdf(x: Any) -> Array:
    """Return the logarithm of the density at x; minus infinity out of the support."""
    return within((x >= 0) & (x <= 1), x, 0, wnp.zeros_like, -np.inf)


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")


@probability
def cdf(x: ArrayLike) -> Array:
    """Return the probability of a value of at most x."""
    return wnp.clip(x, 0, 1)


@quantile
def ppf(q: ArrayLike) -> Any:
    """Return the value that is exceeded with probability 1 - q."""
    return q
