"""A pass for tests: every launch, call and copy of a program is started and waited for, at random legal distances."""

from __future__ import annotations

import random
from collections.abc import Sequence

from weft.compiler.program.assign import assign
from weft.compiler.program.events import STARTED, Conflicts
from weft.compiler.program.ir import Branch, Event, Loop, Program, Start, Step, Wait, While


def start_everything(program: Program, seed: int, reckless: bool = False) -> Program:
    """Change the steps of a program and plan its memory anew; returns it. If `reckless`, some of the distances are
    not legal."""
    program.steps = _Starting(Conflicts(program), random.Random(seed), reckless).block(program.steps)
    return assign(program)


class _Starting:
    def __init__(self, conflicts: Conflicts, choose: random.Random, reckless: bool) -> None:
        self.conflicts, self.choose, self.reckless = conflicts, choose, reckless

    def block(self, steps: Sequence[Step]) -> list[Step]:
        """The steps of a block: starts earlier than steps were, waits later."""
        out: list[Step] = []
        for step in steps:
            match step:
                case Loop():
                    step.body = self.block(step.body)
                case While():
                    step.condition, step.body = self.block(step.condition), self.block(step.body)
                case Branch():
                    step.branches = [self.block(branch) for branch in step.branches]
                case _:
                    pass
            if not isinstance(step, STARTED):
                out.append(step)
                continue
            start = Start(step, Event())
            at = self.distance(step, out[::-1])
            out[len(out) - at : len(out) - at] = [start]
            out.append(Wait(start.event))
        for wait in [step for step in reversed(out) if isinstance(step, Wait)]:
            at = out.index(wait)
            assert wait.event.step is not None
            to = at + self.distance(wait.event.step, out[at + 1 :])
            out.insert(to, out.pop(at))
        return out

    def distance(self, step: Step, others: Sequence[Step]) -> int:
        """How many of the steps beside it something that runs meanwhile can pass."""
        wanted = self.choose.choice((0, 1, 2, 4, len(others)))
        if self.reckless and self.choose.random() < 0.3:
            return min(wanted, len(others))
        for count, other in enumerate(others[:wanted]):
            running = other.event.step if isinstance(other, Wait) else other
            if running is not step and self.conflicts.between(step, running or other) is not None:
                return count
        return min(wanted, len(others))
