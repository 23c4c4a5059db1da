"""Generators, other iterators, and functions that return one."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from weft.data.adapter import Adapter, Batch, Batches, to_host_arrays, unpack_batch
from weft.data.ahead import Ahead
from weft.data.loader import Loader
from weft.errors import ArgumentError


def recognises(data: Any) -> bool:
    """Return whether `data` is an iterator."""
    return hasattr(data, "__next__")


def is_function(data: Any) -> bool:
    """Return whether `data` is a function without required parameters."""
    if not callable(data):
        return False
    try:
        inspect.signature(data).bind()
    except (TypeError, ValueError):
        return False
    return True


def make_loader(function: Callable[[], Any], prefetch: int) -> Loader:
    """Return a loader of the batches of a function that returns an iterator and is called once per epoch."""

    def iterate() -> Iterator[Any]:
        found = function()
        if not hasattr(found, "__iter__"):
            raise ArgumentError(
                "A function of data must return an iterator of batches.", received=repr(found), fix="yield x, y"
            )
        return iter(found)

    return Loader(iterate, None, prefetch=prefetch)


class GeneratorAdapter(Adapter):
    """Adapter of an iterator, which is read once: each epoch continues where the previous one ended."""

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
                raise ArgumentError("A generator must yield at least one batch: it determines shapes and dtypes.")
        return self._peeked[0]

    def _reader(self) -> Iterator[Batch]:
        """Return the only reader of the iterator, which keeps the batches that it has read ahead between epochs."""
        if self._running is None:
            read = lambda: (to_host_arrays(unpack_batch(batch), self._float_dtype) for batch in self._iterator)
            self._running = Ahead(read, self._prefetch) if self._prefetch else read()
        return self._running

    def read(self, epoch: int, start: int) -> Iterator[Batch]:
        """Yield the remaining batches. `start` is the present position of the iterator, so nothing is skipped."""
        while self._peeked:
            self._delivered += 1
            yield self._peeked.pop()
        for batch in self._reader():
            self._delivered += 1
            yield batch

    def details(self, source: Iterator[Any]) -> dict[str, Any]:
        return {"read": self._delivered}

    def resume(self, state: dict[str, Any]) -> Batches:
        """Skip the batches that had been delivered from an equal generator."""
        for _ in itertools.islice(self.read(0, 0), state.get("read", state["batches"]) - self._delivered):
            pass
        return self.batches(state["epoch"], state["batches"])
