"""Generators, other iterators, and functions that return one."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from weft.data.adapter import Adapter, Batch, Batches, converted, unpacked
from weft.data.ahead import Ahead
from weft.data.loader import Loader
from weft.errors import ArgumentError


def recognises(data: Any) -> bool:
    """Whether `data` is an iterator."""
    return hasattr(data, "__next__")


def is_function(data: Any) -> bool:
    """Whether `data` is a function without required parameters."""
    if not callable(data):
        return False
    try:
        inspect.signature(data).bind()
    except (TypeError, ValueError):
        return False
    return True


def loader_of(function: Callable[[], Any], prefetch: int) -> Loader:
    """The batches of a function that returns an iterator, which is called for each epoch."""

    def iterate() -> Iterator[Any]:
        found = function()
        if not hasattr(found, "__iter__"):
            raise ArgumentError(
                "A function of data returns an iterator of batches.", received=repr(found), fix="yield x, y"
            )
        return iter(found)

    return Loader(iterate, None, prefetch=prefetch)


class GeneratorAdapter(Adapter):
    """An iterator, which is read once: each epoch continues where the one before it ended."""

    kind = "generator"
    restartable = False
    skips = "reading"

    def __init__(self, iterator: Iterator[Any], prefetch: int = 2, float_dtype: Any = None) -> None:
        self._iterator, self._prefetch, self._float_dtype = iterator, prefetch, float_dtype
        self._running: Iterator[Batch] | None = None
        self._peeked: list[Batch] = []
        self._delivered = 0

    def first(self) -> Batch:
        if not self._peeked:
            for batch in self._reader():
                self._peeked.append(batch)
                break
            else:
                raise ArgumentError("This generator has no batch, so shapes and dtypes are not known.")
        return self._peeked[0]

    def _reader(self) -> Iterator[Batch]:
        """The one reader of the iterator: what it has read ahead is not lost between epochs."""
        if self._running is None:
            read = lambda: (converted(unpacked(batch), self._float_dtype) for batch in self._iterator)
            self._running = Ahead(read, self._prefetch) if self._prefetch else read()
        return self._running

    def read(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches that are left. `start` is where the iterator is now, and nothing to be skipped."""
        while self._peeked:
            self._delivered += 1
            yield self._peeked.pop()
        for batch in self._reader():
            self._delivered += 1
            yield batch

    def details(self, source: Iterator[Any]) -> dict[str, Any]:
        return {"read": self._delivered}

    def resume(self, state: dict[str, Any]) -> Batches:
        """Read and drop what had been delivered of another generator like this one."""
        for _ in itertools.islice(self.read(0, 0), state.get("read", state["batches"]) - self._delivered):
            pass
        return self.batches(state["epoch"], state["batches"])
