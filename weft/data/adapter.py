"""The interface of all kinds of data to training: `Adapter`, and its iterator `Batches`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import weft
from weft.data.spec import batch_spec
from weft.errors import ArgumentError

Batch = tuple[Any, Any, Any]


def unpack_batch(batch: Any) -> Batch:
    """Split a batch into `(x, y, sample_weight)`: tuples and lists of up to three are these, anything else is `x`.

    >>> unpack_batch({"a": 1})
    ({'a': 1}, None, None)
    """
    if not isinstance(batch, (tuple, list)) or hasattr(batch, "_fields"):
        return batch, None, None
    if not 1 <= len(batch) <= 3:
        raise ArgumentError(
            "A batch must be x, (x, y) or (x, y, sample_weight).",
            received=f"a {type(batch).__name__} of {len(batch)} elements",
            fix="(((a, b, c, d), y)) if x is a tuple of several arrays",
        )
    x, y, sample_weight = (*batch, None, None)[:3]
    return x, y, sample_weight


def host_leaf(leaf: Any) -> Any:
    """Convert an array of any library to NumPy, without a copy where possible; leave Weft arrays unchanged."""
    if isinstance(leaf, (np.ndarray, weft.Array)):
        return leaf
    if hasattr(leaf, "detach"):  # a tensor of PyTorch, which may require gradients or be on a GPU
        leaf = leaf.detach().cpu()
    return np.asarray(leaf)


def to_host_arrays(batch: Any, float_dtype: Any) -> Any:
    """Convert the leaves of a tree to host arrays, and floating ones to `float_dtype` unless it is None."""

    def of_leaf(leaf: Any) -> Any:
        array = host_leaf(leaf)
        if float_dtype is None or array.dtype == float_dtype or not weft.dtypes.issubdtype(array.dtype, np.floating):
            return array
        return array.astype(float_dtype)

    return weft.tree.map(of_leaf, batch)


class Batches:
    """Iterator of `(x, y, sample_weight)` that knows its position: the epoch and the number of delivered batches.

    `read(epoch, start)` returns the underlying iterator; it is called at the first `next`.
    """

    def __init__(
        self,
        read: Callable[[int, int], Iterator[Any]],
        epoch: int,
        start: int,
        details: Callable[[Iterator[Any]], dict[str, Any]] | None = None,
        restartable: bool = True,
    ) -> None:
        self._read = read
        self.epoch, self.delivered = epoch, start
        self._details, self._restartable = details, restartable
        self._source: Iterator[Any] | None = None
        self._process = os.getpid()

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        if self._source is None or (self._process != os.getpid() and self._restartable):
            self._process = os.getpid()  # a fork does not copy the reading thread, so start one at the same position
            self._source = self._read(self.epoch, self.delivered)
        batch = next(self._source)
        self.delivered += 1
        return batch

    def begin(self, source: Iterator[Any]) -> None:
        """Take batches from an iterator that is already at the position."""
        self._source = source

    def state(self) -> dict[str, Any]:
        """Return the position after the last delivered batch, for `Adapter.resume`, as a dict of JSON."""
        found = {"epoch": self.epoch, "batches": self.delivered}
        if self._details is not None and self._source is not None:
            found |= self._details(self._source)
        return found

    def close(self) -> None:
        """Stop reading, and end threads that read ahead."""
        if self._source is not None and hasattr(self._source, "close"):
            self._source.close()
        self._source = iter(())

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Adapter:
    """Data of one kind as batches; docs/design/data.md describes the attributes."""

    kind: str = ""
    resident: Batch | None = None
    samples: int | None = None
    batch_size: int | None = None
    size: int | None = None
    restartable: bool = True
    skips: str = "index"

    @functools.cached_property
    def spec(self) -> Batch:
        """Trees of `ArraySpec` for `(x, y, sample_weight)`."""
        return batch_spec(self.first())

    def first(self) -> Batch:
        """Return the first batch, for its types. Iteration delivers it again."""
        with self.batches() as found:
            for batch in found:
                return batch
        raise ArgumentError(f"A {self.kind} must have at least one batch: it determines shapes and dtypes.")

    def order(self, epoch: int) -> np.ndarray | None:
        """Return the row order of resident data in an epoch, or None for streams and data that are not shuffled."""
        return None

    def read(self, epoch: int, start: int) -> Iterator[Batch]:
        """Return an iterator of the batches of an epoch from `start` on. Each kind of data defines it."""
        raise NotImplementedError

    def details(self, source: Iterator[Any]) -> dict[str, Any]:
        """Return the part of the position beyond the epoch and the number of batches."""
        return {}

    def batches(self, epoch: int = 0, start: int = 0) -> Batches:
        """Return an iterator of the batches of an epoch from batch `start` on."""
        return Batches(self.read, epoch, start, self.details, self.restartable)

    def resume(self, state: dict[str, Any]) -> Batches:
        """Return an iterator that continues at a position of `Batches.state`."""
        return self.batches(state["epoch"], state["batches"])

    def stream(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch after the other, until an epoch is empty."""
        while True:
            with self.batches(epoch, start) as found:
                yield from found
                if found.delivered == start:
                    return
            epoch, start = epoch + 1, 0
