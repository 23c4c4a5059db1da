"""Programs on several GPUs: one Program, and registers for each GPU of this process.

One thread starts the steps of all GPUs of a process in the order of the program, so collectives are started in the same
order everywhere. Steps between collectives are captured as graphs; on a mesh of one GPU, all steps are one graph.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.compile_options import CompileOptions
from weft.base.errors import JaxRuntimeError
from weft.compiler.compilation import Compilation
from weft.compiler.compile import compile_program
from weft.compiler.program.assign import assign
from weft.compiler.program.ir import Branch, Communicate, Event, Loop, Slot, Start, Step, Wait, While, byte_size
from weft.compiler.program.overlap import overlap_collectives
from weft.ir.jaxpr import Equation, Jaxpr, constants_to_arguments
from weft.runtime.cuda.collectives import ALIGNMENT, CollectivePlan, Member, Part, alone, plan_collective, start
from weft.runtime.cuda.communicators import Communicator, get_communicator
from weft.runtime.cuda.executable import MOST_GRAPHS, MOST_SEEN, CudaExecutable, LoadedProgram, Run
from weft.runtime.cuda.graph_plan import is_unrolled
from weft.runtime.cuda.memory import Block, CudaMemory
from weft.runtime.cuda.stretches import Stretch, communicates, cut_at_collectives
from weft.runtime.cuda.tapes import Tapes
from weft.runtime.device import Placement
from weft.runtime.processes import world
from weft.runtime.processes.agreement import Agreement
from weft.runtime.processes.order import Order, get_order
from weft.sharding.device import Device, is_addressable

# Most bytes of sums between processes that are merged into calls that NCCL starts as one kernel.
MOST_MERGED = 1 << 25


class CudaDevicesExecutable:
    """Executable of a per-device jaxpr for the GPUs of a mesh, whose axes have these sizes.

    `agreement` holds what several processes compare. A call takes the addresses of the shards on the GPUs of this
    process.
    """

    # Whether NCCL is used for groups of one GPU too, which only copy.
    uses_library_alone = False

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
        self.sizes, self.devices, self.agreement = dict(sizes), tuple(devices), agreement
        # The positions in the mesh of the GPUs of this process, and their indices among these.
        self.positions = [i for i, d in enumerate(self.devices) if is_addressable(d)]
        self.own = {position: i for i, position in enumerate(self.positions)}
        self._plans: dict[Step, tuple[list[tuple[int, ...]], list[CollectivePlan] | None]] = {}
        self.constants = [np.ascontiguousarray(np.asarray(getattr(c, "_value", c))) for c in jaxpr.consts]
        if compilation is None:
            closed = constants_to_arguments(jaxpr)
            flags = [False] * len(closed.invars)
            flags[len(jaxpr.consts) : len(jaxpr.consts) + len(donated)] = donated
            compilation = compile_program(closed, flags, target, options)
            if self.overlaps:
                compilation.program = assign(
                    overlap_collectives(compilation.program, self._uses_library, options.overlap_bytes, MOST_MERGED)
                )
        self.executable = CudaExecutable(compilation)
        self.program = self.executable.program
        self.out_types: list[Any] = [v.aval for v in jaxpr.outvars]
        self._on: dict[CudaMemory, _OnGpu] = {}
        self._graphs: dict[tuple[int, ...], Any] = {}
        self._seen: dict[tuple[int, ...], None] = {}
        self._communicators: dict[tuple[int, ...], Communicator] = {}
        self._is_connected = False
        if agreement is not None:
            collectives = [s.equation for s in self.program.all_steps() if isinstance(s, Communicate)]
            agreement.add([f"collective {i} is {_describe(equation)}" for i, equation in enumerate(collectives)])

    def _find_groups(self, equation: Equation) -> list[tuple[int, ...]]:
        """Return the groups of a collective: positions in the mesh, in the order of ranks."""
        axes = equation.primitive.named_axes(equation.params)
        names = list(self.sizes)
        positions = np.arange(len(self.devices)).reshape(tuple(self.sizes.values()))
        moved = np.moveaxis(positions, [names.index(a) for a in axes], range(-len(axes), 0))
        rows = moved.reshape(-1, int(np.prod([self.sizes[a] for a in axes], dtype=np.int64)))
        parts = equation.params.get("axis_index_groups") or (range(rows.shape[1]),)
        return [tuple(int(row[i]) for i in part) for row in rows for part in parts]

    def _plan(self, step: Communicate) -> tuple[list[tuple[int, ...]], list[CollectivePlan] | None]:
        """Return the groups of a collective, and its plan in NCCL for each operand; None if each member only copies."""
        if step not in self._plans:
            groups = self._find_groups(step.equation)
            count = len(groups[0])
            plans = plan_collective(step.equation, count) if count > 1 or self.uses_library_alone else None
            self._plans[step] = groups, plans
        return self._plans[step]

    def _uses_library(self, step: Communicate) -> bool:
        """Return whether NCCL executes a collective."""
        return self._plan(step)[1] is not None

    def is_beside(self, step: Communicate) -> bool:
        """Return whether a collective runs concurrently with programs.

        Either all collectives of NCCL do, or none, since they share memory.
        """
        return self.overlaps and self._uses_library(step)

    @property
    def _order(self) -> Order:
        """Comparison of the order of programs with other processes."""
        here = world.current()
        return get_order(here, (here.rank,) if self.agreement is None else self.agreement.ranks)

    @property
    def overlaps(self) -> bool:
        """Whether collectives overlap with computation: those with other processes do."""
        return self.agreement is not None

    @property
    def is_one_graph(self) -> bool:
        """Whether all steps are captured together with the collectives: on one GPU, without others that must join
        in.
        """
        return len(self.devices) == 1

    @functools.cached_property
    def _workspace(self) -> int:
        steps = [s for s in self.program.all_steps() if isinstance(s, Communicate)]
        return max((plan.workspace for step in steps for plan in self._plan(step)[1] or ()), default=0)

    def __call__(
        self, addresses: bytes, donated: Sequence[Sequence[Any]], placements: Sequence[Placement]
    ) -> list[tuple[bytes, Any]]:
        """Run on shards, given by the addresses of each argument's shards on the GPUs of this process.

        `donated` has the blocks of donated arguments, one on each GPU. Return the addresses and the blocks of each
        result's shards.
        """
        memories: list[CudaMemory] = [p.memory for p in placements]
        found: list[list[Block]] = []
        for aval, alias in zip(self.out_types, self.program.aliases, strict=True):
            if alias is None:
                found.append([memory.take(byte_size(aval)) for memory in memories])
            else:
                found.append(list(donated[alias - len(self.constants)]))
                for block in found[-1]:
                    block.epoch = block.owner.driver.epoch
        passed = np.frombuffer(addresses, np.int64).reshape(-1, len(memories))
        loaded = [self._load(memory, position) for position, memory in zip(self.positions, memories, strict=True)]
        # They return to the pool at once: their next user comes later in the stream.
        workspace = self._workspace
        temporaries = [memory.take(on.offset + workspace) for memory, on in zip(memories, loaded, strict=True)]
        frames = [
            on.registers(block.address, [int(a) for a in passed[:, i]], [blocks[i].address for blocks in found])
            for i, (on, block) in enumerate(zip(loaded, temporaries, strict=True))
        ]
        if self.agreement is None:
            self._start(loaded, frames)
        else:
            with self.agreement.section() as chain:
                self._start(loaded, frames)
                if any(c.peers for c in self._communicators.values()):
                    self._order.tell(chain)
        return [(np.array([b.address for b in blocks], np.int64).tobytes(), blocks) for blocks in found]

    def _load(self, memory: CudaMemory, position: int) -> _OnGpu:
        found = self._on.get(memory)
        return found or self._on.setdefault(memory, _OnGpu(self, memory, position))

    def _start(self, loaded: Sequence[_OnGpu], frames: Sequence[np.ndarray]) -> None:
        """Start the steps of all GPUs of this process; on a single GPU as a graph from the second time on."""
        if not self._is_connected:
            self._communicators, self._is_connected = self._connect(loaded), True
        if not self.is_one_graph or not loaded[0].can_record:
            self._run(loaded, frames, [on.loaded.driver for on in loaded])
            return
        (on,), (frame,) = loaded, frames
        driver, key = on.loaded.driver, tuple(int(word) for word in frame)
        graph = self._graphs.get(key)
        if graph is None and key in self._seen:
            self._seen.pop(key, None)
            graph = driver.record(lambda stream: self._run(loaded, [frame], [stream]))
            while len(self._graphs) >= MOST_GRAPHS:
                self._graphs.pop(next(iter(self._graphs)), None)
            self._graphs[key] = graph
        if graph is not None:
            driver.start(graph)
            return
        while len(self._seen) >= MOST_SEEN:
            self._seen.pop(next(iter(self._seen)), None)
        self._seen[key] = None
        self._run(loaded, [frame], [driver])

    def _run(self, loaded: Sequence[_OnGpu], frames: Sequence[np.ndarray], works: Sequence[Any]) -> None:
        runs = [
            Run(on.loaded, on.loaded.prepared, frame.copy(), work, None, Tapes(on.loaded.memory))
            for on, frame, work in zip(loaded, frames, works, strict=True)
        ]
        together = _Together(self, loaded, runs)
        if self.is_one_graph:
            together.steps(loaded[0].loaded.prepared.steps)
            return
        try:
            together.stretches()
        except BaseException:
            together.follow_all()  # memory is reused later in the stream
            raise

    def _connect(self, loaded: Sequence[_OnGpu]) -> dict[tuple[int, ...], Communicator]:
        """Create the communicators of all groups with GPUs of this process, by their positions.

        All processes do so in the order of the program.
        """
        gpus = {self.devices[p]: on.loaded.driver for p, on in zip(self.positions, loaded, strict=True)}
        found: dict[tuple[int, ...], Communicator] = {}
        for step in self.program.all_steps():
            if isinstance(step, Communicate):
                groups, plans = self._plan(step)
                for group in groups:
                    if plans is not None and group not in found and not self.own.keys().isdisjoint(group):
                        found[group] = get_communicator(tuple(self.devices[p] for p in group), gpus)
        return found

    def collective(self, step: Communicate, loaded: Sequence[_OnGpu], runs: Sequence[Run]) -> None:
        """Start a collective in all groups with GPUs of this process, concurrently with their work if it may
        overlap.
        """
        groups, plans = self._plan(step)
        doing = functools.partial(_doing, step)
        for group in groups:
            own = [(rank, self.own[position]) for rank, position in enumerate(group) if position in self.own]
            if plans is None:
                (operand,), (result,) = step.operands, step.results
                for _, index in own:
                    run = runs[index]
                    alone(step.equation, run.work, run.address(operand), run.address(result))
            elif own:
                communicator = self._communicators[group]
                parts: list[Part] = []
                for rank, index in own:
                    run, handle = runs[index], communicator.handles[rank]
                    for plan, operand, result in zip(plans, step.operands, step.results, strict=True):
                        stream = run.driver.beside if self.overlaps else run.work
                        member = Member(rank, handle, stream, run.address(operand), run.address(result))
                        parts.append((plan, member, run.temporaries + loaded[index].offset))
                start(parts, functools.partial(communicator.start_calls, doing))
                for _, index in own if communicator.peers else ():
                    communicator.is_under_way(runs[index].driver, doing, self._order)


class _OnGpu:
    """Program on one GPU: its code, constants, and position along the axes of the mesh."""

    def __init__(self, executable: CudaDevicesExecutable, memory: CudaMemory, position: int) -> None:
        program = executable.program
        self.loaded: LoadedProgram = executable.executable.load(memory)
        self.offset = -(-self.loaded.temporary_bytes // ALIGNMENT) * ALIGNMENT
        where = np.unravel_index(position, tuple(executable.sizes.values()))
        axes = [list(executable.sizes).index(a) for a in program.axes]
        indices = [np.array([where[a]], np.int32) for a in axes]
        # Each in its own block, like arguments.
        self._constants = [memory.allocate_copy(c, c.shape) for c in executable.constants]
        self._indices = [memory.allocate_copy(i, i.shape) for i in indices]
        prepared = self.loaded.prepared
        self.can_record = is_unrolled(prepared.steps, prepared.loops, with_collectives=True)
        self.stretches = [
            steps[0] if communicates(steps[0]) else Stretch(steps, prepared.loops)
            for steps in cut_at_collectives(prepared.steps)
        ]

    def registers(self, temporaries: int, arguments: list[int], results: list[int]) -> np.ndarray:
        """Return the initial registers of a run."""
        constants, indices = ([b.address for b in blocks] for blocks in (self._constants, self._indices))
        return self.loaded.frame.initial_registers(temporaries, [*constants, *arguments, *indices], results)


class _Together:
    """Run on all GPUs: each step is started on all of them before the next one."""

    def __init__(self, executable: CudaDevicesExecutable, loaded: Sequence[_OnGpu], runs: Sequence[Run]) -> None:
        self.executable, self.loaded, self.runs = executable, loaded, runs
        # Events at the end of concurrent collectives on each GPU.
        self._events: dict[Event, list[Any]] = {}

    def stretches(self) -> None:
        """Start all steps: those between collectives on each GPU, and collectives on all of them."""
        for parts in zip(*(on.stretches for on in self.loaded), strict=True):
            if isinstance(parts[0], Stretch):
                for part, run in zip(parts, self.runs, strict=True):
                    assert isinstance(part, Stretch)
                    part.start(run)
            else:
                self.steps([parts[0]])

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: Step) -> None:
        if isinstance(step, Start) and isinstance(step.step, Communicate):
            self._events[step.event] = self.collective(step.step)
        elif isinstance(step, Wait):
            self._follow(self._events.pop(step.event))
        elif isinstance(step, Communicate):
            self._follow(self.collective(step))
        elif not communicates(step):
            for run in self.runs:
                run.step(step)
        elif isinstance(step, Loop):
            count = self.read_common(step, step.count, np.int32) if isinstance(step.count, Slot) else step.count
            for i in reversed(range(count)) if step.reverse else range(count):
                for run in self.runs:
                    run.registers[step.counter.index] = i
                self.steps(step.body)
        elif isinstance(step, While):
            self.while_loop(step)
        else:
            assert isinstance(step, Branch)
            index = self.read_common(step, step.index, step.dtype)
            self.steps(step.branches[min(max(index, 0), len(step.branches) - 1)])

    def collective(self, step: Communicate) -> list[Any]:
        """Start a collective; return the events at its end on each GPU if it runs concurrently."""
        beside = [run.driver for run in self.runs] if self.executable.is_beside(step) else []
        for driver in beside:
            driver.begin_beside()
        self.executable.collective(step, self.loaded, self.runs)
        return [driver.mark_beside() for driver in beside]

    def follow_all(self) -> None:
        """Make later work wait for all concurrent collectives."""
        for events in self._events.values():
            self._follow(events)

    def _follow(self, events: Sequence[Any]) -> None:
        """Make later work wait for concurrent collectives."""
        for run, event in zip(self.runs, events, strict=False):  # there may be none
            run.driver.follow_beside(event)

    def while_loop(self, step: While) -> None:
        iteration = 0
        while True:
            if step.counter is not None:
                for run in self.runs:
                    run.registers[step.counter.index] = iteration
            self.steps(step.condition)
            if not self.read_common(step, step.predicate, np.bool_):
                return
            self.steps(step.body)
            iteration += 1

    def read_common(self, step: Step, slot: Slot, dtype: Any) -> int:
        """Read a number that controls all GPUs; raise unless it is the same on all of them."""
        values = [int(run.scalar(slot, dtype)) for run in self.runs]
        agreement = self.executable.agreement
        if agreement is not None:
            told = world.current().all_gather(json.dumps(values).encode(), agreement.ranks, _doing(step))
            values = [value for text in told for value in json.loads(text)]
        if len(set(values)) > 1:
            raise JaxRuntimeError(
                f"All devices of a collective must take the same branch or iterations: {_doing(step)} has the values "
                f"{values}.",
                fix="let all devices along its axes take the same branch, such as by a psum of the condition",
            )
        return values[0]


def _doing(step: Step) -> str:
    """Return the label of a step with its source line."""
    line = "" if step.line is None else f" at {step.line.describe()}"
    return f"{step.label or 'a loop'}{line}"


def _describe(equation: Equation) -> str:
    """Describe a collective for the comparison between processes."""
    types: list[Any] = [v.aval for v in equation.invars]
    axes = equation.primitive.named_axes(equation.params)
    return f"{equation.primitive.name} of {', '.join(t.short() for t in types)} over {axes!r}"
