"""Programs that record when each of their steps ran: routines around the steps read the clock.

The untimed program has none of this, so measuring costs nothing when it is off. A run of a timed program gets a *log*
in a register of its own: 64-bit integers with the number of events, each step's count and total time, then the events
themselves, as many as fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.compiler.kernel.ir import Kernel, NamedKernel
from weft.compiler.program.ir import Call, Program
from weft.compiler.program.outline import Address
from weft.compiler.program.times import EVENT_SIZE, TIMED, StepTime
from weft.compiler.target.cpu import interrupt, link, objects
from weft.compiler.target.cpu.assemble import Assembly
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.llvm import Function, Module, Parameter, Value, constant, i64, ptr

# Integers of a log's header: the number of events, and the capacity.
HEAD = 2
# Integers for each step: its last start, how often it ran, and total nanoseconds.
BEGAN, COUNT, TOTAL, STEP_SIZE = 0, 1, 2, 3


def can_time(triple: str) -> bool:
    """Return whether native code can read the same clock as Python, which needs `clock_gettime`."""
    return "windows" not in triple


def text(triple: str) -> str:
    """Return the LLVM module with `weft_begin` and `weft_end`, routines that bytecode calls."""
    module = Module(triple, vector_bits=128)
    parameters = [Parameter("table", ptr), Parameter("parameters", ptr), Parameter("registers", ptr)]

    f = module.function("weft_begin", i64, parameters)
    log, entry, _ = _entry(f)
    f.store(interrupt.nanoseconds(f, triple), f.offset(entry, i64, BEGAN), 8)
    f.ret(constant(0, i64))

    f = module.function("weft_end", i64, parameters)
    end = interrupt.nanoseconds(f, triple)
    log, entry, passed = _entry(f)
    began = f.load(i64, f.offset(entry, i64, BEGAN), 8)
    for word, more in ((COUNT, constant(1, i64)), (TOTAL, f.sub(end, began))):
        address = f.offset(entry, i64, word)
        f.store(f.add(f.load(i64, address, 8), more), address, 8)
    count, capacity = f.load(i64, log, 8), f.load(i64, f.offset(log, i64, 1), 8)
    f.store(f.add(count, constant(1, i64)), log, 8)
    with f.when(f.icmp("slt", count, capacity)):
        first = f.load(i64, f.offset(passed, i64, 1), 8)
        event = f.offset(log, i64, f.add(first, f.mul(count, constant(EVENT_SIZE, i64))))
        for word, value in enumerate((f.load(i64, f.offset(passed, i64, 2), 8), began, end)):
            f.store(value, f.offset(event, i64, word), 8)
    f.ret(constant(0, i64))
    return module.text()


def _entry(f: Function) -> tuple[Value, Value, Value]:
    """Return the log, the entry of the step in it, and the parameters of the call."""
    table, passed, _ = f.arguments
    log = f.load(ptr, table, 8)
    return log, f.offset(log, i64, f.load(i64, passed, 8)), passed


# The loaded routines.
library = link.load_once(lambda: objects.load_object("timestamps", lambda: text(host().triple), host(), Tier.LIGHT))


class TimedAssembly(Assembly):
    """Writer of a program that reads the clock before and after each step that takes time; those steps are in
    `timed`."""

    def __init__(
        self, program: Program, kernel_address: Callable[[Kernel | NamedKernel], int], host: int, first_host: int
    ) -> None:
        super().__init__(program, kernel_address, host, first_host)
        self.timed: list[Any] = [step for step in program.all_steps() if isinstance(step, TIMED)]
        self._indices = {step: i for i, step in enumerate(self.timed)}
        self._routines = library().addresses
        # The last register, after those of the parameters of tiled calls; a run stores the address of its log there.
        self.log_register = program.registers + sum(isinstance(step, Call) and step.tiles > 0 for step in self.timed)

    def step(self, step: Any) -> None:
        index = self._indices.get(step)
        if index is None:
            super().step(step)
            return
        log = [Address(self.log_register)]
        parameters = [HEAD + STEP_SIZE * index, HEAD + STEP_SIZE * len(self.timed), index]
        self.assembler.call(self._routines["weft_begin"], log, parameters[:1])
        super().step(step)
        self.assembler.call(self._routines["weft_end"], log, parameters)


class TimestampLog:
    """Record of one run of a timed program."""

    device: str | None = None  # the thread that started it

    def __init__(self, steps: list[Any], events: int) -> None:
        self.steps = steps
        self._first = HEAD + STEP_SIZE * len(steps)
        self._array = np.empty(self._first + EVENT_SIZE * events, np.int64)
        self._array[: self._first] = 0
        self._array[1] = events

    @property
    def address(self) -> int:
        return self._array.ctypes.data

    @property
    def sums(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """A row for each step: how often it ran, and total nanoseconds."""
        return self._array[HEAD : self._first].reshape(-1, STEP_SIZE)[:, COUNT : TOTAL + 1]

    @property
    def times(self) -> list[StepTime]:
        """Times of every step: how often it ran and how long."""
        return [StepTime(step, *row) for step, row in zip(self.steps, self.sums.tolist(), strict=True)]

    @property
    def events(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Rows of (index of the step, begin, end) in nanoseconds of the monotonic clock, in the order of time."""
        count = min(int(self._array[0]), int(self._array[1]))
        return self._array[self._first : self._first + EVENT_SIZE * count].reshape(-1, EVENT_SIZE)

    @property
    def dropped(self) -> int:
        """Number of events that did not fit; `times` includes them."""
        return max(0, int(self._array[0]) - int(self._array[1]))
