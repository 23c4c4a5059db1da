"""Datasets of Hugging Face: samples are dicts of columns."""

from __future__ import annotations

from typing import Any


def recognises(data: Any) -> bool:
    """Return whether `data` is a `datasets.Dataset` or `IterableDataset`."""
    return hasattr(data, "with_format") and hasattr(data, "features") and hasattr(data, "column_names")


def with_arrays(data: Any) -> Any:
    """Return the dataset with NumPy arrays instead of lists, unless it already has another format."""
    chosen = getattr(data, "format", {}).get("type") if isinstance(getattr(data, "format", None), dict) else None
    return data if chosen is not None else data.with_format("numpy")
