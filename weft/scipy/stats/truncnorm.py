"""Normal distribution, restricted to the numbers from `a` to `b` before it is shifted and stretched."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.special.primitives.error import log_ndtr
from weft.scipy.stats.families import exponentiate, log_density, log_less, probability, within
from weft.trace.array import Array


def _log_mass(a: Array, b: Array) -> Array:
    """Return the logarithm of the probability that a normal variable is between a and b, with a < b."""
    # By the tail in which both are, so that nothing cancels.
    right = a > 0
    low, high = wnp.where(right, -b, a), wnp.where(right, -a, b)
    larger, smaller = log_ndtr(high), log_ndtr(low)
    return larger + log_less(wnp.where(low == -np.inf, np.inf, larger - wnp.where(low == -np.inf, 0.0, smaller)))


def _below(x: Array, a: Array, b: Array) -> Array:
    valid = a < b
    lower, upper = wnp.where(valid, a, wnp.full_like(a, -1)), wnp.where(valid, b, wnp.ones_like(b))
    inside = (x > lower) & (x < upper)
    value = _log_mass(lower, wnp.where(inside, x, upper)) - _log_mass(lower, upper)
    value = wnp.where(inside, value, wnp.where(x >= upper, 0.0, -np.inf))
    return wnp.where(valid & ~wnp.isnan(x), value, np.nan)


def _log_below(x: Array, a: Array, b: Array) -> Array:
    """Return the logarithm of the probability of a value of at most x, by the complement where it is near 1."""
    value, other = _below(x, a, b), _below(-x, -b, -a)
    large = value > -0.5
    return wnp.where(large, log_less(-wnp.where(large, other, -1.0)), value)


@log_density
def logpdf(x: Any, a: Any, b: Any) -> Array:
    """Return the logarithm of the density at x; minus infinity out of the support, and nan unless a < b."""
    valid = a < b
    lower, upper = wnp.where(valid, a, wnp.full_like(a, -1)), wnp.where(valid, b, wnp.ones_like(b))

    def value(x: Any) -> Any:
        return -0.5 * wnp.square(x) - 0.5 * math.log(2 * math.pi) - _log_mass(lower, upper)

    found = within((x >= lower) & (x <= upper), x, 0, value, -np.inf)
    return wnp.where(valid, found, np.nan)


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")


@probability
def logcdf(x: Any, a: Any, b: Any) -> Array:
    """Return the logarithm of the probability of a value of at most x."""
    return _log_below(x, a, b)


@probability
def cdf(x: Any, a: Any, b: Any) -> Array:
    """Return the probability of a value of at most x."""
    return wnp.exp(_log_below(x, a, b))


@probability
def logsf(x: Any, a: Any, b: Any) -> Array:
    """Return the logarithm of the probability of a value above x."""
    return _log_below(-x, -b, -a)


@probability
def sf(x: Any, a: Any, b: Any) -> Array:
    """Return the probability of a value above x."""
    return wnp.exp(_log_below(-x, -b, -a))
