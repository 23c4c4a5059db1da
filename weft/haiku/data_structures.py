"""Functions over parameters and state: dicts of the form {module path: {name: array}}."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import weft
from weft.errors import ArgumentError, suggest as _suggest
from weft.haiku.typing import Params
from weft.modules.frozen import FrozenDict

Value = TypeVar("Value")
Structure = Mapping[str, Mapping[str, Any]]


def traverse(structure: Structure) -> Iterator[tuple[str, str, Any]]:
    """Yield each (module path, name, value), sorted by path and name."""
    for path in sorted(structure):
        for name in sorted(structure[path]):
            yield path, name, structure[path][name]


def _collect(items: Iterator[tuple[str, str, Any]]) -> dict[str, dict[str, Any]]:
    out: dict[str, dict[str, Any]] = {}
    for path, name, value in items:
        out.setdefault(path, {})[name] = value
    return out


def filter(predicate: Callable[[str, str, Any], bool], structure: Structure) -> Params:
    """Return the values for which `predicate(path, name, value)` holds."""
    return _collect(item for item in traverse(structure) if predicate(*item))


def map(fn: Callable[[str, str, Any], Any], structure: Structure) -> dict[str, dict[str, Any]]:
    """Replace each value by `fn(path, name, value)`."""
    return _collect((path, name, fn(path, name, value)) for path, name, value in traverse(structure))


def partition(predicate: Callable[[str, str, Any], bool], structure: Structure) -> tuple[Params, Params]:
    """Split values into those for which `predicate(path, name, value)` holds, and the others.

    Args:
        predicate: a function of a module's path, a name and a value.
        structure: parameters or state: dicts of dicts.

    Returns:
        A pair of structures.

    >>> from weft import haiku
    >>> params = {"a": {"w": 1, "b": 2}}
    >>> haiku.data_structures.partition(lambda path, name, value: name == "w", params)
    ({'a': {'w': 1}}, {'a': {'b': 2}})
    """
    no, yes = partition_n(lambda *item: int(bool(predicate(*item))), structure, 2)
    return yes, no


def partition_n(fn: Callable[[str, str, Any], int], structure: Structure, n: int) -> tuple[Params, ...]:
    """Distribute values over `n` structures; `fn(path, name, value)` returns the index of the structure."""
    parts: tuple[dict[str, dict[str, Any]], ...] = tuple({} for _ in range(n))
    for path, name, value in traverse(structure):
        index = fn(path, name, value)
        if not 0 <= index < n:
            raise ArgumentError(
                f"partition_n: the function returned {index} for {path}/{name}; it must be in [0, {n})."
            )
        parts[index].setdefault(path, {})[name] = value
    return parts


def merge(*structures: Structure, check_duplicates: bool = False) -> dict[str, dict[str, Any]]:
    """Merge structures; later values take precedence, or with `check_duplicates` must equal earlier ones.

    Args:
        *structures: parameters or state: dicts of dicts.
        check_duplicates: whether values that occur twice must be the same.

    Returns:
        A structure.

    >>> from weft import haiku
    >>> haiku.data_structures.merge({"a": {"w": 1}}, {"a": {"b": 2}})
    {'a': {'w': 1, 'b': 2}}
    """
    out: dict[str, dict[str, Any]] = {}
    for structure in structures:
        for path, name, value in traverse(structure):
            there = out.setdefault(path, {})
            if check_duplicates and name in there and not _is_same(there[name], value):
                raise ArgumentError(
                    f"merge: {path}/{name} is in more than one structure with different values.\n"
                    f"  received  {_in_short(there[name])} and {_in_short(value)}\n"
                    "  fix       rename one of them, or check_duplicates=False to keep the last"
                )
            there[name] = value
    return out


def _is_same(a: Any, b: Any) -> bool:
    """Return whether two values are the same object, or equal plain values."""
    if a is b:
        return True
    if hasattr(a, "shape") or hasattr(b, "shape"):
        return False
    return bool(a == b)


def _in_short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else f"{value.dtype}{list(shape)}"


def is_subset(*, subset: Structure, superset: Structure) -> bool:
    """Return whether each path and name of `subset` is in `superset`."""
    return all(name in superset.get(path, {}) for path, name, _ in traverse(subset))


def to_haiku_dict(structure: Structure) -> dict[str, dict[str, Any]]:
    """Return a copy as plain dicts."""
    return {path: dict(values) for path, values in structure.items()}


def to_mutable_dict(mapping: Any) -> Any:
    """Return a copy of nested mappings as plain dicts.

    Args:
        mapping: nested mappings.

    Returns:
        Nested dicts.

    >>> from weft import haiku
    >>> haiku.data_structures.to_mutable_dict({"a": {"w": 1}})
    {'a': {'w': 1}}
    """
    return {k: to_mutable_dict(v) for k, v in mapping.items()} if isinstance(mapping, Mapping) else mapping


def to_immutable_dict(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an immutable copy of nested mappings, which is a tree like a dict with the same keys.

    Args:
        mapping: nested mappings.

    Returns:
        A mapping.

    >>> from weft import haiku
    >>> haiku.data_structures.to_immutable_dict({"a": {"w": 1}})["a"]["w"]
    1
    """
    return FrozenDict(to_mutable_dict(mapping))


def tree_size(tree: Any) -> int:
    """Return the number of elements in all arrays of a tree."""
    return sum(_size(leaf) for leaf in weft.tree.leaves(tree))


def tree_bytes(tree: Any) -> int:
    """Return the number of bytes in all arrays of a tree."""
    return sum(_size(leaf) * leaf.dtype.itemsize for leaf in weft.tree.leaves(tree))


def _size(leaf: Any) -> int:
    size = 1
    for length in getattr(leaf, "shape", ()):
        size *= length
    return size


_suggest(__name__)
