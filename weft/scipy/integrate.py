"""Integrals of sampled functions."""

from __future__ import annotations

from typing import Any

from weft.base.publish import publish as _publish
from weft.numpy import calculus
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: Any = 1.0, axis: int = -1) -> Array:
    """Integrate along an axis by the trapezoidal rule.

    Args:
        y: values of a function.
        x: where they were sampled; equidistantly, by default.
        dx: the distance of samples if there is no x.
        axis: along which to integrate.

    >>> import weft.numpy as np
    >>> from weft.scipy.integrate import trapezoid
    >>> trapezoid(np.array([1.0, 2.0, 3.0]), dx=0.5)
    Array(2., dtype=float32)
    """
    return calculus.trapezoid(y, x, dx, axis)


_publish(__name__)
