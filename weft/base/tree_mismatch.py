"""Describe the differences between two trees, for error messages about structures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.base.tree_keys import keystr
from weft.base.tree_nodes import DICT, NONE, SEQUENCE, NodeKind, kind_of, same_data

if TYPE_CHECKING:
    from weft.base.tree_def import PyTreeDef


class View(NamedTuple):
    """A common view of nodes of trees and of structures. `kind` is None for a leaf, which `text` then describes."""

    kind: NodeKind | None
    data: Any = None
    children: Sequence[Any] = ()
    entries: Callable[[], Sequence[Any]] = tuple
    text: str = "a leaf"


Look = Callable[[Any], View]


class Difference(NamedTuple):
    """Two nodes at the same key path that do not match: a description of each, and the reason."""

    path: tuple[Any, ...]
    first: str
    second: str
    why: str


def view_of_tree(is_leaf: Callable[[Any], bool] | None = None) -> Look:
    """Return the function that views nodes of a tree of values."""

    def look(node: Any) -> View:
        kind = None if is_leaf is not None and is_leaf(node) else kind_of(node)
        if kind is None:
            return View(None, text=f"a leaf of type {type(node).__name__}")
        children, data = kind.flatten(node)
        return View(kind, data, children, lambda: kind.entries(node, data, len(children)))

    return look


def view_of_structure(treedef: PyTreeDef) -> View:
    """View a node of a structure."""
    kind, data, children = treedef._kind, treedef._data, treedef._children
    if kind is None:
        return View(None)
    return View(kind, data, children, lambda: kind.entries(None, data, len(children)))


def _text(view: View) -> str:
    """Describe a node in a few words."""
    kind = view.kind
    if kind is None:
        return view.text
    if kind.code == NONE:
        return "None"
    if kind.code == SEQUENCE:
        return f"a {kind.label} of length {len(view.children)}"
    if kind.code == DICT:
        return f"a dict with keys {list(view.data)}"
    if view.data is None:
        return f"a {kind.label} with {len(view.children)} children"
    return f"a {kind.label} with static data {view.data!r}"


def _why(a: View, b: View) -> str | None:
    """Describe how two nodes of the same kind differ, ignoring their children; None if they do not."""
    assert a.kind is not None
    if a.kind.code == DICT and a.data != b.data:
        keys = [key for key in a.data if key not in b.data] + [key for key in b.data if key not in a.data]
        return f"keys in only one of them: {keys}" if keys else "their keys are ordered differently"
    if not same_data(a.data, b.data):
        return "their static data differ"
    if len(a.children) != len(b.children):
        return f"their numbers of children differ: {len(a.children)} and {len(b.children)}"
    return None


def differences(
    a: Any, b: Any, look_a: Look, look_b: Look, *, prefix: bool = False, path: tuple[Any, ...] = ()
) -> Iterator[Difference]:
    """Yield the topmost nodes in which two trees differ. With `prefix`, `b` may continue below the leaves of `a`."""
    first, second = look_a(a), look_b(b)
    if first.kind is None and (prefix or second.kind is None):
        return
    if first.kind is not second.kind or first.kind is None:
        yield Difference(path, _text(first), _text(second), "their types differ")
        return
    why = _why(first, second)
    if why is not None:
        yield Difference(path, _text(first), _text(second), why)
        return
    # Prefer names of children from values: structures do not have all of them.
    entries = (first if look_a is not view_of_structure else second).entries()
    for entry, child, other in zip(entries, first.children, second.children, strict=True):
        yield from differences(child, other, look_a, look_b, prefix=prefix, path=(*path, entry))


def prefix_mismatches(treedef: PyTreeDef, tree: Any, name: str) -> list[str]:
    """Describe why a structure is not a prefix of a tree, with a line for each difference."""
    found = differences(treedef, tree, view_of_structure, view_of_tree(), prefix=True)
    return [f"at {name}{keystr(d.path)}: expected {d.first}, got {d.second} ({d.why})" for d in found]


def _prefix_lines(name: str, found: Iterator[Difference]) -> list[str]:
    return [
        f"at {name}{keystr(d.path)}: the prefix has {d.first}, the full tree has {d.second} ({d.why})" for d in found
    ]


def prefix_errors(
    prefix: Any, full: Any, is_leaf: Callable[[Any], bool] | None = None, name: str = "tree"
) -> list[str]:
    """Describe why the tree `prefix` is not a prefix of the tree `full`, with a line for each difference; empty if it
    is one."""
    return _prefix_lines(name, differences(prefix, full, view_of_tree(is_leaf), view_of_tree(), prefix=True))


def prefix_errors_of_structure(
    prefix: Any, full: PyTreeDef, is_leaf: Callable[[Any], bool] | None = None, name: str = "tree"
) -> list[str]:
    """Describe prefix errors like `prefix_errors`, for a full tree given by its structure."""
    return _prefix_lines(name, differences(prefix, full, view_of_tree(is_leaf), view_of_structure, prefix=True))


def equality_errors(a: Any, b: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Difference]:
    """Return the differences between the structures of two trees, ignoring the values of leaves. Empty if the
    structures are equal."""
    return list(differences(a, b, view_of_tree(is_leaf), view_of_tree(is_leaf)))


def equality_errors_of_structures(a: PyTreeDef, b: PyTreeDef) -> list[Difference]:
    """Return the differences between two structures. Empty if they are equal."""
    return list(differences(a, b, view_of_structure, view_of_structure))
