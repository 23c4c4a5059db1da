"""Asynchronous calls: jobs in the queue, and the memory that they keep alive until they have ended.

`compiler/target/cpu/queue.py` runs the programs; `docs/design/asynchrony.md` says which, and the consequences.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import operator
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import forks
from weft.base.errors import JaxRuntimeError, OutOfMemoryError
from weft.base.forks import held
from weft.base.source import Location, user_location
from weft.compiler.program.ir import byte_size
from weft.compiler.target.cpu import bytecode, interrupt, pool, queue
from weft.runtime.array import ConcreteArray, PlacedArray
from weft.runtime.cpu import memory
from weft.runtime.cpu.executable import Executable
from weft.runtime.device import HOME, Placement
from weft.runtime.promise import BORROWED, Promise, barriers

# The most programs, and bytes of results, in the queue.
MOST_JOBS, MOST_BYTES = 16, 1 << 28
# NumPy arguments are copied if they have at most this many bytes for each nanosecond that the program takes.
BYTES_A_NANOSECOND = 0.5
# A program whose caller had to run it `MOST_WAITED_FOR` times in a row runs synchronously, which is faster, for the
# next `CALLS_IN_CALLER` calls.
MOST_WAITED_FOR, CALLS_IN_CALLER = 3, 15


class Job:
    """Program in the queue. `held` keeps the memory that it reads and writes alive until its end has been observed."""

    __slots__ = ("bytes", "call", "error", "held", "index", "location")

    index: int
    held: tuple[Any, ...] | None

    def __init__(self, call: QueuedCall, size: int, location: Location | None) -> None:
        self.call = call
        self.bytes = size
        self.location = location
        self.error: Exception | None = None

    def is_done(self) -> bool:
        return self.held is None or _completion_counter().value >= self.index

    def wait(self) -> None:
        """Block until the program has ended; raise the error that it ended with."""
        if self.held is not None:
            _until(self.index)
        if self.error is not None:
            raise self.error.with_traceback(None)

    def end(self, status: int, nanoseconds: int, waited_for: bool) -> None:
        """Record the outcome and release the memory that the program needed."""
        executable = self.call.executable
        if status == interrupt.INTERRUPTED:
            at = "" if self.location is None else f" by the call at {self.location.describe()}"
            self.error = JaxRuntimeError(
                f"The program {executable.program.name or 'that computes this array'}, which was started{at}, was "
                "interrupted, so its results have no elements.",
                fix="call it again",
            )
        elif status:
            try:
                executable.raise_(status)
            except Exception as error:
                self.error = error
        else:
            executable.took(nanoseconds)
            self.call.record_end(waited_for)
        self.held = None


# Jobs that may not have ended, in order. Generated dispatchers refer to this very object to test whether it is empty.
flying: deque[Job] = deque()
_lock = held(threading.RLock())  # finalizers may wait
_worker: threading.Thread | None = None


@functools.cache
def _completion_counter() -> ctypes.c_int64:
    """Return native code's counter of the programs that have ended."""
    return ctypes.c_int64.from_address(pool.library().function("weft_queue_completed", ctypes.c_int64)())


@functools.cache
def _submission_counter() -> ctypes.c_int64:
    """Return native code's counter of the programs that were enqueued."""
    return ctypes.c_int64.from_address(pool.library().function("weft_queue_submitted", ctypes.c_int64)())


@functools.cache
def _programs() -> Any:
    """Return native code's records of the programs that were last in the queue."""
    address = pool.library().function("weft_queue_programs", ctypes.c_int64)()
    return (ctypes.c_int64 * (queue.MOST * queue.WORDS)).from_address(address)


@functools.cache
def _wait() -> Callable[[int], int]:
    return interrupt.python_function(pool.library(), "weft_queue_wait", ctypes.c_int64)


@functools.cache
def _submit() -> Callable[..., int]:
    types = ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64
    return pool.library().function("weft_queue_submit", ctypes.c_int64, *types)


def is_possible() -> bool:
    """Return whether there are threads to run programs in."""
    return "weft_queue_submit" in pool.library().addresses


def reap() -> None:
    """Release the memory of jobs that have ended."""
    with _lock:
        done = _completion_counter().value
        while flying and flying[0].index <= done:
            job = flying.popleft()
            first = (job.index - 1) % queue.MOST * queue.WORDS
            known = _programs()[first : first + queue.WORDS]
            job.end(known[queue.STATUS], known[queue.NANOSECONDS], bool(known[queue.WAITED_FOR]))


