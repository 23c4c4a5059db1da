"""Arrays in memory and trees of them, read without copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import weft
from weft.data.adapter import Adapter, Batch, to_host_arrays
from weft.data.adapters import pandas
from weft.data.order import Order, Shuffle
from weft.data.placing import placement
from weft.data.sharing import WHOLE, ShardingShare, Share
from weft.data.spec import batch_spec
from weft.errors import ArgumentError

DEFAULT_BATCH_SIZE = 32


def is_array(leaf: Any) -> bool:
    """Return whether a value is an array of any library. Its first dimension is that of samples."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and hasattr(leaf, "__array__")


def recognises(data: Any) -> bool:
    """Return whether `data` is a tree of arrays."""
    leaves = weft.tree.leaves(data)
    return bool(leaves) and all(is_array(leaf) or pandas.recognises(leaf) for leaf in leaves)


def in_memory(tree: Any, float_dtype: Any = None) -> Any:
    """Convert arrays of other libraries and columns of tables to NumPy arrays, without copies where possible."""
    of_leaf = lambda leaf: pandas.as_array(leaf) if pandas.recognises(leaf) else leaf
    return to_host_arrays(weft.tree.map(of_leaf, tree), float_dtype)


def count_rows(arrays: Any) -> int:
    """Return the number of rows, which all arrays must share."""
    sizes: dict[int, str] = {}
    for path, leaf in weft.tree_util.tree_leaves_with_path(arrays):
        if not np.shape(leaf):
            raise ArgumentError(
                "Arrays of data must have a first dimension, that of samples.",
                received=f"a scalar{weft.tree_util.keystr(path)}",
                fix="np.asarray([value])",
            )
        sizes.setdefault(np.shape(leaf)[0], weft.tree_util.keystr(path))
    if len(sizes) > 1:
        named = ", ".join(f"{rows} in (x, y, sample_weight){path}" for rows, path in sizes.items())
        raise ArgumentError("All arrays must have the same number of rows.", received=named)
    return next(iter(sizes))


def take_rows(arrays: Any, indices: Sequence[int] | np.ndarray | range) -> Any:
    """Return rows of each array: views for a range of indices, else copies."""
    if isinstance(indices, range):
        part = slice(indices.start, indices.stop)
        return weft.tree.map(lambda leaf: np.asarray(leaf)[part], arrays)
    return weft.tree.map(lambda leaf: np.take(np.asarray(leaf), indices, axis=0), arrays)


class ArrayAdapter(Adapter):
    """Adapter of arrays in memory. `row_order` is the order of rows in each epoch; `fit` may replace it."""

    kind = "arrays"

    def __init__(
        self,
        data: Batch,
        batch_size: int | None = None,
        shuffle: Shuffle = False,
        seed: int = 0,
        drop_remainder: bool = False,
        share: Share | ShardingShare = WHOLE,
        float_dtype: Any = None,
        device: Any = None,
    ) -> None:
        self._arrays = in_memory(data, float_dtype)
        self._put = None if device is None else placement(device)
        # Data that go to a device batch by batch are not resident: programs cannot slice them.
        self.resident = self._arrays if device is None else None
        self.samples = count_rows(self._arrays)
        self.batch_size = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
        full, rest = divmod(self.samples, self.batch_size)
        self.size = full + bool(rest and not drop_remainder)
        self.row_order = Order(self.samples, shuffle, seed, self.batch_size)
        self._share = share
        self.spec = batch_spec(self._arrays)

    def order(self, epoch: int) -> np.ndarray | None:
        return self.row_order.rows(epoch)

    def read(self, epoch: int, start: int) -> Iterator[Batch]:
        assert self.batch_size is not None and self.size is not None
        indices = self.row_order.indices(epoch)
        for i in range(start, self.size):
            chosen = indices[i * self.batch_size : (i + 1) * self.batch_size]
            batch = take_rows(self._arrays, chosen[self._share.rows(len(chosen))])
            yield batch if self._put is None else self._put(batch, len(chosen))
