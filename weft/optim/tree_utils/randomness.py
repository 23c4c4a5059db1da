"""Random trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
import weft.numpy as wnp
from weft import Array, random


def tree_split_key_like(rng_key: Array, target_tree: Any) -> Any:
    """Split a key into one for each leaf of `target_tree`."""
    leaves, structure = weft.tree.flatten(target_tree)
    return structure.unflatten(list(random.split(rng_key, len(leaves))))


def tree_random_like(
    rng_key: Array, target_tree: Any, sampler: Callable[..., Array] = random.normal, dtype: Any = None
) -> Any:
    """Return a tree of random arrays with the shapes of `target_tree`, and its dtypes unless `dtype` is given."""
    keys = tree_split_key_like(rng_key, target_tree)

    def leaf(target: Any, key: Array) -> Array:
        return sampler(key, wnp.shape(target), dtype or wnp.asarray(target).dtype)

    return weft.tree.map(leaf, target_tree, keys)


def tree_unwrap_random_key_data(input_tree: Any) -> Any:
    """Replace typed random keys by their integers; other leaves are unchanged."""

    def leaf(value: Any) -> Any:
        is_key = hasattr(value, "dtype") and weft.dtypes.issubdtype(value.dtype, weft.dtypes.prng_key)
        return random.key_data(value) if is_key else value

    return weft.tree.map(leaf, input_tree)
