"""Grain: `DataLoader`, `MapDataset` and `IterDataset`. Elements are batches; iterators know their position."""

from __future__ import annotations

from typing import Any


def recognises(data: Any) -> bool:
    """Whether `data` is a loader or a dataset of Grain."""
    is_grain = any(base.__module__.partition(".")[0] == "grain" for base in type(data).__mro__)
    return is_grain and hasattr(data, "__iter__")


def as_iterable(data: Any) -> Any:
    """An iterable whose iterators have `get_state` and `set_state`."""
    return data.to_iter_dataset() if hasattr(data, "to_iter_dataset") else data


def size(data: Any) -> int | None:
    """How many batches there are, where it is said; those that repeat without end say a number that nobody reaches."""
    try:
        count = len(data)
    except (TypeError, ValueError, NotImplementedError):
        return None
    return count if count < 2**62 else None
