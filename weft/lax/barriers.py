"""Barriers: no computation is moved or merged across them."""

from __future__ import annotations

from typing import Any

from weft.base import tree
from weft.lax.argument_docs import document
from weft.primitives.control.remat import optimization_barrier as barrier_primitive


@document("The same tree.", operand="a tree of arrays.")
def optimization_barrier(operand: Any, /) -> Any:
    """Return `operand` unchanged, as a barrier for the compiler.

    The compiler computes all leaves before anything that uses one of them, and simplifies nothing across the barrier.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.optimization_barrier((wnp.ones(2), 3))
    (Array([1., 1.], dtype=float32), Array(3, dtype=int32, weak_type=True))
    """
    leaves, treedef = tree.flatten(operand)
    return tree.unflatten(treedef, barrier_primitive(*leaves)) if leaves else operand
