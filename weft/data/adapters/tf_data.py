"""`tf.data.Dataset`, whose elements are batches, through its iterator of NumPy arrays."""

from __future__ import annotations

from typing import Any


def recognises(data: Any) -> bool:
    """Return whether `data` is a dataset of TensorFlow."""
    return hasattr(data, "as_numpy_iterator") and hasattr(data, "element_spec")


def size(dataset: Any) -> int | None:
    """Return the number of batches, or None if it is unknown or infinite."""
    count = int(dataset.cardinality())
    return count if count >= 0 else None  # -1: infinite, -2: unknown
