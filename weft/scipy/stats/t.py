"""Student's t distribution, with `df` degrees of freedom."""

from __future__ import annotations

import math

import numpy as np

from weft import numpy as wnp
from weft.scipy.special.primitives.gamma import gamma_difference
from weft.scipy.stats.families import domain, exponentiate, is_positive, log_density
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@log_density
@domain(df=is_positive)
def logpdf(x: ArrayLike, df: ArrayLike) -> Array:
    """Return the logarithm of the density at x; for an infinite `df` that of the normal distribution."""
    normal = df == np.inf
    finite = wnp.where(normal, wnp.ones_like(df), df)
    half = wnp.full_like(finite, 0.5)
    constant = gamma_difference(0.5 * finite, half, order=0) - 0.5 * wnp.log(math.pi * finite)
    # The root of x*x/df, since the square may overflow.
    root = abs(x) / wnp.sqrt(finite)
    large = root > 1e8
    near = wnp.log1p(wnp.square(x) / finite)
    logarithm = wnp.where(large, 2 * wnp.log(wnp.where(large, root, wnp.ones_like(root))), near)
    gaussian = -0.5 * wnp.square(x) - 0.5 * math.log(2 * math.pi)
    return wnp.where(normal, gaussian, constant - (finite + 1) / 2 * logarithm)


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")
