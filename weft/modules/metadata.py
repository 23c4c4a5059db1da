"""Boxes: values that carry metadata, such as names of axes, through trees of variables."""

from __future__ import annotations

import abc
from typing import Any

import weft


class AxisMetadata(abc.ABC):
    """A box around a value that knows something of its axes. A subclass is a pytree node whose child is the value."""

    @abc.abstractmethod
    def unbox(self) -> Any:
        """The value."""

    @abc.abstractmethod
    def replace_boxed(self, val: Any) -> Any:
        """The same box around another value."""

    @abc.abstractmethod
    def add_axis(self, index: int, params: dict[Any, Any]) -> Any:
        """The box after a transformation has added an axis at `index`; `params` is what the transformation was told."""

    @abc.abstractmethod
    def remove_axis(self, index: int, params: dict[Any, Any]) -> Any:
        """The box after a transformation has taken the axis at `index` away."""


def is_axis_metadata(value: Any) -> bool:
    """Whether the value is a box."""
    return isinstance(value, AxisMetadata)


def map_axis_meta(fn: Any, tree: Any) -> Any:
    """`fn` of every box of a tree, other leaves as they are."""
    return weft.tree.map(lambda x: fn(x) if isinstance(x, AxisMetadata) else x, tree, is_leaf=is_axis_metadata)


def add_axis(tree: Any, index: int, params: dict[Any, Any]) -> Any:
    """Every box of a tree with an axis added."""
    return map_axis_meta(lambda box: box.add_axis(index, params), tree)


def remove_axis(tree: Any, index: int, params: dict[Any, Any]) -> Any:
    """Every box of a tree with an axis taken away."""
    return map_axis_meta(lambda box: box.remove_axis(index, params), tree)


def unbox(tree: Any) -> Any:
    """A tree with its boxes opened, those inside of boxes too.

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
    """The boxes of `tree` around the values of `updates`."""
    if isinstance(updates, weft.Array) and not isinstance(tree, AxisMetadata):
        return updates

    def replaced(old: Any, new: Any) -> Any:
        if isinstance(old, AxisMetadata):
            return old.replace_boxed(replace_boxed(old.unbox(), new))
        return new

    return weft.tree.map(replaced, tree, updates, is_leaf=is_axis_metadata)
