"""Collectives with other processes while a device computes: small sums are merged, and what is left is started as soon
as its operands are there and waited for before the first step that needs it.

Both are about steps that `is_far` says devices of several processes do together. Order is kept among starts, so that
all processes start the same ones in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from weft.compiler.program.events import STARTED, Conflicts
from weft.compiler.program.ir import Branch, Communicate, Event, Loop, Program, Start, Step, Wait, While
from weft.ir.jaxpr import Equation
from weft.ir.parameters import params_key
from weft.primitives.collectives import Collective, psum

# Sums are merged to so many bytes at most: it takes several times longer to send these than to start a collective.
MOST_MERGED = 1 << 20
# So many steps wait at most for results of collectives while others are looked for.
MOST_POSTPONED = 64


class MergedSums(Collective):
    """Several sums over the same axes as one collective. Programs have it as a step; jaxprs do not."""

    name = "psums"
    multiple_results = True
    same_for_all = True

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        card: Any = psum
        return [card.member_results([members], **params)[0] for members in operands]


merged_sums = MergedSums()


def overlapped(
    program: Program, is_far: Callable[[Communicate], bool], most_bytes: int, most_merged: int = MOST_MERGED
) -> Program:
    """The program whose far collectives are merged, to `most_merged` bytes, and started and waited for, such that the
    results of those that are under way have at most `most_bytes`, or one collective is; 0: none. Memory is assigned
    afterwards."""
    conflicts = Conflicts(program)

    def change(steps: Sequence[Step]) -> list[Step]:
        if not most_bytes:
            return _merged(steps, conflicts, is_far, most_merged)
        # Sums that others need late are next to each other once these are postponed.
        steps = _Starts(conflicts, is_far, most_bytes).block(steps)
        steps = [s.step if isinstance(s, Start) else s for s in steps if not isinstance(s, Wait)]
        return _Starts(conflicts, is_far, most_bytes).block(_merged(steps, conflicts, is_far, most_merged))

    program.steps = _blocks(program.steps, change)
    found = [s for s in program.all_steps() if isinstance(s, Communicate)]
    for i, step in enumerate(found):
        step.index = i
    return program


def _blocks(steps: Sequence[Step], change: Callable[[Sequence[Step]], list[Step]]) -> list[Step]:
    """Change the steps of all blocks, inner ones first."""
    for step in steps:
        match step:
            case Loop():
                step.body = _blocks(step.body, change)
            case While():
                step.condition, step.body = _blocks(step.condition, change), _blocks(step.body, change)
            case Branch():
                step.branches = [_blocks(branch, change) for branch in step.branches]
            case _:
                pass
    return change(steps)


def _merged(
    steps: Sequence[Step], conflicts: Conflicts, is_far: Callable[[Communicate], bool], most: int
) -> list[Step]:
    """Steps in which sums are done together with the next ones over the same axes, where nobody needs them before."""
    out: list[Step] = []
    waiting: list[Communicate] = []
    at = 0  # where the last one of them was

    def flush() -> None:
        nonlocal waiting
        if waiting:
            out.insert(at, waiting[0] if len(waiting) == 1 else _one(waiting))
        waiting = []

    for step in steps:
        small = isinstance(step, Communicate) and _is_sum(step) and is_far(step)
        if any(conflicts.between(w, step) is not None for w in waiting):
            flush()
        if not small:
            if isinstance(step, Communicate) or any(isinstance(s, Communicate) for s in _contained(step)):
                flush()  # order is kept
            out.append(step)
            continue
        assert isinstance(step, Communicate)
        if waiting and (_key(step) != _key(waiting[0]) or _bytes([*waiting, step]) > most):
            flush()
        waiting.append(step)
        at = len(out)
    flush()
    return out


def _is_sum(step: Communicate) -> bool:
    """Whether all devices get a sum."""
    card: Any = step.equation.primitive
    return card.sums and card.same_for_all


def _contained(step: Step) -> list[Step]:
    return [inner for body in step.bodies for s in body for inner in (s, *_contained(s))]


def _key(step: Communicate) -> Any:
    """What sums that are merged have in common."""
    aval: Any = step.equation.invars[0].aval
    return params_key(step.equation.params), aval.dtype


def _bytes(steps: Sequence[Communicate]) -> int:
    return sum(slot.size for step in steps for slot in step.results)


def _one(steps: Sequence[Communicate]) -> Communicate:
    """Several sums as one step."""
    invars = [v for s in steps for v in s.equation.invars]
    outvars = [v for s in steps for v in s.equation.outvars]
    first = steps[0].equation
    equation = Equation(invars, outvars, merged_sums, first.params, source=first.source, stack=first.stack)
    operands, results = (
        [slot for s in steps for slot in own(s)] for own in (lambda s: s.operands, lambda s: s.results)
    )
    step = Communicate(equation, tuple(operands), tuple(results), steps[0].index, label=f"psum of {len(operands)}")
    step.line, step.origin = steps[0].line, steps[0].origin
    return step


class _Starts:
    """Puts the starts and waits of far collectives into a block. Steps that need the results of one that is under way
    are postponed, with those that need theirs, while there are others that do not."""

    def __init__(self, conflicts: Conflicts, is_far: Callable[[Communicate], bool], most_bytes: int) -> None:
        self.conflicts, self.is_far, self.most_bytes = conflicts, is_far, most_bytes
        self.out: list[Step] = []
        self.open: list[Start] = []

    def block(self, steps: Sequence[Step]) -> list[Step]:
        rest, postponed = deque(steps), list[Step]()
        while rest or postponed:
            # Steps that compute addresses or contain others stay where they are.
            forced = bool(postponed) and (
                not rest or len(postponed) == MOST_POSTPONED or not isinstance(rest[0], STARTED)
            )
            if forced:
                rest.extendleft(reversed(postponed))
                postponed = []
            step = rest.popleft()
            needed = [s for s in self.open if self.conflicts.between(s.step, step) is not None]
            if not forced and isinstance(step, STARTED):
                if needed or any(self.conflicts.between(p, step) is not None for p in postponed):
                    postponed.append(step)
                    continue
            for start in needed:
                self.wait(start)
            if not isinstance(step, Communicate) or not self.is_far(step):
                self.out.append(step)
            elif self.open and _started_bytes(self.open) + _bytes([step]) > self.most_bytes:
                self.wait(self.open[0])
                rest.appendleft(step)  # after those that can go on by that
                rest.extendleft(reversed(postponed))
                postponed = []
            else:
                self.start(step)
        return _at_once([*self.out, *(Wait(s.event) for s in self.open)])

    def wait(self, start: Start) -> None:
        self.out.append(Wait(start.event))
        self.open.remove(start)

    def start(self, step: Communicate) -> None:
        start = Start(step, Event())
        self.out.insert(self.earliest(step, self.out, _started_bytes(self.open)), start)
        self.open.append(start)

    def earliest(self, step: Communicate, out: Sequence[Step], under_way: int) -> int:
        """Where a collective can start: after what it needs, and after the last one that starts before it. Others with
        so many bytes are under way at the end."""
        for at in range(len(out), 0, -1):
            other = out[at - 1]
            if isinstance(other, Start):
                return at
            running = other.event.step if isinstance(other, Wait) else other
            assert running is not None
            if self.conflicts.between(step, running) is not None:
                return at
            if isinstance(other, Wait):
                under_way += sum(slot.size for slot in running.writes)
                if under_way + _bytes([step]) > self.most_bytes:
                    return at
        return 0


def _at_once(steps: Sequence[Step]) -> list[Step]:
    """Steps in which a collective that is waited for as soon as it is started is one step: a device stops once."""
    out: list[Step] = []
    for step in steps:
        if isinstance(step, Wait) and out and isinstance(out[-1], Start) and out[-1].event is step.event:
            out[-1] = out[-1].step
        else:
            out.append(step)
    return out


def _started_bytes(starts: Sequence[Start]) -> int:
    return sum(slot.size for start in starts for slot in start.writes)
