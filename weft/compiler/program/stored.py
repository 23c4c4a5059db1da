"""Serialize programs for later processes: steps with their memory, and kernels by name.

Only what running needs is stored: no source lines, equations or texts of kernels. To inspect a loaded program it is
compiled again, which adds these details to its steps (`complete`). A program that calls Python is not stored, because
the function belongs to this process. Collectives are stored as primitive, parameters and types.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, assert_never

import numpy as np

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.kernel.ir import NamedKernel
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.program.ir import (
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
from weft.ir.jaxpr import Equation, Var
from weft.ir.primitive import lookup
from weft.ir.types import ArrayType, array_type


def to_bytes(program: Program) -> bytes | None:
    """Serialize a program, or return None if it cannot be stored."""
    for step in program.all_steps():
        if isinstance(step, Call) and step.host is not None:
            return None
    writer = _Writer()
    try:
        steps = writer.steps(program.steps)
        axes = to_json(tuple(program.axes))
    except NotStored:
        return None
    head = {
        "steps": steps,
        "arguments": writer.slots(program.arguments),
        "results": writer.slots(program.results),
        "constants": writer.slots(program.constant_slots),
        "slots": writer.table,
        "kernels": [[symbol, count] for symbol, count in writer.kernels],
        "aliases": program.aliases,
        "temporary_bytes": program.temporary_bytes,
        "constant_bytes": program.constant_bytes,
        "registers": program.registers,
        "nanoseconds": program.nanoseconds,
        "schedules": program.schedules,
        "space_bytes": program.space_bytes,
        "axes": axes,
    }
    values = b"".join(np.ascontiguousarray(array).tobytes() for array in program.constants)
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + values


def from_bytes(content: bytes, name: str) -> Program:
    """Deserialize a program under its name in this process."""
    text, _, values = content.partition(b"\n")
    head = json.loads(text)
    reader = _Reader(head)
    constants: list[np.ndarray] = []
    constant_slots = reader.slots(head["constants"])
    offset = 0
    for slot in constant_slots:
        constants.append(np.frombuffer(values, np.uint8, slot.size, offset))
        offset += slot.size
    return Program(
        name,
        reader.steps(head["steps"]),
        reader.slots(head["arguments"]),
        reader.slots(head["results"]),
        head["aliases"],
        constants,
        constant_slots,
        head["temporary_bytes"],
        head["constant_bytes"],
        head["registers"],
        head["nanoseconds"],
        head["schedules"],
        head["space_bytes"],
        list(from_json(head["axes"])),
    )


def complete(program: Program, compiled: Program) -> None:
    """Replace the steps of a program from disk by those of the same program compiled now, which have all details."""
    if to_bytes(program) != to_bytes(compiled):
        what = "A program from disk must be equal to the compiled one; they differ."
        raise InternalError(f"{what} Remove the folder of the compilation cache to go on.", stage="program")
    vars(program).update(vars(compiled))


class NotStored(Exception):
    """Raised for a value that cannot be written so that another process could read it."""


def to_json(value: Any) -> Any:
    """Convert a parameter to JSON; tuples become lists."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, tuple) and type(value) is tuple:
        return [to_json(v) for v in value]
    raise NotStored


def from_json(value: Any) -> Any:
    """Convert JSON back to the parameter that `to_json` received."""
    return tuple(from_json(v) for v in value) if isinstance(value, list) else value


def type_to_json(aval: Any) -> list[Any]:
    """Convert the type of an array on one device to JSON."""
    if not isinstance(aval, ArrayType) or not aval.is_plain or isinstance(aval.dtype, dtypes.ExtendedDtype):
        raise NotStored
    return [to_json(tuple(aval.shape)), aval.dtype.name, aval.weak_type]


def type_from_json(row: Sequence[Any]) -> ArrayType:
    """Convert JSON back to the type that `type_to_json` received."""
    return array_type(from_json(row[0]), np.dtype(row[1]), row[2])


