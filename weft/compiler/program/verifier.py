"""Verify a program with assigned memory.

Values are written before they are read, simultaneously live memory does not overlap, every slot is in its block and in
a memory space that its users can reach, and no step accesses the memory of a started step before its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from weft.base.errors import InternalError
from weft.compiler.program.assign import Lifetimes, align
from weft.compiler.program.events import check_events
from weft.compiler.program.ir import (
    DEFAULT_SPACE,
    Branch,
    Copy,
    Kind,
    Launch,
    Loop,
    Program,
    SetAddress,
    Slot,
    Start,
    Step,
    Wait,
    While,
)
from weft.compiler.program.printer import step_texts, to_text


def verify(program: Program, spaces: Sequence[str] = (DEFAULT_SPACE,)) -> Program:
    """Raise `InternalError` unless the program is well formed for a target with these memory spaces; return the
    program.
    """
    _Checker(program, spaces).check()
    return program


class _Checker:
    def __init__(self, program: Program, spaces: Sequence[str]) -> None:
        self.program, self.spaces = program, spaces
        self.only_read: set[Slot] = set()  # slices that may not be written

    def fail_at(self, what: str, *steps: Step) -> NoReturn:
        """Fail with a message in which each `{}` is replaced by the line of a step."""
        lines = step_texts(self.program)
        self.fail(what.format(*(f"`{lines.get(step, step.label)}`" for step in steps)))

    def fail(self, what: str) -> NoReturn:
        raise InternalError(what, stage="program", text=to_text(self.program))

    def check(self) -> None:
        written: set[Slot] = {*self.program.arguments, *self.program.constant_slots}
        for slot in (*self.program.arguments, *self.program.results):
            self.space(slot)
        for slot in self.program.constant_slots:
            if slot.space != DEFAULT_SPACE:
                self.fail(f"Constants must be in the memory space {DEFAULT_SPACE!r}; {slot} is not.")
        check_events(self.program, self.fail_at)
        self.steps(self.program.steps, written)
        for slot, alias in zip(self.program.results, self.program.aliases, strict=True):
            if alias is None and slot.size and slot not in written:
                self.fail(f"Result {slot.index} is never written.")
            if alias is not None and not self.program.arguments[alias].donated:
                self.fail(f"Result {slot.index} has the memory of an argument that is not donated.")
            if alias is not None and self.program.arguments[alias].space != slot.space:
                self.fail(f"Result {slot.index} has the memory of an argument in another memory space.")
            if alias is not None and slot.size and slot in written:
                self.fail(f"Result {slot.index} is written, but it has the memory of an argument.")
        self.overlaps()

    def steps(self, steps: Sequence[Step], written: set[Slot]) -> None:
        for step in steps:
            if not isinstance(step, SetAddress):
                self.read(step, written)
            self.memory(step.step if isinstance(step, Start) else step)
            match step:
                case Start():  # its results are written after its `Wait`
                    continue
                case SetAddress(target, base):
                    # A slice of an array that is read, or of one that the loop writes slice by slice.
                    written |= {target, base}
                    if not step.written:
                        self.only_read.add(target)
                    elif base in self.only_read:
                        self.fail_at(f"{{}} is a slice that is written, of {base}, which is only read.", step)
                case Loop():
                    # The body may run zero times; slots read after the loop are then carries, written before it.
                    self.steps(step.body, written)
                case While():
                    self.steps(step.condition, written)
                    if step.predicate not in written:
                        self.fail("The condition of a loop does not write its predicate.")
                    self.steps(step.body, written)
                case Branch():
                    written_by = [set(written) for _ in step.branches]
                    for body, inside in zip(step.branches, written_by, strict=True):
                        self.steps(body, inside)
                    written |= set.intersection(*written_by)
                case _:
                    pass
            written.update(step.writes)

    def memory(self, step: Step) -> None:
        """Check that the slots of a step are large enough and in a memory space that it can access."""
        slots = [*step.reads, *step.writes]
        match step:
            case Launch():
                for slot, buffer in zip(step.slots, step.full.buffers, strict=True):
                    # A buffer of symbolic size is as large as its slot; the kernel is verified with that size.
                    if isinstance(buffer.size, int) and buffer.size * buffer.dtype.itemsize > slot.size:
                        self.fail(f"A kernel has a buffer of {buffer.size} elements for {slot}.")
            case Copy() if step.size > min(step.target.size, step.source.size):
                self.fail_at(f"{{}} copies more than {step.source} or {step.target} has.", step)
            case SetAddress() if step.target.space != step.base.space:
                self.fail_at(f"{{}} is in another memory space than {step.base}.", step)
            case While():
                slots.append(step.predicate)
            case _:
                pass
        for slot in slots:
            self.space(slot)
            if slot.space != DEFAULT_SPACE and not isinstance(step, Copy | SetAddress | Wait):
                self.fail_at(
                    f"{{}} needs {slot} in the memory space {DEFAULT_SPACE!r}; only copies cross spaces.", step
                )

    def space(self, slot: Slot) -> None:
        if slot.space not in self.spaces:
            known = ", ".join(map(repr, self.spaces))
            self.fail(f"{slot} is in the memory space {slot.space!r}; the target has {known}.")

    def read(self, step: Step, written: set[Slot]) -> None:
        writes = set(step.writes)
        for slot in step.reads:
            if slot.size and slot not in written and slot not in writes:
                self.fail(f"{step.label} reads {slot}, which no step has written.")
        for slot in writes:
            if slot.kind is Kind.CONSTANT or (slot.kind is Kind.ARGUMENT and not slot.donated):
                self.fail(f"{step.label} writes to {slot}.")
            if slot in self.only_read:
                self.fail(f"{step.label} writes to {slot}, a slice that is only read.")

    def overlaps(self) -> None:
        """Check that simultaneously live temporaries of a memory space do not overlap."""
        lifetimes = Lifetimes()
        lifetimes.visit(self.program.steps)
        items = sorted(
            ((s, first, last) for s, (first, last) in lifetimes.ranges.items() if s.size), key=lambda i: i[1]
        )
        alive: list[tuple[Slot, int]] = []
        for slot, first, last in items:
            alive = [(other, end) for other, end in alive if end >= first]
            for other, _ in alive:
                if other.space != slot.space:
                    continue
                if slot.offset < other.offset + align(other.size) and other.offset < slot.offset + align(slot.size):
                    self.fail(f"{slot} and {other} overlap.")
            program, default = self.program, slot.space == DEFAULT_SPACE
            size = program.temporary_bytes if default else program.space_bytes.get(slot.space, 0)
            if slot.offset % 64 or slot.offset + slot.size > size:
                self.fail(f"{slot} is not in its block.")
            alive.append((slot, last))
