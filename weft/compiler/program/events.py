"""Conflicts of started steps: while one runs, no step may access memory that it writes, or write memory that it reads.

A pointed slot counts as the memory that it points into: two slices of one array are the same memory, since their
offsets are known only at run time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import NoReturn, Protocol

from weft.base.dataclass import dataclass
from weft.compiler.program.ir import Call, Communicate, Copy, Event, Launch, Program, Slot, Start, Step, Wait, While

# Steps that can be started.
STARTED = (Launch, Call, Copy, Communicate)


@dataclass
class _Accesses:
    """Memory that a step accesses, with the steps inside it: root slots, mapped to the slot through which each is
    reached.
    """

    touched: dict[Slot, Slot] = field(default_factory=dict)
    written: dict[Slot, Slot] = field(default_factory=dict)
    pointed: set[Slot] = field(default_factory=set)
    ordered: set[str] = field(default_factory=set)


class Conflicts:
    """Tells which steps of a program may not run at the same time as another."""

    def __init__(self, program: Program) -> None:
        self._bases: dict[Slot, list[Slot]] = {}
        self._known: dict[Step, _Accesses] = {}
        for step in program.all_steps():
            for part, base in step.slices:
                self._bases.setdefault(part, []).append(base)

    def between(self, started: Step, step: Step) -> str | None:
        """Return the access of `step`, or of a step inside it, that conflicts with `started` while that runs; None if
        there is no conflict.
        """
        first, second = self._accesses(started), self._accesses(step)
        for root, slot in second.written.items():
            if root in first.touched:
                return f"writes {slot}"
        for root, slot in second.touched.items():
            if root in first.written:
                return f"reads {slot}"
        for slot in (*started.reads, *started.writes):
            if slot in second.pointed:
                return f"points {slot} elsewhere"
        for what in first.ordered & second.ordered:
            return f"uses {what}"
        return None

    def _accesses(self, step: Step) -> _Accesses:
        found = self._known.get(step)
        if found is not None:
            return found
        found = self._known[step] = _Accesses()
        self._collect(step, found)
        return found

    def _collect(self, step: Step, found: _Accesses) -> None:
        if step.slices:  # computes an address, accesses no memory
            found.pointed.update(part for part, _ in step.slices)
        elif not isinstance(step, Wait):  # the step that it waits for was collected at its start
            self._note(found.touched, (*step.reads, *step.writes))
            self._note(found.written, step.writes)
        if isinstance(step, While):
            self._note(found.touched, (step.predicate,))
        if isinstance(step, Call) and step.ordered_with:
            found.ordered.add(step.ordered_with)
        for body in step.bodies:
            for inner in body:
                self._collect(inner, found)

    def _note(self, found: dict[Slot, Slot], slots: Iterable[Slot]) -> None:
        for slot in slots:
            if slot.size:
                found.update(dict.fromkeys(self._roots(slot), slot))

    def _roots(self, slot: Slot) -> list[Slot]:
        """Return the slots whose memory a slot may be in."""
        bases = self._bases.get(slot)
        return [slot] if bases is None else [root for base in bases for root in self._roots(base)]


class Fail(Protocol):
    """Raises an error about steps. Each `{}` in the text is replaced by the line of one step."""

    def __call__(self, what: str, *steps: Step) -> NoReturn: ...


def check_events(program: Program, fail: Fail) -> None:
    """Check that every started step has its own event, exactly one `Wait` later in the same block, and no conflict with
    the steps between.

    `fail(what, *steps)` is called with the first violation; `what` has one `{}` for each step.
    """
    _Checker(Conflicts(program), fail).block(program.steps)


class _Checker:
    def __init__(self, conflicts: Conflicts, fail: Fail) -> None:
        self.conflicts, self.fail = conflicts, fail
        self.starts: dict[Event, Start] = {}
        self.waits: dict[Event, Wait] = {}

    def block(self, steps: Sequence[Step]) -> None:
        running: dict[Event, Start] = {}
        for step in steps:
            if isinstance(step, Wait):
                self.wait(step, running)
                continue
            for start in running.values():
                problem = self.conflicts.between(start.step, step)
                if problem is not None:
                    self.fail(f"{{}} {problem} before the end of {{}}.", step, start)
            if isinstance(step, Start):
                self.start(step)
                running[step.event] = step
            else:
                for body in step.bodies:
                    self.block(body)
        for start in running.values():
            self.fail("{} must be waited for in the same block; there is no such wait.", start)

    def start(self, step: Start) -> None:
        before = self.starts.setdefault(step.event, step)
        if before is not step:
            self.fail("Every start must have its own event; {} has that of {}.", step, before)
        if step.event in self.waits:
            self.fail("{} comes before {}.", self.waits[step.event], step)
        if step.event.step is not step.step:
            self.fail("The event of {} belongs to another step.", step)
        if not isinstance(step.step, STARTED):
            self.fail("{} must start a launch, a call, a copy or a collective.", step)

    def wait(self, step: Wait, running: dict[Event, Start]) -> None:
        before = self.waits.setdefault(step.event, step)
        start = self.starts.get(step.event)
        if before is not step and start is not None:
            self.fail("{} must not wait again for {}.", step, start)
        if running.pop(step.event, None) is not None:
            return
        if start is not None:
            self.fail("{} must be in the same block as {}.", step, start)
        elsewhere = step.event.step
        if elsewhere is None:
            self.fail("{} waits for an event that no step starts.", step)
        self.fail("{} comes before the start of {}.", step, elsewhere)
