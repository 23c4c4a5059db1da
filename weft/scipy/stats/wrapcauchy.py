"""Wrapped Cauchy distribution, of angles from 0 to 2*pi, concentrated by `c` between 0 and 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.scipy.stats.families import exponentiate, plain, within
from weft.trace.array import Array


@plain
def logpdf(x: Any, c: Any) -> Array:
    """Return the logarithm of the density at the angle x; minus infinity out of the support, NaN unless 0 < c < 1."""
    valid = (c > 0) & (c < 1)
    safe = wnp.where(valid, c, wnp.full_like(c, 0.5))

    def value(x: Any) -> Any:
        # 1 + c*c - 2*c*cos(x)
        distance = wnp.square(1 - safe) + 4 * safe * wnp.square(wnp.sin(x / 2))
        return wnp.log1p(-wnp.square(safe)) - math.log(2 * math.pi) - wnp.log(distance)

    return wnp.where(valid, within((x >= 0) & (x <= 2 * math.pi), x, 0, value, -np.inf), np.nan)


pdf = exponentiate(logpdf, "pdf", "Return the density at x.")
