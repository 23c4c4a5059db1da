"""Key paths: the steps that lead from the root of a tree to a leaf."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

KeyEntry = TypeVar("KeyEntry", bound=Hashable)
KeyPath = tuple[KeyEntry, ...]


class _Entry:
    """A step with one immutable attribute.

    Entries are created for all named children whenever paths are requested, so construction must be fast: a property
    over a slot is, a frozen dataclass is not.
    """

    __slots__ = ("_value",)
    __match_args__: tuple[str, ...] = ()
    _value: Any

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), self._value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__match_args__[0]}={self._value!r})"


class SequenceKey(_Entry):
    """The step into a list, tuple or deque: the index `idx`.

    Args:
        idx: the position.

    >>> from weft import tree_util
    >>> str(tree_util.SequenceKey(0))
    '[0]'
    """

    __slots__ = ()
    __match_args__ = ("idx",)
    idx = property(attrgetter("_value"), doc="The position.")

    def __init__(self, idx: int) -> None:
        self._value = idx

    def __str__(self) -> str:
        return f"[{self._value!r}]"


class DictKey(_Entry):
    """The step into a mapping: the key `key`.

    Args:
        key: the key.

    >>> from weft import tree_util
    >>> str(tree_util.DictKey("a"))
    "['a']"
    """

    __slots__ = ()
    __match_args__ = ("key",)
    key = property(attrgetter("_value"), doc="The key.")

    def __init__(self, key: Hashable) -> None:
        self._value = key

    def __str__(self) -> str:
        return f"[{self._value!r}]"


class GetAttrKey(_Entry):
    """The step into an object with named children: the attribute `name`.

    Args:
        name: the name of the attribute.

    >>> from weft import tree_util
    >>> str(tree_util.GetAttrKey("weight"))
    '.weight'
    """

    __slots__ = ()
    __match_args__ = ("name",)
    name = property(attrgetter("_value"), doc="The name.")

    def __init__(self, name: str) -> None:
        self._value = name

    def __str__(self) -> str:
        return f".{self._value}"


class FlattenedIndexKey(_Entry):
    """The step into a custom node without named children: their index in flattening order.

    Args:
        key: the position.

    >>> from weft import tree_util
    >>> str(tree_util.FlattenedIndexKey(0))
    '[<flat index 0>]'
    """

    __slots__ = ()
    __match_args__ = ("key",)
    key = property(attrgetter("_value"), doc="The position.")

    def __init__(self, key: int) -> None:
        self._value = key

    def __str__(self) -> str:
        return f"[<flat index {self._value}>]"


def _plain(entry: Any) -> str:
    """Return the name in a step, without brackets or dot."""
    return str(entry._value if isinstance(entry, _Entry) else entry)


def keystr(keys: Sequence[Any], *, simple: bool = False, separator: str = "") -> str:
    """Format a key path: `['a'][0].b`; with `simple` only the names, joined by `separator`.

    Args:
        keys: a key path, as `tree.flatten_with_path` returns them.
        simple: whether to write names only, without brackets, quotes and dots.
        separator: the text between two steps.

    Returns:
        A string.

    >>> from weft import tree_util
    >>> path = (tree_util.DictKey("layers"), tree_util.SequenceKey(0))
    >>> tree_util.keystr(path), tree_util.keystr(path, simple=True, separator="/")
    ("['layers'][0]", 'layers/0')
    """
    return separator.join([_plain(entry) if simple else str(entry) for entry in keys])
