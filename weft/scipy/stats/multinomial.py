"""Multinomial distribution: how often each of several outcomes occurs in n trials."""

from __future__ import annotations

import numpy as np

from weft import lax, numpy as wnp
from weft.api.jit import jit
from weft.base.settings import numpy_dtype_promotion
from weft.numpy.util import check_arraylike, combining_ranks
from weft.scipy.special.arguments import promote_floats
from weft.scipy.special.primitives.information import xlogy
from weft.scipy.stats.families import exponentiate
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Return the logarithm of the probability of counts.

    Args:
        x: counts along the last axis; minus infinity unless their sum is n.
        n: the number of trials.
        p: the probabilities of the outcomes, along the last axis.
    """
    check_arraylike("multinomial.logpmf", x, n, p)
    with numpy_dtype_promotion("standard"):  # counts are integers and probabilities are not
        values = promote_floats("multinomial.logpmf", x, n, p)
    return _logpmf(*values)


@jit
@combining_ranks
def _logpmf(x: Array, n: Array, p: Array) -> Array:
    counts, chances = wnp.broadcast_arrays(x, p)
    valid = (wnp.sum(x, axis=-1) == n) & wnp.all((x >= 0) & (x == wnp.floor(x)), axis=-1)
    total = wnp.sum(xlogy(counts, chances) - lax.lgamma(wnp.maximum(counts, 0) + 1), axis=-1)
    return wnp.where(valid, lax.lgamma(wnp.maximum(n, 0) + 1) + total, -np.inf)


pmf = exponentiate(logpmf, "pmf", "Return the probability of counts.")
