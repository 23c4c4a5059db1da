"""Run a program without machine code of its own: steps in Python, kernels by their interpreter.

Memory is planned memory: a program whose slots overlap where they must not gives wrong numbers here too. Which bytes of
a slot have been written is known for each slot, not for the memory that several of them share: what is read without
having been written is an error, even if something else has left a number there. What was started runs at the `Wait`,
the latest moment, and what it writes counts as unwritten until then. Routines of libraries and of tapes are called as
they are; what they read must have been written, and what they write counts as written.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol, assert_never

import numpy as np

from weft.base.errors import InternalError
from weft.compiler.kernel import interpreter as kernel_interpreter
from weft.compiler.program.assign import address_of
from weft.compiler.program.frame import TAPES, CallFrame
from weft.compiler.program.ir import (
    Branch,
    Call,
    Copy,
    Count,
    Event,
    Fill,
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
from weft.compiler.program.printer import to_text


class Routines(Protocol):
    """How the calls of libraries and of tapes are computed: a target's routines, or a model of them."""

    def call(self, step: Call, addresses: Sequence[int], registers: np.ndarray) -> int:
        """Call the routine of a step on the memory at these addresses; gives its status."""
        ...

    def free_tapes(self, registers: np.ndarray) -> None:
        """Free the tapes of a run that has ended."""
        ...


def run(program: Program, arrays: Sequence[np.ndarray], routines: Routines) -> list[np.ndarray]:
    """The results as bytes, one array each. Donated arguments are changed."""
    runner = _Runner(program, arrays, routines)
    try:
        runner.steps(program.steps)
    finally:
        if runner.registers[TAPES]:
            routines.free_tapes(runner.registers)
    for started in runner.started.values():
        runner.fail(f"{started.label} was started, and nobody waits for it.")
    for slot, alias in zip(program.results, program.aliases, strict=True):
        if alias is None:
            runner.check_written(slot, "the program ends")
    return [
        runner.results[number] if alias is None else runner.arguments[alias]
        for number, alias in enumerate(program.aliases)
    ]


