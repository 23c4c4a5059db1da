"""What may happen while a started step runs: nothing that touches what it writes, or writes what it reads.

A pointed slot is the memory that it points into: two slices of one array count as the same memory, because where they
are is known only when the program runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import NoReturn, Protocol

from weft.base.dataclass import dataclass
from weft.compiler.program.ir import Call, Communicate, Copy, Event, Launch, Program, Slot, Start, Step, Wait, While

# What can be started.
STARTED = (Launch, Call, Copy, Communicate)


@dataclass
class _Accesses:
    """What a step touches, with all that it contains: memory by its root, with the slot through which it is reached."""

    touched: dict[Slot, Slot] = field(default_factory=dict)
    written: dict[Slot, Slot] = field(default_factory=dict)
    pointed: set[Slot] = field(default_factory=set)
    ordered: set[str] = field(default_factory=set)


class Conflicts:
    """Which steps of a program may not run while another does."""

    def __init__(self, program: Program) -> None:
        self._bases: dict[Slot, list[Slot]] = {}
        self._known: dict[Step, _Accesses] = {}
        for step in program.all_steps():
            for part, base in step.slices:
                self._bases.setdefault(part, []).append(base)

    def between(self, started: Step, step: Step) -> str | None:
        """What a step does, with all that it contains, that it may not do while `started` runs; None if nothing."""
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
        if step.slices:  # it computes an address, and touches no memory
            found.pointed.update(part for part, _ in step.slices)
        elif not isinstance(step, Wait):  # what it waits for was looked at where that starts
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
        """The memory that a slot is in."""
        bases = self._bases.get(slot)
        return [slot] if bases is None else [root for base in bases for root in self._roots(base)]


class Fail(Protocol):
    """Raise an error about steps, which are named in its text."""

    def __call__(self, what: str, *steps: Step) -> NoReturn: ...


def check_events(program: Program, fail: Fail) -> None:
    """Every started step has its own event and exactly one `Wait`, later in the same block, and no step between
    conflicts with it. `fail(what, *steps)` gets the steps that `what` is about, for every `{}` in it."""
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
            self.fail("Nobody waits in the same block for {}.", start)

    def start(self, step: Start) -> None:
        before = self.starts.setdefault(step.event, step)
        if before is not step:
            self.fail("The event of {} is that of {}.", step, before)
        if step.event in self.waits:
            self.fail("{} comes before {}.", self.waits[step.event], step)
        if step.event.step is not step.step:
            self.fail("The event of {} belongs to another step.", step)
        if not isinstance(step.step, STARTED):
            self.fail("{} is neither a launch nor a call, a copy or a collective.", step)

    def wait(self, step: Wait, running: dict[Event, Start]) -> None:
        before = self.waits.setdefault(step.event, step)
        start = self.starts.get(step.event)
        if before is not step and start is not None:
            self.fail("{} waits again for {}.", step, start)
        if running.pop(step.event, None) is not None:
            return
        if start is not None:
            self.fail("{} is in another block than {}.", step, start)
        elsewhere = step.event.step
        if elsewhere is None:
            self.fail("{} waits for what nobody starts.", step)
        self.fail("{} comes before the start of {}.", step, elsewhere)
