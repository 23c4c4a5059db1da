"""Checks of programs on GPUs: one flag for all of them, which is read where a value is read or waited for.

A program with checks (`docs/design/checks.md`) ends with a trap: a branch on a flag around a call of Python. On a GPU
that call would make the host wait in every run. So the trap is left out, the flag is copied to its own memory, and the
arguments are held until the next wait for the GPU: if the flag is set then, the program with a trap for each check runs
on them, and raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.dataclass import dataclass
from weft.compiler.program.ir import Branch, Call, Slot, Step

if TYPE_CHECKING:
    from weft.runtime.cuda.memory import Block

# Most runs with unread flags: adding another one waits for the oldest.
MOST_PENDING = 16


def without_trap(steps: Sequence[Step]) -> tuple[list[Step], Slot | None]:
    """Return the steps of a program without its trap, and its flag; None if no check can fail."""
    for i, step in enumerate(steps):
        if isinstance(step, Branch) and step.label == "check" and _calls_python(step):
            return [*steps[:i], *steps[i + 1 :]], step.index
    return list(steps), None


def _calls_python(step: Branch) -> bool:
    return any(isinstance(inner, Call) and inner.routine == "host" for branch in step.branches for inner in branch)


@dataclass(frozen=True)
class PendingFlag:
    """Flag of a run, and the function that runs it again to raise the error."""

    flag: Block
    again: Callable[[], Any]

    def check(self) -> None:
        """Wait for all earlier work, and raise the error of a failed check."""
        value = np.zeros(1, np.bool_)
        self.flag.owner.driver.copy_out(value, self.flag.address)
        if value[0]:
            self.again()
