"""What a batch looks like: trees of shapes and dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import weft


@dataclass(frozen=True)
class ArraySpec:
    """The shape of an array, with None for a size that differs from batch to batch, and its dtype.

    >>> ArraySpec((None, 3), np.float32)
    ArraySpec(shape=(None, 3), dtype=dtype('float32'))
    """

    shape: tuple[int | None, ...]
    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))


def spec_of(batch: Any) -> Any:
    """The `ArraySpec` of each array of a batch. The first dimension is that of samples, so it is None."""

    def of_leaf(leaf: Any) -> ArraySpec:
        shape = np.shape(leaf)
        dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
        return ArraySpec((None, *shape[1:]) if shape else (), dtype)

    return weft.tree.map(of_leaf, batch)