def _until(index: int) -> None:
    """Wait until the program of an index has ended."""
    try:
        _wait()(index)
    finally:
        reap()


def barrier() -> None:
    """Wait for all jobs, regardless of their errors."""
    while flying:
        with _lock:
            last = flying[-1] if flying else None
        if last is not None:
            _until(last.index)


barriers.append(barrier)


def _start_worker() -> None:
    global _worker
    work = interrupt.python_function(pool.library(), "weft_queue_work")

    def run() -> None:
        if hasattr(signal, "pthread_sigmask"):  # signals must wake the main thread
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        work()

    _worker = threading.Thread(target=run, name="weft-queue", daemon=True)
    _worker.start()
    _register_once()


@functools.cache
def _register_once() -> None:
    forks.before(_before_fork)
    forks.in_child(_after_fork)
    atexit.register(_at_exit)


def _before_fork() -> None:
    barrier()
    _end_worker()  # Python warns of a fork while there are threads


def _after_fork() -> None:
    pool.library().function("weft_queue_reset")()


def _end_worker() -> None:
    global _worker
    with _lock:
        worker, _worker = _worker, None
    if worker is not None:
        pool.library().function("weft_queue_close")()
        worker.join()
        pool.library().function("weft_queue_reset")()


def _at_exit() -> None:
    # The results of the queue cannot be observed any more: programs with effects are never queued.
    pool.library().function("weft_queue_cancel")()
    _end_worker()


def _both(functions: Sequence[Callable[[], Any]]) -> None:
    """Call native functions in a row, without running Python code in between."""
    list(map(operator.call, functions))


