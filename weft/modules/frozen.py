"""Immutable dicts, and functions for frozen and plain dicts alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import weft

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenDictError(TypeError, ValueError):
    """Assignment to a frozen dict: a TypeError as for other immutable mappings, and a ValueError as in Flax."""


class FrozenDict(Mapping[Key, Value]):
    """An immutable dict, with immutable nested dicts. It is a pytree, and equal to a dict with its items.

    Args:
        *args, **kwargs: the arguments of `dict`.
        __unsafe_skip_copy__: use the given dict without a copy; it must not change any more.

    >>> from weft import linen
    >>> frozen = linen.FrozenDict({"a": {"b": 1}})
    >>> frozen["a"]["b"]
    1
    """

    __slots__ = ("_dict", "_hash")

    def __init__(self, *args: Any, __unsafe_skip_copy__: bool = False, **kwargs: Any):
        items: dict[Any, Any] = dict(*args, **kwargs)
        self._dict = items if __unsafe_skip_copy__ else _plain(items)
        self._hash: int | None = None

    def __getitem__(self, key: Key) -> Any:
        value = self._dict[key]
        return FrozenDict(value, __unsafe_skip_copy__=True) if isinstance(value, dict) else value

    def __setitem__(self, key: Key, value: Value) -> None:
        raise FrozenDictError("FrozenDict cannot be changed; d.copy({...}) makes one with other items.")

    def __contains__(self, key: object) -> bool:
        return key in self._dict

    def __iter__(self) -> Iterator[Key]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._dict)

    def __repr__(self) -> str:
        return f"FrozenDict({self._dict!r})"

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(sorted((repr(key), hash(value)) for key, value in self.items())))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenDict):
            return self._dict == other._dict
        return Mapping.__eq__(self, other)

    def __reduce__(self) -> Any:
        return FrozenDict, (self.unfreeze(),)

    def copy(self, add_or_replace: Mapping[Any, Any] | None = None) -> FrozenDict[Any, Any]:
        """Return a copy with items added or replaced."""
        return type(self)({**self, **unfreeze(dict(add_or_replace or {}))})

    def pop(self, key: Key) -> tuple[FrozenDict[Any, Any], Any]:
        """Return a copy without a key, and the value of the key."""
        value = self[key]
        rest = {name: one for name, one in self._dict.items() if name != key}
        return type(self)(rest), value

    def unfreeze(self) -> dict[Any, Any]:
        """Return a mutable dict, with mutable nested dicts."""
        return _plain(self._dict)

    def pretty_repr(self, num_spaces: int = 4) -> str:
        """Return the items as text, one per line."""
        return pretty_repr(self, num_spaces)


def _plain(tree: Any) -> Any:
    """Copy nested mappings to plain dicts."""
    return {key: _plain(value) for key, value in tree.items()} if isinstance(tree, (dict, FrozenDict)) else tree


def _flatten(tree: FrozenDict[Any, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    keys = tuple(sorted(tree._dict))
    return tuple(tree._dict[key] for key in keys), keys


def _flatten_with_keys(tree: FrozenDict[Any, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    values, keys = _flatten(tree)
    return tuple((weft.tree_util.DictKey(key), value) for key, value in zip(keys, values, strict=True)), keys


def _unflatten(keys: tuple[Any, ...], values: tuple[Any, ...]) -> FrozenDict[Any, Any]:
    return FrozenDict(dict(zip(keys, values, strict=True)), __unsafe_skip_copy__=True)


weft.tree_util.register_pytree_with_keys(FrozenDict, _flatten_with_keys, _unflatten, _flatten)


def freeze(xs: Mapping[Any, Any]) -> FrozenDict[Any, Any]:
    """Return an immutable copy of a nested dict."""
    return FrozenDict(xs)


def unfreeze(x: Any) -> Any:
    """Return a mutable copy of a nested dict; other values are returned unchanged."""
    if isinstance(x, (FrozenDict, dict)):
        return {key: unfreeze(value) for key, value in x.items()}
    return x


def copy(x: Any, add_or_replace: Mapping[Any, Any] | None = None) -> Any:
    """Return a copy of a plain or frozen dict with items added or replaced."""
    if isinstance(x, FrozenDict):
        return x.copy(add_or_replace)
    result = {key: value for key, value in x.items()}
    result.update(add_or_replace or {})
    return result


def pop(x: Any, key: Any) -> tuple[Any, Any]:
    """Return a copy of a plain or frozen dict without a key, and the value of the key."""
    if isinstance(x, FrozenDict):
        return x.pop(key)
    rest = dict(x)
    return rest, rest.pop(key)


def pretty_repr(x: Any, num_spaces: int = 4) -> str:
    """Return a nested dict as text, one item per line."""
    if not isinstance(x, (FrozenDict, dict)):
        return repr(x)

    def lines(tree: Any, indent: int) -> str:
        if not isinstance(tree, (FrozenDict, dict)):
            return repr(tree)
        inner = "".join(
            f"{' ' * (indent + num_spaces)}{key}: {lines(v, indent + num_spaces)},\n" for key, v in tree.items()
        )
        return "{\n" + inner + " " * indent + "}"

    text = lines(x, 0)
    return f"FrozenDict({text})" if isinstance(x, FrozenDict) else text
