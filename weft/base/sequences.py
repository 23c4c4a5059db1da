"""Sequences that belong together, element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _equally_long(name: str, args: Iterable[Iterable[Any]]) -> list[list[Any]]:
    lists = [list(a) for a in args]
    if any(len(a) != len(lists[0]) for a in lists):
        raise ValueError(f"{name}() arguments have different lengths: {[len(a) for a in lists]}")
    return lists


def safe_map(f: Callable[..., Any], *args: Iterable[Any]) -> list[Any]:
    """`list(map(f, *args))` of sequences that must have one length."""
    return [f(*each) for each in zip(*_equally_long("safe_map", args), strict=True)]


def safe_zip(*args: Iterable[Any]) -> list[tuple[Any, ...]]:
    """`list(zip(*args))` of sequences that must have one length."""
    return list(zip(*_equally_long("safe_zip", args), strict=True))


def unzip2(xys: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first and the second elements of pairs."""
    pairs = list(xys)
    return tuple(x for x, _ in pairs), tuple(y for _, y in pairs)
