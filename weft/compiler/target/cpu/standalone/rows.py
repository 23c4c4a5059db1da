"""A Program as rows of plain data, with the integers of its sizes apart.

Programs of one family at different sizes have equal rows and other integers. So one driver function serves them all: it
reads an integer that differs from a table with a row for each program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from weft.base.errors import NotSupportedError
from weft.compiler.kernel.ir import Kernel
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.program.assign import align
from weft.compiler.program.ir import (
    TAPE_ROUTINES,
    Branch,
    Call,
    Communicate,
    Copy,
    Count,
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
from weft.compiler.target.cpu.library.writer import ZEROS
from weft.compiler.target.library_call import HOST

Row: TypeAlias = tuple[Any, ...]


class Hole(NamedTuple):
    """Position of an integer among those of the program."""

    position: int


class Memory(NamedTuple):
    """Address of a slot: its kind, the number of the argument, result or register, and the offset in its block."""

    kind: Kind
    number: int
    offset: Hole | None = None


def result_copies(program: Program, homes: Sequence[int | None]) -> dict[int, tuple[int, int]]:
    """Return for each result that must be copied to an argument that argument, and its offset in the workspace."""
    found, offset = {}, program.temporary_bytes
    for n, home in enumerate(homes):
        if home is not None and program.aliases[n] is None:
            found[n] = home, offset
            offset += align(program.results[n].size)
    return found


def workspace_bytes(program: Program, homes: Sequence[int | None]) -> int:
    """Return the bytes of temporaries and of results that are copied at the end."""
    copies = result_copies(program, homes)
    return program.temporary_bytes + sum(align(program.results[n].size) for n in copies)


class ProgramRows:
    """Rows of one program, with their integers and kernels.

    `sources` has for each argument of the program an array, which is a constant of the library, or the index of an
    argument of the function. `homes` has for each result the argument whose memory it takes, or None; a result that the
    program computes elsewhere is in the workspace until the end, where it is copied. `constant_offset` returns the
    position of a constant's bytes among all constants, `fail` the status that a failed check returns. With `calls`
    routines of BLAS and LAPACK are called; `routines` has their names. A step that needs Python, or another library,
    raises an error that names its line.
    """

    def __init__(
        self,
        program: Program,
        sources: Sequence[int | np.ndarray],
        homes: Sequence[int | None],
        constant_offset: Callable[[Any], int],
        fail: Callable[[Call], int],
        calls: bool = False,
    ) -> None:
        self.program, self._sources = program, sources
        self._copies = result_copies(program, homes)
        self._constant_offset, self._fail, self._calls = constant_offset, fail, calls
        self.routines: dict[str, None] = {}
        self.integers: list[int] = []
        self.kernels: dict[str, Kernel] = {}
        if program.axes:
            self._refuse("a mesh of several devices", program.steps[0] if program.steps else None)
        self.rows = (*self._steps(program.steps), *map(self._finish, self._copies))

    def _hole(self, value: int) -> Hole:
        self.integers.append(int(value))
        return Hole(len(self.integers) - 1)

    def _steps(self, steps: Sequence[Step]) -> tuple[Row, ...]:
        return tuple(self._step(step) for step in steps if not isinstance(step, Wait))

    def _step(self, step: Any) -> Row:
        match step:
            case Launch(_, slots, grain):
                symbol = kernel_symbol(step.kernel)
                self.kernels.setdefault(symbol, step.full)
                count = self._hole(step.iterations)
                return "launch", symbol, count, self._hole(grain), tuple(self._memory(s) for s in slots)
            case Copy(target, source, size):
                return "copy", self._memory(target), self._memory(source), self._hole(size)
            case Fill(target):
                return "fill", self._memory(target), self._hole(target.size)
            case SetAddress(target, base, counter, stride):
                assert target.register is not None
                return "set_address", target.register.index, self._memory(base), counter.index, self._hole(stride)
            case Count(target, counter):
                return "count", self._memory(target), counter.index
            case Loop():
                trips = self._memory(step.count) if isinstance(step.count, Slot) else self._hole(step.count)
                return "loop", step.counter.index, trips, step.reverse, self._steps(step.body)
            case While():
                counted = None if step.counter is None else step.counter.index
                condition, predicate = self._steps(step.condition), self._memory(step.predicate)
                return "while", counted, condition, predicate, self._steps(step.body)
            case Branch(index, dtype, _, branches):
                kind = -dtype.itemsize if dtype.kind == "i" else dtype.itemsize
                return "branch", self._memory(index), kind, tuple(self._steps(branch) for branch in branches)
            case Call(routine, slots, parameters=parameters) if routine == ZEROS:
                return "fill", self._memory(slots[parameters[0]]), self._hole(parameters[1])
            case Call(routine="host", label="check"):
                return "fail", self._fail(step)
            case Call(routine, slots) if self._calls and routine != HOST and routine not in TAPE_ROUTINES:
                self.routines[routine] = None
                operands = tuple(self._memory(slot) for slot in slots)
                return "call", routine, step.parameters, step.tiles, operands
            case Start(started):
                return self._step(started)
            case _:
                self._refuse(_describe(step), step)

    def _memory(self, slot: Slot) -> Memory:
        match slot.kind:
            case Kind.CONSTANT:
                return Memory(slot.kind, 0, self._hole(self._constant_offset(self.program.constants[slot.index])))
            case Kind.TEMPORARY:
                return Memory(slot.kind, 0, self._hole(slot.offset))
            case Kind.POINTED:
                assert slot.register is not None
                return Memory(slot.kind, slot.register.index)
            case Kind.RESULT if slot.index in self._copies:
                return Memory(Kind.TEMPORARY, 0, self._hole(self._copies[slot.index][1]))
            case Kind.ARGUMENT:
                source = self._sources[slot.index]
                if isinstance(source, int):
                    return Memory(slot.kind, source)
                return Memory(Kind.CONSTANT, 0, self._hole(self._constant_offset(source)))
            case _:
                return Memory(slot.kind, slot.index)

    def _finish(self, result: int) -> Row:
        """Return the copy of a result to the argument whose memory it takes."""
        home, offset = self._copies[result]
        source = Memory(Kind.TEMPORARY, 0, self._hole(offset))
        return "copy", Memory(Kind.ARGUMENT, home), source, self._hole(self.program.results[result].size)

    def _refuse(self, what: str, step: Step | None) -> NoReturn:
        line = None if step is None else step.line
        raise NotSupportedError(
            f"Operations of a library must be computed by kernels of Weft; {self.program.name} has {what}.",
            at=None if line is None else line.describe(),
            fix=_fix(step),
        )


def _describe(step: Any) -> str:
    if isinstance(step, Communicate):
        return f"the collective `{step.label}`"
    if isinstance(step, Call) and step.routine in TAPE_ROUTINES:
        return "a sequence of unknown length, as reverse mode makes of an unbounded loop"
    label = getattr(step, "label", "") or type(step).__name__
    if isinstance(step, Call) and step.routine == HOST:
        return f"`{label}`, which Python computes"
    return f"`{label}`, which a library (LAPACK or pocketfft) computes"


def _fix(step: Any) -> str:
    if isinstance(step, Call) and step.routine in TAPE_ROUTINES:
        return "lax.scan, or a fori_loop with constant bounds"
    if isinstance(step, Call) and step.label == "fft":
        return "a length of at most 512, or a power of 2"
    if isinstance(step, Call) and step.routine != HOST:
        return 'lapack="system", or this operation outside of the library'
    return "this operation outside of the library"
