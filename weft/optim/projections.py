"""Projections onto balls, spheres, boxes, the simplex and half-spaces. A tree is one vector."""

from __future__ import annotations

from typing import Any

import weft
import weft.numpy as wnp
from weft import Array, lax
from weft.errors import suggest as _suggest
from weft.flatten_util import ravel_pytree
from weft.optim.argument_docs import document
from weft.optim.tree_utils.arithmetic import tree_add_scale, tree_norm, tree_scale, tree_vdot
from weft.typing import ArrayLike


@document(
    "A tree like `tree`.",
    "optim.projections.projection_non_negative(wnp.array([-1.0, 2.0])) -> Array([0., 2.], dtype=float32)",
)
def projection_non_negative(tree: Any) -> Any:
    """Return the nearest tree with x >= 0, `max(x, 0)`."""
    return weft.tree.map(lambda x: wnp.maximum(x, 0), tree)


def projection_box(tree: Any, lower: Any, upper: Any) -> Any:
    """Return the nearest tree with `lower <= x <= upper`; the bounds are numbers or trees."""
    bound = lambda value: value if weft.tree.structure(value) == weft.tree.structure(tree) else None
    low, high = bound(lower), bound(upper)
    low = weft.tree.map(lambda _: lower, tree) if low is None else low
    high = weft.tree.map(lambda _: upper, tree) if high is None else high
    return weft.tree.map(wnp.clip, tree, low, high)


@document(
    "A tree like `tree`.",
    "optim.projections.projection_hypercube(wnp.array([-1.0, 2.0])) -> Array([0., 1.], dtype=float32)",
)
def projection_hypercube(tree: Any, scale: Any = 1) -> Any:
    """Return the nearest tree with `0 <= x <= scale`."""
    return projection_box(tree, 0, scale)


@document(
    "A tree like `tree`.",
    "optim.projections.projection_linf_ball(wnp.array([-3.0, 0.5])) -> Array([-1. ,  0.5], dtype=float32)",
)
def projection_linf_ball(tree: Any, scale: Any = 1) -> Any:
    """Return the nearest tree with `-scale <= x <= scale`."""
    return projection_box(tree, -scale, scale)


@document(
    "A tree like `tree`.",
    "optim.projections.projection_simplex(wnp.array([1.0, 1.0])).round(3) -> Array([0.5, 0.5], dtype=float32)",
)
def projection_simplex(tree: Any, scale: ArrayLike = 1) -> Any:
    """Return the nearest tree with x >= 0 and `sum(x) = scale`."""
    vector, restore = ravel_pytree(tree)
    return restore(_simplex(vector, scale))


def _simplex(vector: Array, scale: Any) -> Array:
    """Return `max(vector - t, 0)` with the t for which it sums to scale, from the sorted entries (Held et al. 1974)."""
    size = vector.shape[0]
    descending = wnp.sort(vector)[::-1]
    sums = wnp.cumsum(descending)
    position = wnp.arange(1, size + 1, dtype=vector.dtype)
    inside = lax.stop_gradient(descending - (sums - scale) / position > 0)
    count = wnp.count_nonzero(inside)
    shift = (sums[count - 1] - scale) / count.astype(vector.dtype)
    return wnp.maximum(vector - shift, 0)


@document(
    "A tree like `tree`.",
    "optim.projections.projection_l1_sphere(wnp.array([1.0, 1.0])).round(3) -> Array([0.5, 0.5], dtype=float32)",
)
def projection_l1_sphere(tree: Any, scale: ArrayLike = 1) -> Any:
    """Return the nearest tree with `sum(|x|) = scale`."""
    sizes = projection_simplex(weft.tree.map(wnp.abs, tree), scale)
    return weft.tree.map(lambda x, size: wnp.sign(x) * size, tree, sizes)


@document("A tree like `tree`.")
def projection_l1_ball(tree: Any, scale: ArrayLike = 1) -> Any:
    """Return the nearest tree with `sum(|x|) <= scale`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.projections.projection_l1_ball(wnp.array([0.25, -0.25])).round(3)
    Array([ 0.25, -0.25], dtype=float32)
    """
    inside = tree_norm(tree, ord=1) <= scale
    return weft.tree.map(lambda x, projected: wnp.where(inside, x, projected), tree, projection_l1_sphere(tree, scale))


@document(
    "A tree like `tree`.",
    "optim.projections.projection_l2_sphere(wnp.array([3.0, 4.0])).round(3) -> Array([0.6, 0.8], dtype=float32)",
)
def projection_l2_sphere(tree: Any, scale: ArrayLike = 1) -> Any:
    """Return the nearest tree with `sqrt(sum(x^2)) = scale`."""
    return tree_scale(scale / tree_norm(tree), tree)


@document(
    "A tree like `tree`.",
    "optim.projections.projection_l2_ball(wnp.array([3.0, 4.0])).round(3) -> Array([0.6, 0.8], dtype=float32)",
)
def projection_l2_ball(tree: Any, scale: ArrayLike = 1) -> Any:
    """Return the nearest tree with `sqrt(sum(x^2)) <= scale`."""
    square = tree_norm(tree, squared=True)
    inside = square <= wnp.asarray(scale) ** 2
    factor = scale / wnp.sqrt(wnp.where(inside, 1.0, square))
    return weft.tree.map(lambda x: wnp.where(inside, x, x * factor.astype(x.dtype)), tree)


def projection_vector(x: Any, a: Any) -> Any:
    """Return the multiple of `a` nearest to x."""
    return tree_scale(tree_vdot(x, a) / tree_norm(a, squared=True), a)


def projection_hyperplane(x: Any, a: Any, b: ArrayLike) -> Any:
    """Return the nearest tree with `a . x = b`.

    Args:
        x: a tree of arrays.
        a: a tree of arrays, the normal.
        b: a number.

    Returns:
        A tree like `x`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.projections.projection_hyperplane(wnp.array([1.0, 1.0]), wnp.array([1.0, 0.0]), 0.0)
    Array([0., 1.], dtype=float32)
    """
    return tree_add_scale(x, -(tree_vdot(a, x) - b) / tree_norm(a, squared=True), a)


def projection_halfspace(x: Any, a: Any, b: ArrayLike) -> Any:
    """Return the nearest tree with `a . x <= b`.

    Args:
        x: a tree of arrays.
        a: a tree of arrays, the normal.
        b: a number.

    Returns:
        A tree like `x`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.projections.projection_halfspace(wnp.array([1.0, 1.0]), wnp.array([1.0, 0.0]), 0.0)
    Array([0., 1.], dtype=float32)
    """
    return tree_add_scale(x, -wnp.maximum(tree_vdot(a, x) - b, 0) / tree_norm(a, squared=True), a)


_suggest(__name__)
