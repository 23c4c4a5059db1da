"""Bounded caches of results, by key."""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from weft.base.forks import held

Key = TypeVar("Key")
Value = TypeVar("Value")

# Memos that `clear_all` empties.
_all: weakref.WeakSet[Any] = weakref.WeakSet()
_lock = held(threading.RLock())  # reentrant, because garbage collection may create a memo


def _register(memo: Any) -> None:
    with _lock:
        _all.add(memo)


class cached_property(Generic[Value]):
    """A property that is computed on first access.

    functools' version used one lock for all objects of a class, which could stay locked forever in a forked process.
    Here, if two threads compute a value, both get the first one.
    """

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self.function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> cached_property[Value] | Value:
        if instance is None:
            return self
        value: Value = instance.__dict__.setdefault(self.name, self.function(instance))
        return value


class Memo(Generic[Key, Value]):
    """A cache of at most `most` results; a full table is emptied, which is fast and rare.

    `get(key)` is the dict's own method, so it costs the same: None for missing keys, TypeError for unhashable ones.
    Threads may share a memo: if two compute a value, both get the first one.
    """

    __slots__ = ("__weakref__", "_lasting", "_most", "_table", "get")

    def __init__(self, most: int, *, lasting: bool = False) -> None:
        """Create an empty table. `clear_caches` empties it unless it is `lasting`: a table of interned objects whose
        identity other code relies on, or one that is emptied elsewhere."""
        self._most, self._lasting = most, lasting
        self._table: dict[Key, Value] = {}
        self.get: Callable[[Key], Value | None] = self._table.get
        if not lasting:
            _register(self)

    def keep(self, key: Key, value: Value) -> Value:
        """Store a value; return the stored one, which may be another thread's."""
        if len(self._table) >= self._most:
            self._table.clear()
        return self._table.setdefault(key, value)

    def clear(self) -> None:
        """Remove all entries."""
        self._table.clear()

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, key: object) -> bool:
        return key in self._table

    def __reduce__(self) -> Any:
        """Pickle as an empty memo; copies are empty too."""
        return functools.partial(Memo, lasting=self._lasting), (self._most,)


class FunctionMemo(Generic[Key, Value]):
    """A memo for each user function, dropped with the function."""

    def __init__(self, most_functions: int, most: int) -> None:
        self._most_functions, self._most = most_functions, most
        self._memos: weakref.WeakKeyDictionary[Any, Memo[Key, Value]] = weakref.WeakKeyDictionary()
        _register(self)

    def of(self, function: Any) -> Memo[Key, Value] | None:
        """Return the memo of a function; None for other callables, because only plain functions are immutable."""
        if type(function) is not types.FunctionType:
            return None
        found = self._memos.get(function)
        if found is None:
            if len(self._memos) >= self._most_functions:  # entries may refer to their function and keep it alive
                self._memos.clear()
            found = self._memos[function] = Memo(self._most, lasting=True)
        return found

    def clear(self) -> None:
        """Remove all memos."""
        self._memos.clear()


def clear_all() -> None:
    """Empty every memo that is not lasting."""
    with _lock:
        memos = list(_all)
    for memo in memos:
        memo.clear()
