"""Sources of samples: *map-style* sources, which have an index for each sample, and iterable ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import weft
from weft.data.adapters import arrays, huggingface
from weft.errors import ArgumentTypeError


class ArraySource:
    """The rows of a tree of arrays: sample i is the tree of rows i.

    >>> source = ArraySource({"x": np.arange(6).reshape(3, 2), "y": np.arange(3)})
    >>> len(source), source[2]
    (3, {'x': array([4, 5]), 'y': np.int64(2)})
    """

    def __init__(self, tree: Any) -> None:
        self.arrays = weft.tree.map(np.asarray, arrays.in_memory(tree))
        self._count = arrays.count_rows(self.arrays)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return weft.tree.map(lambda array: array[index], self.arrays)

    @property
    def row_bytes(self) -> int:
        """Size of a sample in bytes."""
        return sum(array.nbytes for array in weft.tree.leaves(self.arrays)) // max(1, self._count)

    def take(self, indices: Sequence[int] | np.ndarray | range) -> Any:
        """Return several rows as a batch."""
        return arrays.take_rows(self.arrays, indices)


class Produced:
    """Iterable source made by a function, which is called for each epoch."""

    def __init__(self, function: Callable[[], Iterable[Any]]) -> None:
        self.function = function

    def __iter__(self) -> Iterator[Any]:
        return iter(self.function())


def as_source(data: Any) -> Any:
    """Convert data to a source. A tree of arrays becomes an `ArraySource`; a list is a map-style source of samples.

    A *map-style* source has `__len__` and `__getitem__`, and may have `__getitems__`, which maps a list of indices to a
    list of samples. An *iterable* source has `__iter__`, or is a function that returns an iterator, and may have
    `set_epoch(epoch)`.
    """
    if not isinstance(data, list) and arrays.recognises(data):
        return ArraySource(data)
    if huggingface.recognises(data):
        return huggingface.with_arrays(data)
    if is_map_style(data) or hasattr(data, "__iter__"):
        return data
    if callable(data):
        return Produced(data)
    raise ArgumentTypeError(
        "A source must have __len__ and __getitem__, or __iter__, or be a tree of arrays.",
        received=f"{type(data).__module__}.{type(data).__name__}",
        fix="weft.data.Loader((x, y), batch_size=32)",
    )


def is_map_style(source: Any) -> bool:
    """Return whether the samples of a source have indices."""
    return hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, Mapping)


def fetch(source: Any, indices: Sequence[int] | np.ndarray | range) -> list[Any]:
    """Return the samples at some indices."""
    if hasattr(source, "__getitems__"):
        return list(source.__getitems__([int(i) for i in indices]))
    return [source[int(i)] for i in indices]
