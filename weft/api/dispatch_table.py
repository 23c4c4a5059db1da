"""Dispatchers of one jitted function: generated code that runs a call of a known signature, found by hints.

A hint is what a call shows of its signature at a glance. It is cheap and need not tell all signatures apart: it leads
to a few dispatchers, and each of them compares everything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from typing import Any

import numpy as np

from weft.api.flat import MISS, Dispatcher
from weft.runtime.array import ConcreteArray, PlacedArray

# Hints per function, and dispatchers per hint.
MOST_HINTS, MOST_PER_HINT = 1024, 8
# Nodes around the first leaf of an argument that a hint looks at.
DEPTH = 4


class DispatchTable:
    """Dispatchers by hint, and the two of the last calls, which are tried before anything else.

    A dispatcher returns MISS for a call of another signature or under other settings, so a stale entry costs time and
    is never wrong. Threads may change the table at the same time: entries are tuples that are replaced as a whole.
    """

    __slots__ = ("by_hint", "recent")

    def __init__(self) -> None:
        self.by_hint: dict[Hashable, tuple[Dispatcher, ...]] = {}
        self.recent: tuple[Dispatcher, ...] = ()

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], tried: tuple[Dispatcher, ...]) -> Any:
        """Return the result of the dispatcher for this call, or MISS. Those in `tried` have missed already."""
        for dispatch in self.by_hint.get(get_hint(args, kwargs), ()):
            if dispatch not in tried:
                result = dispatch(args, kwargs)
                if result is not MISS:
                    self.recent = (dispatch, tried[0])
                    return result
        return MISS

    def add(self, dispatch: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any], is_timed: bool) -> None:
        """Register a dispatcher for calls like this one.

        Those of profiled calls (`is_timed`) come last, so that ordinary calls need not try them first.
        """
        hint = get_hint(args, kwargs)
        others = self.by_hint.pop(hint, ())
        if dispatch not in others:
            others = others[: MOST_PER_HINT - 1]
            others = (*others, dispatch) if is_timed else (dispatch, *others)
        self.by_hint[hint] = others
        if len(self.by_hint) > MOST_HINTS:
            with contextlib.suppress(RuntimeError):  # another thread may change it at the same time
                self.by_hint.pop(next(iter(self.by_hint)), None)
        if (not is_timed or not self.recent) and dispatch not in self.recent:
            self.recent = (dispatch, *self.recent[:1])

    def clear(self) -> None:
        """Discard all dispatchers."""
        self.recent = ()
        self.by_hint.clear()


def get_hint(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """Return the hint of a call."""
    if kwargs:
        args = (*args, *kwargs.values())
    return tuple([_hint(value, DEPTH) for value in args])


def _hint(value: Any, depth: int) -> Any:
    """Return shape, dtype and placement of an array; of a node its type, length and the hint of its first child."""
    kind = type(value)
    if kind is ConcreteArray:
        return value.aval.shape, value.aval.dtype
    if kind is PlacedArray:
        return value.aval.shape, value.aval.dtype, value._placement
    if kind is np.ndarray:
        return value.shape, value.dtype
    if depth and kind is dict and value:
        return kind, len(value), _hint(next(iter(value.values())), depth - 1)
    if depth and issubclass(kind, (tuple, list)) and value:
        return kind, len(value), _hint(value[0], depth - 1)
    return kind
