"""Norms of vectors and matrices, and the condition number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.base.errors import ArgumentError
from weft.numpy.argument_docs import document
from weft.numpy.elementwise import absolute, power
from weft.numpy.linalg.decompositions import svdvals
from weft.numpy.linalg.inputs import inexact, matrix
from weft.numpy.linalg.solving import inv
from weft.numpy.logic import isnan, logical_and, logical_not, not_equal
from weft.numpy.reductions import any as any_, max as max_, min as min_, sum as sum_
from weft.numpy.transcendental import sqrt
from weft.numpy.util import canonicalize_axes, canonicalize_axis
from weft.primitives.elementwise.scalar import is_complex
from weft.primitives.linalg.matrix import conjugate, part, real_dtype, real_part, scalar
from weft.primitives.movement.shape import move_axis
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def _root(total: Array, exponent: float | None = None) -> Array:
    """Compute the root of a sum of powers, with derivative zero at exactly zero.

    The norm has a corner there; zero is in its subdifferential, and, unlike the NaN of the chain rule, is harmless.
    """
    zero = lax.eq(total, scalar(0, total))
    safe = lax.select_n(zero, total, lax.full_like(total, 1))
    root = sqrt(safe) if exponent is None else power(safe, np.asarray(exponent, total.dtype))
    return lax.select_n(zero, root, lax.full_like(total, 0))


def _squares(x: Array) -> Array:
    return real_part(lax.mul(x, conjugate(x))) if is_complex(x) else lax.mul(x, x)


def _length(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return _root(sum_(_squares(x), axis=axes, keepdims=keepdims))


def _vector(x: Array, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    if ord is None or ord == 2:
        return _length(x, axes, keepdims)
    if ord == math.inf:
        return max_(absolute(x), axis=axes, keepdims=keepdims, initial=0)
    if ord == -math.inf:
        return min_(absolute(x), axis=axes, keepdims=keepdims, initial=math.inf)
    if ord == 0:
        return sum_(not_equal(x, scalar(0, x)), dtype=real_dtype(x.dtype), axis=axes, keepdims=keepdims)
    if ord == 1:
        return sum_(absolute(x), axis=axes, keepdims=keepdims)
    if isinstance(ord, str):
        raise ArgumentError(
            f"Invalid order {ord!r} for vector norm.",
            fix="a number or inf; 'fro' and 'nuc' are of matrices, with axis=(0, 1)",
        )
    raised = power(absolute(x), np.asarray(ord, real_dtype(x.dtype)))
    return _root(sum_(raised, axis=axes, keepdims=keepdims), 1 / ord)


def _matrix(x: Array, ord: Any, axes: tuple[int, int], keepdims: bool) -> Array:
    rows, columns = axes
    if ord is None or ord in ("f", "fro"):
        return _length(x, axes, keepdims)
    if ord in (1, -1, math.inf, -math.inf):
        summed, chosen = (rows, columns) if abs(ord) == 1 else (columns, rows)
        totals = sum_(absolute(x), axis=summed, keepdims=True)
        found = (
            max_(totals, axis=chosen, keepdims=True, initial=0) if ord > 0 else min_(totals, axis=chosen, keepdims=True)
        )
        return found if keepdims else lax.squeeze(found, tuple(sorted(axes)))
    if ord in (2, -2, "nuc"):
        low = rows - (columns < rows)
        s = svdvals(move_axis(move_axis(x, columns, x.ndim - 1), low, x.ndim - 2))
        if ord == "nuc":
            found = sum_(s, axis=-1)
        else:
            found = max_(s, axis=-1, initial=0) if ord == 2 else min_(s, axis=-1)
        return lax.expand_dims(found, tuple(sorted(axes))) if keepdims else found
    raise ArgumentError(f"Invalid order {ord!r} for matrix norm.", fix="1, -1, 2, -2, inf, -inf, 'fro' or 'nuc'")


def norm(x: ArrayLike, ord: Any = None, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Array:
    """Compute a norm of vectors (one axis) or matrices (two); without `ord` and `axis`, the length of all elements.

    ord, for vectors: 2 (the default), 1, inf, -inf, 0 (how many are not zero), or a number p. For matrices: "fro" (the
    default), "nuc", 1, -1, 2, -2, inf, -inf. Lengths have derivative zero at exactly zero.

    Args:
        x: an array.
        ord: the norm, as above.
        axis: an axis for vectors, a pair for matrices; None for all.
        keepdims: whether to keep the reduced axes, with size 1.

    Returns:
        Real numbers, without the axes.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> linalg.norm(wnp.array([3.0, 4.0]))
    Array(5., dtype=float32)
    """
    (x,) = inexact("norm", x)
    if axis is None:
        axes = tuple(range(x.ndim))
        if ord is None:
            return _length(x, axes, keepdims)
    else:
        axes_in = axis if isinstance(axis, (tuple, list, range)) else (axis,)
        axes = tuple(canonicalize_axis(a, x.ndim, "norm") for a in axes_in)
    if len(axes) == 1:
        return _vector(x, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix(x, ord, axes, keepdims)
    raise ArgumentError(f"norm needs one axis (of vectors) or two axes (of matrices), got axis={axes}.")


@document("Real numbers of shape (...).", x="matrices of shape (..., m, n).", ord="the norm, see `norm`.")
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """Compute a norm of the matrices in the last two axes.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.linalg as linalg
    >>> linalg.matrix_norm(wnp.array([[3.0, 0.0], [0.0, 4.0]]))
    Array(5., dtype=float32)
    """
    x = matrix("matrix_norm", x)
    return _matrix(x, ord, (x.ndim - 2, x.ndim - 1), keepdims)


def vector_norm(
    x: ArrayLike, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False, ord: Any = 2
) -> Array:
    """Compute a norm of the vectors along an axis, or of all elements as one vector."""
    (x,) = inexact("vector_norm", x)
    axes = tuple(range(x.ndim)) if axis is None else canonicalize_axes(axis, x.ndim, "vector_norm")
    return _vector(x, ord, axes, keepdims)


def cond(x: ArrayLike, p: ArrayLike | None = None) -> Array:
    """Compute the condition number: the norm of a matrix times that of its inverse; infinite for singular matrices."""
    x = matrix("cond", x)
    axes = (x.ndim - 2, x.ndim - 1)
    if p is None or p in (2, -2):
        s = svdvals(x)
        if not s.size:
            raise ArgumentError(f"cond is not defined on empty arrays, got shape {x.shape}.")
        count = s.shape[-1]
        largest, smallest = (lax.squeeze(part(s, b, -1), (s.ndim - 1,)) for b in ((0, 1), (count - 1, count)))
        found = lax.div(smallest, largest) if p == -2 else lax.div(largest, smallest)
    elif x.shape[-1] != x.shape[-2]:
        raise ArgumentError(f"cond with p={p!r} needs square matrices, got shape {x.shape}.")
    else:
        found = lax.mul(_matrix(x, p, axes, False), _matrix(inv(x), p, axes, False))
    singular = logical_and(isnan(found), logical_not(any_(isnan(x), axis=axes)))
    return lax.select_n(singular, found, lax.full_like(found, math.inf))
