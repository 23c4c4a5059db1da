"""Functions of sequences of equal length."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _equally_long(name: str, args: Iterable[Iterable[Any]]) -> list[list[Any]]:
    lists = [list(a) for a in args]
    if any(len(a) != len(lists[0]) for a in lists):
        raise ValueError(f"{name}() arguments have different lengths: {[len(a) for a in lists]}")
    return lists


def safe_map(f: Callable[..., Any], *args: Iterable[Any]) -> list[Any]:
    """Return `list(map(f, *args))`; raise ValueError unless the sequences have equal lengths."""
    return [f(*each) for each in zip(*_equally_long("safe_map", args), strict=True)]


def safe_zip(*args: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return `list(zip(*args))`; raise ValueError unless the sequences have equal lengths."""
    return list(zip(*_equally_long("safe_zip", args), strict=True))


def unzip2(xys: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the first elements and the second elements of pairs, as two tuples."""
    pairs = list(xys)
    return tuple(x for x, _ in pairs), tuple(y for _, y in pairs)
