"""Executables of programs on GPUs.

A program is captured as a graph for each set of addresses that it is called with more than once; starting a graph takes
as long as starting one kernel. Programs with loops or branches that no conditional node expresses are started step by
step, and the host decides these.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from weft.base import spans
from weft.base.errors import InternalError, OutOfMemoryError
from weft.base.lazy import lazy
from weft.base.settings import config
from weft.compiler import dump
from weft.compiler.compilation import Compilation
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.program.assign import slot_address
from weft.compiler.program.frame import TEMPORARIES, CallFrame
from weft.compiler.program.ir import (
    TAPE_ROUTINES,
    Branch,
    Call,
    Communicate,
    Copy,
    Count,
    Fill,
    Launch,
    Loop,
    SetAddress,
    Slot,
    Start,
    Step,
    Wait,
    While,
    byte_size,
)
from weft.compiler.program.times import StepLog
from weft.compiler.target.code_stats import CodeStats
from weft.compiler.target.cuda.loop_code import LoopCode
from weft.ir.context import EVALUATION, context
from weft.ir.types import TapeType
from weft.runtime.array import ConcreteArray, array_at, copy_array, put
from weft.runtime.cuda.flags import PendingFlag
from weft.runtime.cuda.memory import Block, CudaMemory
from weft.runtime.cuda.node_recorder import NodeRecorder
from weft.runtime.cuda.prepared import PreparedSteps, prepare_steps
from weft.runtime.cuda.tapes import Tapes
from weft.runtime.cuda.timing import StepTimer
from weft.runtime.device import Placement
from weft.runtime.memory import out_of_memory
from weft.runtime.program_memory import memory_summary

if TYPE_CHECKING:
    from weft.runtime.cuda import inside as inspection
    from weft.runtime.cuda.inside import CudaInside
else:
    inspection = lazy("weft.runtime.cuda.inside")

# Most graphs of a program on a GPU, by addresses; and most sets of addresses that it was called with once.
MOST_GRAPHS, MOST_SEEN = 8, 64
# Most single events in the trace of one run.
MOST_EVENTS = 200_000
# Bytes of the words that the loops of a program share, and the offset of the second word.
LOOP_STATE, LOOKED = 16, 8


class LoadedProgram:
    """Program that is loaded on one GPU: its kernels, constants and graphs.

    Graphs are cached by the addresses of arguments, of results without a donated argument, of temporaries, and of the
    error flag if there is one.
    """

    def __init__(self, compilation: Compilation, memory: CudaMemory) -> None:
        self.compilation = compilation
        self.program, self.memory, self.driver = compilation.program, memory, memory.driver
        self.stats = CodeStats()
        self.prepared = prepare_steps(compilation, self.driver, self.stats)
        # The arrival counter of the blocks of a loop, and the time at which nodes last checked for interrupts.
        self.loop_state = memory.take(LOOP_STATE)
        self.driver.fill(self.loop_state.address, LOOP_STATE)
        self.temporary_bytes = self.prepared.temporary_bytes
        constants = np.zeros(self.program.constant_bytes, np.uint8)
        for slot, array in zip(self.program.constant_slots, self.program.constants, strict=True):
            constants[slot.offset : slot.offset + slot.size] = array.reshape(-1).view(np.uint8)
        self._constants = memory.allocate_copy(constants, constants.shape)
        self.frame = CallFrame(self.program, self._constants.address)
        self.graphs: dict[tuple[int, ...], Any] = {}
        self._seen: dict[tuple[int, ...], None] = {}
        self._timed_graphs: dict[tuple[int, ...], tuple[Any, StepTimer]] = {}
        self._has_run = False

    def start(self, addresses: tuple[int, ...], tapes: Tapes | None = None) -> None:
        """Start the program on these addresses. `tapes` has the entries of the tapes among arguments and results."""
        graph = self.graphs.get(addresses)
        if graph is not None:
            self.driver.start(graph)
        elif self.prepared.can_record and (addresses in self._seen or (self.prepared.nodes and self._has_run)):
            # Without nodes the host waits for conditions. In the first run it does: libraries cannot load during a
            # capture what they load on first use.
            self._seen.pop(addresses, None)
            graph = self.driver.record(lambda stream: self._run(addresses, stream, recorded=True))
            while len(self.graphs) >= MOST_GRAPHS:
                self.graphs.pop(next(iter(self.graphs)), None)
            self.graphs[addresses] = graph
            self.driver.start(graph)
        else:
            while len(self._seen) >= MOST_SEEN:
                self._seen.pop(next(iter(self._seen)), None)
            self._seen[addresses] = None
            self._run(addresses, self.driver, tapes=tapes)

    def run_timed(self, addresses: tuple[int, ...], tapes: Tapes | None = None, events: int | None = None) -> StepLog:
        """Run the program on these addresses, wait for it, and return the times of its steps.

        The log has at most `events` single events (default: only if a profiler records them). Steps are in a graph if
        possible, in which the GPU does not wait for the host.
        """
        if events is None:
            events = MOST_EVENTS if spans.wants_events() else 0
        self.complete()
        log = StepLog(list(self.prepared.timed), events, self.driver.name)
        self.driver.synchronize()
        with spans.run_of(self, self.program.name, log):
            # Libraries cannot load during a capture what they load on first use.
            recorded = self._graph_with_timer(addresses) if self.prepared.can_record and self._has_run else None
            began = spans.now()
            if recorded is None:
                timer = StepTimer(self.driver, recorded=False)
                self._run(addresses, self.driver, timer, tapes)
            else:
                graph, timer = recorded
                self.driver.start(graph)
            log.fill(timer.times(began))
        return log

    def complete(self) -> None:
        """Restore the source lines of the steps, which timing needs."""
        self.compilation.complete()
        if self.prepared.steps is not self.program.steps:
            self.prepared = prepare_steps(self.compilation, self.driver, CodeStats())

    def _graph_with_timer(self, addresses: tuple[int, ...]) -> tuple[Any, StepTimer]:
        """Return the graph with events between its steps, and their timer."""
        found = self._timed_graphs.get(addresses)
        if found is None:
            timer = StepTimer(self.driver, recorded=True)
            found = self.driver.record(lambda stream: self._run(addresses, stream, timer, recorded=True)), timer
            while len(self._timed_graphs) >= MOST_GRAPHS:
                self._timed_graphs.pop(next(iter(self._timed_graphs)), None)
            self._timed_graphs[addresses] = found
        return found

    def _run(
        self,
        addresses: tuple[int, ...],
        work: Any,
        timer: StepTimer | None = None,
        tapes: Tapes | None = None,
        recorded: bool = False,
    ) -> None:
        """Start the steps in the GPU's stream, or in one that captures them."""
        self._has_run = True
        count = len(self.program.arguments)
        steps = self.prepared
        arguments, results = addresses[:count], [*addresses[count:]]
        flag = None if steps.flag is None else results.pop()
        temporaries = results.pop()
        fresh = iter(results)
        outputs = [next(fresh) if alias is None else arguments[alias] for alias in self.program.aliases]
        registers = self.frame.initial_registers(temporaries, list(arguments), outputs)
        run = Run(self, steps, registers, work, timer, tapes or Tapes(self.memory), recorded)
        run.steps(steps.started)
        if steps.flag is not None and flag is not None:
            work.copy(flag, run.address(steps.flag), 1)


