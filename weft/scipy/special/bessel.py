"""Bessel functions."""

from __future__ import annotations

from typing import Any

from weft import lax
from weft.scipy.special.arguments import promoted
from weft.scipy.special.primitives import bessel
from weft.trace.array import Array


def i0(x: Any) -> Array:
    """The modified Bessel function of the first kind and order 0."""
    return bessel.bessel_i0(*promoted("i0", x))


def i0e(x: Any) -> Array:
    """The modified Bessel function of order 0, scaled by exp(-|x|).

    >>> import weft.numpy as wnp
    >>> from weft.scipy import special
    >>> special.i0e(wnp.array([0.0, 1.0, 1000.0]))
    Array([1.        , 0.4657596 , 0.01261724], dtype=float32)
    """
    return lax.bessel_i0e(*promoted("i0e", x))


def i1(x: Any) -> Array:
    """The modified Bessel function of the first kind and order 1."""
    return bessel.bessel_i1(*promoted("i1", x))


def i1e(x: Any) -> Array:
    """The modified Bessel function of order 1, scaled by exp(-|x|).

    >>> import weft.numpy as wnp
    >>> from weft.scipy import special
    >>> special.i1e(wnp.array([0.0, 1.0, 1000.0]))
    Array([0.        , 0.20791042, 0.01261093], dtype=float32)
    """
    return lax.bessel_i1e(*promoted("i1e", x))