class _Writer:
    """Numbers slots and kernels in the order in which steps use them."""

    def __init__(self) -> None:
        self.table: list[list[Any]] = []
        self.kernels: list[tuple[str, int]] = []
        self._slots: dict[Slot, int] = {}
        self._kernels: dict[str, int] = {}
        self._events: dict[Event, int] = {}

    def slot(self, slot: Slot) -> int:
        position = self._slots.get(slot)
        if position is None:
            position = self._slots[slot] = len(self.table)
            register = -1 if slot.register is None else slot.register.index
            row = [slot.kind.value, slot.size, slot.index, slot.offset, register, int(slot.donated), slot.space]
            self.table.append(row)
        return position

    def slots(self, slots: Sequence[Slot]) -> list[int]:
        return [self.slot(s) for s in slots]

    def event(self, event: Event) -> int:
        return self._events.setdefault(event, len(self._events))

    def kernel(self, kernel: Any) -> int:
        symbol = kernel_symbol(kernel)
        position = self._kernels.get(symbol)
        if position is None:
            position = self._kernels[symbol] = len(self.kernels)
            self.kernels.append((symbol, kernel.count))
        return position

    def collective(self, equation: Equation) -> list[Any]:
        params = {name: to_json(value) for name, value in sorted(equation.params.items())}
        types = [[type_to_json(a.aval) for a in atoms] for atoms in (equation.invars, equation.outvars)]
        return [equation.primitive.name, params, *types]

    def steps(self, steps: Sequence[Step]) -> list[Any]:
        return [self.step(s) for s in steps]

    def step(self, step: Any) -> list[Any]:
        match step:
            case Launch():
                return ["launch", step.label, self.kernel(step.kernel), self.slots(step.slots), step.grain]
            case Call():
                written = self.slots(step.written)
                return ["call", step.label, step.routine, self.slots(step.slots), written, step.parameters, step.tiles]
            case Copy():
                return ["copy", step.label, self.slot(step.target), self.slot(step.source), step.size]
            case Fill():
                return ["fill", step.label, self.slot(step.target)]
            case SetAddress():
                slots = self.slots((step.target, step.base))
                return ["point", step.label, *slots, step.counter.index, step.stride, int(step.written)]
            case Count():
                return ["count", step.label, self.slot(step.target), step.counter.index]
            case Loop():
                count = ["slot", self.slot(step.count)] if isinstance(step.count, Slot) else ["number", step.count]
                registers = (step.counter.index, step.bound.index)
                return ["loop", step.label, *registers, count, int(step.reverse), self.steps(step.body)]
            case While():
                counter = -1 if step.counter is None else step.counter.index
                parts = (self.steps(step.condition), self.slot(step.predicate), step.test.index)
                return ["repeat", step.label, *parts, self.steps(step.body), counter]
            case Branch():
                branches = [self.steps(branch) for branch in step.branches]
                return ["branch", step.label, self.slot(step.index), step.dtype.str, step.choice.index, branches]
            case Communicate():
                operation = self.collective(step.equation)
                return [
                    "communicate",
                    step.label,
                    self.slots(step.operands),
                    self.slots(step.results),
                    step.index,
                    operation,
                ]
            case Start():
                return ["start", step.label, self.event(step.event), self.step(step.step)]
            case Wait():
                return ["wait", step.label, self.event(step.event)]
            case _:
                assert_never(step)


class _Reader:
    """Creates each slot, register and kernel once."""

    def __init__(self, head: dict[str, Any]) -> None:
        self._registers: dict[int, FrameRegister] = {}
        self._events: dict[int, Event] = {}
        self.table = [self._slot(*row) for row in head["slots"]]
        self.kernels = [NamedKernel(symbol, count) for symbol, count in head["kernels"]]

    def _slot(self, kind: str, size: int, index: int, offset: int, register: int, donated: int, space: str) -> Slot:
        slot = Slot(Kind(kind), size, index, None, self.register(register), bool(donated), space)
        slot.offset = offset
        return slot

    def register(self, index: int) -> Any:
        """Return the register with this index, or None for -1."""
        if index < 0:
            return None
        found = self._registers.get(index)
        if found is None:
            found = self._registers[index] = FrameRegister("stored", index)
        return found

    def slots(self, positions: Sequence[int]) -> list[Slot]:
        return [self.table[p] for p in positions]

    def steps(self, rows: Sequence[Any]) -> list[Step]:
        return [self.step(*row) for row in rows]

    def step(self, kind: str, label: str, *parts: Any) -> Step:
        result: Step = getattr(self, kind)(*parts)
        result.label = label
        return result

    def launch(self, kernel: int, slots: Sequence[int], grain: int) -> Step:
        return Launch(self.kernels[kernel], tuple(self.slots(slots)), grain)

    def call(
        self, routine: str, slots: Sequence[int], written: Sequence[int], parameters: Sequence[int], tiles: int
    ) -> Step:
        return Call(routine, tuple(self.slots(slots)), tuple(self.slots(written)), tuple(parameters), tiles)

    def copy(self, target: int, source: int, size: int) -> Step:
        return Copy(self.table[target], self.table[source], size)

    def fill(self, target: int) -> Step:
        return Fill(self.table[target])

    def point(self, target: int, base: int, counter: int, stride: int, written: int) -> Step:
        return SetAddress(self.table[target], self.table[base], self.register(counter), stride, bool(written))

    def count(self, target: int, counter: int) -> Step:
        return Count(self.table[target], self.register(counter))

    def loop(self, counter: int, bound: int, count: Sequence[Any], reverse: int, body: Sequence[Any]) -> Step:
        iterations = self.table[count[1]] if count[0] == "slot" else count[1]
        return Loop(self.register(counter), self.register(bound), iterations, bool(reverse), self.steps(body), None)

    def repeat(self, condition: Any, predicate: int, test: int, body: Any, counter: int) -> Step:
        parts = (self.steps(condition), self.table[predicate], self.register(test), self.steps(body))
        return While(*parts, None, self.register(counter))

    def branch(self, index: int, dtype: str, choice: int, branches: Sequence[Any]) -> Step:
        return Branch(self.table[index], np.dtype(dtype), self.register(choice), [self.steps(b) for b in branches])

    def communicate(
        self, operands: Sequence[int], results: Sequence[int], index: int, operation: Sequence[Any]
    ) -> Step:
        name, params, args, outs = operation
        equation = Equation(
            [Var(type_from_json(t)) for t in args],
            [Var(type_from_json(t)) for t in outs],
            lookup(name),
            {key: from_json(value) for key, value in params.items()},
            frozenset(),
        )
        return Communicate(equation, tuple(self.slots(operands)), tuple(self.slots(results)), index)

    def start(self, event: int, row: Sequence[Any]) -> Step:
        return Start(self.step(*row), self._events.setdefault(event, Event()))

    def wait(self, event: int) -> Step:
        return Wait(self._events.setdefault(event, Event()))
