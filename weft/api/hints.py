"""Hints: what a call shows of its signature at a glance, by which a jitted function finds the code written for it.

A hint is cheap and need not tell all signatures apart: it leads to a few dispatchers, and those compare everything.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from weft.runtime.array import ConcreteArray, PlacedArray

# Nodes around the first leaf of an argument that a hint looks at.
DEPTH = 4


def hint_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """The hint of a call."""
    if kwargs:
        args = (*args, *kwargs.values())
    return tuple([_hint(value, DEPTH) for value in args])


def _hint(value: Any, depth: int) -> Any:
    """Shape, dtype and placement of an array; of a node its kind, its length, and the hint of its first child."""
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
