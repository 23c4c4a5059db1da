"""Key paths: how a leaf is named by the steps that lead to it from the root of its tree."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

KeyEntry = TypeVar("KeyEntry", bound=Hashable)
KeyPath = tuple[KeyEntry, ...]


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """The step into a list, tuple or deque: the position `idx`."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclass(frozen=True, slots=True)
class DictKey:
    """The step into a mapping: the entry `key`."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True, slots=True)
class GetAttrKey:
    """The step into an object with named children: the attribute `name`."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclass(frozen=True, slots=True)
class FlattenedIndexKey:
    """The step into a custom node that does not name its children: their position when it is flattened."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


def _plain(entry: Any) -> str:
    """The name in a step, without the brackets or the dot around it."""
    match entry:
        case SequenceKey(idx):
            return str(idx)
        case DictKey(key) | FlattenedIndexKey(key):
            return str(key)
        case GetAttrKey(name):
            return name
    return str(entry)


def keystr(keys: Sequence[Any], *, simple: bool = False, separator: str = "") -> str:
    """Write a key path as text: `['a'][0].b`; with `simple` only the names, joined by `separator`."""
    return separator.join([_plain(entry) if simple else str(entry) for entry in keys])
