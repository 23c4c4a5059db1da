"""`tf.data.Dataset`, by its iterator of NumPy arrays. Its elements are batches."""

from __future__ import annotations

from typing import Any


def recognises(data: Any) -> bool:
    """Whether `data` is a dataset of TensorFlow."""
    return hasattr(data, "as_numpy_iterator") and hasattr(data, "element_spec")


def size(dataset: Any) -> int | None:
    """How many batches a dataset says that it has; None if it does not, or if they do not end."""
    count = int(dataset.cardinality())
    return count if count >= 0 else None  # -1: they do not end, -2: nobody knows
