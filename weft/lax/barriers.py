"""Barriers that no computation is moved or merged across."""

from __future__ import annotations

from typing import Any

from weft.base import tree
from weft.primitives.control.remat import optimization_barrier as barrier_primitive

__all__ = ["optimization_barrier"]


def optimization_barrier(operand: Any, /) -> Any:
    """Each leaf of `operand` as it is."""
    leaves, treedef = tree.flatten(operand)
    return tree.unflatten(treedef, barrier_primitive(*leaves)) if leaves else operand
