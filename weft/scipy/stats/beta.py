"""Beta distribution, on the numbers from `loc` to `loc + scale`."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.special.primitives.gamma import log_beta_density
from weft.scipy.special.primitives.parameters import incomplete_beta
from weft.scipy.stats.edges import beta_density
from weft.scipy.stats.families import density, domain, is_positive, log_density, log_probability, probability, within
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@log_density
@domain(a=is_positive, b=is_positive)
def logpdf(x: Any, a: Any, b: Any) -> Array:
    """Return the logarithm of the density at x, for positive a and b; minus infinity out of the support."""
    return within((x >= 0) & (x <= 1), x, 0.5, lambda x: log_beta_density(a, b, x), -np.inf)


@density
@domain(a=is_positive, b=is_positive)
def pdf(x: Any, a: Any, b: Any) -> Array:
    """Return the density at x."""
    return within((x >= 0) & (x <= 1), x, 0.5, lambda x: beta_density(a, b, x), 0.0)


def _below(a: Any, b: Any, x: Any) -> Any:
    return incomplete_beta(*wnp.broadcast_arrays(a, b, x), orders=(0, 0))


def _above(a: Any, b: Any, x: Any) -> Any:
    """Compute 1 - `_below`. The complement is accurate where `_below` is near 1, but 1 - x has lost digits of x. The
    density, which is the sensitivity of the result to x, decides between the two."""
    below = _below(a, b, x)
    return wnp.where((below < 0.5) | (log_beta_density(a, b, x) > 0), 1 - below, _below(b, a, 1 - x))


@probability
@domain(a=is_positive, b=is_positive)
def cdf(x: Any, a: Any, b: Any) -> Array:
    """Return the probability of a value of at most x."""
    return within((x > 0) & (x < 1), x, 0.5, lambda x: _below(a, b, x), wnp.where(x >= 1, 1.0, 0.0))


@probability
@domain(a=is_positive, b=is_positive)
def logcdf(x: Any, a: ArrayLike, b: ArrayLike) -> Array:
    """Return the logarithm of the probability of a value of at most x."""
    return within(
        (x > 0) & (x < 1),
        x,
        0.5,
        lambda x: log_probability(_below(a, b, x), _above(a, b, x)),
        wnp.where(x >= 1, 0.0, -np.inf),
    )


@probability
@domain(a=is_positive, b=is_positive)
def sf(x: Any, a: Any, b: Any) -> Array:
    """Return the probability of a value above x."""
    return within((x > 0) & (x < 1), x, 0.5, lambda x: _above(a, b, x), wnp.where(x >= 1, 0.0, 1.0))


@probability
@domain(a=is_positive, b=is_positive)
def logsf(x: Any, a: ArrayLike, b: ArrayLike) -> Array:
    """Return the logarithm of the probability of a value above x."""
    return within(
        (x > 0) & (x < 1),
        x,
        0.5,
        lambda x: log_probability(_above(a, b, x), _below(a, b, x)),
        wnp.where(x >= 1, -np.inf, 0.0),
    )
