"""Grain: `DataLoader`, `MapDataset` and `IterDataset`. Elements are batches; iterators know their position."""

from __future__ import annotations

from typing import Any


def recognises(data: Any) -> bool:
    """Return whether `data` is a loader or dataset of Grain."""
    is_grain = any(base.__module__.partition(".")[0] == "grain" for base in type(data).__mro__)
    return is_grain and hasattr(data, "__iter__")


def as_iterable(data: Any) -> Any:
    """Return an iterable whose iterators have `get_state` and `set_state`."""
    return data.to_iter_dataset() if hasattr(data, "to_iter_dataset") else data


def size(data: Any) -> int | None:
    """Return the number of batches, or None if it is unknown or infinite (Grain returns a huge number then)."""
    try:
        count = len(data)
    except (TypeError, ValueError, NotImplementedError):
        return None
    return count if count < 2**62 else None
