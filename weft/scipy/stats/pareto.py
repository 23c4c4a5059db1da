"""Pareto distribution, of exponent `b`, from `loc + scale` up."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.stats.families import (
    domain,
    exponentiate,
    is_positive,
    log_density,
    log_less,
    probability,
    quantile,
    within,
)
from weft.trace.array import Array


@log_density
@domain(b=is_positive)
def logpdf(x: Any, b: Any) -> Array:
    """Return the logarithm of the density at x; minus infinity below the support."""
    return within(x >= 1, x, 1, lambda x: wnp.log(b) - (b + 1) * wnp.log(x), -np.inf)


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")


@probability
@domain(b=is_positive)
def cdf(x: Any, b: Any) -> Array:
    """Return the probability of a value of at most x."""
    return within(x >= 1, x, 1, lambda x: -wnp.expm1(-b * wnp.log(x)), 0.0)


@probability
@domain(b=is_positive)
def logcdf(x: Any, b: Any) -> Array:
    """Return the logarithm of the probability of a value of at most x."""
    return within(x >= 1, x, 1, lambda x: log_less(b * wnp.log(x)), -np.inf)


@probability
@domain(b=is_positive)
def sf(x: Any, b: Any) -> Array:
    """Return the probability of a value above x."""
    return within(x >= 1, x, 1, lambda x: wnp.power(x, -b), 1.0)


@probability
@domain(b=is_positive)
def logsf(x: Any, b: Any) -> Array:
    """Return the logarithm of the probability of a value above x."""
    return within(x >= 1, x, 1, lambda x: -b * wnp.log(x), 0.0)


@quantile
@domain(b=is_positive)
def ppf(q: Any, b: Any) -> Array:
    """Return the value that is exceeded with probability 1 - q."""
    return wnp.exp(-wnp.log1p(-q) / b)
