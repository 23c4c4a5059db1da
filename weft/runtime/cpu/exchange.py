"""Collectives of CPU devices in several processes: each process computes what depends on its own devices, sends what
others need of it, and completes the results of its devices with what it receives (`processes.parts`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compiler.program.assign import address_of
from weft.compiler.program.ir import ALIGNMENT, bytes_of
from weft.compiler.target.cpu import bytecode
from weft.compiler.target.cpu.spmd import COMMUNICATES, READY
from weft.ir.jaxpr import Equation, Jaxpr
from weft.primitives.collectives import Collective
from weft.runtime.cpu import memory
from weft.runtime.cpu.executable import Executable
from weft.runtime.processes import world
from weft.runtime.processes.parts import ProcessParts, process_parts
from weft.runtime.processes.transport import Message, Request
from weft.trace.closed import stage_closed

if TYPE_CHECKING:
    from weft.runtime.cpu.spmd import DevicesExecutable, _State


def group_jaxpr(equation: Equation, members: int) -> Jaxpr:
    """A collective for one group: the operands of all members as arguments, the results of all as results."""
    card = equation.primitive
    assert isinstance(card, Collective)
    types: list[Any] = [a.aval for a in equation.invars for _ in range(members)]

    def function(*args: Any) -> list[Any]:
        operands = [args[i * members : (i + 1) * members] for i in range(len(equation.invars))]
        return [x for result in card.group_results(operands, **equation.params) for x in result]

    return stage_closed(function, types, name=f"{card.name} of {members}")


class Exchange:
    """The collectives with other processes of one run."""

    def __init__(self, program: DevicesExecutable, state: _State) -> None:
        self._program = program
        self._state = state
        self._own = {position: i for i, position in enumerate(program.positions)}
        self._calls: dict[tuple[int, tuple[int, ...]], _Call] = {}
        self._under_way: dict[tuple[int, tuple[int, ...]], Request] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no messages are under way."""
        return not self._under_way

    def proceed(self) -> bool:
        """Start the collectives whose devices of this process all wait there, and complete at least one of those that
        are under way. False if there is none: then no device can go on."""
        states = self._state.states
        for i, state in enumerate(states[:-1]):
            index = int(state) - COMMUNICATES
            if index < 0:
                continue
            key = index, self._program.groups[index][i]
            if key in self._under_way or self._program.is_local(key[1]):
                continue
            call = self._call(key)
            if all(states[d] == state for d in call.devices):
                self._under_way[key] = call.start()
        if not self._under_way:
            return False
        keys = list(self._under_way)
        peers = sorted({p for key in keys for p in self._call(key).peers})
        done = world.current().wait_any(list(self._under_way.values()), peers, self._call(keys[0]).name)
        first, *others = keys[done], *keys[done + 1 :]
        for key in (first, *(k for k in others if self._under_way[k].test())):
            del self._under_way[key]
            call = self._call(key)
            call.complete()
            states[call.devices] = READY
        return True

    def _call(self, key: tuple[int, tuple[int, ...]]) -> _Call:
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = _Call(self._program, self._state, *key, self._own)
        return found


class _Call:
    """One collective of one group in a run: its programs, and memory for what is sent and received."""

    def __init__(
        self, program: DevicesExecutable, state: _State, index: int, group: tuple[int, ...], own: dict[int, int]
    ) -> None:
        step = program.steps[index]
        self._state = state
        self.devices = [own[m] for m in group if m in own]
        line = "" if step.line is None else f" at {step.line.describe()}"
        self.name = f"{step.label or step.equation.primitive.name}{line}"
        owners = tuple(program.processes[m] for m in group)
        plan = _plan(program, index, owners)
        parts: ProcessParts = plan.parts
        self.peers = sorted({p for p, _ in (*parts.sends, *parts.receives)})
        # Groups with the same first member differ in their axes, and so in their collective.
        self._index = index * len(program.processes) + group[0]
        types = [] if parts.first is None else [v.aval for v in parts.first.outvars]
        types += [t for _, t in parts.receives]
        sizes = [bytes_of(t) for t in types]
        starts = np.cumsum([0, *(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)])
        self._memory = memory.Chunk(memory.size_of_class(memory.class_of(int(starts[-1]))))
        self._values = [self._memory.address + int(s) for s in starts[:-1]]
        self._first = len(sizes) - len(parts.receives)
        self._operands = [address_of(s, program.program) for s in step.operands]
        self._results = [address_of(s, program.program) for s in step.results]
        self._sizes = [bytes_of(a.aval) for a in step.equation.invars for _ in self.devices]
        self._computed_sizes = sizes[: self._first]
        self._sends = parts.sends
        self._receives = [
            (peer, memory.view(address, (size,), np.dtype(np.uint8)))
            for (peer, _), address, size in zip(
                parts.receives, self._values[self._first :], sizes[self._first :], strict=True
            )
            if size
        ]
        self._before = None if plan.first is None else _Runner(plan.first)
        self._after = _Runner(plan.second)

    def _addresses(self, slots: Sequence[tuple[int, int]]) -> list[int]:
        """Where the values of all devices of this process in the group are."""
        registers = self._state.registers
        return [int(registers[d, 1 + register]) + offset for register, offset in slots for d in self.devices]

    def start(self) -> Request:
        """Compute what is sent, and start the messages."""
        operands = self._addresses(self._operands)
        if self._before is not None:
            self._before.run(operands, self._values[: self._first])
        tag = world.current().data_tag(self._index)
        sends = []
        for peer, source in self._sends:
            address = operands[source.index] if source.is_operand else self._values[source.index]
            size = self._sizes[source.index] if source.is_operand else self._computed_sizes[source.index]
            if size:
                sends.append(Message(peer, tag, memory.view(address, (size,), np.dtype(np.uint8))))
        return world.current().transport.start(sends, [Message(peer, tag, b) for peer, b in self._receives])

    def complete(self) -> None:
        """Compute the results of the devices of this process."""
        self._after.run([*self._addresses(self._operands), *self._values], self._addresses(self._results))


class _Plan:
    """The compiled parts of this process in a collective."""

    def __init__(self, parts: ProcessParts, first: Executable | None, second: Executable) -> None:
        self.parts, self.first, self.second = parts, first, second


def _plan(program: DevicesExecutable, index: int, owners: tuple[int, ...]) -> _Plan:
    """What this process does in a collective among members of these processes, compiled once."""
    found = program.plans.get((index, owners))
    if found is None:
        equation = program.steps[index].equation
        jaxpr = group_jaxpr(equation, len(owners))
        operands, results = owners * len(equation.invars), owners * len(equation.outvars)
        parts = process_parts(jaxpr, operands, results, world.current().rank)
        first = None if parts.first is None else program.compile_group(parts.first)
        found = program.plans[index, owners] = _Plan(parts, first, program.compile_group(parts.second))
    return found


class _Runner:
    """An executable with registers and temporaries of its own."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        size = executable.program.temporary_bytes
        self._temporaries = memory.Chunk(memory.size_of_class(memory.class_of(size)))

    def run(self, arguments: Sequence[int], results: Sequence[int]) -> None:
        """Run from operands at addresses to results at addresses."""
        executable = self._executable
        registers = executable.frame.filled(self._temporaries.address, arguments, results)
        status = bytecode.run(executable.code_address, registers.ctypes.data)
        if status:
            executable.raise_(status)