class QueuedCall:
    """Callable that enqueues one executable.

    It takes arrays, one for each argument that is no constant, and returns the arrays of results, or None if the call
    has to be made synchronously.
    """

    flying = flying

    __slots__ = (
        "_bytes",
        "_chunks",
        "_constants",
        "_donated",
        "_frame",
        "_in_caller",
        "_placement",
        "_pointers",
        "_results",
        "_run",
        "_taken",
        "_waited_for",
        "executable",
    )

    def __init__(
        self,
        executable: Executable,
        constants: Sequence[ConcreteArray],
        donated: Sequence[bool],
        placement: Placement,
    ) -> None:
        self.executable, self._placement = executable, placement
        self._waited_for = self._in_caller = 0
        self._constants = tuple(constants)
        self._pointers = [c._pointer or c._address() for c in constants]
        self._frame = executable.frame
        self._donated = tuple(donated) if any(donated) else ()
        program = executable.program
        self._taken = [program.takes(len(constants) + i) for i in range(len(donated))]
        # For each result: its type, the argument whose memory it reuses, its size (or minus the index + 1 of its
        # chunk), and its offset in the chunk.
        self._results: list[tuple[Any, int | None, int, int]] = []
        self._chunks: list[int] = []
        self._bytes = 0
        for aval, alias in zip(executable.out_types, program.aliases, strict=True):
            size = memory.rounded_up(byte_size(aval))
            if alias is not None:
                self._results.append((aval, alias - len(constants), 0, 0))
                continue
            self._bytes += size
            if size > memory.SMALL:
                self._results.append((aval, None, size, 0))
                continue
            if not self._chunks or self._chunks[-1] + size > memory.CHUNK // 2:
                self._chunks.append(0)
            self._results.append((aval, None, -len(self._chunks), self._chunks[-1]))
            self._chunks[-1] += size
        self._run = bytecode.run_frame()

    @staticmethod
    def can_be(executable: Executable) -> bool:
        """Return whether an executable may run in the queue: it must not call Python, and must not fail."""
        special = executable.program.calls_python or executable.again or executable.has_tapes
        return not special and is_possible()

    def __call__(self, arrays: tuple[ConcreteArray, ...]) -> list[ConcreteArray] | None:
        reap()
        executable = self.executable
        if self._in_caller and not flying:
            self._in_caller -= 1
            return None
        if not executable.asynchronous and not any(type(a._memory) is Promise for a in arrays):
            return None
        copied = 0
        for a in arrays:
            if a._memory is BORROWED:
                copied += a._buffer.nbytes  # type: ignore[union-attr]
        if copied > BYTES_A_NANOSECOND * executable.nanoseconds:
            return None
        while (first := self._must_wait_for()) is not None:
            _until(first)
        holds: list[Any] = [self._constants]
        pointers = list(map(self._pointer, arrays, [holds] * len(arrays)))
        if self._donated and len({*pointers}) < len(pointers):
            return None
        try:
            return self._start(arrays, pointers, holds)
        except OutOfMemoryError:  # the synchronous path reports what could not be allocated
            barrier()
            return None

    def record_end(self, waited_for: bool) -> None:
        """Record that a run has ended, and whether a waiting caller had to run it."""
        self._waited_for = self._waited_for + 1 if waited_for else 0
        self._in_caller = CALLS_IN_CALLER if self._waited_for >= MOST_WAITED_FOR else 0

    def _must_wait_for(self) -> int | None:
        """Return the index of the first job in the queue if the queue is full, else None."""
        with _lock:
            if flying and (len(flying) >= MOST_JOBS or sum(j.bytes for j in flying) + self._bytes > MOST_BYTES):
                return flying[0].index
        return None

    @staticmethod
    def _pointer(array: ConcreteArray, holds: list[Any]) -> int:
        """Return the address of an argument, and add its memory to `holds`."""
        found = array._memory
        if type(found) is Promise:
            if not found.job.is_done():
                holds.append(found.memory)
                return found.address
            array._settle(found)
            found = array._memory
        elif found is BORROWED:
            buffer = np.array(array._buffer, order="C")
            holds.append(buffer)
            return int(buffer.__array_interface__["data"][0])
        pointer = array._pointer or array._address()
        holds.append(found or array._buffer)
        return pointer

    def _start(
        self, arrays: Sequence[ConcreteArray], pointers: list[int], holds: list[Any]
    ) -> list[ConcreteArray] | None:
        executable, placement, frame = self.executable, self._placement, self._frame
        location = user_location()
        chunks = [placement.memory.cut(size) for size in self._chunks]
        blocks = [placement.memory.pool.take(size) if size > 0 else None for _, _, size, _ in self._results]
        scratch = placement.memory.queued(executable.program.temporary_bytes)
        if executable.program.uses_threads:
            pool.prepare()
        with _lock:
            taken: dict[int, memory.Block] = {}
            if any(self._taken):
                taken = {i: self._take(a, holds) for i, a in enumerate(arrays) if self._taken[i]}
                for i, own in taken.items():
                    pointers[i] = own.address
            job = Job(self, self._bytes, location)
            promises: list[Promise] = []
            outputs: list[int] = []
            for (_, alias, size, offset), block in zip(self._results, blocks, strict=True):
                if alias is not None:
                    chunk: Any = taken[alias]
                    address, output = chunk.address, 0  # the program writes to the argument's register
                elif size > 0:
                    chunk = block
                    address = output = chunk.address
                else:
                    start, chunk = chunks[-size - 1]
                    address = output = start + offset
                promises.append(Promise(chunk, address, job))
                outputs.append(output)
                holds.append(chunk)
            holds.append(scratch)
            packed = frame.pack(*frame.entries(scratch.address, [*self._pointers, *pointers], outputs))
            for a, donated in zip(arrays, self._donated, strict=False):
                if donated:
                    a._donate(location)
            job.held = (*holds, packed)
            if _worker is None:
                _start_worker()
            job.index = _submission_counter().value + 1
            run = functools.partial(_submit(), self._run, executable.code_address, packed, frame.count, frame.registers)
            # Both or neither must happen: no signal handler runs between two calls from C.
            _both((functools.partial(flying.append, job), run))
        if placement is HOME:
            return [ConcreteArray(None, r[0], p) for r, p in zip(self._results, promises, strict=True)]
        return [PlacedArray(None, r[0], p, 0, placement) for r, p in zip(self._results, promises, strict=True)]

    def _take(self, array: ConcreteArray, holds: list[Any]) -> memory.Block:
        """Return the memory of a donated array: its own if only queued jobs refer to it, else a copy."""
        found = array._memory
        block = found.memory if type(found) is Promise else found
        if type(block) is memory.Block:
            # Expected references: this variable, the argument of getrefcount, the array or its promise, and jobs; the
            # job that is about to start has its references in `holds`.
            known = 3 + sum(h is block for job in flying for h in job.held or ()) + sum(h is block for h in holds)
            if type(found) is Promise:
                alone = sys.getrefcount(found) <= 3
            else:
                known += 1  # `found`
                views = sys.getrefcount(block.array) - 2
                own = array._buffer is not None and sys.getrefcount(array._buffer) <= 2
                alone = not views or (views == 1 and own)
            if alone and sys.getrefcount(block) <= known:
                return block
        copy: memory.Block = self._placement.memory_backend.donated_memory(array)
        holds.append(copy)
        return copy
