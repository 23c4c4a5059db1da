"""Dirichlet distribution, of vectors of probabilities."""

from __future__ import annotations

import numpy as np

from weft import lax, numpy as wnp
from weft.api.jit import jit
from weft.base.errors import ShapeMismatchError
from weft.numpy.util import combining_ranks
from weft.scipy.special.arguments import promote_floats
from weft.scipy.special.primitives.information import xlogy
from weft.scipy.stats.families import exponentiate
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Return the logarithm of the density at x.

    Args:
        x: vectors of probabilities along the first axis; the last of them may be left out. Minus infinity if they are
            negative or their sum is not 1.
        alpha: a vector of positive concentrations.
    """
    x, alpha = promote_floats("dirichlet.logpdf", x, alpha)
    if alpha.ndim != 1:
        raise ShapeMismatchError("dirichlet.logpdf needs a vector alpha.", received=f"alpha of shape {alpha.shape}")
    if not x.ndim or x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
        raise ShapeMismatchError(
            "The first axis of x must have as many elements as alpha, or one less.",
            received=f"x of shape {x.shape} and alpha of shape {alpha.shape}",
        )
    return _logpdf(x, alpha)


@jit
@combining_ranks
def _logpdf(x: Array, alpha: Array) -> Array:
    if x.shape[0] < alpha.shape[0]:
        x = wnp.concatenate([x, wnp.clip(1 - wnp.sum(x, axis=0, keepdims=True), 0, 1)])
    tolerance = 10 * wnp.finfo(x.dtype).eps * x.shape[0]
    inside = wnp.all(x >= 0, axis=0) & (abs(wnp.sum(x, axis=0) - 1) < max(tolerance, 1e-6))
    powers = alpha.reshape((-1, *(1,) * (x.ndim - 1))) - 1
    total = wnp.sum(xlogy(*wnp.broadcast_arrays(powers, wnp.where(inside, x, 0.5))), axis=0)
    constant = lax.lgamma(wnp.sum(alpha)) - wnp.sum(lax.lgamma(alpha))
    return wnp.where(wnp.all(alpha > 0), wnp.where(inside, total + constant, -np.inf), np.nan)


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")
