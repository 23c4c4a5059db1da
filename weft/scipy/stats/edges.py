"""Densities that are zero at an edge of their support, with their derivatives there.

There the logarithm of the density is minus infinity, and the derivative of its exponential 0 times infinity: at such an
edge the density is a power of the distance to it, which has derivatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.scipy.special.primitives.gamma import log_beta_density, log_gamma_density


def gamma_density(a: Any, x: Any) -> Any:
    """Compute x ** (a - 1) * exp(-x) / gamma(a) for x from 0 to infinity."""
    a, x = wnp.broadcast_arrays(a, x)
    edge, far = (x == 0) & (a > 1), x == np.inf
    inside = wnp.exp(log_gamma_density(a, wnp.where(edge | far, wnp.ones_like(x), x)))
    # Elsewhere the power has arguments at which all of its derivatives are finite.
    base, shape = wnp.where(edge, x, wnp.ones_like(x)), wnp.where(edge, a, wnp.ones_like(a))
    at_edge = wnp.power(base, shape - 1) * wnp.exp(-base - lax.lgamma(shape))
    return wnp.where(edge, at_edge, wnp.where(far, wnp.zeros_like(inside), inside))


def beta_density(a: Any, b: Any, x: Any) -> Any:
    """Compute x ** (a - 1) * (1 - x) ** (b - 1) / beta(a, b) for x from 0 to 1."""
    a, b, x = wnp.broadcast_arrays(a, b, x)
    edge = ((x == 0) & (a > 1)) | ((x == 1) & (b > 1))
    inside = wnp.exp(log_beta_density(a, b, wnp.where(edge, wnp.full_like(x, 0.5), x)))
    base = wnp.where(edge, x, wnp.full_like(x, 0.5))
    left, right = (wnp.where(edge, shape, wnp.ones_like(shape)) for shape in (a, b))
    scale = wnp.exp(lax.lgamma(left + right) - lax.lgamma(left) - lax.lgamma(right))
    at_edge = wnp.power(base, left - 1) * wnp.power(1 - base, right - 1) * scale
    return wnp.where(edge, at_edge, inside)
