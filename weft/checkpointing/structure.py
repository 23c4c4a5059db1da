"""The structure of a tree as a value of JSON, and its leaves by name.

A leaf is named by the keys that lead to it: `{"params": {"Dense_0": {"kernel": k}}}` has the leaf
`params.Dense_0.kernel`. In keys `.`, `[` and backslashes are escaped by a backslash, so that names are unique.

A structure is one of

    "params.w"                       a leaf, by its name
    null                             None
    {"list": [...]}                  a list, a tuple, or another node with children by index
    {"dict": [[key, child], ...]}    a dict, or another node with children by key or field

It can be read without the classes of the nodes, and has none of their static data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.base import tree as trees
from weft.base.errors import ArgumentError
from weft.checkpointing import tensor_file

MAX_DEPTH = 200  # levels of a tree: these functions recurse, and a file must not overflow the stack
_ROOT = "."  # the name of the only leaf of a tree without nodes
_KEYS = (str, int, float, bool, type(None))  # types of keys that JSON can represent


def leaf_name(path: Sequence[Any]) -> str:
    """Return the name of the leaf at a key path."""
    return ".".join(_escape(trees.keystr((entry,), simple=True)) for entry in path) if path else _ROOT


def _escape(key: str) -> str:
    """Escape a key, so that names of different key paths differ."""
    for character in "\\.[":
        key = key.replace(character, "\\" + character)
    return "\\" + key if key in ("", tensor_file.METADATA) else key


def leaves_by_name(tree: Any) -> tuple[dict[str, Any], trees.PyTreeDef]:
    """Return the leaves of a tree by name, in order, and its tree definition."""
    pairs, treedef = trees.flatten_with_path(tree)
    leaves: dict[str, Any] = {}
    for path, leaf in pairs:
        name = leaf_name(path)
        if name in leaves:
            raise ArgumentError("The keys of a tree must differ as text.", received=repr(name))
        leaves[name] = leaf
    return leaves, treedef


def describe(tree: Any, path: tuple[Any, ...] = ()) -> Any:
    """Return the structure of a tree."""
    if tree is None:
        return None
    if not trees.is_tree_node(type(tree)):
        return leaf_name(path)
    if len(path) > MAX_DEPTH:
        raise ArgumentError(f"A tree with more than {MAX_DEPTH} levels cannot be saved.", received=leaf_name(path)[:80])
    pairs, _ = trees.flatten_one_level_with_keys(tree)
    children = [(entry, describe(child, (*path, entry))) for entry, child in pairs]
    counted = all(isinstance(entry, (trees.SequenceKey, trees.FlattenedIndexKey)) for entry, _ in children)
    if counted and (children or (isinstance(tree, (list, tuple)) and not hasattr(tree, "_fields"))):
        return {"list": [child for _, child in children]}
    return {"dict": [[_key(entry), child] for entry, child in children]}


def _key(entry: Any) -> Any:
    """Return the JSON value of a key: the key itself if JSON can represent it, else its text."""
    key = entry.key if isinstance(entry, trees.DictKey) else entry
    writable = type(key) in _KEYS and not (isinstance(key, float) and not math.isfinite(key))
    return key if writable else trees.keystr((entry,), simple=True)


def rebuild(structure: Any, leaf: Callable[[str], Any]) -> Any:
    """Build the tree of plain dicts and lists with a structure; its leaves are `leaf(name)`."""
    match structure:
        case None:
            return None
        case str():
            return leaf(structure)
        case {"list": children}:
            return [rebuild(child, leaf) for child in children]
        case _:
            return {key: rebuild(child, leaf) for key, child in structure["dict"]}


def leaf_names(structure: Any, depth: int = 0) -> Iterator[str]:
    """Yield the names of the leaves of a structure read from a file; raise ValueError if it is malformed."""
    if depth > MAX_DEPTH + 1:
        raise ValueError(f"the tree must have at most {MAX_DEPTH} levels")
    match structure:
        case None:
            return
        case str():
            yield structure
        case {"list": list(children), **rest} if not rest:
            for child in children:
                yield from leaf_names(child, depth + 1)
        case {"dict": list(pairs), **rest} if not rest:
            keys = set()
            for pair in pairs:
                if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) not in _KEYS or pair[0] in keys:
                    raise ValueError(f"entries of dicts must be distinct pairs of key and child, got {str(pair)[:80]}")
                keys.add(pair[0])
                yield from leaf_names(pair[1], depth + 1)
        case _:
            raise ValueError(f"the tree has the invalid node {str(structure)[:80]}")
