"""Generalized normal distribution, whose density is proportional to exp(-|x|**beta)."""

from __future__ import annotations

import math
from typing import Any

from weft import lax, numpy as wnp
from weft.scipy.stats.families import domain, exponentiate, is_positive, plain
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def _power(x: Any, beta: Any) -> Any:
    """Compute |x|**beta, with finite derivatives at 0 where the power has them."""
    absent = x == 0
    return wnp.where(absent, wnp.zeros_like(x), wnp.power(abs(wnp.where(absent, wnp.ones_like(x), x)), beta))


@plain
@domain(beta=is_positive)
def logpdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Return the logarithm of the density at x."""
    return wnp.log(beta) - math.log(2) - lax.lgamma(1 / beta) - _power(x, beta)


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")


@plain
@domain(beta=is_positive)
def cdf(x: Any, beta: ArrayLike) -> Array:
    """Return the probability of a value of at most x."""
    shape, power = wnp.broadcast_arrays(1 / beta, _power(x, beta))
    upper = 0.5 * lax.igammac(shape, power)
    return wnp.where(x > 0, 1 - upper, upper)
