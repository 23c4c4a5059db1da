"""What must hold of a program with its memory planned: values are written before they are read, memory that is needed
at one time does not overlap, and every slot lies in its block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from weft.base.errors import InternalError
from weft.compiler.program.assign import Lifetimes, aligned
from weft.compiler.program.ir import Branch, Kind, Launch, Loop, Point, Program, Slot, Step, While
from weft.compiler.program.printer import to_text


def verify(program: Program) -> Program:
    """Raise `InternalError` unless the program is well formed; gives it back."""
    _Checker(program).check()
    return program


class _Checker:
    def __init__(self, program: Program) -> None:
        self.program = program

    def fail(self, what: str) -> NoReturn:
        raise InternalError(what, stage="program", text=to_text(self.program))

    def check(self) -> None:
        written: set[Slot] = {*self.program.arguments, *self.program.constant_slots}
        self.steps(self.program.steps, written)
        for slot, alias in zip(self.program.results, self.program.aliases, strict=True):
            if alias is None and slot.size and slot not in written:
                self.fail(f"Result {slot.number} is never written.")
            if alias is not None and not self.program.arguments[alias].donated:
                self.fail(f"Result {slot.number} has the memory of an argument that is not donated.")
            if alias is not None and slot.size and slot in written:
                self.fail(f"Result {slot.number} is written, but it has the memory of an argument.")
        self.overlaps()

    def steps(self, steps: Sequence[Step], written: set[Slot]) -> None:
        for step in steps:
            if not isinstance(step, Point):
                self.read(step, written)
            match step:
                case Launch(slots=slots):
                    for slot, buffer in zip(slots, step.full.buffers, strict=True):
                        if buffer.size * buffer.dtype.itemsize > slot.size:
                            self.fail(f"A kernel has a buffer of {buffer.size} elements for {slot}.")
                case Point(target, base):
                    # A slice of something that is read, or of what the loop writes slice by slice.
                    written |= {target, base}
                case Loop():
                    # The body may not run at all, but what it writes and somebody reads later it has then by its carry.
                    self.steps(step.body, written)
                case While():
                    self.steps(step.condition, written)
                    if step.predicate not in written:
                        self.fail("The condition of a loop does not write its predicate.")
                    self.steps(step.body, written)
                case Branch():
                    made = [set(written) for _ in step.branches]
                    for body, inside in zip(step.branches, made, strict=True):
                        self.steps(body, inside)
                    written |= set.intersection(*made)
                case _:
                    pass
            written.update(step.writes)

    def read(self, step: Step, written: set[Slot]) -> None:
        writes = set(step.writes)
        for slot in step.reads:
            if slot.size and slot not in written and slot not in writes:
                self.fail(f"{step.label} reads {slot}, which nobody has written.")
        for slot in writes:
            if slot.kind is Kind.CONSTANT or (slot.kind is Kind.ARGUMENT and not slot.donated):
                self.fail(f"{step.label} writes to {slot}.")

    def overlaps(self) -> None:
        """No two temporaries that are needed at one time have memory in common."""
        lifetimes = Lifetimes()
        lifetimes.visit(self.program.steps)
        items = sorted(
            ((s, first, last) for s, (first, last) in lifetimes.ranges.items() if s.size), key=lambda i: i[1]
        )
        alive: list[tuple[Slot, int]] = []
        for slot, first, last in items:
            alive = [(other, end) for other, end in alive if end >= first]
            for other, _ in alive:
                if slot.offset < other.offset + aligned(other.size) and other.offset < slot.offset + aligned(slot.size):
                    self.fail(f"{slot} and {other} lie on each other.")
            if slot.offset % 64 or slot.offset + slot.size > self.program.temporary_bytes:
                self.fail(f"{slot} is not in its block.")
            alive.append((slot, last))