class CudaExecutable:
    """Executable for GPUs. It is loaded to each GPU that it is called on.

    A call takes arrays (donated ones as blocks), and returns arrays.
    """

    asynchronous = False  # every call returns before the program has run

    def __init__(self, compilation: Compilation, again: Callable[[], Any] | None = None) -> None:
        self.compilation = compilation
        self.program = compilation.program
        self.again = again
        self.compile_stats: list[CodeStats] = []  # cost of the code on each GPU
        self.in_types: list[Any] = [v.aval for v in compilation.traced.invars]
        self.out_types: list[Any] = [v.aval for v in compilation.traced.outvars]
        # They are needed until the error flag of the run has been checked.
        self.holds_arguments = compilation.flagged
        self.has_tapes = any(isinstance(t, TapeType) for t in (*self.in_types, *self.out_types))
        self._loaded: dict[CudaMemory, LoadedProgram] = {}

    def __call__(self, arrays: Sequence[Any], donate: Callable[[], None] | None, placement: Placement) -> list[Any]:
        """Start the program on arrays; return arrays at a placement.

        `donate` is called when all memory is allocated and before donated memory is overwritten.
        """
        loaded = self.load(placement.memory)
        return self._call(arrays, donate, placement, loaded.run_timed if config.profiling else loaded.start)[0]

    def run_timed(
        self, arrays: Sequence[Any], events: int, donate: Callable[[], None] | None, placement: Placement
    ) -> tuple[list[Any], StepLog]:
        """Call the program, and return its results and the times of its steps, with at most `events` single events."""
        loaded = self.load(placement.memory)
        return self._call(
            arrays, donate, placement, lambda addresses, tapes: loaded.run_timed(addresses, tapes, events)
        )

    def _call(
        self,
        arrays: Sequence[Any],
        donate: Callable[[], None] | None,
        placement: Placement,
        start: Callable[[tuple[int, ...], Tapes], Any],
    ) -> tuple[list[Any], Any]:
        """Return the results of a call, and the value of the function that starts it."""
        memory: CudaMemory = placement.memory
        tapes = Tapes(memory)
        operands: list[Any] = [
            a if type(a) is Block else tapes.put_tape(a) if isinstance(t, TapeType) else operand(a, t, placement)
            for a, t in zip(arrays, self.in_types, strict=True)
        ]
        addresses = [a.address if type(a) is Block else a._pointer for a in operands]
        results: list[Any] = []
        outputs: list[int] = []
        for aval, alias in zip(self.out_types, self.program.aliases, strict=True):
            what = f"result {len(results)} ({aval.short()})"
            block = self._take(memory, byte_size(aval), what) if alias is None else operands[alias]
            results.append(array_at(placement, None, aval, block, block.address))
            if alias is None:
                outputs.append(block.address)
        # It returns to the pool at once: its next user comes later in the stream.
        loaded = self.load(memory)
        temporaries = self._take(memory, loaded.temporary_bytes, "the temporaries")
        flags = [] if loaded.prepared.flag is None else [memory.take(1)]
        # Donated arguments are deleted when the flag is checked; their memory is not.
        blocks = [a if type(a) is Block else a._memory for a in operands] if flags else []
        held = [array_at(placement, None, *each) for each in zip(self.in_types, blocks, addresses, strict=False)]
        if donate is not None:
            donate()
        started = start((*addresses, *outputs, temporaries.address, *(f.address for f in flags)), tapes)
        for flag in flags:
            memory.add_flag(PendingFlag(flag, partial(self._run_with_traps, held, placement)))
        found = [
            tapes.get_tape(r._pointer, t) if isinstance(t, TapeType) else r
            for r, t in zip(results, self.out_types, strict=True)
        ]
        return found, started

    def _run_with_traps(self, operands: Sequence[Any], placement: Placement) -> None:
        """Run the program with traps, and raise the error of the failed check."""
        assert self.again is not None
        self.again()(operands, None, placement)

    def _take(self, memory: CudaMemory, size: int, what: str) -> Block:
        """Allocate memory for `what`, which an error names."""
        try:
            return memory.take(size)
        except OutOfMemoryError as error:
            of, said = f"{what} of {self.program.name or 'the program'} on the GPU", error.received
        raise out_of_memory(of, size, f"{memory_summary(self)}\n{said}")

    def load(self, memory: CudaMemory) -> LoadedProgram:
        """Return the program loaded on a GPU; load it on the first use."""
        found = self._loaded.get(memory)
        if found is None:
            found = self._loaded.setdefault(memory, LoadedProgram(self.compilation, memory))
            self.compile_stats.append(found.stats)
            if self.compilation.folder is not None:
                self._dump(self.compilation.folder, found.stats)
        return found

    def _dump(self, folder: pathlib.Path, stats: CodeStats) -> None:
        """Write LLVM text and PTX for WEFT_DUMP."""
        inside = self.inside
        dump.write(folder / f"{dump.FIRST + 2}_llvm.ll", ";", stats.summary, inside.llvm())
        dump.write(folder / f"{dump.FIRST + 3}_assembly.ptx", "//", stats.summary, inside.assembly())

    # -- inspection ------------------------------------------------------------------------------------------------

    @property
    def inside(self) -> CudaInside:
        """Inspector of the program: its texts and statistics."""
        return inspection.CudaInside(self)

    def get_first_program(self) -> LoadedProgram:
        """Return the program on the first GPU that it was loaded to."""
        return next(iter(self._loaded.values()))

    def code_bytes(self) -> int:
        """Return the bytes of its code on a GPU."""
        return sum(entry.size for entry in self.get_first_program().prepared.entries.values())

    def optimise(self) -> None:
        """Do nothing: its code is the best there is."""

    def own_arguments(self, values: Sequence[Any], donated: Sequence[bool], placement: Placement) -> list[Any]:
        """Convert values to arguments of a call; those that the program may overwrite are copied."""
        found: list[Any] = []
        for i, (value, aval) in enumerate(zip(values, self.in_types, strict=True)):
            array = operand(value, aval, placement)
            copy = donated and donated[i]
            found.append(placement.memory_backend.copy_between(array, placement.device)[1] if copy else array)
        return found


