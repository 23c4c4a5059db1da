"""Bessel functions."""

from __future__ import annotations

from weft import lax, numpy as wnp
from weft.base.arguments import index
from weft.base.errors import ArgumentError
from weft.scipy.argument_docs import document
from weft.scipy.special.arguments import promote
from weft.scipy.special.primitives import bessel, bessel_j
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def i0(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of the first kind and order 0."""
    return bessel.bessel_i0(*promote("i0", x))


@document(
    "Floats of the shape of `x`.",
    "special.i0e(wnp.array([0.0, 1.0, 1000.0])) -> Array([1.        , 0.4657596 , 0.01261724], dtype=float32)",
)
def i0e(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of order 0, scaled by exp(-|x|)."""
    return lax.bessel_i0e(*promote("i0e", x))


def i1(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of the first kind and order 1."""
    return bessel.bessel_i1(*promote("i1", x))


@document(
    "Floats of the shape of `x`.",
    "special.i1e(wnp.array([0.0, 1.0, 1000.0])) -> Array([0.        , 0.20791042, 0.01261093], dtype=float32)",
)
def i1e(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of order 1, scaled by exp(-|x|)."""
    return lax.bessel_i1e(*promote("i1e", x))


def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """Compute the Bessel functions of the first kind of the orders 0 to v, along a new first axis. `n_iter` is accepted
    for compatibility: results are accurate for every z.

    >>> import weft.numpy as wnp
    >>> from weft.scipy import special
    >>> special.bessel_jn(wnp.array([0.0, 1.0]), v=1)
    Array([[1.        , 0.7651977 ],
           [0.        , 0.44005057]], dtype=float32)
    """
    largest = index(v)
    index(n_iter)
    if largest < 0:
        raise ArgumentError("The order v of bessel_jn must be an integer from 0 up.", received=f"v={v}")
    (z,) = promote("bessel_jn", z)
    return wnp.stack([bessel_j.bessel_j(z, order=order) for order in range(largest + 1)])
