"""Programs on many CPU devices: one Program, a register file for each device of this process, one native call.

Devices of other processes have no register file here: `exchange` does the collectives with them when no device of this
process can continue without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.base.compile_options import CompileOptions
from weft.base.errors import JaxRuntimeError
from weft.base.lazy import lazy
from weft.base.memo import Memo
from weft.compiler import cache
from weft.compiler.compilation import Compilation
from weft.compiler.fingerprint import write_value
from weft.compiler.load import compile_again, from_types, is_storing, load_program, store_program
from weft.compiler.program.assign import assign, slot_address
from weft.compiler.program.frame import FIRST_ARGUMENT, TAPES, TEMPORARIES
from weft.compiler.program.ir import ALIGNMENT, DEFAULT_SPACE, Communicate, Start, byte_size
from weft.compiler.program.overlap import MOST_MERGED, overlap_collectives
from weft.compiler.target.cpu import bytecode, pool, tape
from weft.compiler.target.cpu.groups import group_compilation, group_program
from weft.compiler.target.cpu.spmd import CALL, COMMUNICATES, ENTRY, MISMATCH, READY
from weft.compiler.verify import verify_program
from weft.ir.jaxpr import Equation, Jaxpr, constants_to_arguments
from weft.ir.parameters import params_key
from weft.runtime.cpu import memory, tiers
from weft.runtime.cpu.exchange import Exchange, group_jaxpr
from weft.runtime.cpu.executable import CALLS_BEFORE_BETTER_CODE, Executable, compile_executable
from weft.runtime.device import Placement
from weft.runtime.processes.agreement import Agreement
from weft.runtime.processes.pieces import FROM_BYTES, FROM_PROCESSES
from weft.sharding.device import Device, process_index

if TYPE_CHECKING:
    from weft.compiler.target.target import Target
    from weft.runtime.cpu import tuning
else:
    tuning = lazy("weft.runtime.cpu.tuning")

# Devices whose segments between two collectives take longer than this many nanoseconds run in threads of the pool.
WORTH_THREADS = 20_000.0
# Results of a call that take no more than this many bytes in total share one allocation.
MOST_TOGETHER = 1 << 16
_group_programs: Memo[Any, Executable] = Memo(512)


def _tune(fused: Jaxpr, target: Target) -> None:
    """Measure the contractions of a program that is about to be compiled."""
    tuning.tune(fused, target)


class DevicesExecutable:
    """Executable of a per-device jaxpr for the devices of a mesh, whose axes have these sizes.

    `agreement` holds what several processes compare. A call takes the addresses of the shards on devices of this
    process.
    """

    def __init__(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        sizes: Mapping[Any, int],
        devices: Sequence[Device],
        target: Any,
        options: CompileOptions,
        agreement: Agreement | None = None,
        compilation: Compilation | None = None,
    ) -> None:
        self.sizes = dict(sizes)
        self.shape = tuple(self.sizes.values())
        self.processes = tuple(d.process_index for d in devices)
        rank = process_index()
        # The devices of this process, by their positions in the mesh.
        self.positions = [i for i, process in enumerate(self.processes) if process == rank]
        self.count = len(self.positions)
        self.constants = [np.ascontiguousarray(np.asarray(getattr(c, "_value", c))) for c in jaxpr.consts]
        flags = (*[False] * len(jaxpr.consts), *donated) if any(donated) else ()
        overlaps = len(set(self.processes)) > 1
        self.target, self.options, self.agreement = target, options, agreement
        if compilation is None:
            scheduled = self._schedule if overlaps else None
            arguments = constants_to_arguments(jaxpr)
            self.executable = compile_executable(
                arguments,
                flags,
                target,
                options,
                scheduled=scheduled,
                meanwhile=self._prepare,
                devices=self.count,
                tune=_tune,
            )
        else:
            self._prepare(compilation)
            self.executable = Executable(compilation)
        program = self.program
        groups = {group for g in self.groups for group in g}
        self.local_groups = frozenset(filter(self.is_local, groups))
        self.across = len(self.local_groups) < len(groups)
        self.out_types: list[Any] = [v.aval for v in jaxpr.outvars]
        self._results, self._small, self._small_bytes = self._plan_results()
        indices = np.indices(self.shape).reshape(len(self.shape), len(self.processes)).astype(np.int32)
        self._indices = indices[:, self.positions]
        python = program.calls_python
        stretches = program.nanoseconds / (len(self.steps) + 1)
        self.parallel = self.count > 1 and stretches > WORTH_THREADS and not python
        self._free: list[_State] = []
        self._calls = 0
        self._large = program.temporary_bytes > MOST_TOGETHER  # temporaries come from the devices' memory
        self.plans: dict[Any, Any] = {}  # what this process does in collectives with others

    def _prepare(self, compilation: Compilation) -> None:
        """Prepare the groups and the programs of collectives. It needs only the steps, not their code."""
        if len(set(self.processes)) > 1:
            # Errors between processes name source lines, which programs from disk do not have.
            compilation.complete()
        program = self.program = compilation.program
        self.steps = self._collective_steps()
        # Asynchronous collectives, which devices start and wait for.
        self.started = {s.step for s in program.all_steps() if isinstance(s, Start)}
        # One list for all collectives over the same axes.
        along = {axes: self._groups_along(axes) for axes in {_find_axes(s.equation) for s in self.steps}}
        self.groups = [along[_find_axes(s.equation)] for s in self.steps]
        # None where no group is all in this process.
        self.programs = [
            self._group_program(s.equation, len(g[0])) if any(map(self.is_local, g)) else None
            for s, g in zip(self.steps, self.groups, strict=True)
        ]

    def _collective_steps(self) -> list[Communicate]:
        """Return the collectives, sorted by their indices."""
        steps = [s for s in self.program.all_steps() if isinstance(s, Communicate)]
        return sorted(steps, key=lambda s: s.index)

    def _group_program(self, equation: Equation, members: int) -> Executable:
        """Return the program of a collective for groups of `members` devices; equal collectives of all programs share
        it.
        """
        types = tuple(a.aval for a in equation.invars)
        key = (equation.primitive, types, params_key(equation.params), members, self.target, self.options)
        found = _group_programs.get(key)
        return found or _group_programs.keep(key, self._new_group_program(equation, members))

    def _new_group_program(self, equation: Equation, members: int) -> Executable:
        """Load the program of a collective from disk, or compile it."""
        target, name = self.target, f"{equation.primitive.name} of {members}"
        types = tuple(a.aval for a in equation.invars)
        described = (equation.primitive, types, equation.params, members, self.options.tracing)
        meaning = write_value(described) if is_storing(self.options) else None
        key = None if meaning is None else cache.program_key(f"group {meaning}", target)
        program = None if key is None else load_program(key, name)
        is_new = program is None
        if program is None and not self.options.debugs:
            program = group_program(equation, members, target)
        if program is None:
            executable = self.compile_group(group_jaxpr(equation, members))
        else:
            args = [t for t in types for _ in range(members)]
            results = [v.aval for v in equation.outvars for _ in range(members)]
            schedules = program.schedules

            def recompile() -> Compilation:
                jaxpr = group_jaxpr(equation, members)
                return self._table(jaxpr) or compile_again(jaxpr, (), target, self.options, schedules)

            executable = Executable(from_types(name, args, results, (), program, target, self.options, recompile))
        if is_new and key is not None:
            store_program(key, executable.program)
        return executable

    def _table(self, jaxpr: Jaxpr) -> Compilation | None:
        """Return the program of a collective as a table of copies and additions; None if it needs kernels."""
        return None if self.options.debugs else group_compilation(jaxpr, self.target)

    def compile_group(self, jaxpr: Jaxpr) -> Executable:
        """Compile the jaxpr of a collective."""
        found = self._table(jaxpr)
        return (
            compile_executable(jaxpr, (), self.target, self.options, tune=_tune) if found is None else Executable(found)
        )

    def _groups_along(self, axes: Sequence[Any]) -> list[tuple[int, ...]]:
        """Return, for each device of this process, the members of its group along axes, as positions in the mesh."""
        positions = np.arange(len(self.processes)).reshape(self.shape)
        names = list(self.sizes)
        moved = np.moveaxis(positions, [names.index(a) for a in axes], range(-len(axes), 0))
        rows = moved.reshape(-1, int(np.prod([self.sizes[a] for a in axes], dtype=np.int64)))
        group = {int(d): tuple(int(m) for m in row) for row in rows for d in row}
        return [group[d] for d in self.positions]

    def _schedule(self, compilation: Compilation) -> Compilation:
        """Overlap collectives between processes with computation."""
        if not any(isinstance(s, Communicate) and self._is_far(s) for s in compilation.program.all_steps()):
            return compilation
        if compilation.recompile is not None:  # kernels from disk do not say what they write
            compilation = compilation.recompile()
        most = FROM_BYTES if len(set(self.processes)) >= FROM_PROCESSES else MOST_MERGED  # do not merge split ones
        compilation.program = assign(
            overlap_collectives(compilation.program, self._is_far, self.options.overlap_bytes, most)
        )
        if self.options.verifies:
            verify_program(compilation.program, (DEFAULT_SPACE,))
        return compilation

    def _is_far(self, step: Communicate) -> bool:
        """Return whether every group of a collective has members in other processes."""
        return not any(map(self.is_local, self._groups_along(_find_axes(step.equation))))

    def is_local(self, group: tuple[int, ...]) -> bool:
        """Return whether all members of a group are devices of this process, so that native code does its
        collectives.
        """
        return all(self.processes[m] == process_index() for m in group)

    def _plan_results(self) -> tuple[list[_Result], np.ndarray, int]:
        """Plan the memory of results; return it with the offsets of small shards in their shared allocation, and its
        size.
        """
        results: list[_Result] = []
        offsets: list[int] = []
        end = 0
        for aval, alias in zip(self.out_types, self.program.aliases, strict=True):
            size = byte_size(aval)
            stride = -(-size // ALIGNMENT) * ALIGNMENT
            if alias is not None:
                results.append(_Result(alias - len(self.constants), None, size))
            elif end + stride * self.count <= MOST_TOGETHER:
                results.append(_Result(None, slice(8 * len(offsets), 8 * (len(offsets) + self.count)), size))
                offsets += range(end, end + stride * self.count, stride or 1) if stride else [end] * self.count
                end += stride * self.count
            else:
                results.append(_Result(None, None, size))
        return results, np.array(offsets, np.int64), max(end, ALIGNMENT)

    def __call__(
        self, addresses: bytes, donated: Sequence[Sequence[Any]], placements: Sequence[Placement]
    ) -> list[tuple[bytes, Any]]:
        """Run on shards; return the addresses of each result's shards and their allocations.

        `addresses` has for each argument the address of its shard on each device. `donated` has for donated arguments
        an allocation on each device.
        """
        self._calls += 1
        if self._calls == CALLS_BEFORE_BETTER_CODE:
            for executable in dict.fromkeys((self.executable, *self.programs)):
                if executable is not None and executable.can_improve:
                    tiers.improve(executable)
        try:
            state = self._free.pop()
        except IndexError:
            state = _State(self)
        results: list[tuple[bytes, Any]] = []
        small, allocation = b"", None
        if len(self._small):
            first, allocation = placements[0].memory.allocate(self._small_bytes)
            small = (self._small + first).tobytes()
        for result in self._results:
            if result.alias is not None:
                start = 8 * self.count * result.alias
                results.append((addresses[start : start + 8 * self.count], donated[result.alias]))
            elif result.within is not None:
                results.append((small[result.within], allocation))
            else:
                found = [p.memory.allocate(result.bytes) for p in placements]
                results.append((np.array([a for a, _ in found], np.int64).tobytes(), [m for _, m in found]))
        outputs = b"".join([a for a, _ in results])
        pools = [self.executable.free_temporaries(p.memory) for p in placements] if self._large else []
        temporaries = [self.executable.take_temporaries(pool) for pool in pools]
        try:
            if self.agreement is None:
                state.run(addresses, outputs, temporaries)
            else:
                with self.agreement.section():
                    state.run(addresses, outputs, temporaries)
        finally:
            if state.is_reusable:
                self._free.append(state)
                for free, chunk in zip(pools, temporaries, strict=True):
                    free.append(chunk)
        return results


def _find_axes(equation: Equation) -> tuple[Any, ...]:
    """Return the mesh axes of a collective."""
    return tuple(equation.primitive.named_axes(equation.params))


class _Result(NamedTuple):
    """Memory of a result: that of a donated argument (`alias`), or the slice `within` the addresses of small results,
    which share one allocation, or else an allocation of `bytes` for each shard.
    """

    alias: int | None
    within: slice | None
    bytes: int


class _State:
    """The memory of one run: register files, temporaries and the registers of collectives."""

    def __init__(self, program: DevicesExecutable) -> None:
        self.program = program
        executable, count = program.executable, program.count
        self.executable = executable
        frame = executable.frame
        # The word in front of the registers is the address at which a device continues.
        self.registers = np.zeros((count, 1 + frame.registers), np.int64)
        # The last one stands for all devices of other processes: it never reaches a collective.
        self.states = np.zeros(count + 1, np.int64)
        self._exchange = Exchange(program, self) if program.across else None
        self.files = self.registers.ctypes.data + 8 + np.arange(count, dtype=np.int64) * self.registers.strides[0]
        size = executable.program.temporary_bytes
        # Small temporaries are reused; others are taken from the devices' memory for each run.
        small = size if size <= MOST_TOGETHER else 0
        self._temporaries = [memory.Chunk(memory.class_size(memory.find_size_class(small))) for _ in range(count)]
        self._indices = [np.ascontiguousarray(row) for row in program._indices]
        # First the points where collectives start, then those where devices wait for them.
        self._collectives = [_GroupCall(program, k) for k in range(len(program.steps))] * (2 if program.started else 1)
        self.entries = np.array([c.entry for c in self._collectives] or [[0] * len(ENTRY)], np.int64)
        self.call = np.zeros(len(CALL), np.int64)
        for word, value in (
            (CALL.DEVICES, count),
            (CALL.REGISTERS, self.files.ctypes.data),
            (CALL.STATES, self.states.ctypes.data),
            (CALL.COLLECTIVES, self.entries.ctypes.data),
            (CALL.PARALLEL, program.parallel),
        ):
            self.call[word] = value
        self._call_address = self.call.ctypes.data
        self._run = bytecode.run_devices()
        template = np.zeros((count, 1 + frame.registers), np.int64)
        axes = [list(program.sizes).index(a) for a in executable.program.axes]
        for d in range(count):
            constants = [c.ctypes.data for c in program.constants]
            own = [self._indices[a].ctypes.data + 4 * d for a in axes]
            arguments = [*constants, *[0] * (len(executable.program.arguments) - len(constants) - len(own)), *own]
            results = [0] * len(executable.program.results)
            template[d, 1 : 1 + frame.count] = frame.entries(self._temporaries[d].address, arguments, results)
        self.template = template
        first = 1 + FIRST_ARGUMENT + len(program.constants)
        passed = len(executable.program.arguments) - len(program.constants) - len(axes)
        after = 1 + FIRST_ARGUMENT + len(executable.program.arguments)
        # Views of the registers of arguments and results: a column for each, a row for each device.
        self.arguments = self.registers[:, first : first + passed]
        self.outputs = self.registers[:, after : after + len(executable.program.results)]
        # One view of both, if they are adjacent.
        last = after + len(executable.program.results)
        self.together = None if axes else self.registers[:, first:last]
        self._codes: list[int] = []

    def run(self, addresses: bytes, results: bytes, temporaries: Sequence[memory.Chunk] = ()) -> None:
        """Run all devices; `temporaries` has memory for each device if the state has none of its own."""
        registers, count = self.registers, self.program.count
        codes = [self.executable.code_address, *[0 if p is None else p.code_address for p in self.program.programs]]
        if codes != self._codes:  # better code has been compiled
            self._codes = codes
            self.call[0] = codes[0]
            self.template[:, 0] = codes[0] + 8
            if len(codes) > 1:
                self.entries[:, 0] = codes[1:] * (2 if self.program.started else 1)
        registers[:] = self.template
        if temporaries:
            registers[:, 1 + TEMPORARIES] = [t.address for t in temporaries]
        if self.together is not None:
            self.together[:] = np.frombuffer(addresses + results, np.int64).reshape(-1, count or 1).T
        else:
            self.arguments[:] = np.frombuffer(addresses, np.int64).reshape(-1, count or 1).T
            self.outputs[:] = np.frombuffer(results, np.int64).reshape(-1, count or 1).T
        self.states[:-1] = READY
        pool.prepare()
        try:
            status = self._run(self._call_address)
            while status == MISMATCH:
                if self._exchange is None or not self._exchange.proceed():
                    self._raise_mismatch()
                status = self._run(self._call_address)
            if status:
                self.executable.raise_(status)
        finally:
            if self.executable.has_tapes:
                self._free_tapes()

    def _free_tapes(self) -> None:
        """Free the residuals of the devices' loops."""
        for d in np.flatnonzero(self.registers[:, 1 + TAPES]):
            tape.free(int(self.files[d]))

    @property
    def is_reusable(self) -> bool:
        """Flag that no pending message reads or writes the memory of this run: after a failure some may."""
        return self._exchange is None or self._exchange.is_idle

    def _raise_mismatch(self) -> None:
        """Raise an error with the position of each device."""
        self.executable.compilation.complete()  # a program from disk does not have its lines
        steps = self.program._collective_steps()
        where: dict[str, list[int]] = {}
        for d, state in zip(self.program.positions, self.states[:-1], strict=True):
            if state == 0:
                text = "ended"
            else:
                step = steps[(int(state) - COMMUNICATES) % len(steps)]
                line = "" if step.line is None else f" at {step.line.describe()}"
                text = f"at {step.label}{line}"
            where.setdefault(text, []).append(d)
        listed = "; ".join(f"devices {devices} {text}" for text, devices in where.items())
        raise JaxRuntimeError(
            f"Devices wait for each other at different collectives: {listed}.",
            fix="let all devices along the axes of a collective take the same branch: psum what decides",
        )