def operand(value: Any, aval: Any, placement: Placement) -> ConcreteArray:
    """Return an argument as an array on the GPU of a placement."""
    if not isinstance(value, ConcreteArray):
        return copy_array(value, aval, placement)
    if value.is_deleted():
        value._raise_deleted()
    return value if value._placement.device is placement.device else put(value, placement)


class Run:
    """One run of a program: its registers hold addresses and counters.

    Steps are started in `work`, and `timer` measures each. In a `recorded` run, loops and branches may be conditional
    nodes of the graph.
    """

    def __init__(
        self,
        loaded: LoadedProgram,
        steps: PreparedSteps,
        registers: np.ndarray,
        work: Any,
        timer: StepTimer | None,
        tapes: Tapes,
        recorded: bool = False,
    ) -> None:
        self.prepared, self.arrived = steps, loaded.loop_state.address
        self.driver, self.work, self.timer, self.tapes = loaded.driver, work, timer, tapes
        self.program, self.registers = loaded.program, registers
        self.nodes = NodeRecorder(self, self.arrived + LOOKED) if recorded and steps.nodes else None

    def address(self, slot: Slot) -> int:
        register, offset = slot_address(slot, self.program)
        return int(self.registers[register]) + offset

    @property
    def temporaries(self) -> int:
        """Address of the temporaries."""
        return int(self.registers[TEMPORARIES])

    def scalar(self, slot: Slot, dtype: Any) -> Any:
        """Read a number, after all earlier work has ended."""
        value = np.zeros(1, dtype)
        self.driver.copy_out(value, self.address(slot))
        return value[0]

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if self.timer is None or step not in self.prepared.timed:
                self.step(step)
            else:
                self.timer.begin(self.work)
                self.step(step)
                self.timer.end(step, self.work)

    def step(self, step: Any) -> None:
        match step:
            case _ if step in self.prepared.loops:
                self.loop(self.prepared.loops[step])
            case _ if self.nodes is not None and self.nodes.records(step):
                pass
            case Launch():
                if step.iterations:
                    addresses = [self.address(slot) for slot in step.slots]
                    self.work.launch(self.prepared.entry(kernel_symbol(step.kernel)), addresses)
            case Copy():
                if step.size:
                    self.work.copy(self.address(step.target), self.address(step.source), step.size)
            case Fill():
                if step.target.size:
                    self.work.fill(self.address(step.target), step.target.size)
            case SetAddress():
                assert step.target.register is not None
                shift = int(self.registers[step.counter.index]) * step.stride
                self.registers[step.target.register.index] = self.address(step.base) + shift
            case Count():
                self.work.set_word(self.address(step.target), int(self.registers[step.counter.index]))
            case Loop():
                count = int(self.scalar(step.count, np.int32)) if isinstance(step.count, Slot) else step.count
                for i in reversed(range(count)) if step.reverse else range(count):
                    self.registers[step.counter.index] = i
                    self.steps(step.body)
            case While():
                self.while_loop(step)
            case Branch():
                index = int(self.scalar(step.index, step.dtype))
                self.steps(step.branches[min(max(index, 0), len(step.branches) - 1)])
            case Call(routine="host"):
                self.call_host(step)
            case Call() if step.routine in TAPE_ROUTINES:
                self.tapes.call(step.routine, [self.address(slot) for slot in step.slots], step.parameters)
            case Call():
                addresses = [self.address(slot) for slot in step.slots]
                self.prepared.calls.start(step, self.work, addresses, self.temporaries)
            case Start():
                self.steps([step.step])  # the stream keeps the order
            case Wait():
                pass
            case Communicate():
                raise InternalError(f"{step.label} must be in a program for several devices.", stage="run")
            case _:
                assert_never(step)

    def loop(self, code: LoopCode) -> None:
        """Start a loop that is one kernel."""
        if code.counts:
            self.work.fill(self.arrived, 4)
        addresses = [int(self.registers[a.register]) + a.offset for a in code.addresses]
        counters = [int(self.registers[index]) for index in code.counters]
        interrupt = self.driver.interrupts.address
        self.work.launch(self.prepared.entry(code.symbol), [*addresses, *counters, self.arrived, interrupt])

    def while_loop(self, step: While) -> None:
        if step.counter is not None:
            self.registers[step.counter.index] = 0
        while True:
            self.steps(step.condition)
            if not self.scalar(step.predicate, np.bool_):
                return
            self.steps(step.body)
            if step.counter is not None:
                self.registers[step.counter.index] += 1

    def call_host(self, step: Call) -> None:
        """Call Python with copies of the operands, and copy its results back."""
        assert step.host is not None
        arrays = [np.empty(shape, dtype) for shape, dtype in step.types]
        count = len(arrays) - step.results
        for slot, array in zip(step.slots[:count], arrays, strict=False):
            if array.nbytes:
                self.driver.copy_out(array, self.address(slot))
        trace, source = context.trace, context.source
        context.trace, context.source = EVALUATION, step.line or source
        try:
            more = (
                {} if step.counters is None else {"iterations": [int(self.registers[c.index]) for c in step.counters]}
            )
            with np.errstate(all="ignore"):
                step.host(*arrays[:count], out=arrays[count:], **more)
        finally:
            context.trace, context.source = trace, source
        for slot, array in zip(step.slots[count:], arrays[count:], strict=True):
            if array.nbytes:
                self.driver.copy_in(self.address(slot), np.ascontiguousarray(array))
