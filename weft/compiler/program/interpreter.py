"""Run a program without machine code of its own: steps in Python, kernels by their interpreter.

Memory is planned memory: a program whose slots overlap where they must not gives wrong numbers here too. Routines of
libraries and of tapes are called as they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, assert_never

import numpy as np

from weft.compiler.kernel import interpreter as kernel_interpreter
from weft.compiler.library.routines import address
from weft.compiler.program.assign import CONSTANTS, FIRST_ARGUMENT, TAPES, TEMPORARIES, place_of
from weft.compiler.program.ir import Branch, Call, Copy, Count, Fill, Launch, Loop, Point, Program, Slot, Step, While
from weft.compiler.target.cpu import tape

_ROUTINE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_TILES = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def run(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results as bytes, one array each. Donated arguments are changed."""
    runner = _Runner(program, arrays)
    try:
        runner.steps(program.steps)
    finally:
        if runner.registers[TAPES]:
            tape.free(runner.registers.ctypes.data)
    return [
        runner.results[number] if alias is None else runner.arguments[alias]
        for number, alias in enumerate(program.aliases)
    ]


class _Runner:
    def __init__(self, program: Program, arrays: Sequence[np.ndarray]) -> None:
        self.program = program
        self.arguments = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays]
        self.results = [np.zeros(max(s.size, 1), np.uint8)[: s.size] for s in program.results]
        # What was never written shows: no number is all ones but a nan.
        self.temporaries = np.full(program.temporary_bytes, 0xFF, np.uint8)
        self.constants = np.zeros(program.constant_bytes, np.uint8)
        for slot, array in zip(program.constant_slots, program.constants, strict=True):
            self.constants[slot.offset : slot.offset + slot.size] = array.reshape(-1).view(np.uint8)
        self.registers = np.zeros(program.registers, np.int64)
        self.registers[TEMPORARIES] = self.temporaries.ctypes.data
        self.registers[CONSTANTS] = self.constants.ctypes.data
        for number, memory in enumerate((*self.arguments, *self.results), FIRST_ARGUMENT):
            self.registers[number] = memory.ctypes.data

    def address(self, slot: Slot) -> int:
        register, offset = place_of(slot, self.program)
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
                views = [self.view(s, b.dtype, b.size) for s, b in zip(slots, kernel.buffers, strict=True)]
                kernel_interpreter.run(kernel, views)
            case Call():
                self.call(step)
            case Copy(target, source, size):
                self.view(target)[:size] = self.view(source)[:size].copy()
            case Fill(target):
                self.view(target)[:] = 0
            case Point(target, base, counter, stride):
                assert target.register is not None
                self.registers[target.register.number] = self.address(base) + self.registers[counter.number] * stride
            case Count(target, counter):
                self.view(target, np.int32)[0] = self.registers[counter.number]
            case Loop():
                count = int(self.view(step.count, np.int32)[0]) if isinstance(step.count, Slot) else step.count
                for turn in reversed(range(count)) if step.reverse else range(count):
                    self.registers[step.counter.number] = turn
                    self.steps(step.body)
            case While():
                if step.counter is not None:
                    self.registers[step.counter.number] = 0
                self.steps(step.condition)
                while self.view(step.predicate)[0]:
                    self.steps(step.body)
                    if step.counter is not None:
                        self.registers[step.counter.number] += 1
                    self.steps(step.condition)
            case Branch():
                index = int(self.view(step.index, step.dtype)[0])
                self.steps(step.branches[min(max(index, 0), len(step.branches) - 1)])
            case _:
                assert_never(step)

    def call(self, step: Call) -> None:
        if step.routine == "host":
            arrays = [
                self.view(slot, dtype).reshape(shape)
                for slot, (shape, dtype) in zip(step.slots, step.types, strict=True)
            ]
            count = len(arrays) - step.results
            assert step.host is not None
            if step.counters is not None:
                turns = [int(self.registers[c.number]) for c in step.counters]
                step.host(*arrays[:count], out=arrays[count:], turns=turns)
            else:
                step.host(*arrays[:count], out=arrays[count:])
            return
        numbers = np.array([*step.numbers, 0], np.int64)
        addresses = [self.address(s) for s in step.slots]
        if step.tiles:
            table = np.array([*addresses, numbers.ctypes.data], np.int64)
            _TILES(address(step.routine))(table.ctypes.data, 0, step.tiles)
            return
        table = np.array([*addresses, 0], np.int64)
        found = tape.address(step.routine) if step.routine in tape.ROUTINES else address(step.routine)
        status = _ROUTINE(found)(table.ctypes.data, numbers.ctypes.data, self.registers.ctypes.data)
        if status:
            raise RuntimeError(f"{step.routine} ended with status {status}")
