"""Interpret a program without its machine code: steps in Python, kernels by their interpreter.

Memory is laid out as planned: a program whose slots overlap wrongly computes wrong results here too. Which bytes have
been written is tracked for each slot, not for the memory that several slots share: reading a byte of a slot before it
was written through that slot is an error, even if another slot wrote that memory. A started step runs at its `Wait`,
the latest possible moment, and its writes count as unwritten until then. Routines of libraries and of tapes are called
as they are; their operands must have been written, and their results count as written.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol, assert_never

import numpy as np

from weft.base.errors import InternalError
from weft.compiler.kernel import interpreter as kernel_interpreter
from weft.compiler.program.assign import slot_address
from weft.compiler.program.frame import TAPES, CallFrame
from weft.compiler.program.ir import (
    Branch,
    Call,
    Communicate,
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
    """Calls of libraries and of tapes: a target's routines, or a model of them."""

    def call(self, step: Call, addresses: Sequence[int], registers: np.ndarray) -> int:
        """Call the routine of a step on the memory at these addresses; return its status, where 0 means success."""
        ...

    def free_tapes(self, registers: np.ndarray) -> None:
        """Free the tapes of a run that has ended."""
        ...


def run(program: Program, arrays: Sequence[np.ndarray], routines: Routines) -> list[np.ndarray]:
    """Run a program and return its results as arrays of bytes. Donated arguments are overwritten."""
    runner = _Runner(program, arrays, routines)
    try:
        runner.steps(program.steps)
    finally:
        if runner.registers[TAPES]:
            routines.free_tapes(runner.registers)
    for started in runner.started.values():
        runner.fail(f"{started.label} was started, but no step waits for it.")
    for slot, alias in zip(program.results, program.aliases, strict=True):
        if alias is None:
            runner.check_written(slot, "the program ends")
    return [runner.results[i] if alias is None else runner.arguments[alias] for i, alias in enumerate(program.aliases)]


