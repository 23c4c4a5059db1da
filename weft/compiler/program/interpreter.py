"""Run a program without machine code of its own: steps in Python, kernels by their interpreter.

Memory is planned memory: a program whose slots overlap where they must not has wrong results here too. Which bytes of
a slot have been written is known for each slot, not for the memory that several of them share: what is read without
having been written is an error, even if something else was written there. What was started runs at the `Wait`,
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
    """How the calls of libraries and of tapes are computed: a target's routines, or a model of them."""

    def call(self, step: Call, addresses: Sequence[int], registers: np.ndarray) -> int:
        """Call the routine of a step on the memory at these addresses; returns its status."""
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
    return [runner.results[i] if alias is None else runner.arguments[alias] for i, alias in enumerate(program.aliases)]


class _Runner:
    def __init__(self, program: Program, arrays: Sequence[np.ndarray], routines: Routines) -> None:
        self.program, self.routines = program, routines
        self.arguments = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays]
        self.results = [np.zeros(max(s.size, 1), np.uint8)[: s.size] for s in program.results]
        # What was never written shows: a float whose bits are all ones is nan.
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
        """Which bytes of a slot are written; None if it is an argument or a constant."""
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
                self.fail(f"{step.label} takes several devices; this interpreter runs one.")
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
                raise RuntimeError(f"{step.routine} ended with status {status}")
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
            self.check_written(count, "a loop counts to it")
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
        """Begin an iteration: whether there is one."""
        self.forget(step.token)
        self.steps(step.condition)
        self.check_written(step.predicate, "a loop asks it")
        return bool(self.view(step.predicate)[0])

    def branch(self, step: Branch) -> None:
        self.check_written(step.index, "a branch is chosen by it")
        index = int(self.view(step.index, step.dtype)[0])
        self.steps(step.branches[min(max(index, 0), len(step.branches) - 1)])

    def start(self, step: Start) -> None:
        started, event = step.step, step.event
        if event in self.started:
            self.fail(f"{started.label} is started with the event of {self.started[event].label}.")
        self.started[event] = started
        self.before[event] = [self.hide(slot) for slot in dict.fromkeys(started.writes)]

    def wait(self, step: Wait) -> None:
        if step.event not in self.started:
            self.fail("A wait for what was not started.")
        for mask, before in reversed(self.before.pop(step.event)):
            mask[:] = before
        self.step(self.started.pop(step.event))

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
