"""Overlap collectives between processes with computation.

Small all-reduces are merged; the remaining collectives are started as soon as their operands are available and waited
for before the first step that needs their results. Both apply to steps for which `is_far` holds: those done together by
devices of several processes. The order of starts does not change, so all processes start the same collectives in the
same order.
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

# Maximum size of merged sums in bytes: sending these takes several times longer than starting a collective.
MOST_MERGED = 1 << 20
# Maximum number of postponed steps while the search for independent ones goes on.
MOST_POSTPONED = 64


class MergedSums(Collective):
    """Several sums over the same axes as one collective. It exists in programs only, not in jaxprs."""

    name = "psums"
    multiple_results = True
    same_for_all = True

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        primitive: Any = psum
        return [primitive.member_results([members], **params)[0] for members in operands]


merged_sums = MergedSums()


def overlap_collectives(
    program: Program, is_far: Callable[[Communicate], bool], most_bytes: int, most_merged: int = MOST_MERGED
) -> Program:
    """Merge far collectives and start them early.

    Merged sums have at most `most_merged` bytes. The results of all started collectives have at most `most_bytes`
    bytes, or only one is started; with 0, none are. Call `assign` afterwards.
    """
    conflicts = Conflicts(program)

    def change(steps: Sequence[Step]) -> list[Step]:
        if not most_bytes:
            return _merge_sums(steps, conflicts, is_far, most_merged)
        # Postponing the users of sums makes sums adjacent that are needed late.
        steps = _Starts(conflicts, is_far, most_bytes).block(steps)
        steps = [s.step if isinstance(s, Start) else s for s in steps if not isinstance(s, Wait)]
        return _Starts(conflicts, is_far, most_bytes).block(_merge_sums(steps, conflicts, is_far, most_merged))

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


def _merge_sums(
    steps: Sequence[Step], conflicts: Conflicts, is_far: Callable[[Communicate], bool], most: int
) -> list[Step]:
    """Combine sums over the same axes if no step between them needs the results or changes the operands."""
    out: list[Step] = []
    waiting: list[Communicate] = []
    at = 0  # position of the last waiting sum

    def flush() -> None:
        nonlocal waiting
        if waiting:
            out.insert(at, waiting[0] if len(waiting) == 1 else _merge(waiting))
        waiting = []

    for step in steps:
        small = isinstance(step, Communicate) and _is_sum(step) and is_far(step)
        if any(conflicts.between(w, step) is not None for w in waiting):
            flush()
        if not small:
            if isinstance(step, Communicate) or any(isinstance(s, Communicate) for s in _inner_steps(step)):
                flush()  # collectives keep their order
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
    """Return whether a collective is a sum that all devices receive."""
    primitive: Any = step.equation.primitive
    result: bool = primitive.sums and primitive.same_for_all
    return result


def _inner_steps(step: Step) -> list[Step]:
    return [inner for body in step.bodies for s in body for inner in (s, *_inner_steps(s))]


def _key(step: Communicate) -> Any:
    """Return the parameters and dtype that merged sums must have in common."""
    aval: Any = step.equation.invars[0].aval
    return params_key(step.equation.params), aval.dtype


def _bytes(steps: Sequence[Communicate]) -> int:
    return sum(slot.size for step in steps for slot in step.results)


def _merge(steps: Sequence[Communicate]) -> Communicate:
    """Combine several sums into one step."""
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
    """Inserts starts and waits of far collectives in a block.

    Steps that need the results of a started collective are postponed, together with their users, as long as independent
    steps remain.
    """

    def __init__(self, conflicts: Conflicts, is_far: Callable[[Communicate], bool], most_bytes: int) -> None:
        self.conflicts, self.is_far, self.most_bytes = conflicts, is_far, most_bytes
        self.out: list[Step] = []
        self.open: list[Start] = []

    def block(self, steps: Sequence[Step]) -> list[Step]:
        rest, postponed = deque(steps), list[Step]()
        while rest or postponed:
            # Steps that compute addresses or contain others are not moved.
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
            elif self.open and _bytes_in_flight(self.open) + _bytes([step]) > self.most_bytes:
                self.wait(self.open[0])
                rest.appendleft(step)  # after postponed steps that this wait releases
                rest.extendleft(reversed(postponed))
                postponed = []
            else:
                self.start(step)
        return _drop_immediate_waits([*self.out, *(Wait(s.event) for s in self.open)])

    def wait(self, start: Start) -> None:
        self.out.append(Wait(start.event))
        self.open.remove(start)

    def start(self, step: Communicate) -> None:
        start = Start(step, Event())
        self.out.insert(self.earliest(step, self.out, _bytes_in_flight(self.open)), start)
        self.open.append(start)

    def earliest(self, step: Communicate, out: Sequence[Step], under_way: int) -> int:
        """Return the earliest position at which a collective can start: after its dependences and after the start
        before it.

        `under_way` is the size in bytes of the other results in flight at the end of `out`.
        """
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


def _drop_immediate_waits(steps: Sequence[Step]) -> list[Step]:
    """Replace a start that is immediately followed by its wait by the collective itself: the device stops once, not
    twice.
    """
    out: list[Step] = []
    for step in steps:
        if isinstance(step, Wait) and out and isinstance(out[-1], Start) and out[-1].event is step.event:
            out[-1] = out[-1].step
        else:
            out.append(step)
    return out


def _bytes_in_flight(starts: Sequence[Start]) -> int:
    return sum(slot.size for start in starts for slot in start.writes)
