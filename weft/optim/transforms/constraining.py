"""Transformations that keep parameters or updates within bounds, or in another layout."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft.optim.base import (
    EmptyState,
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    Updates,
    stateless,
    with_extra_args_support,
)
from weft.optim.tree_mapping import map_trees, need_params

NonNegativeParamsState = EmptyState


class ZeroNansState(NamedTuple):
    """A flag for each leaf: whether the last update had a NaN."""

    found_nan: Any


def keep_params_nonnegative() -> GradientTransformation:
    """Limit updates so that parameters stay nonnegative."""

    def leaf(u: Any, p: Any) -> tuple[Any]:
        return (wnp.where((p + u) < 0.0, -p, u),)

    def constrain(updates: Updates, params: Params | None) -> Updates:
        need_params("keep_params_nonnegative", params)
        return map_trees("keep_params_nonnegative", leaf, updates=updates, params=params)[0]

    return stateless(constrain)


def zero_nans() -> GradientTransformation:
    """Replace NaN in updates by zero.

    Returns:
        A `GradientTransformation`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.zero_nans()
    >>> transform.update(wnp.array([1.0, wnp.nan]), transform.init(wnp.ones(2)))[0]
    Array([1., 0.], dtype=float32)
    """

    def init(params: Params) -> ZeroNansState:
        return ZeroNansState(weft.tree.map(lambda p: wnp.array(False), params))

    def update(updates: Updates, state: ZeroNansState, params: Params | None = None) -> Any:
        def leaf(g: Any) -> tuple[Any, ...]:
            is_nan = wnp.isnan(g)
            return wnp.where(is_nan, wnp.zeros_like(g), g), wnp.any(is_nan)

        new, found = map_trees("zero_nans", leaf, results=2, updates=updates)
        return new, ZeroNansState(found)

    return GradientTransformation(init, update)


def flatten(inner: GradientTransformation) -> GradientTransformationExtraArgs:
    """Apply `inner` to all leaves as one vector of their promoted dtype: fewer and longer operations."""
    inner = with_extra_args_support(inner)

    def flat(tree: Any) -> Any:
        leaves = weft.tree.leaves(tree)
        return wnp.concatenate([wnp.reshape(leaf, -1) for leaf in leaves]) if leaves else wnp.zeros(0)

    def unflat(vector: Any, tree: Any) -> Any:
        leaves, structure = weft.tree.flatten(tree)
        parts, start = [], 0
        for leaf in leaves:
            parts.append(wnp.reshape(vector[start : start + leaf.size], leaf.shape))
            start += leaf.size
        return structure.unflatten(parts)

    def init(params: Params) -> Any:
        return inner.init(flat(params))

    def update(updates: Updates, state: Any, params: Params | None = None, **extra_args: Any) -> Any:
        new, state = inner.update(flat(updates), state, None if params is None else flat(params), **extra_args)
        return unflat(new, updates), state

    return GradientTransformationExtraArgs(init, update)