class _Runner:
    def __init__(self, program: Program, arrays: Sequence[np.ndarray], routines: Routines) -> None:
        self.program, self.routines = program, routines
        self.arguments = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays]
        self.results = [np.zeros(max(s.size, 1), np.uint8)[: s.size] for s in program.results]
        # Unwritten memory is visible in results: a float with all bits set is nan.
        self.temporaries = np.full(program.temporary_bytes, 0xFF, np.uint8)
        self.constants = np.zeros(program.constant_bytes, np.uint8)
        for slot, array in zip(program.constant_slots, program.constants, strict=True):
            self.constants[slot.offset : slot.offset + slot.size] = array.reshape(-1).view(np.uint8)
        arguments, results = ([a.ctypes.data for a in group] for group in (self.arguments, self.results))
        self.spaces = [np.full(size, 0xFF, np.uint8) for size in program.space_bytes.values()]
        frame = CallFrame(program, self.constants.ctypes.data)
        spaces = [block.ctypes.data for block in self.spaces]
        self.registers = frame.initial_registers(self.temporaries.ctypes.data, arguments, results, spaces)

        # Masks of written bytes of temporaries and results; and root slot and offset of pointed slots.
        self.written: dict[Slot, np.ndarray] = {s: np.zeros(s.size, np.bool_) for s in program.results}
        self.pointed: dict[Slot, tuple[Slot, int]] = {}
        # Started steps before their wait; and masks of the slots that they write, with the contents before the start.
        self.started: dict[Event, Step] = {}
        self.before: dict[Event, list[tuple[np.ndarray, np.ndarray]]] = {}

    def fail(self, what: str) -> NoReturn:
        raise InternalError(what, stage="program", text=to_text(self.program))

    def mask(self, slot: Slot) -> np.ndarray | None:
        """Return the mask of written bytes of a slot, as a view, or None for an argument or a constant."""
        root, offset = self.pointed.get(slot, (slot, 0))
        if root.kind is Kind.TEMPORARY and root not in self.written:
            self.written[root] = np.zeros(root.size, np.bool_)
        whole = self.written.get(root)
        return None if whole is None else whole[offset : offset + slot.size]

    def check_written(self, slot: Slot, what: str) -> None:
        """Fail unless all bytes of a slot have been written. `what` describes the read."""
        mask = self.mask(slot)
        if mask is not None and not mask.all():
            self.fail(f"Byte {int(np.argmin(mask))} of {slot} was never written, and {what}.")

    def set_written(self, slot: Slot) -> None:
        mask = self.mask(slot)
        if mask is not None:
            mask[:] = True

    def forget(self, token: object) -> None:
        """Mark the slots of a loop's body as unwritten, at the beginning of an iteration."""
        for slot, mask in self.written.items():
            if slot.owner is token:
                mask[:] = False

    def address(self, slot: Slot) -> int:
        register, offset = slot_address(slot, self.program)
        return int(self.registers[register]) + offset

    def view(self, slot: Slot, dtype: Any = np.uint8, size: int | None = None) -> np.ndarray:
        """Return the memory of a slot at its present address as an array."""
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
            case Launch():
                self.launch(step)
            case Call():
                self.call(step)
            case Copy():
                self.copy(step)
            case Fill():
                self.view(step.target)[:] = 0
                self.set_written(step.target)
            case SetAddress():
                self.set_address(step)
            case Count():
                self.view(step.target, np.int32)[0] = self.registers[step.counter.index]
                self.set_written(step.target)
            case Loop():
                self.loop(step)
            case While():
                self.while_loop(step)
            case Branch():
                self.branch(step)
            case Communicate():
                self.fail(f"{step.label} needs several devices; this interpreter runs only one.")
            case Start():
                self.start(step)
            case Wait():
                self.wait(step)
            case _:
                assert_never(step)

    def launch(self, step: Launch) -> None:
        kernel = step.concrete
        views: list[np.ndarray] = []
        written: list[np.ndarray | None] = []
        for slot, buffer in zip(step.slots, kernel.buffers, strict=not step.sizes):
            mask, itemsize = self.mask(slot), buffer.dtype.itemsize
            written.append(None if mask is None else mask[: buffer.size * itemsize].reshape(buffer.size, itemsize))
            views.append(self.view(slot, buffer.dtype, int(buffer.size)))
        kernel_interpreter.run(kernel, views, written=written)

    def call(self, step: Call) -> None:
        for slot in step.slots:
            if slot not in step.written:
                self.check_written(slot, f"{step.label or step.routine} reads it")
        if step.routine == "host":
            self.call_host(step)
        else:
            status = self.routines.call(step, [self.address(s) for s in step.slots], self.registers)
            if status:
                raise RuntimeError(f"{step.routine} failed with status {status}")
        for slot in step.written:
            self.set_written(slot)

    def call_host(self, step: Call) -> None:
        assert step.host is not None
        arrays = [
            self.view(slot, dtype).reshape(shape) for slot, (shape, dtype) in zip(step.slots, step.types, strict=True)
        ]
        count = len(arrays) - step.results
        if step.counters is None:
            step.host(*arrays[:count], out=arrays[count:])
        else:
            iterations = [int(self.registers[c.index]) for c in step.counters]
            step.host(*arrays[:count], out=arrays[count:], iterations=iterations)

    def copy(self, step: Copy) -> None:
        size = step.size
        self.view(step.target)[:size] = self.view(step.source)[:size].copy()
        target, source = self.mask(step.target), self.mask(step.source)
        if target is not None:
            target[:size] = True if source is None else source[:size].copy()

    def set_address(self, step: SetAddress) -> None:
        assert step.target.register is not None
        shift = int(self.registers[step.counter.index]) * step.stride
        self.registers[step.target.register.index] = self.address(step.base) + shift
        root, offset = self.pointed.get(step.base, (step.base, 0))
        self.pointed[step.target] = (root, offset + shift)

    def loop(self, step: Loop) -> None:
        count = step.count
        if isinstance(count, Slot):
            self.check_written(count, "a loop reads it as its trip count")
            count = int(self.view(count, np.int32)[0])
        for i in reversed(range(count)) if step.reverse else range(count):
            self.forget(step.token)
            self.registers[step.counter.index] = i
            self.steps(step.body)

    def while_loop(self, step: While) -> None:
        if step.counter is not None:
            self.registers[step.counter.index] = 0
        while self.holds(step):
            self.steps(step.body)
            if step.counter is not None:
                self.registers[step.counter.index] += 1

    def holds(self, step: While) -> bool:
        """Begin an iteration and return whether the condition holds."""
        self.forget(step.token)
        self.steps(step.condition)
        self.check_written(step.predicate, "a loop reads it as its condition")
        return bool(self.view(step.predicate)[0])

    def branch(self, step: Branch) -> None:
        self.check_written(step.index, "a branch reads it as its index")
        index = int(self.view(step.index, step.dtype)[0])
        self.steps(step.branches[min(max(index, 0), len(step.branches) - 1)])

    def start(self, step: Start) -> None:
        started, event = step.step, step.event
        if event in self.started:
            self.fail(f"{started.label} must have its own event; it has that of {self.started[event].label}.")
        self.started[event] = started
        self.before[event] = [self.hide(slot) for slot in dict.fromkeys(started.writes)]

    def wait(self, step: Wait) -> None:
        if step.event not in self.started:
            self.fail("A step waits for an event that was not started.")
        for mask, before in reversed(self.before.pop(step.event)):
            mask[:] = before
        self.step(self.started.pop(step.event))

    def hide(self, slot: Slot) -> tuple[np.ndarray, np.ndarray]:
        """Mark a slot as unwritten; return its mask and a copy of the contents before."""
        mask = self.mask(slot)
        if mask is None:  # an argument
            root, _ = self.pointed.get(slot, (slot, 0))
            self.written[root] = np.ones(root.size, np.bool_)
            mask = self.mask(slot)
        assert mask is not None
        before = mask.copy()
        mask[:] = False
        return mask, before
