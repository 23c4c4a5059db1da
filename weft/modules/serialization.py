"""Conversion of pytrees to nested dicts with string keys, and back to trees of the same structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import weft
from weft.errors import ArgumentError


def list_children(target: Any) -> list[tuple[str, Any]] | None:
    """Return the children of a tree node by their keys in a state dict, or None for a leaf."""
    if target is None:
        return []
    if not weft.tree_util.is_tree_node(type(target)):
        return None
    pairs, _ = weft.tree_util.flatten_one_level_with_keys(target)
    return [(_text(key), child) for key, child in pairs]


def _text(key: Any) -> str:
    for name in ("key", "name", "idx"):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key)


def to_state_dict(target: Any) -> Any:
    """Convert a tree to nested dicts: fields and keys by name, elements of sequences by index."""
    children = list_children(target)
    return target if children is None else {key: to_state_dict(child) for key, child in children}


def from_state_dict(target: Any, state: Any, name: str = ".") -> Any:
    """Build a tree with the structure of `target` and the leaves of a state dict, whose keys must match."""
    children = list_children(target)
    if children is None:
        return state
    if not isinstance(state, Mapping):
        raise ArgumentError(f"The state at {name} must be a dict with {[key for key, _ in children]}, got {state!r}.")
    wanted, there = {key for key, _ in children}, {str(key) for key in state}
    # Children without leaves, such as None, may be missing: files have no names for them.
    empty = {key for key, child in children if not weft.tree.leaves(child)}
    if not wanted - empty <= there <= wanted:
        raise ArgumentError(
            f"The state at {name} must have the keys of the target: missing {sorted(wanted - there)}, unexpected "
            f"{sorted(there - wanted)}."
        )
    by_text = {str(key): value for key, value in state.items()}
    restored = [from_state_dict(child, by_text.get(key, {}), f"{name}/{key}") for key, child in children]
    if target is None:
        return None
    _, structure = weft.tree_util.tree_flatten(target, is_leaf=lambda node: node is not target)
    return weft.tree_util.tree_unflatten(structure, restored)
