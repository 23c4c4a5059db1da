"""Executables: compiled programs in memory, to be called with arrays."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base import collector, spans
from weft.base.compile_options import DEFAULT, CompileOptions
from weft.base.dataclass import dataclass
from weft.base.errors import InternalError, OutOfMemoryError
from weft.base.forks import held
from weft.base.lazy import lazy
from weft.base.settings import config
from weft.compiler.compilation import Compilation, Flat, Tuner
from weft.compiler.kernel.ir import Kernel, NamedKernel
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.load import load_or_compile
from weft.compiler.program import times
from weft.compiler.program.frame import TAPES, CallFrame
from weft.compiler.program.ir import TAPE_ROUTINES, Call, Launch, Loop, Step, While, byte_size
from weft.compiler.program.program_at_sizes import ProgramAtSizes
from weft.compiler.target.code_stats import CodeIsGone
from weft.compiler.target.cpu import bytecode, interrupt, kernels, loops, pool, tape, timestamps
from weft.compiler.target.cpu.ahead import BackgroundCompilation, hot_kernels
from weft.compiler.target.cpu.assemble import Assembly
from weft.compiler.target.cpu.link import Object, Tier
from weft.compiler.target.cpu.prepared_code import PreparedCode
from weft.compiler.target.target import Target
from weft.ir.at_sizes import JaxprAtSizes
from weft.ir.context import EVALUATION, context
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import TapeType
from weft.primitives.control.check import FlagRaised
from weft.runtime.array import array_at
from weft.runtime.cpu import memory, tapes, tiers
from weft.runtime.device import HOME, Placement
from weft.runtime.memory import out_of_memory
from weft.runtime.program_memory import memory_summary

if TYPE_CHECKING:
    from weft.compiler.target.cpu import dump
    from weft.runtime.cpu import inside as inspection
    from weft.runtime.cpu.inside import CpuInside
else:
    dump = lazy("weft.compiler.target.cpu.dump")
    inspection = lazy("weft.runtime.cpu.inside")

# Python callbacks by index; those of a program are removed with it.
_hosts: dict[int, Call] = {}
_next_host = 0
_lock = held(threading.Lock())
# Programs that are estimated to run longer than this many nanoseconds are compiled with better code from the start.
WORTH_MORE = 200e6
# The call at which other programs get better code.
CALLS_BEFORE_BETTER_CODE = 2
# Programs for symbolic sizes share their kernels: better ones are compiled when runs with any sizes took this many
# nanoseconds in all, and for new kernels whenever that time has doubled.
TIME_OF_ALL_SIZES = 10_000_000
# The fraction of the work whose kernels are compiled first.
MOST_OF_THE_WORK = 0.8
# Programs whose last run took this many nanoseconds are queued, until a run takes less than half of it.
WORTH_QUEUEING = 500_000
# The most events that a run of a program with loops records.
MOST_EVENTS = 200_000


def _call_host(table: int, parameters: int, registers: int) -> None:
    """Run a Python callback for native code: pass it arrays over the program's memory and store its results.

    An exception is raised from the call of the program.
    """
    step = _hosts[ctypes.c_int64.from_address(parameters).value]
    pointers = (ctypes.c_int64 * len(step.slots)).from_address(table)
    arrays = [memory.view(p, shape, dtype) for p, (shape, dtype) in zip(pointers, step.types, strict=True)]
    count = len(arrays) - step.results
    trace, source = context.trace, context.source
    context.trace, context.source = EVALUATION, step.line or source
    try:
        assert step.host is not None
        with np.errstate(all="ignore"):
            if step.counters is None:
                step.host(*arrays[:count], out=arrays[count:])
            else:
                iterations = [ctypes.c_int64.from_address(registers + 8 * c.index).value for c in step.counters]
                step.host(*arrays[:count], out=arrays[count:], iterations=iterations)
    finally:
        context.trace, context.source = trace, source


interrupt.set_host(_call_host)


def _host_address() -> int:
    return pool.library().addresses["weft_host"]


@dataclass
class RunsOfAllSizes:
    """Total run time of the programs of one symbolic family, and the newest of these programs."""

    nanoseconds: int = 0
    worth_more: int = TIME_OF_ALL_SIZES
    newest: Callable[[], InstanceExecutable | None] = lambda: None


def runs_of_all_sizes(general: Jaxpr) -> RunsOfAllSizes:
    """Return the run statistics of all programs of a jaxpr with symbolic sizes."""
    return general.memoize("runs", RunsOfAllSizes)


class Executable:
    """Program in memory. A call takes arrays in storage dtype, one for each argument, and returns arrays.

    Donated arguments may be blocks of memory.
    """

    # Failed checks are raised before a call returns, so arguments need not be kept alive for a second run.
    holds_arguments = False

    def __init__(
        self,
        compilation: Compilation,
        again: Callable[[], Executable] | None = None,
        begun: Callable[[Tier], Iterable[Object]] | None = None,
        devices: int = 1,
    ) -> None:
        global _next_host
        self.compilation = compilation
        # For a program with one flag for all its checks: builds the one with traps, which reports the failed check.
        self.again = again
        program = self.program = compilation.program
        hosts = [step for step in program.all_steps() if isinstance(step, Call) and step.routine == "host"]
        count = len(hosts)
        with _lock:  # without a call inside: there a signal handler could run and wait for the lock
            self._first_host = _next_host
            _next_host += count
        for index, step in enumerate(hosts, self._first_host):
            _hosts[index] = step
        weakref.finalize(self, _forget, range(self._first_host, self._first_host + count))
        self._codes: list[np.ndarray] = []
        self._held: list[Any] = []  # the kernels of all codes
        self.compile_stats: list[kernels.CompileStats] = []  # one for the code of each tier
        self.loops: dict[Step, loops.NativeLoop] = {}  # loops that are compiled to native code
        self._timed: _Timed | None = None
        self._calls = 0
        traced = compilation.traced
        general = traced.general if isinstance(traced, JaxprAtSizes) else None
        self._runs_of_all: RunsOfAllSizes | None = None if general is None else runs_of_all_sizes(general)
        # Duration of the last measured run, and whether calls may return before the program has run (`queue`).
        self.nanoseconds, self.asynchronous = 0, False
        tier = Tier.LIGHT if program.nanoseconds > WORTH_MORE else Tier.QUICK
        hot = hot_kernels(program, compilation.target, devices) if tier is Tier.QUICK else ()
        assembly = self._link(tier, begun, hot)
        self.blocks = assembly.blocks
        self.constants = memory.allocate_aligned(max(program.constant_bytes, 1))
        for slot, array in zip(program.constant_slots, program.constants, strict=True):
            self.constants[slot.offset : slot.offset + slot.size] = array.reshape(-1).view(np.uint8)
        # Registers at the end point to the parameters of library calls.
        fixed = [(register, block.ctypes.data) for register, block in assembly.pointers]
        self.frame = CallFrame(program, self.constants.ctypes.data, fixed)
        # The traced types: passes preserve shapes and dtypes, but not weak types.
        self.in_types: list[Any] = [v.aval for v in compilation.traced.invars]
        self.out_types: list[Any] = [v.aval for v in compilation.traced.outvars]
        self.has_tapes = any(isinstance(s, Call) and s.routine in TAPE_ROUTINES for s in program.all_steps()) or any(
            isinstance(t, TapeType) for t in (*self.in_types, *self.out_types)
        )

    def _link(
        self,
        tier: Tier,
        begun: Callable[[Tier], Iterable[Object]] | None = None,
        hot: Collection[str] = (),
        yields: bool = False,
    ) -> Assembly:
        """Compile the kernels and write the bytecode that the next run takes.

        `hot` kernels are compiled to light code at once; `begun` returns objects whose compilation has started already.
        """
        target = self.compilation.target
        light: dict[str, kernels.CompiledKernel] = {}
        if hot:
            stats = kernels.CompileStats(tier=Tier.LIGHT)
            light = kernels.compile_kernels(
                (k for k in self._find_kernels() if kernel_symbol(k) in hot), target, Tier.LIGHT, stats, begun
            )
            self.compile_stats.append(stats)
        stats = kernels.CompileStats(tier=tier)
        between = _nothing if yields else None
        try:
            self.kernels = light | kernels.compile_kernels(
                self._find_kernels(besides=light), target, tier, stats, begun, between
            )
        except CodeIsGone:  # the program is on disk, but its code has been deleted
            self.compilation.complete()
            self.kernels = kernels.compile_kernels(self._find_kernels(), target, tier, stats, between=between)
        self.tier, self.loops, self.can_improve = stats.tier, {}, stats.tier is Tier.QUICK
        if stats.tier is not Tier.QUICK:
            # Without time to compile, only loops whose code exists are native.
            make = tier is not Tier.QUICK
            self.loops, self.can_improve = loops.native_loops(self.program, target, stats, make)
        with spans.measured(stats.seconds, "compile", "assemble"):
            assembly = Assembly(self.program, self._address, _host_address(), self._first_host, self.loops)
            self._codes.append(assembly.bytecode())  # a run may still execute the older one
        self._held.append((self.kernels, self.loops))
        self.compile_stats.append(stats)
        if self.compilation.folder is not None:
            dump.write_code(self.compilation.folder, self.inside.distinct_kernels(), target, stats)
        self.code_address: int = self._codes[-1].ctypes.data
        return assembly

    def _find_kernels(self, besides: Collection[str] = ()) -> list[Kernel | NamedKernel]:
        """Return the kernels of the program, except those with the names `besides`."""
        found = dict.fromkeys(step.kernel for step in self.program.all_steps() if isinstance(step, Launch))
        return [kernel for kernel in found if kernel_symbol(kernel) not in besides] if besides else list(found)

    def _address(self, kernel: Kernel | NamedKernel) -> int:
        return self.kernels[kernel_symbol(kernel)].address

    def optimise(self, yields: bool = False) -> None:
        """Replace the code by better code with the same bits. Runs in progress finish with the old code.

        With `yields` it compiles in the background and lets other compilations run in between.
        """
        if self.can_improve:
            self._link(Tier.LIGHT, yields=yields)

    def __call__(
        self, arrays: Sequence[Any], donate: Callable[[], None] | None = None, placement: Placement = HOME
    ) -> list[Any]:
        """Run on arrays in storage dtype (and tapes); return new arrays at a placement.

        Results may reuse the memory of donated arguments, which must be on the same device. `donate` is called after
        all memory is allocated and before donated memory is overwritten: from then on the arrays must be unusable,
        even if the run is interrupted.
        """
        self._calls += 1
        if self.can_improve and (self._calls == CALLS_BEFORE_BETTER_CODE or self._is_one_of_many()):
            tiers.improve(self)
        if config.profiling:
            return self.run_timed(arrays, self._events() if spans.wants_events() else 0, donate, placement)[0]
        return self._run(arrays, self.code_address, donate, placement)

    def _is_one_of_many(self) -> bool:
        """Return whether the programs of all sizes with the same kernels have run long enough for better code."""
        runs = self._runs_of_all
        if runs is None or runs.nanoseconds < runs.worth_more:
            return False
        runs.worth_more *= 2
        return True

    def _run(
        self,
        arrays: Sequence[Any],
        code: int,
        donate: Callable[[], None] | None,
        placement: Placement,
        log: timestamps.TimestampLog | None = None,
    ) -> list[Any]:
        program = self.program
        held: list[Any] = []
        operands: list[Any] = []
        arguments: list[int] = []
        for array, aval in zip(arrays, self.in_types, strict=True):
            if type(array) is memory.Block:  # donated
                operands.append(array)
                arguments.append(array.address)
                continue
            if isinstance(aval, TapeType):
                array = tapes.to_native(array, held)
            elif type(array) is not np.ndarray or not array.flags.c_contiguous:
                array = np.ascontiguousarray(array).reshape(aval.shape)
            operands.append(array)
            arguments.append(array.ctypes.data)
        results: list[Any] = []
        outputs: list[int] = []
        for aval, alias in zip(self.out_types, program.aliases, strict=True):
            pointer = 0
            if isinstance(aval, TapeType):
                result: Any = np.zeros(2, np.int64)
                pointer = result.ctypes.data
            elif alias is not None:
                owner, pointer = operands[alias], arguments[alias]
                if type(owner) is memory.Block:
                    result = array_at(placement, None, aval, owner, pointer)
                else:
                    result = array_at(placement, owner.reshape(aval.shape), aval)
            else:
                try:
                    pointer, chunk = self.allocate(byte_size(aval), placement.memory)
                except OutOfMemoryError:
                    what = f"result {len(results)} ({aval.short()})"
                    raise self._out_of_memory(what, byte_size(aval)) from None
                result = array_at(placement, None, aval, chunk, pointer)
            results.append(result)
            outputs.append(pointer)
        free = self.free_temporaries(placement.memory)
        temporaries = self.take_temporaries(free)
        registers = self.frame.initial_registers(temporaries.address, arguments, outputs)
        if log is not None:
            registers = np.append(registers, log.address)
        try:
            if donate is not None and self.again is None:
                donate()
            try:
                started = time.perf_counter_ns()
                status = bytecode.run(code, registers.ctypes.data)
                self.took(time.perf_counter_ns() - started)
            except FlagRaised:
                status = None  # run again outside of this handler, so that the error has no context
            if status is None:
                return self._run_with_traps(operands, placement)
            if status:
                self.raise_(status)
            return [
                tapes.from_native(r, t) if isinstance(t, TapeType) else r
                for r, t in zip(results, self.out_types, strict=True)
            ]
        finally:
            if self.has_tapes and registers[TAPES]:
                tape.free(registers.ctypes.data)
            free.append(temporaries)

    def run_timed(
        self,
        arrays: Sequence[Any],
        events: int = 0,
        donate: Callable[[], None] | None = None,
        placement: Placement = HOME,
    ) -> tuple[list[Any], timestamps.TimestampLog]:
        """Run like a call; return the results and a log of the time of each step, with at most `events` single
        events.
        """
        if not timestamps.can_time(self.compilation.target.triple):
            return self._run(arrays, self.code_address, donate, placement), timestamps.TimestampLog([], 0)
        timed = self._timed_code()
        log = timestamps.TimestampLog(timed.steps, events)
        with spans.run_of(self, self.program.name, log):
            results = self._run(arrays, timed.address, donate, placement, log)
        return results, log

    def took(self, nanoseconds: int) -> None:
        """Record the duration of a run."""
        self.nanoseconds = nanoseconds
        if self._runs_of_all is not None:
            self._runs_of_all.nanoseconds += nanoseconds
        self.asynchronous = nanoseconds >= WORTH_QUEUEING / (2 if self.asynchronous else 1)

    prepare = staticmethod(pool.prepare)

    def entry(self) -> Callable[[int, bytes, int, int], int]:
        """Return the native entry point for dispatchers.

        It takes the code's address, the packed registers, their count and the count of all registers, and returns the
        status.
        """
        return bytecode.enter()

    def enter_timed(self, packed: bytes) -> int:
        """Run with these registers and record the time of each step; return the status.

        Dispatchers call it while profiling.
        """
        count = self.frame.registers
        if not timestamps.can_time(self.compilation.target.triple):
            return bytecode.enter()(self.code_address, packed, len(packed) // 8, count)
        timed = self._timed_code()
        log = timestamps.TimestampLog(timed.steps, self._events() if spans.wants_events() else 0)
        packed = packed.ljust(8 * count, b"\0") + log.address.to_bytes(8, sys.byteorder)
        with spans.run_of(self, self.program.name, log):
            return bytecode.enter()(timed.address, packed, count + 1, count + 1)

    def _timed_code(self) -> _Timed:
        self.compilation.complete()  # a timed run reports the lines of steps
        timed = self._timed
        if timed is None or timed.code_address != self.code_address:
            timed = self._timed = _Timed(self)
        return timed

    def _events(self) -> int:
        """Return the capacity for the events of one run."""
        steps = sum(isinstance(step, times.TIMED) for step in self.program.all_steps())
        loops = any(isinstance(step, (Loop, While)) for step in self.program.all_steps())
        return MOST_EVENTS if loops else steps

    def allocate(self, size: int, of: memory.DeviceMemory) -> tuple[int, memory.Chunk]:
        """Allocate a result; return its address and allocation."""
        return of.allocate(size)

    def free_temporaries(self, of: memory.DeviceMemory) -> memory.Temporaries:
        """Return the pool of temporaries that runs take a chunk from and return it to."""
        return of.temporaries(self.program.temporary_bytes)

    def take_temporaries(self, free: memory.Temporaries) -> memory.Chunk:
        """Take memory for one run from the pool, or allocate it."""
        try:
            return free.take()
        except OutOfMemoryError:
            raise self._out_of_memory("the temporaries", self.program.temporary_bytes) from None

    def _out_of_memory(self, what: str, size: int) -> OutOfMemoryError:
        of = f"{what} of {self.program.name or 'the program'}"
        return out_of_memory(of, size, memory_summary(self))

    # -- looking inside --------------------------------------------------------------------------------------------

    @property
    def inside(self) -> CpuInside:
        """Inspector of the program: its text at each level, and its costs."""
        return inspection.CpuInside(self)

    def own_arguments(self, values: Sequence[Any], donated: Sequence[bool], placement: Placement) -> list[Any]:
        """Return NumPy arrays as arguments of a call, copied where the program may overwrite them."""
        return [np.array(value) if donated and donated[n] else value for n, value in enumerate(values)]

    def code_bytes(self) -> int:
        """Return the size of the code in bytes."""
        return self._codes[-1].nbytes + sum(
            compiled.library.size for compiled in (*self.kernels.values(), *(loop.code for loop in self.loops.values()))
        )

    def _run_with_traps(self, arrays: Sequence[Any], placement: Placement) -> list[Any]:
        """Run again with traps to report the failed check. If none fails this time, the results are valid."""
        assert self.again is not None
        return self.again()(arrays, None, placement)

    def raise_(self, status: int) -> None:
        """Raise the error for a status of native code."""
        if status == 2:
            raise OutOfMemoryError(
                f"There is not enough memory for the residuals that a loop of {self.program.name or 'the program'} "
                "stores of each iteration for its derivative.",
                fix=(
                    "wrap the body in weft.checkpoint, which stores only its arguments",
                    "make fewer iterations",
                ),
            )
        raise InternalError(f"The program {self.program.name} ended with status {status}.", stage="run")


class _Superseded(Exception):
    """Another program has to get better code first."""


class InstanceExecutable(Executable):
    """Program at concrete sizes in memory. It shares its kernels, and its bytecode except for integers, with the
    program for all sizes of its class.
    """

    program: ProgramAtSizes

    def __init__(self, compilation: Compilation, again: Callable[[], Executable] | None = None) -> None:
        self.compilation, self.again = compilation, again
        program = compilation.program
        assert isinstance(program, ProgramAtSizes)
        self.program = program
        self._first_host = 0
        self._codes, self._held, self.compile_stats = [], [], []
        self.loops, self.blocks = {}, []
        self._timed = None
        self._calls = 0
        traced = compilation.traced
        assert isinstance(traced, JaxprAtSizes)
        self._runs_of_all = runs_of_all_sizes(traced.general)
        self.nanoseconds, self.asynchronous = 0, False
        self._link(Tier.LIGHT if program.nanoseconds > WORTH_MORE else Tier.QUICK)
        self._runs_of_all.newest = weakref.ref(self)
        prepared = program.prepared
        block = memory.allocate_aligned(prepared.block.nbytes).view(np.int64)
        prepared.write_constants(program.integers, block)
        self.constants = block.view(np.uint8)
        frame = prepared.frame
        if frame is None:
            frame = prepared.frame = CallFrame(prepared.program)
        self.frame = frame.at(block.ctypes.data)
        self.in_types = [v.aval for v in traced.invars]
        self.out_types = [v.aval for v in traced.outvars]
        self.has_tapes = False

    def optimise(self, yields: bool = False) -> None:
        """Replace the code by better code; with `yields` the newest program comes first, if it has other kernels.

        New sizes often come in a row, and kernels of earlier sizes may not be needed again.
        """
        runs = self._runs_of_all
        assert runs is not None
        better: InstanceExecutable | None = self
        while better is not None:
            try:
                super(InstanceExecutable, better).optimise(yields)
                return
            except _Superseded:
                better = runs.newest()

    def _link(  # type: ignore[override]
        self, tier: Tier, begun: None = None, hot: Collection[str] = (), yields: bool = False
    ) -> None:
        stats = kernels.CompileStats(tier=tier)
        prepared, target = self.program.prepared, self.compilation.target
        found: PreparedCode | None = prepared.codes.get(target)
        if found is None or found.tier.value < tier.value:
            work = prepared.work_of_kernels(self.program.integers)
            between = self._make_switch(work) if yields else None
            compiled = kernels.compile_kernels(work, target, tier, stats, between=between)
            with spans.measured(stats.seconds, "compile", "assemble"):
                found = PreparedCode(prepared, compiled, stats.tier)
        else:
            stats.reused, stats.tier = len(found.kernels), found.tier
        self._take(found)
        self.compile_stats.append(stats)

    def _make_switch(self, work: Mapping[Kernel, float]) -> Callable[[Mapping[str, Any]], None]:
        """Return a callback that takes better code as soon as the kernels that do most of the work are compiled.

        It raises `_Superseded` if another program has to come first.
        """
        enough, total, first = MOST_OF_THE_WORK * sum(work.values()), 0.0, set[str]()
        for kernel, nanoseconds in work.items():
            if total < enough:
                first.add(kernel_symbol(kernel))
                total += nanoseconds

        def take(held: Mapping[str, Any]) -> None:
            if first and first <= held.keys():
                first.clear()
                best = kernels.compile_kernels(work, self.compilation.target, Tier.QUICK)
                self._take(PreparedCode(self.program.prepared, best, Tier.QUICK))
            newest = None if self._runs_of_all is None else self._runs_of_all.newest()
            if newest is not None and newest.can_improve and newest.program.prepared is not self.program.prepared:
                raise _Superseded

        return take

    def _take(self, code: PreparedCode) -> None:
        """Use this code from the next run on, for programs of other sizes too."""
        self.program.prepared.codes[self.compilation.target] = code
        self.kernels, self.tier = code.kernels, code.tier
        self.can_improve = code.tier is Tier.QUICK
        self._codes.append(code.at(self.program))  # a run may still execute the older one
        self._held.append(self.kernels)
        self.code_address = self._codes[-1].ctypes.data


@collector.without_collection
def compile_executable(
    jaxpr: Jaxpr,
    donated: Sequence[bool],
    target: Target,
    options: CompileOptions = DEFAULT,
    again: Callable[[], Executable] | None = None,
    flat: str = "no",
    scheduled: Callable[[Compilation], Compilation] | None = None,
    meanwhile: Callable[[Compilation], None] | None = None,
    devices: int = 1,
    tune: Tuner | None = None,
) -> Executable:
    """Compile a jaxpr, whose constants are arguments, for a target; see `ExecutionBackend.compile`.

    `scheduled` reorders the steps and assigns their memory again. `meanwhile` is called when all steps are known, while
    threads compile their kernels. `devices` is the number of devices of this process that run the executable.
    `tune` measures the contractions of the fused jaxpr, if the setting allows time for it.
    """
    tuner = tune if config.autotune_milliseconds else None
    ahead = BackgroundCompilation(target, WORTH_MORE, devices)
    compilation = load_or_compile(jaxpr, donated, target, options, again is not None, tuner, Flat(flat), ahead.steps)
    if scheduled is not None:
        compilation = scheduled(compilation)
    if meanwhile is not None:
        ahead.complete()
        meanwhile(compilation)
    if isinstance(compilation.program, ProgramAtSizes) and scheduled is None:
        return InstanceExecutable(compilation, again)
    ahead.complete_others()
    return Executable(compilation, again, ahead.objects, devices)


class _Timed:
    """Bytecode with timestamps around the steps, for the current code of a program. It has one register more than the
    program itself, for the log.
    """

    def __init__(self, executable: Executable) -> None:
        self.code_address = executable.code_address
        assembly = timestamps.TimedAssembly(
            executable.program, executable._address, _host_address(), executable._first_host
        )
        self.steps = assembly.timed
        self._bytecode = assembly.bytecode()
        self.address = self._bytecode.ctypes.data
        if assembly.log_register != executable.frame.registers:
            raise InternalError("The log of a timed program must be in its last register.", stage="run")


def _nothing(held: Mapping[str, Any]) -> None:
    """Do nothing between the compilations of kernels that do not run yet."""


def _forget(indices: range) -> None:
    for index in indices:
        _hosts.pop(index, None)
