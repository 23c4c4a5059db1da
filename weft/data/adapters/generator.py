"""Generators, other iterators, and functions that return one."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from weft.data.adapter import Adapter, Batch, Batches, converted, unpacked
from weft.data.ahead import Ahead
from weft.errors import ArgumentError


def recognises(data: Any) -> bool:
    """Whether `data` is an iterator or a function without required parameters."""
    return hasattr(data, "__next__") or (callable(data) and _takes_nothing(data))


def _takes_nothing(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


class StreamAdapter(Adapter):
    """Batches that something else makes, in its own order, read by a thread ahead of who uses them."""

    skips = "reading"

    def __init__(self, prefetch: int = 2, float_dtype: Any = None) -> None:
        self._prefetch, self._float_dtype = prefetch, float_dtype

    def source(self, epoch: int) -> Iterator[Any]:
        """The batches of an epoch as they come, which each kind defines."""
        raise NotImplementedError

    def read(self, epoch: int, start: int) -> Iterator[Batch]:
        def iterate() -> Iterator[Batch]:
            for batch in itertools.islice(self.source(epoch), start, None):
                yield converted(unpacked(batch), self._float_dtype)

        return Ahead(iterate, self._prefetch) if self._prefetch else iterate()


class FunctionAdapter(StreamAdapter):
    """A function that returns an iterator, called for each epoch."""

    kind = "generator function"

    def __init__(self, function: Callable[[], Any], prefetch: int = 2, float_dtype: Any = None) -> None:
        super().__init__(prefetch, float_dtype)
        self._function = function

    def source(self, epoch: int) -> Iterator[Any]:
        found = self._function()
        if not hasattr(found, "__iter__"):
            raise ArgumentError(
                "A function of data returns an iterator of batches.", received=repr(found), fix="yield x, y"
            )
        return iter(found)


class GeneratorAdapter(StreamAdapter):
    """An iterator, which is read once: each epoch continues where the one before it ended."""

    kind = "generator"
    restartable = False

    def __init__(self, iterator: Iterator[Any], prefetch: int = 2, float_dtype: Any = None) -> None:
        super().__init__(prefetch, float_dtype)
        self._iterator = iterator
        self._running: Iterator[Batch] | None = None
        self._peeked: list[Batch] = []
        self._delivered = 0

    def source(self, epoch: int) -> Iterator[Any]:
        return self._iterator

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
            self._running = super().read(0, 0)
        return self._running

    def read(self, epoch: int, start: int) -> Iterator[Batch]:
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
