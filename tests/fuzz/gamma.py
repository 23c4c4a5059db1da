"""Error bounds of incomplete gamma functions in float64, in which all dtypes compute them.

Two steps lose digits that no unit in the last place of the result accounts for: `eval` takes the exponential of a
difference of large numbers, and a derivative in `a` is a sum of terms that cancel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.ir.primitive import lookup

# How often each is differentiated in `a`; None: as often as its parameter says.
ORDERS = {"igamma": 0, "igammac": 0, "igamma_grad_a": 1, "random_gamma_grad": 1, "igamma_derivative": None}


def digits_lost(name: str, a: Any, x: Any, result: Any, units: float, order: int | None = None) -> np.ndarray:
    """Return the error that these steps permit, if each of them has an error of `units`. It is not finite where nothing
    can be bounded."""
    from scipy import special

    a, x, size = (np.asarray(n).astype(np.float64) for n in (a, x, np.abs(result)))
    order = order if ORDERS[name] is None else ORDERS[name]
    assert order is not None
    info = np.finfo(np.float64)
    with np.errstate(all="ignore"):
        logarithm = lookup("lgamma").eval(a)
        exponents = np.abs((a - 1) * np.log(x)), x, np.abs(logarithm)
        # What derivatives of the density and of the series multiply them by.
        factor = math.factorial(order) * (np.abs(np.log(x)) + np.abs(special.psi(a)) + 1 / a) ** order
        terms = factor * np.where((x <= 1) | (x < a), lookup("igamma").eval(a, x), lookup("igammac").eval(a, x))
        if name == "random_gamma_grad":
            density = np.exp((a - 1) * np.log(x) - x - logarithm)
            lost = units * np.fmax(size, terms / density) * info.eps
        else:
            # A density below the least normal number has fewer digits, or is zero.
            lost = (units * np.fmax(size, terms) + sum(exponents) * size) * info.eps + info.tiny * factor
    # Operands outside of the domain and limits lose nothing.
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x) & np.isfinite(size)
    return np.where(inside, lost, 0.0)
