"""Number of vectors that loops of kernels carry between iterations: QUICK code has them in memory instead of
registers."""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.kernel.ir import If, Kernel, Loop, LoopKind, Statement
from weft.compiler.target.target import Target

# With this many vectors QUICK code takes several times as long as optimized code.
MANY_CARRIES = 8


def carries_much(kernel: Kernel, target: Target) -> bool:
    """Return whether a loop of the kernel carries too many vectors for QUICK code."""
    return _max_carried(kernel.body, 1, target) >= MANY_CARRIES


def count_carried_vectors(loop: Loop, width: int, target: Target) -> int:
    """Return how many vectors a loop carries inside a loop over `width` lanes."""
    lanes = loop.width if loop.kind is LoopKind.LANES else width
    return sum(-(-lanes // target.lanes(carry.inside.dtype)) for carry in loop.carries)


def _max_carried(body: Sequence[Statement], width: int, target: Target) -> int:
    """Return the largest number of vectors that a loop among the statements carries inside a loop over `width`
    lanes."""
    most = 0
    for statement in body:
        if isinstance(statement, Loop):
            lanes = statement.width if statement.kind is LoopKind.LANES else width
            most = max(
                most, count_carried_vectors(statement, width, target), _max_carried(statement.body, lanes, target)
            )
        elif isinstance(statement, If):
            most = max(most, _max_carried(statement.body, width, target))
    return most