class _GroupCall:
    """One collective of a run: its program's registers and temporaries, and the groups. Its code is filled in later."""

    def __init__(self, program: DevicesExecutable, index: int) -> None:
        step, groups, executable = program.steps[index], program.groups[index], program.programs[index]
        own = {position: i for i, position in enumerate(program.positions)}
        # A group with members in other processes consists of the device that never reaches a collective.
        self.members = {
            g: np.array([own[m] if program.is_local(g) else program.count for m in g], np.int64)
            for g in dict.fromkeys(groups)
        }
        self.groups = np.array([self.members[g].ctypes.data for g in groups], np.int64)
        slots = (*step.operands, *step.results)
        self.addresses = np.array([slot_address(s, program.program) for s in slots], np.int64)
        self.entry = [0] * len(ENTRY)
        self.entry[ENTRY.MEMBERS], self.entry[ENTRY.GROUPS] = len(groups[0]) if groups else 0, self.groups.ctypes.data
        if executable is None:
            return  # only messages do this collective
        self.temporaries = memory.Chunk(memory.class_size(memory.find_size_class(executable.program.temporary_bytes)))
        frame = executable.frame
        self.template = np.zeros(frame.registers, np.int64)
        arguments = [0] * len(executable.program.arguments)
        results = [0] * len(executable.program.results)
        self.template[: frame.count] = frame.entries(self.temporaries.address, arguments, results)
        self.registers = np.zeros_like(self.template)
        for word, value in (
            (ENTRY.REGISTERS, self.registers.ctypes.data),
            (ENTRY.TEMPLATE, self.template.ctypes.data),
            (ENTRY.BYTES, self.template.nbytes),
            (ENTRY.SLOTS, len(slots)),
            (ENTRY.ADDRESSES, self.addresses.ctypes.data),
            (ENTRY.FIRST, FIRST_ARGUMENT),
        ):
            self.entry[word] = value
