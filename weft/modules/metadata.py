"""Boxes: wrappers that carry metadata of values, such as names of axes, through trees of variables."""

from __future__ import annotations

import abc
from typing import Any

import weft


class AxisMetadata(abc.ABC):
    """A box around a value, with metadata of its axes. Subclasses are pytree nodes whose child is the value."""

    @abc.abstractmethod
    def unbox(self) -> Any:
        """Return the value."""

    @abc.abstractmethod
    def replace_boxed(self, val: Any) -> Any:
        """Return the same box around another value."""

    @abc.abstractmethod
    def add_axis(self, index: int, params: dict[Any, Any]) -> Any:
        """Return the box after a transformation inserted an axis at `index`; `params` are its `metadata_params`."""

    @abc.abstractmethod
    def remove_axis(self, index: int, params: dict[Any, Any]) -> Any:
        """Return the box after a transformation removed the axis at `index`."""


def is_axis_metadata(value: Any) -> bool:
    """Return whether a value is a box."""
    return isinstance(value, AxisMetadata)


def map_axis_meta(fn: Any, tree: Any) -> Any:
    """Apply `fn` to each box of a tree; leave other leaves unchanged."""
    return weft.tree.map(lambda x: fn(x) if isinstance(x, AxisMetadata) else x, tree, is_leaf=is_axis_metadata)


def add_axis(tree: Any, index: int, params: dict[Any, Any]) -> Any:
    """Insert an axis into the metadata of each box of a tree."""
    return map_axis_meta(lambda box: box.add_axis(index, params), tree)


def remove_axis(tree: Any, index: int, params: dict[Any, Any]) -> Any:
    """Remove an axis from the metadata of each box of a tree."""
    return map_axis_meta(lambda box: box.remove_axis(index, params), tree)


def unbox(tree: Any) -> Any:
    """Replace the boxes of a tree, also nested ones, by their values.

    Args:
        tree: a tree of arrays and boxes.

    Returns:
        A tree of arrays.

    >>> import weft.numpy as wnp
    >>> from weft import linen
    >>> linen.unbox({"w": linen.Partitioned(wnp.ones(2), ("embed",))})
    {'w': Array([1., 1.], dtype=float32)}
    """
    if isinstance(tree, weft.Array):
        return tree
    return map_axis_meta(lambda box: unbox(box.unbox()), tree)


def replace_boxed(tree: Any, updates: Any) -> Any:
    """Put the values of `updates` into the boxes of `tree`."""
    if isinstance(updates, weft.Array) and not isinstance(tree, AxisMetadata):
        return updates

    def replace_value(old: Any, new: Any) -> Any:
        if isinstance(old, AxisMetadata):
            return old.replace_boxed(replace_boxed(old.unbox(), new))
        return new

    return weft.tree.map(replace_value, tree, updates, is_leaf=is_axis_metadata)
