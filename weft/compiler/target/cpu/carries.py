"""What loops of kernels carry from iteration to iteration: quick code has it in memory instead of registers."""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.kernel.ir import If, Kernel, Loop, LoopKind, Statement
from weft.compiler.target.target import Target

# With so many vectors of it quick code takes several times as long as code that LLVM has optimized.
MANY_CARRIES = 8


def carries_much(kernel: Kernel, target: Target) -> bool:
    """Whether a loop carries more than what quick code is good for."""
    return _most_carried(kernel.body, 1, target) >= MANY_CARRIES


def carried_vectors(loop: Loop, width: int, target: Target) -> int:
    """How many vectors a loop carries that is in a loop over so many lanes."""
    lanes = loop.width if loop.kind is LoopKind.LANES else width
    return sum(-(-lanes // target.lanes(carry.inside.dtype)) for carry in loop.carries)


def _most_carried(body: Sequence[Statement], width: int, target: Target) -> int:
    """How many vectors a loop among statements carries at most, in a loop over so many lanes."""
    most = 0
    for statement in body:
        if isinstance(statement, Loop):
            lanes = statement.width if statement.kind is LoopKind.LANES else width
            most = max(most, carried_vectors(statement, width, target), _most_carried(statement.body, lanes, target))
        elif isinstance(statement, If):
            most = max(most, _most_carried(statement.body, width, target))
    return most
