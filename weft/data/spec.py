"""Shapes and dtypes of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import weft


@dataclass(frozen=True)
class ArraySpec:
    """The shape of an array, with None for sizes that vary from batch to batch, and its dtype.

    >>> ArraySpec((None, 3), np.float32)
    ArraySpec(shape=(None, 3), dtype=dtype('float32'))
    """

    shape: tuple[int | None, ...]
    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))


def batch_spec(batch: Any) -> Any:
    """Return the `ArraySpec` of each array of a batch. The first dimension, that of samples, is None."""

    def of_leaf(leaf: Any) -> ArraySpec:
        shape = np.shape(leaf)
        dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
        return ArraySpec((None, *shape[1:]) if shape else (), dtype)

    return weft.tree.map(of_leaf, batch)
