"""Structures of lists, tuples, dicts and other trees. None is a leaf here, as it is in Keras."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.errors import ArgumentError, ArgumentTypeError, publish as _publish


class MAP_TO_NONE:
    """What a function that is passed to `traverse` returns to have a part replaced by None."""


def _is_none(value: Any) -> bool:
    return value is None


def is_nested(structure: Any) -> bool:
    """Return whether a value has parts: a list, a tuple, a dict, or another type that is registered as a tree.

    Args:
        structure: anything.

    Returns:
        A boolean.
    """
    return structure is not None and not weft.tree_util.all_leaves([structure], is_leaf=_is_none)


def flatten(structure: Any) -> list[Any]:
    """Return the leaves of a structure in order; entries of a dict are in the order of their keys.

    Args:
        structure: lists, tuples, dicts and leaves.

    Returns:
        A list.

    Example:
        >>> from weft import keras
        >>> keras.tree.flatten({"b": 1, "a": [2, (3, None)]})
        [2, 3, None, 1]
    """
    return weft.tree.leaves(structure, is_leaf=_is_none)


def flatten_with_path(structure: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the leaves of a structure in order, with their paths.

    Args:
        structure: lists, tuples, dicts and leaves.

    Returns:
        A list of pairs: a tuple of keys and indices, and the leaf.
    """
    pairs, _ = weft.tree_util.tree_flatten_with_path(structure, is_leaf=_is_none)
    found = []
    for path, leaf in pairs:
        keys: list[Any] = []
        inside = structure
        for entry in path:
            keys.append(_plain_key(entry, inside))
            inside = _part(inside, entry)
        found.append((tuple(keys), leaf))
    return found


def _plain_key(entry: Any, container: Any) -> Any:
    """Return the key or index of an entry of a path; a field of a named tuple is its index."""
    for attribute in ("key", "idx"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    name = getattr(entry, "name", str(entry))
    fields = getattr(container, "_fields", ())
    return fields.index(name) if name in fields else name


def _part(container: Any, entry: Any) -> Any:
    for attribute in ("key", "idx"):
        if hasattr(entry, attribute):
            try:
                return container[getattr(entry, attribute)]
            except (TypeError, KeyError, IndexError):
                return None
    return getattr(container, getattr(entry, "name", ""), None)


def map_structure(func: Callable[..., Any], *structures: Any, none_is_leaf: bool = True) -> Any:
    """Map a function over the leaves of structures.

    Args:
        func: a function of one leaf of each structure.
        *structures: structures that are alike.
        none_is_leaf: whether the function is called for None; otherwise None stays.

    Returns:
        A structure like the first.

    Example:
        >>> from weft import keras
        >>> keras.tree.map_structure(lambda x, y: x + y, {"a": [1, 2]}, {"a": [10, 20]})
        {'a': [11, 22]}
    """
    if not callable(func):
        raise ArgumentTypeError("The first argument of map_structure must be a function.", received=repr(func))
    if not structures:
        raise ArgumentError("map_structure takes at least one structure.")
    for other in structures[1:]:
        _compare(structures[0], other, none_is_leaf)
    return weft.tree.map(func, *structures, is_leaf=_is_none if none_is_leaf else None)


def map_structure_up_to(shallow_structure: Any, func: Callable[..., Any], *structures: Any) -> Any:
    """Map a function over the parts of structures at the leaves of a shallow structure.

    Args:
        shallow_structure: says how far to go: where it has a leaf, the others may have anything.
        func: a function of one part of each structure.
        *structures: structures that begin like the first.

    Returns:
        A structure like the first.
    """
    return weft.tree.map(lambda _, *parts: func(*parts), shallow_structure, *structures, is_leaf=_is_none)


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """Rebuild a structure from its leaves: the inverse of `flatten`.

    Args:
        structure: what the result is like.
        flat_sequence: its leaves in order.

    Returns:
        A structure.

    Example:
        >>> from weft import keras
        >>> keras.tree.pack_sequence_as({"b": 0, "a": [0, 0]}, [1, 2, 3])
        {'a': [1, 2], 'b': 3}
    """
    if isinstance(flat_sequence, (str, dict)) or not hasattr(flat_sequence, "__iter__"):
        raise ArgumentTypeError("`flat_sequence` must be a list or tuple of leaves.", received=repr(flat_sequence))
    leaves = list(flat_sequence)
    _, shape = weft.tree.flatten(structure, is_leaf=_is_none)
    if shape.num_leaves != len(leaves):
        raise ArgumentError(
            f"`flat_sequence` must have one entry for each of the {shape.num_leaves} leaves.",
            received=f"a sequence of {len(leaves)}: {leaves!r}",
        )
    return weft.tree.unflatten(shape, leaves)


def assert_same_structure(a: Any, b: Any, check_types: bool | None = None) -> None:
    """Raise unless two structures are alike: the same types, lengths and keys.

    Args:
        a: a structure.
        b: another.
        check_types: no longer used: types always count.
    """
    del check_types
    _compare(a, b, none_is_leaf=True)


def _compare(a: Any, b: Any, none_is_leaf: bool) -> None:
    is_leaf = _is_none if none_is_leaf else None
    one, other = (weft.tree.structure(part, is_leaf=is_leaf) for part in (a, b))
    if one != other:
        raise ArgumentError("Structures are not alike.", received=f"{one} and {other}")


def assert_same_paths(a: Any, b: Any) -> None:
    """Raise unless two structures have leaves at the same paths; types of containers do not count.

    Args:
        a: a structure.
        b: another.
    """
    one, other = ({path for path, _ in flatten_with_path(part)} for part in (a, b))
    if one != other:
        raise ArgumentError(
            "Structures have leaves at other paths.",
            received=f"only in the first: {sorted(map(str, one - other))}; only in the second: "
            f"{sorted(map(str, other - one))}",
        )


def traverse(func: Callable[[Any], Any], structure: Any, top_down: bool = True) -> Any:
    """Replace parts of a structure.

    Args:
        func: a function of a part or leaf. It returns None to go on (a leaf then stays as it is), `MAP_TO_NONE` to have
            None there, or what replaces the part.
        structure: lists, tuples, dicts and leaves.
        top_down: whether `func` visits a part before its own parts, which are skipped if it is replaced.

    Returns:
        A structure.
    """
    if top_down:
        replaced = func(structure)
        if replaced is not None:
            return None if replaced is MAP_TO_NONE else replaced
    if not is_nested(structure):
        result = structure
    else:
        result = weft.tree.map(
            lambda part: traverse(func, part, top_down),
            structure,
            is_leaf=lambda part: part is not structure,
        )
    if not top_down:
        replaced = func(result)
        if replaced is not None:
            return None if replaced is MAP_TO_NONE else replaced
    return result


def lists_to_tuples(structure: Any) -> Any:
    """Replace the lists of a structure with tuples.

    Args:
        structure: lists, tuples, dicts and leaves.

    Returns:
        A structure.
    """
    return traverse(lambda part: tuple(part) if isinstance(part, list) else None, structure, top_down=False)


def map_shape_structure(func: Callable[[Any], Any], structure: Any) -> Any:
    """Map a function over the shapes of a structure: tuples and lists of integers and None are leaves.

    Args:
        func: a function of a shape.
        structure: lists, tuples and dicts of shapes.

    Returns:
        A structure.
    """
    return weft.tree.map(func, structure, is_leaf=_is_shape)


def _is_shape(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(size, (int, type(None))) for size in value)


_publish(__name__)
