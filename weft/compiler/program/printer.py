"""Print programs: one line for each step, slots by name, with their offsets once memory is assigned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.ir import (
    DEFAULT_SPACE,
    Branch,
    Call,
    Communicate,
    Copy,
    Count,
    Event,
    Fill,
    FrameRegister,
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

_LETTERS = {Kind.ARGUMENT: "in", Kind.RESULT: "out", Kind.CONSTANT: "const"}


def to_text(program: Program) -> str:
    """Return the text of a program: the size of its memory and its steps."""
    printer = _Printer()
    head = (
        f"program {program.name}: temporaries {program.temporary_bytes} bytes, constants {program.constant_bytes} bytes"
    )
    head += "".join(f", temporaries in {space} {size} bytes" for space, size in program.space_bytes.items())
    printer.steps(program.steps, 1)
    for i, alias in enumerate(program.aliases):
        if alias is not None:
            printer.lines.append(f"  out{i} is in{alias}")
    return "\n".join([head, *printer.lines])


def step_texts(program: Program) -> dict[Step, str]:
    """Return for each step its line in the text of the program; for loops and branches their first line."""
    printer = _Printer()
    printer.steps(program.steps, 1)
    return printer.texts


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}
        self.kernels: dict[Kernel, int] = {}
        self.texts: dict[Step, str] = {}

    def name(self, thing: Slot | FrameRegister | Event) -> str:
        if thing not in self.names:
            if isinstance(thing, Event):
                name = f"e{sum(isinstance(t, Event) for t in self.names)}"
            elif isinstance(thing, FrameRegister):
                name = f"{thing.name}{sum(isinstance(t, FrameRegister) for t in self.names)}"
            elif thing.kind in _LETTERS:
                space = "" if thing.space == DEFAULT_SPACE else f"[{thing.space}]"
                name = f"{_LETTERS[thing.kind]}{thing.index}{space}"
            else:
                letter = "t" if thing.kind is Kind.TEMPORARY else "p"
                name = f"{letter}{sum(isinstance(t, Slot) and t.kind is thing.kind for t in self.names)}"
                where = f"@{thing.offset}" if thing.kind is Kind.TEMPORARY else ""
                space = "" if thing.space == DEFAULT_SPACE else f" {thing.space}"
                name = f"{name}[{thing.size}{where}{space}]"
            self.names[thing] = name
        return self.names[thing]

    def all(self, slots: Sequence[Slot]) -> str:
        return ", ".join(self.name(s) for s in slots)

    def steps(self, steps: Sequence[Any], depth: int) -> None:
        for step in steps:
            begin = len(self.lines)
            self.step(step, depth)
            self.texts[step] = self.lines[begin].strip()

    def line(self, text: str, depth: int) -> None:
        self.lines.append("  " * depth + text)

    def step(self, step: Any, depth: int) -> None:
        match step:
            case Launch(slots=slots, grain=grain):
                kernel = step.full
                index = self.kernels.setdefault(kernel, len(self.kernels))
                writes = step.writes
                reads = [s for s, b in zip(slots, kernel.buffers, strict=True) if not b.written]
                threads = f" over threads by {grain}" if grain else ""
                self.line(f"{self.all(writes)} = kernel {index} ({kernel.name}){threads} {self.all(reads)}", depth)
            case Call():
                reads = [s for s in step.slots if not any(s is w for w in step.written)]
                parameters = f" {list(step.parameters)}" if step.parameters else ""
                what = f"host {step.label}" if step.routine == "host" else step.routine
                self.line(f"{self.all(step.written)} = {what}{parameters} {self.all(reads)}", depth)
            case Copy(target, source, size):
                self.line(f"{self.name(target)} = copy {self.name(source)} ({size} bytes)", depth)
            case Fill(target):
                self.line(f"{self.name(target)} = zeros", depth)
            case SetAddress(target, base, counter, stride):
                self.line(f"{self.name(target)} = at {self.name(base)} + {stride} {self.name(counter)}", depth)
            case Count(target, counter):
                self.line(f"{self.name(target)} = {self.name(counter)}", depth)
            case Loop():
                bound = self.name(step.count) if isinstance(step.count, Slot) else step.count
                back = " backwards" if step.reverse else ""
                self.line(f"for {self.name(step.counter)} below {bound}{back} ({step.label}):", depth)
                self.steps(step.body, depth + 1)
            case While():
                self.line("while:", depth)
                self.steps(step.condition, depth + 1)
                self.line(f"holds {self.name(step.predicate)} do:", depth)
                self.steps(step.body, depth + 1)
            case Branch():
                self.line(f"branch {self.name(step.index)}:", depth)
                for i, body in enumerate(step.branches):
                    self.line(f"case {i}:", depth + 1)
                    self.steps(body, depth + 2)
            case Communicate(operands=operands, results=results):
                self.line(f"{self.all(results)} = {step.label} {self.all(operands)}", depth)
            case Start(started, event):
                begin = len(self.lines)
                self.steps([started], depth)
                # Events are named in the order of their starts.
                self.lines[begin] = f"{'  ' * depth}start {self.name(event)}: {self.texts[started]}"
            case Wait(event):
                self.line(f"wait {self.name(event)}", depth)
            case _:
                self.line(repr(step), depth)
