"""Von Mises distribution, of angles, concentrated by `kappa`."""

from __future__ import annotations

import math
from typing import Any

from weft import lax, numpy as wnp
from weft.scipy.stats.families import domain, exponentiate, is_positive, plain
from weft.trace.annotations import ArrayLike


@plain
@domain(kappa=is_positive)
def logpdf(x: ArrayLike, kappa: ArrayLike) -> Any:
    """Return the logarithm of the density at the angle x."""
    less = -2 * wnp.square(wnp.sin(x / 2))  # cos(x) - 1
    return kappa * less - math.log(2 * math.pi) - wnp.log(lax.bessel_i0e(kappa))


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")
