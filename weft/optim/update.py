"""Application of updates to parameters."""

from __future__ import annotations

from typing import Any

import weft
import weft.numpy as wnp
from weft import Array
from weft.optim.argument_docs import document
from weft.optim.base import Params, Updates
from weft.optim.tree_mapping import map_trees
from weft.typing import ArrayLike


@document("A tree of parameters.", params="a tree of parameters.", updates="a tree like it.")
def apply_updates(params: Params, updates: Updates) -> Params:
    """Return params + updates, each leaf in the dtype of the parameter; None leaves a parameter unchanged.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.apply_updates({"w": wnp.ones(2)}, {"w": wnp.array([-0.5, 0.5])})
    {'w': Array([0.5, 1.5], dtype=float32)}
    """
    structure = weft.tree.structure(params)
    if weft.tree.structure(updates) != structure:
        # None in either tree: no update there, or no parameter.
        flat, gaps = weft.tree.flatten(params, is_leaf=lambda node: node is None)
        try:
            found = gaps.flatten_up_to(updates)
        except weft.errors.TreeMismatchError:
            found = []
        if len(found) == len(flat) and any(update is None for update in found):
            new = [p if u is None else None if p is None else _add(p, u) for p, u in zip(flat, found, strict=True)]
            return gaps.unflatten(new)
    (new_params,) = map_trees("apply_updates", lambda p, u: (_add(p, u),), params=params, updates=updates)
    return new_params


def _add(param: Any, update: Any) -> Array:
    total = wnp.asarray(param + update)
    dtype = wnp.asarray(param).dtype
    return total if total.dtype == dtype else total.astype(dtype)


def incremental_update(new_tensors: Params, old_tensors: Params, step_size: ArrayLike) -> Params:
    """Return `step_size * new + (1 - step_size) * old`, an average that follows `new_tensors`.

    Args:
        new_tensors, old_tensors: trees of arrays.
        step_size: the weight of the new ones.

    Returns:
        A tree of arrays.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.incremental_update(wnp.array([1.0]), wnp.array([0.0]), 0.25)
    Array([0.25], dtype=float32)
    """
    rest = 1.0 - step_size
    (moving_average,) = map_trees(
        "incremental_update",
        lambda new, old: (None if new is None else step_size * new + rest * old,),
        new_tensors=new_tensors,
        old_tensors=old_tensors,
    )
    return moving_average


def periodic_update(new_tensors: Params, old_tensors: Params, steps: ArrayLike, update_period: int) -> Params:
    """Return `new_tensors` if `update_period` divides the step, else `old_tensors`."""
    return weft.lax.cond(wnp.mod(steps, update_period) == 0, lambda _: new_tensors, lambda _: old_tensors, None)
