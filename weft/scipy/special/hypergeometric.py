"""Hypergeometric functions."""

from __future__ import annotations

from weft.scipy.special.arguments import promote
from weft.scipy.special.primitives.hypergeometric import confluent, hypergeometric
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Compute the confluent hypergeometric function 1F1(a; b; x) of real numbers, with derivatives in all three."""
    return confluent(*promote("hyp1f1", a, b, x), orders=(0, 0))


def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    """Compute the hypergeometric function 2F1(a, b; c; x) of real numbers, for x up to 1, with derivatives in all four.
    Beyond 1 it is infinite, unless a or b is a nonpositive integer, for which it is a polynomial.
    """
    return hypergeometric(*promote("hyp2f1", a, b, c, x), orders=(0, 0, 0))
