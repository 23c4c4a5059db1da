"""Collectives of CPU devices in several processes.

Each process computes what depends on its own devices only, sends what others need of it, and completes the results of
its devices with what it receives (`processes.parts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compiler.program.assign import slot_address
from weft.compiler.program.ir import ALIGNMENT, byte_size
from weft.compiler.target.cpu import bytecode
from weft.compiler.target.cpu.spmd import COMMUNICATES, READY
from weft.ir.jaxpr import Equation, Jaxpr
from weft.primitives.collectives import Collective
from weft.runtime.cpu import memory
from weft.runtime.cpu.executable import Executable
from weft.runtime.processes import world
from weft.runtime.processes.parts import ProcessParts, process_parts
from weft.runtime.processes.pieces import is_in_pieces, stage_piece_gather, stage_piece_reduction
from weft.runtime.processes.transport import SMALL, Message, Request, SharedChunk
from weft.trace.closed import stage_subjaxpr

if TYPE_CHECKING:
    from weft.runtime.cpu.spmd import DevicesExecutable, _State


def group_jaxpr(equation: Equation, members: int) -> Jaxpr:
    """Return the jaxpr of a collective for one group: it takes the operands and returns the results of all members."""
    primitive = equation.primitive
    assert isinstance(primitive, Collective)
    types: list[Any] = [a.aval for a in equation.invars for _ in range(members)]

    def function(*args: Any) -> list[Any]:
        operands = [args[i * members : (i + 1) * members] for i in range(len(equation.invars))]
        return [x for result in primitive.group_results(operands, **equation.params) for x in result]

    return stage_subjaxpr(function, types, name=f"{primitive.name} of {members}")


class Exchange:
    """The collectives with other processes of one run."""

    def __init__(self, program: DevicesExecutable, state: _State) -> None:
        self._program = program
        self._state = state
        self._own = {position: i for i, position in enumerate(program.positions)}
        self._calls: dict[tuple[int, tuple[int, ...]], _Call] = {}
        self._under_way: dict[tuple[int, tuple[int, ...]], Request] = {}
        # Asynchronous collectives that have ended, with the devices that have not waited for them yet.
        self._ended: dict[tuple[int, tuple[int, ...]], set[int]] = {}

    @property
    def is_idle(self) -> bool:
        """Flag that no message is pending and every result has been taken."""
        return not self._under_way and not self._ended

    def proceed(self) -> bool:
        """Make progress until a device can continue; return False if none ever can.

        It starts collectives that all their devices of this process have reached, and completes pending ones as needed.
        """
        while not self._resume():
            if not self._under_way:
                return False
            keys = list(self._under_way)
            peers = self._call(keys[0]).peers
            if len(keys) > 1:
                peers = sorted({p for key in keys for p in self._call(key).peers})
            name = lambda key=keys[0]: self._call(key).name
            done = world.current().wait_any([self._under_way[key] for key in keys], peers, name)
            first, *others = keys[done], *keys[done + 1 :]
            for key in (first, *(k for k in others if self._under_way[k].test())):
                self._advance(key)
        return True

    def _resume(self) -> bool:
        """Start collectives, and resume devices that have started one or whose results are there.

        Return whether any device can continue.
        """
        program, states = self._program, self._state.states
        found = states.tolist()
        if READY in found:
            return True
        resumed = False
        for i, state in enumerate(found[:-1]):
            index = state - COMMUNICATES
            if index < 0:
                continue
            if index >= len(program.steps):  # the device waits for an asynchronous collective
                key = index - len(program.steps), program.groups[index - len(program.steps)][i]
                if key in self._ended:
                    states[i] = READY
                    self._ended[key].remove(i)
                    if not self._ended[key]:
                        del self._ended[key]
                    resumed = True
                continue
            key = index, program.groups[index][i]
            if key in self._under_way or key[1] in program.local_groups:
                continue
            call = self._call(key)
            if all(found[d] == state for d in call.devices):
                self._under_way[key] = call.start()
                if program.steps[index] in program.started:
                    states[call.devices] = READY
                    resumed = True
        if resumed and len(self._under_way) > 1:
            for key in [k for k, request in self._under_way.items() if request.test()]:  # `test` makes progress
                self._advance(key)
        return resumed

    def _advance(self, key: tuple[int, tuple[int, ...]]) -> None:
        """Start the next exchange of a collective whose pending exchange has ended, or resume its devices."""
        call = self._call(key)
        following = call.advance(self._under_way.pop(key))
        if following is not None:
            self._under_way[key] = following
        elif self._program.steps[key[0]] in self._program.started:
            self._ended[key] = set(call.devices)
        else:
            self._state.states[call.devices] = READY

    def _call(self, key: tuple[int, tuple[int, ...]]) -> _Call:
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = _Call(self._program, self._state, *key, self._own)
        return found


class _Call:
    """One collective of one group in a run: a sequence of exchanges."""

    def __init__(
        self, program: DevicesExecutable, state: _State, index: int, group: tuple[int, ...], own: dict[int, int]
    ) -> None:
        step = program.steps[index]
        self._state = state
        self.devices = [own[m] for m in group if m in own]
        self._name, self._line = step.label or step.equation.primitive.name, step.line
        owners = tuple(program.processes[m] for m in group)
        self._stages = [_Stage(plan) for plan in _plans(program, index, owners)]
        self.peers = sorted({p for stage in self._stages for p in stage.peers})
        # Groups with the same first member differ in their axes, and so in their collective.
        self._index = index * len(program.processes) + group[0]
        self._operands = [slot_address(s, program.program) for s in step.operands]
        self._results = [slot_address(s, program.program) for s in step.results]
        self._stage = 0

    @property
    def name(self) -> str:
        """Name of the waiting operation: the collective and its line, or the call, if the program was stored without
        lines.
        """
        return f"{self._name} at {self._line.describe()}" if self._line else f"{self._name} in {world.current().doing}"

    def _addresses(self, slots: Sequence[tuple[int, int]]) -> list[int]:
        """Return the addresses of the values of this process's devices in the group."""
        registers = self._state.registers
        return [int(registers[d, 1 + register]) + offset for register, offset in slots for d in self.devices]

    def start(self) -> Request:
        """Start the first exchange."""
        self._stage = 0
        return self._stages[0].start(self._addresses(self._operands), None, world.current().data_tag(self._index))

    def advance(self, request: Request) -> Request | None:
        """Compute with the received data and start the next exchange; None if the results are complete."""
        done = self._stages[self._stage]
        if self._stage + 1 == len(self._stages):
            done.finish(request, self._addresses(self._results))
            return None
        self._stage += 1
        following = self._stages[self._stage]
        operands, chunk = following.room()
        done.finish(request, operands)
        return following.start(operands, chunk, world.current().data_tag(self._index))


