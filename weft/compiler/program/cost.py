"""How long a program takes, roughly; for decisions that do not change what it computes."""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.kernel.cost import work
from weft.compiler.program.ir import SOME_TURNS, Branch, Call, Copy, Launch, Loop, Program, Step, While

NANOSECONDS_PER_BYTE = 0.1
LIBRARY = 10_000.0


def estimate(program: Program) -> float:
    """Nanoseconds of one run on one thread."""
    return _steps(program.steps)


def _steps(steps: Sequence[Step]) -> float:
    total = 0.0
    for step in steps:
        match step:
            case Launch():
                total += 10.0 + work(step.full)
            case Call():
                total += LIBRARY
            case Copy():
                total += step.size * NANOSECONDS_PER_BYTE
            case Loop():
                total += (step.count if isinstance(step.count, int) else SOME_TURNS) * _steps(step.body)
            case While():
                total += SOME_TURNS * (_steps(step.condition) + _steps(step.body))
            case Branch(label="check"):  # the other way out is taken at most once
                total += 10.0
            case Branch():
                total += max(_steps(branch) for branch in step.branches)
            case _:
                total += 10.0
    return total
