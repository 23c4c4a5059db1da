"""Finding and changing values inside an optimizer's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import weft
from weft.optim.base import GradientTransformation
from weft.optim.tree_mapping import ParamsPlaceholder
from weft.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

Filter = Callable[[tuple[Any, ...], Any], bool]


class NamedTupleKey(NamedTuple):
    """An entry of a path into a named tuple: the names of its class and field."""

    tuple_name: str
    name: str

    def __str__(self) -> str:
        return f"{self.tuple_name}.{self.name}"


def _is_namedtuple(node: Any) -> bool:
    return isinstance(node, tuple) and hasattr(node, "_fields")


def _children(node: Any) -> list[tuple[Any, Any]]:
    """Return the children of a node with their keys; nothing for a leaf."""
    if weft.tree_util.all_leaves([node]):
        return []
    if _is_namedtuple(node):
        return [(NamedTupleKey(type(node).__name__, field), getattr(node, field)) for field in node._fields]
    pairs, _ = weft.tree_util.flatten_one_level_with_keys(node)
    return list(pairs)


def _name(key: Any) -> Any:
    match key:
        case NamedTupleKey(name=name) | GetAttrKey(name=name):
            return name
        case DictKey(key=name) | FlattenedIndexKey(key=name):
            return name
        case SequenceKey(idx=index):
            return index
    return key


def _matches_key(path: tuple[Any, ...], node: Any, key: Any) -> bool:
    """Return whether a node is under `key`, or is a named tuple of the class `key`."""
    return bool(path and _name(path[-1]) == key) or (_is_namedtuple(node) and type(node).__name__ == key)


def _search(tree: Any, path: tuple[Any, ...], key: Any) -> dict[tuple[Any, ...], Any]:
    """Return the nodes for `key` by path, in the order of Optax: outer nodes first."""
    found: dict[tuple[Any, ...], Any] = {}
    holders: list[tuple[tuple[Any, ...], Any]] = []

    def visit(node: Any, path: tuple[Any, ...]) -> None:
        direct = {(*path, step): child for step, child in _children(node) if _name(step) == key}
        if _is_namedtuple(node) and type(node).__name__ == key:
            direct = {path: node}
        if direct:
            found.update(direct)
            holders.append((path, node))
            return
        for step, child in _children(node):
            visit(child, (*path, step))

    visit(tree, path)
    for holder_path, holder in holders:
        for step, child in _children(holder):
            found.update(_search(child, (*holder_path, step), key))
    return found


def tree_get_all_with_path(tree: Any, key: Any, filtering: Filter | None = None) -> list[tuple[tuple[Any, ...], Any]]:
    """Return all (path, value) pairs whose last key is `key`, or whose value is a named tuple of the class `key`.

    Pairs for which `filtering(path, value)` is false are dropped.
    """
    found = _search(tree, (), key)
    return [(path, node) for path, node in found.items() if filtering is None or filtering(path, node)]


def tree_get(tree: Any, key: Any, default: Any | None = None, filtering: Filter | None = None) -> Any:
    """Return the only value under `key`, or `default` without one; raise KeyError for several.

    Args:
        tree: a tree of named tuples and dicts, such as the state of an optimizer.
        key: the name of a field or key.
        default: the result if the key is missing.
        filtering: a function of path and value that says which ones count.

    Returns:
        The value.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.tree.get(optim.adam(0.1).init(wnp.ones(2)), "count")
    Array(0, dtype=int32)
    """
    found = tree_get_all_with_path(tree, key, filtering)
    if len(found) > 1:
        paths = ", ".join(_text(path) for path, _ in found)
        raise KeyError(
            f"{key!r} must be unique, but is in the tree {len(found)} times: {paths}; choose one with filtering"
        )
    return found[0][1] if found else default


def _text(path: tuple[Any, ...]) -> str:
    return "".join(f".{_name(k)}" if isinstance(k, NamedTupleKey | GetAttrKey) else f"[{_name(k)!r}]" for k in path)


def tree_set(tree: Any, filtering: Filter | None = None, /, **kwargs: Any) -> Any:
    """Return the tree with new values under the given keys, wherever they are; raise KeyError for a missing key."""
    left = set(kwargs)

    def rebuild(node: Any, path: tuple[Any, ...]) -> Any:
        for key, value in kwargs.items():
            if _matches_key(path, node, key) and (filtering is None or filtering(path, node)):
                left.discard(key)
                return value
        children = _children(node)
        if not children:
            return node
        new = [rebuild(child, (*path, key)) for key, child in children]
        structure = weft.tree.structure(node, is_leaf=lambda inner: inner is not node)
        return structure.unflatten(new)

    result = rebuild(tree, ())
    if left:
        raise KeyError(f"{', '.join(map(repr, sorted(left)))} is nowhere in the tree, so it cannot be set")
    return result


def tree_map_params(
    initable: GradientTransformation | Callable[[Any], Any],
    f: Callable[..., Any],
    state: Any,
    /,
    *rest: Any,
    transform_non_params: Callable[..., Any] | None = None,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Apply `f` to the parts of a state that are shaped like parameters, as `weft.tree.map` would.

    `init` is called with a placeholder to locate parameters; there the state has subtrees with the structure of the
    parameters, as do the trees in `rest`. Other leaves are mapped by `transform_non_params`, if given.
    """
    placeholder = ParamsPlaceholder()
    shape = (initable.init if isinstance(initable, GradientTransformation) else initable)(placeholder)
    other = transform_non_params or (lambda leaf: leaf)

    def map_node(expected: Any, actual: Any) -> Any:
        if isinstance(expected, ParamsPlaceholder):
            return weft.tree.map(f, actual, *rest, is_leaf=is_leaf)
        return weft.tree.map(other, actual)

    return weft.tree.map(map_node, shape, state, is_leaf=lambda node: isinstance(node, ParamsPlaceholder))