class _Plan:
    """The compiled parts of this process in an exchange."""

    def __init__(self, parts: ProcessParts, program: DevicesExecutable) -> None:
        self.parts = parts
        self.first = None if parts.first is None else program.compile_group(parts.first)
        self.second = program.compile_group(parts.second)


def _plans(program: DevicesExecutable, index: int, owners: tuple[int, ...]) -> list[_Plan]:
    """Return the exchanges of this process in a collective among members of these processes, compiled once."""
    found = program.plans.get((index, owners))
    if found is None:
        equation = program.steps[index].equation
        operands, results = owners * len(equation.invars), owners * len(equation.outvars)
        processes, members = sorted(set(owners)), len(owners)
        if is_in_pieces(equation, len(processes)):
            aval = equation.outvars[0].aval
            jaxprs = [
                (stage_piece_reduction(equation, members, len(processes)), operands, processes),
                (stage_piece_gather(aval, members, len(processes)), processes, results),
            ]
        else:
            jaxprs = [(group_jaxpr(equation, members), operands, results)]
        rank = world.current().rank
        found = program.plans[index, owners] = [_Plan(process_parts(*j, rank), program) for j in jaxprs]
    return found


class _Stage:
    """One exchange of a run: its programs, and memory for sent and received data.

    Data for processes on the same host is in shared memory, allocated anew each time; data from them is read in place.
    """

    def __init__(self, plan: _Plan) -> None:
        parts, near = plan.parts, world.current().transport.near
        self.peers = sorted({p for p, _ in (*parts.sends, *parts.receives)})
        self._sends = parts.sends
        computed = [] if parts.first is None else [byte_size(v.aval) for v in parts.first.outvars]
        self._own = len(parts.second.invars) - len(computed) - len(parts.receives)
        self._operand_sizes = [byte_size(v.aval) for v in parts.second.invars[: self._own]]
        self._shares_operands = any(
            p in near and source.is_operand and self._operand_sizes[source.index] > SMALL for p, source in parts.sends
        )
        self._computed_sizes = computed
        self._shares = any(
            p in near and not source.is_operand and computed[source.index] > SMALL for p, source in parts.sends
        )
        self._computed_starts, self._computed_bytes = _pack(computed)
        sizes = [byte_size(t) for _, t in parts.receives]
        # Borrowed data has no memory here.
        borrows = [p in near and n > SMALL for (p, _), n in zip(parts.receives, sizes, strict=True)]
        starts, size = _pack([0 if b else n for b, n in zip(borrows, sizes, strict=True)])
        self._memory = _room(size)
        self._received = [self._memory.address + start for start in starts]
        self._receives = [
            (peer, None if borrow else address, nbytes)
            for (peer, _), borrow, address, nbytes in zip(parts.receives, borrows, self._received, sizes, strict=True)
            if nbytes
        ]
        self._borrowed = [i for i, borrow in enumerate(borrows) if borrow]
        self._computed = None if self._shares else _room(self._computed_bytes)
        self._first = None if plan.first is None else _Runner(plan.first)
        self._second = _Runner(plan.second)
        self._values: list[int] = []

    def room(self) -> tuple[list[int], SharedChunk | None]:
        """Allocate the operands of a stage that are not those of the devices; return their addresses."""
        starts, size = _pack(self._operand_sizes)
        chunk = world.current().transport.take(size) if self._shares_operands else None
        if chunk is None:
            self._operands = _room(size)
        first = self._operands.address if chunk is None else chunk.address
        return [first + start for start in starts], chunk

    def start(self, operands: list[int], operand_chunk: SharedChunk | None, tag: int) -> Request:
        """Compute the data to send, and start the messages."""
        transport = world.current().transport
        chunk = transport.take(self._computed_bytes) if self._shares else None
        first = chunk.address if chunk is not None else self._computed.address if self._computed is not None else 0
        computed = [first + start for start in self._computed_starts]
        if self._first is not None:
            self._first.run(operands, computed)
        self._values = [*operands, *computed]
        sends = []
        for peer, source in self._sends:
            if source.is_operand:
                address, size, within = operands[source.index], self._operand_sizes[source.index], operand_chunk
            else:
                address, size, within = computed[source.index], self._computed_sizes[source.index], chunk
            if size:
                sends.append(Message(peer, tag, address, size, within))
        receives = [Message(peer, tag, address, size) for peer, address, size in self._receives]
        return transport.start(sends, receives)

    def finish(self, request: Request, results: list[int]) -> None:
        """Compute the results from the received data."""
        received = list(self._received)
        for i, address in zip(self._borrowed, request.borrowed_addresses(), strict=True):
            received[i] = address
        self._second.run([*self._values, *received], results)
        request.release()


def _pack(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return the aligned offsets of values of these sizes one after the other, and their total size."""
    starts = np.cumsum([0, *(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]).tolist()
    return starts[:-1], starts[-1]


def _room(size: int) -> memory.Chunk:
    return memory.Chunk(memory.class_size(memory.find_size_class(size)))


class _Runner:
    """Executable with registers and temporaries of its own."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._temporaries = _room(executable.program.temporary_bytes)
        self._registers = np.zeros(executable.frame.registers, np.int64)
        self._words = self._registers.view(np.uint8).data
        self._address = self._registers.ctypes.data

    def run(self, arguments: Sequence[int], results: Sequence[int]) -> None:
        """Run from operands at addresses to results at addresses."""
        executable, frame = self._executable, self._executable.frame
        self._registers.fill(0)
        entries = frame.entries(self._temporaries.address, arguments, results)
        self._words[: 8 * frame.count] = frame.pack(*entries)
        status = bytecode.run(executable.code_address, self._address)
        if status:
            executable.raise_(status)
