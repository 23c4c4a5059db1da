"""Results that are remembered by what they were computed from, a bounded number of them."""

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

# Those that `clear_all` empties, referred to weakly.
_all: weakref.WeakSet[Any] = weakref.WeakSet()
_lock = held(threading.RLock())  # collecting garbage may make a memo


def _register(memo: Any) -> None:
    with _lock:
        _all.add(memo)


class cached_property(Generic[Value]):
    """A property of an object that is computed when it is first asked for. That of functools holds a lock meanwhile,
    one for all objects of a class, which a forked process would wait for in vain; here of two threads that compute a
    value both get the first."""

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
    """At most `most` results by their keys; a full table is emptied, which is quick and rarely happens.

    `get(key)` is a dict's own, so a lookup costs what it costs there: None where there is nothing, TypeError for a key
    that cannot be hashed. Threads may use a memo at the same time: of two that compute a value both get the first.
    """

    __slots__ = ("__weakref__", "_lasting", "_most", "_table", "get")

    def __init__(self, most: int, *, lasting: bool = False) -> None:
        """A table of this size. `clear_caches` empties it unless it is `lasting`: a table of interned objects, whose
        identity others rely on, or one that somebody else empties."""
        self._most, self._lasting = most, lasting
        self._table: dict[Key, Value] = {}
        self.get: Callable[[Key], Value | None] = self._table.get
        if not lasting:
            _register(self)

    def keep(self, key: Key, value: Value) -> Value:
        """Remember a value; returns the one that is remembered, which may be another thread's."""
        if len(self._table) >= self._most:
            self._table.clear()
        return self._table.setdefault(key, value)

    def clear(self) -> None:
        """Forget everything."""
        self._table.clear()

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, key: object) -> bool:
        return key in self._table

    def __reduce__(self) -> Any:
        """Copies, and what comes out of a pickle, begin empty."""
        return functools.partial(Memo, lasting=self._lasting), (self._most,)


class FunctionMemo(Generic[Key, Value]):
    """A memo for each of the user's functions, which is forgotten with the function."""

    def __init__(self, most_functions: int, most: int) -> None:
        self._most_functions, self._most = most_functions, most
        self._memos: weakref.WeakKeyDictionary[Any, Memo[Key, Value]] = weakref.WeakKeyDictionary()
        _register(self)

    def of(self, function: Any) -> Memo[Key, Value] | None:
        """The memo of a function; None if it may be another one next time: only plain functions are what they were."""
        if type(function) is not types.FunctionType:
            return None
        found = self._memos.get(function)
        if found is None:
            if len(self._memos) >= self._most_functions:  # what is remembered may refer to the function itself
                self._memos.clear()
            found = self._memos[function] = Memo(self._most, lasting=True)
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._memos.clear()


def clear_all() -> None:
    """Empty every memo that is not lasting."""
    with _lock:
        memos = list(_all)
    for memo in memos:
        memo.clear()
