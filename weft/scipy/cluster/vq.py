"""Vector quantisation: the code that is nearest to an observation."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import lax
from weft.base.errors import ArgumentError, ShapeMismatchError
from weft.base.publish import publish as _publish
from weft.numpy.indexing import concrete
from weft.numpy.linalg.norms import norm
from weft.numpy.reductions import argmin, sum as sum_
from weft.numpy.selection import take_in_bounds, where
from weft.numpy.util import ensure_array, ensure_arrays, promote_dtypes_inexact
from weft.trace.array import Array


def vq(obs: Any, code_book: Any, check_finite: bool = True) -> tuple[Array, Array]:
    """Return the index of the nearest code for each observation, and the distance to it.

    Args:
        obs: observations in rows, or a vector of numbers.
        code_book: codes in rows of the same size, or a vector of numbers.
        check_finite: whether infinities and NaN raise, where values are known (they are not under `jit`).

    Returns:
        (codes, distances), one of each for an observation.

    >>> import weft.numpy as np
    >>> from weft.scipy.cluster.vq import vq
    >>> codes, distances = vq(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 1.0], [4.0, 4.0]]))
    >>> codes, distances
    (Array([0, 1], dtype=int32), Array([1., 1.], dtype=float32))
    """
    obs, codes = (ensure_array(x) for x in promote_dtypes_inexact(*ensure_arrays("vq", obs, code_book)))
    if obs.ndim != codes.ndim or obs.ndim not in (1, 2):
        raise ArgumentError(
            "vq: observations and codes must both be vectors, or both be matrices.",
            received=f"{obs.aval.short()} and {codes.aval.short()}",
        )
    if obs.ndim == 1:
        obs, codes = obs[:, None], codes[:, None]
    if obs.shape[1] != codes.shape[1] or not codes.shape[0]:
        raise ShapeMismatchError(
            "vq: there must be codes, and they must have as many elements as an observation.",
            received=f"{obs.aval.short()} and {codes.aval.short()}",
        )
    for name, x in (("obs", obs), ("code_book", codes)):
        values = concrete(x) if check_finite else None
        if values is not None and not np.isfinite(values).all():
            raise ArgumentError(
                f"vq: {name} must not have infinities or NaN.", fix="check_finite=False if they are meant"
            )
    squares = sum_(lax.square(lax.abs(obs[:, None] - codes[None])), axis=-1)
    nearest = argmin(squares, axis=1)
    difference = obs - take_in_bounds(codes, nearest, 0)
    # The distance has no derivative where it is zero; there it is taken to be zero.
    apart = (difference != 0).any(-1)
    distance = norm(where(apart[:, None], difference, 1), axis=-1)
    return nearest, where(apart, distance, 0)


_publish(__name__)
