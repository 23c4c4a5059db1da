"""Moving averages of gradients for adaptive methods."""

from __future__ import annotations

from typing import Any

import weft
import weft.numpy as wnp
from weft import Array
from weft.optim.numerics import abs_sq
from weft.optim.tree_mapping import map_trees
from weft.typing import ArrayLike


def moving_average(new: Any, average: Any, decay: ArrayLike) -> Any:
    """Return `(1 - decay) * new + decay * average` of one leaf."""
    return (1 - decay) * new + decay * average


def power(x: Any, order: Any) -> Any:
    """Return `x**order` for the small orders of moments."""
    return x if order == 1 else x * x if order == 2 else x**order


def correction(decay: ArrayLike, count: ArrayLike) -> Array:
    """Return `1 - decay**count`, the total weight in an average that started at zero."""
    return 1 - wnp.asarray(decay) ** count


def like(scalar: Any, leaf: Any) -> Any:
    """Cast a scalar to the dtype of a leaf, so that their product is not promoted."""
    return scalar if scalar.dtype == leaf.dtype else scalar.astype(leaf.dtype)


def tree_update_moment(updates: Any, moments: Any, decay: ArrayLike, order: int) -> Any:
    """Return `decay * m + (1 - decay) * g**order`.

    Args:
        updates: a tree of arrays.
        moments: the averages so far.
        decay: the factor of the averages.
        order: the power of the updates.

    Returns:
        A tree of averages.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.update_moment(wnp.array([2.0]), wnp.array([0.0]), 0.5, 2)
    Array([2.], dtype=float32)
    """
    leaf = lambda g, m: (moving_average(power(g, order), m, decay),)
    return map_trees("update_moment", leaf, updates=updates, moments=moments)[0]


def tree_update_moment_per_elem_norm(updates: Any, moments: Any, decay: ArrayLike, order: int) -> Any:
    """Return `decay * m + (1 - decay) * |g|**order`, real also for complex gradients."""

    def leaf(g: Any, m: Any) -> tuple[Any]:
        if wnp.isrealobj(g):
            return (moving_average(power(g, order), m, decay),)
        size = abs_sq(g)
        return (moving_average(size if order == 2 else size ** (order / 2), m, decay),)

    return map_trees("update_moment_per_elem_norm", leaf, updates=updates, moments=moments)[0]


def tree_update_infinity_moment(updates: Any, moments: Any, decay: ArrayLike, eps: ArrayLike) -> Any:
    """Return `max(|g| + eps, decay * m)`."""
    leaf = lambda g, m: (wnp.maximum(wnp.abs(g) + eps, decay * m),)
    return map_trees("update_infinity_moment", leaf, updates=updates, moments=moments)[0]


def tree_bias_correction(moment: Any, decay: ArrayLike, count: ArrayLike) -> Any:
    """Return `m / (1 - decay**count)`."""
    seen = correction(decay, count)
    return weft.tree.map(lambda m: m / like(seen, m), moment)
