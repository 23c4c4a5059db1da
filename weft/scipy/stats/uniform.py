"""The uniform distribution, on the numbers from `loc` to `loc + scale`."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.stats.families import exponential_of, log_density, probability, quantile, within

__all__ = ["cdf", "logpdf", "pdf", "ppf"]


@log_density
def logpdf(x: Any) -> Any:
    """The logarithm of the density at x; minus infinity out of the support."""
    return within((x >= 0) & (x <= 1), x, 0, wnp.zeros_like, -np.inf)


pdf = exponential_of(logpdf, "pdf", "The density at x.")


@probability
def cdf(x: Any) -> Any:
    """The probability of a value of at most x."""
    return wnp.clip(x, 0, 1)


@quantile
def ppf(q: Any) -> Any:
    """The value that is exceeded with probability 1 - q."""
    return q