class _Runner:
    def __init__(self, program: Program, arrays: Sequence[np.ndarray], routines: Routines) -> None:
        self.program, self.routines = program, routines
        self.arguments = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays]
        self.results = [np.zeros(max(s.size, 1), np.uint8)[: s.size] for s in program.results]
        # What was never written shows: no number is all ones but a nan.
        self.temporaries = np.full(program.temporary_bytes, 0xFF, np.uint8)
        self.constants = np.zeros(program.constant_bytes, np.uint8)
        for slot, array in zip(program.constant_slots, program.constants, strict=True):
            self.constants[slot.offset : slot.offset + slot.size] = array.reshape(-1).view(np.uint8)
        arguments, results = ([a.ctypes.data for a in group] for group in (self.arguments, self.results))
        self.spaces = [np.full(size, 0xFF, np.uint8) for size in program.space_bytes.values()]
        frame = CallFrame(program, self.constants.ctypes.data)
        spaces = [block.ctypes.data for block in self.spaces]
        self.registers = frame.filled(self.temporaries.ctypes.data, arguments, results, spaces)

        # Which bytes of temporaries and results are written, and where in them pointed slots are.
        self.written: dict[Slot, np.ndarray] = {s: np.zeros(s.size, np.bool_) for s in program.results}
        self.pointed: dict[Slot, tuple[Slot, int]] = {}
        # What was started and is not over, and which bytes of what it writes had been written before.
        self.started: dict[Event, Step] = {}
        self.before: dict[Event, list[tuple[np.ndarray, np.ndarray]]] = {}

    def fail(self, what: str) -> NoReturn:
        raise InternalError(what, stage="program", text=to_text(self.program))

    def mask(self, slot: Slot) -> np.ndarray | None:
        """Which bytes of a slot are written; None if they were given."""
        root, offset = self.pointed.get(slot, (slot, 0))
        if root.kind is Kind.TEMPORARY and root not in self.written:
            self.written[root] = np.zeros(root.size, np.bool_)
        whole = self.written.get(root)
        return None if whole is None else whole[offset : offset + slot.size]

    def check_written(self, slot: Slot, what: str) -> None:
        """All of a slot must have been written before something reads it."""
        mask = self.mask(slot)
        if mask is not None and not mask.all():
            self.fail(f"Byte {int(np.argmin(mask))} of {slot} was never written, and {what}.")

    def set_written(self, slot: Slot) -> None:
        mask = self.mask(slot)
        if mask is not None:
            mask[:] = True

    def forget(self, token: object) -> None:
        """What lives in the body of a loop has nothing in it when an iteration begins."""
        for slot, mask in self.written.items():
            if slot.owner is token:
                mask[:] = False

    def address(self, slot: Slot) -> int:
        register, offset = address_of(slot, self.program)
        return int(self.registers[register]) + offset

    def view(self, slot: Slot, dtype: Any = np.uint8, size: int | None = None) -> np.ndarray:
        """The memory of a slot, at this time."""
        count = slot.size // np.dtype(dtype).itemsize if size is None else size
        if not count:
            return np.empty(0, dtype)
        bytes_wanted = count * np.dtype(dtype).itemsize
        return np.frombuffer((ctypes.c_char * bytes_wanted).from_address(self.address(slot)), dtype)

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: Any) -> None:
        match step:
            case Launch(slots=slots):
                kernel = step.full
                pairs = list(zip(slots, kernel.buffers, strict=True))
                masks = [self.mask(s) for s in slots]
                written = [
                    None if m is None else m[: b.size * b.dtype.itemsize].reshape(b.size, b.dtype.itemsize)
                    for m, (_, b) in zip(masks, pairs, strict=True)
                ]
                views = [self.view(s, b.dtype, b.size) for s, b in pairs]
                kernel_interpreter.run(kernel, views, written=written)
            case Call():
                for slot in step.slots:
                    if slot not in step.written:
                        self.check_written(slot, f"{step.label or step.routine} reads it")
                self.call(step)
                for slot in step.written:
                    self.set_written(slot)
            case Copy(target, source, size):
                self.view(target)[:size] = self.view(source)[:size].copy()
                here, there = self.mask(target), self.mask(source)
                if here is not None:
                    here[:size] = True if there is None else there[:size].copy()
            case Fill(target):
                self.view(target)[:] = 0
                self.set_written(target)
            case SetAddress(target, base, counter, stride):
                assert target.register is not None
                moved = int(self.registers[counter.index]) * stride
                self.registers[target.register.index] = self.address(base) + moved
                root, offset = self.pointed.get(base, (base, 0))
                self.pointed[target] = (root, offset + moved)
            case Count(target, counter):
                self.view(target, np.int32)[0] = self.registers[counter.index]
                self.set_written(target)
            case Loop():
                if isinstance(step.count, Slot):
                    self.check_written(step.count, "a loop counts to it")
                count = int(self.view(step.count, np.int32)[0]) if isinstance(step.count, Slot) else step.count
                for turn in reversed(range(count)) if step.reverse else range(count):
                    self.forget(step.token)
                    self.registers[step.counter.index] = turn
                    self.steps(step.body)
            case While():
                if step.counter is not None:
                    self.registers[step.counter.index] = 0
                while self.holds(step):
                    self.steps(step.body)
                    if step.counter is not None:
                        self.registers[step.counter.index] += 1
            case Branch():
                self.check_written(step.index, "a branch is chosen by it")
                index = int(self.view(step.index, step.dtype)[0])
                self.steps(step.branches[min(max(index, 0), len(step.branches) - 1)])
            case Start(started, event):
                if event in self.started:
                    self.fail(f"{started.label} is started with the event of {self.started[event].label}.")
                self.started[event] = started
                self.before[event] = [self.hide(slot) for slot in dict.fromkeys(started.writes)]
            case Wait(event):
                if event not in self.started:
                    self.fail("A wait for what was not started.")
                for mask, before in reversed(self.before.pop(event)):
                    mask[:] = before
                self.step(self.started.pop(event))
            case _:
                assert_never(step)

    def hide(self, slot: Slot) -> tuple[np.ndarray, np.ndarray]:
        """Let nothing of a slot count as written; returns which bytes do, and which did."""
        mask = self.mask(slot)
        if mask is None:  # an argument
            root, _ = self.pointed.get(slot, (slot, 0))
            self.written[root] = np.ones(root.size, np.bool_)
            mask = self.mask(slot)
        assert mask is not None
        before = mask.copy()
        mask[:] = False
        return mask, before

    def holds(self, step: While) -> bool:
        """Begin an iteration: whether there is one."""
        self.forget(step.token)
        self.steps(step.condition)
        self.check_written(step.predicate, "a loop asks it")
        return bool(self.view(step.predicate)[0])

    def call(self, step: Call) -> None:
        if step.routine == "host":
            arrays = [
                self.view(slot, dtype).reshape(shape)
                for slot, (shape, dtype) in zip(step.slots, step.types, strict=True)
            ]
            count = len(arrays) - step.results
            assert step.host is not None
            if step.counters is not None:
                iterations = [int(self.registers[c.index]) for c in step.counters]
                step.host(*arrays[:count], out=arrays[count:], iterations=iterations)
            else:
                step.host(*arrays[:count], out=arrays[count:])
            return
        status = self.routines.call(step, [self.address(s) for s in step.slots], self.registers)
        if status:
            raise RuntimeError(f"{step.routine} ended with status {status}")
