"""Spherical harmonics."""

from __future__ import annotations

import functools
import math
from typing import Any

from weft import lax, numpy as wnp
from weft.api.jit import jit
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentTypeError, NotSupportedError
from weft.numpy.util import concrete_or_error, ensure_arrays, promote_dtypes_inexact
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def sph_harm_y(
    n: ArrayLike, m: ArrayLike, theta: ArrayLike, phi: Any, diff_n: int | None = None, n_max: int | None = None
) -> Array:
    """Compute the spherical harmonic of degree n and order m at a polar angle theta and an azimuthal angle phi, with
    the Condon-Shortley phase. All four are broadcast against each other.

    Args:
        n: integers from 0 up.
        m: integers; 0 unless |m| <= n.
        theta: the polar angle, from 0 to pi.
        phi: the azimuthal angle, from 0 to 2*pi.
        diff_n: not supported; `weft.jacfwd` has derivatives.
        n_max: the largest degree, which must be known when tracing; by default the largest element of n.
    """
    if diff_n is not None:
        raise NotSupportedError(
            "sph_harm_y does not support diff_n.", received=f"diff_n={diff_n}", fix="weft.jacfwd of sph_harm_y"
        )
    n, m, theta, phi = ensure_arrays("sph_harm_y", n, m, theta, phi)
    if dtypes.kind(n.dtype) not in "iu" or dtypes.kind(m.dtype) not in "iu":
        raise ArgumentTypeError(
            "The degree and the order of sph_harm_y must be integers.", received=f"{n.dtype} and {m.dtype}"
        )
    if n_max is None:
        largest = concrete_or_error(n, "The degree n of sph_harm_y", "pass n_max, a static int")
        n_max = int(largest.max(initial=0))
    theta, phi = promote_dtypes_inexact(theta, phi)
    degree, order, polar, azimuth = wnp.broadcast_arrays(n, m, theta, phi)
    return _harmonic(degree, order, polar, azimuth, n_max=index(n_max))


@functools.partial(jit, static_argnames=("n_max",))
def _harmonic(n: Array, m: Array, theta: Array, phi: Array, *, n_max: int) -> Array:
    """Evaluate by the recurrence of normalized Legendre functions in the degree, from degree |m| on."""
    size = abs(m)
    x, s = wnp.cos(theta), wnp.sin(theta)
    # sqrt(1 - x*x), as in SciPy for angles out of [0, pi], with the derivative from above at 0.
    s = wnp.where(s < 0, -s, s)
    diagonal = wnp.full_like(x, math.sqrt(1 / (4 * math.pi)))
    for k in range(1, n_max + 1):
        diagonal = wnp.where(size >= k, -math.sqrt((2 * k + 1) / (2 * k)) * s * diagonal, diagonal)
    below, value = wnp.zeros_like(x), diagonal
    order = size.astype(x.dtype)
    for k in range(1, n_max + 1):
        active = (size < k) & (n >= k)
        gap = wnp.where(active, k * k - order * order, 1.0)
        a = wnp.sqrt((4 * k * k - 1) / gap)
        b = wnp.sqrt(wnp.where(active, (k - 1) ** 2 - order * order, 0.0).clip(0) / max(4 * (k - 1) ** 2 - 1, 1))
        new = a * (x * value - lax.stop_gradient(b) * below)
        below, value = wnp.where(active, value, below), wnp.where(active, new, value)
    value = wnp.where((size <= n) & (n >= 0), value, 0.0)
    sign = wnp.where((m < 0) & (size % 2 == 1), -1.0, 1.0)
    angle = m.astype(x.dtype) * phi
    return lax.complex((sign * value * wnp.cos(angle)).astype(x.dtype), (sign * value * wnp.sin(angle)).astype(x.dtype))
