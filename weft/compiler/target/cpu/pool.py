"""Thread pool: native threads that share the chunks of a loop with the calling thread.

The pool is LLVM text of our own, compiled once per process; its threads never run Python. A *job* is a kernel over [0,
count), split into chunks of a fixed size, so that results do not depend on the number of threads. The caller starts on
the chunks at once. A worker that wakes in time registers and helps; when no chunk is left the caller closes the job and
waits only for registered workers, so a sleeping worker never delays it.

Each thread has a *share* of the chunks, the same in every job with as many chunks: data that one job leaves in the
cache of a processor remains for the next one, without invalidating lines of another processor. A thread that has
finished its own share takes chunks of others.

    owner       1 while a job is running. A thread that finds it set (another Python thread, or a kernel that starts
                a job of its own) runs its chunks alone: no thread ever waits for the pool.
    gate        number of workers inside the job, with flags for `closed` and `the caller sleeps`.
    taken       number of chunks taken from each share.
    generation  counts jobs; workers wait for it to change, first spinning and then asleep.

Threads sleep on Linux futexes where the number of that system call is known (x86-64, AArch64, RISC-V), and on a mutex
and a condition variable elsewhere, as on macOS. Without pthreads, on Windows, everything runs in the caller.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Any

from weft.base import forks
from weft.base.forks import held
from weft.base.settings import config
from weft.compiler.target.cpu import float_mode, interrupt, link, objects, queue
from weft.compiler.target.cpu.link import LoadedCode, Object, Tier
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.llvm import (
    Function,
    Module,
    Parameter,
    Type,
    Value,
    constant,
    i1,
    i8,
    i32,
    i64,
    ptr,
    void,
    zero,
)
from weft.compiler.target.target import Target

MOST_WORKERS = 255
# Number of pauses, about a microsecond, before a thread without a share takes chunks of others.
_COURTESY = 32
# How long a worker spins for the next job, and a caller for the last worker, before it sleeps.
SPIN_NANOSECONDS = 100_000

# Number of the futex system call, by the architecture of the triple.
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129  # both private to the process
# Upper bounds on any system for the bytes of a signal set, a mutex and a condition variable.
_SIGNAL_SET, _MUTEX, _CONDITION = 128, 64, 64
# Flags in the gate, above the number of workers inside.
_CLOSED, _CALLER_SLEEPS = 1 << 30, 1 << 29
# Alignment that gives a variable that threads write two cache lines of its own, against false sharing.
_LINE = 128
_EVERYONE = (1 << 31) - 1
# Bytes of the C library's cpu_set_t.
_PROCESSOR_SET = 128


class Waiting(Enum):
    """How threads sleep until there is work."""

    FUTEX = 0
    CONDITION = 1
    NO_THREADS = 2


def waiting(triple: str) -> Waiting:
    """Return how threads sleep on a machine."""
    if "windows" in triple:
        return Waiting.NO_THREADS
    return Waiting.FUTEX if "linux" in triple and triple.split("-")[0] in _FUTEX else Waiting.CONDITION


def pool_text(target: Target, how: Waiting | None = None) -> str:
    """Return the LLVM module with `weft_parallel` and the functions that start and stop its threads."""
    return _PoolText(target, waiting(target.triple) if how is None else how).module.text()


@functools.cache
def pool_object(target: Target | None = None, how: Waiting | None = None) -> Object:
    """Return the object code of the pool. It is compiled without passes, which takes a fifth of the time, and is as
    fast: all it does is wait and call."""
    target = target or host()
    how = waiting(target.triple) if how is None else how
    return objects.load_object(f"pool {how.name}", lambda: pool_text(target, how), target, Tier.QUICK)


def standalone_pool_text(target: Target, prefix: str) -> str:
    """Return the LLVM module of a pool without Python, for a library: nothing interrupts its jobs, and its functions
    begin with `prefix` in place of `weft_`. Those that only the library calls are hidden."""
    module = _PoolText(target, waiting(target.triple), standalone=True).module
    module.functions["weft_parallel"].linkage, module.functions["weft_look"].linkage = "hidden", "internal"
    return module.text().replace("@weft_", f"@{prefix}_")


class _PoolText:
    """Writer of the pool's functions in a module. One that is `standalone` has no functions for Python."""

    def __init__(self, target: Target, how: Waiting, standalone: bool = False) -> None:
        self.triple = target.triple
        self.how = how
        module = self.module = Module(target.triple, vector_bits=target.vector_bits or 128)

        def line(name: str) -> Value:
            return module.variable(name, i8, _LINE, _LINE)

        self.owner, self.gate = line("owner"), line("gate")
        self.taken = module.variable("taken", i64, MOST_WORKERS + 1, _LINE)
        self.generation, self.sleepers = line("generation"), line("sleepers")
        # Kernel, table, count, grain and number of shares; and the caller's processor.
        self.job, self.caller = line("job"), line("caller")
        self.allowed, self.created, self.ending = line("allowed"), line("created"), line("ending")
        self.threads = module.variable("threads", i64, MOST_WORKERS, _LINE)
        if standalone:
            look = module.function("weft_look", i64, [Parameter("watch", ptr)])
            look.ret(constant(1, i64))
        else:
            interrupt.write(module, target.triple)
        if how is not Waiting.NO_THREADS:
            self.write_waiting()
            self.write_chunks()
            self.write_enter()
            self.write_apart()
            self.write_worker()
            self.write_grow()
            self.write_finish()
            self.write_stop()
            if not standalone:
                queue.write(self)
        self.write_parallel()
        if how is not Waiting.NO_THREADS and not standalone:
            self.write_copy()
        self.write_switches()

    def function(self, name: str, returns: Type, **parameters: Type) -> Function:
        """Start a function; functions without the prefix `weft_` are internal."""
        linkage = "" if name.startswith("weft_") else "internal"
        return self.module.function(name, returns, [Parameter(n, t) for n, t in parameters.items()], linkage)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def write_waiting(self) -> None:
        """Write now, spin, park and wake: waiting for a number to change, first spinning and then asleep."""
        f = self.function("now", i64)
        f.ret(interrupt.nanoseconds(f, self.triple))

        f = self.function("spin", i32, address=ptr, seen=i32)
        address, seen = f.arguments
        deadline = f.add(_call(f, "now", i64), constant(SPIN_NANOSECONDS, i64))
        with f.repeat(constant(0, i32)) as region:
            self.pause(f)
            value = f.atomic_load(i32, address, "acquire")
            # Reading the clock costs about as much as a pause, so it is rare.
            due = f.icmp("eq", f.and_(region.values[0], constant(63, i32)), constant(63, i32))
            with f.when(due, constant(False, i1)) as look:
                look.give(f.icmp("sge", _call(f, "now", i64), deadline))
            same = f.icmp("eq", value, seen)
            region.again(
                f.select(look.results[0], constant(False, i1), same), f.add(region.values[0], constant(1, i32))
            )
        f.ret(value)

        # Waits until the number changes, or for 50 ms at most.
        f = self.function("park_briefly", void, address=ptr, seen=i32)
        if self.how is Waiting.FUTEX:
            time = f.alloca(i64, 2, 8)
            for i, part in enumerate((0, 50_000_000)):  # seconds and nanoseconds
                f.store(constant(part, i64), f.offset(time, i64, i), 8)
            self.system_call(f, _FUTEX_WAIT, time)
        else:
            f.call("usleep", i32, constant(100, i32))
        f.ret()

        park = self.function("park", void, address=ptr, seen=i32)
        wake = self.function("wake", void, address=ptr, count=i32)
        if self.how is Waiting.FUTEX:
            self.system_call(park, _FUTEX_WAIT)
            self.system_call(wake, _FUTEX_WAKE)
        else:
            self.write_condition(park, wake)
        park.ret()
        wake.ret()

    def system_call(self, f: Function, operation: int, time: Value = zero(ptr)) -> None:  # noqa: B008
        """Call futex on a number. The C library's `syscall` is variadic, but on Linux an ordinary call works."""
        address, value = f.arguments
        call = constant(_FUTEX[self.triple.split("-")[0]], i64)
        arguments = (constant(operation, i64), f.zext(value, i64), time, zero(ptr), constant(0, i64))
        f.call("syscall", i64, call, address, *arguments)

    def write_condition(self, park: Function, wake: Function) -> None:
        """Write park and wake with one condition variable for all numbers: a thread that wakes checks its own
        number."""
        lock = self.module.variable("lock", i8, _MUTEX)
        condition = self.module.variable("condition", i8, _CONDITION)
        for f in (park, wake):
            f.call("pthread_mutex_lock", i32, lock)
            if f is wake:
                f.call("pthread_cond_broadcast", i32, condition)
            else:
                address, seen = f.arguments
                with f.when(f.icmp("eq", f.atomic_load(i32, address, "acquire"), seen)):
                    with f.repeat() as region:
                        f.call("pthread_cond_wait", i32, condition, lock)
                        region.again(f.icmp("eq", f.atomic_load(i32, address, "acquire"), seen))
            f.call("pthread_mutex_unlock", i32, lock)

    def pause(self, f: Function) -> None:
        """Write the processor's hint for a spin loop."""
        if self.triple.startswith("x86_64"):
            f.call("llvm.x86.sse2.pause", void)
        elif self.triple.startswith(("aarch64", "arm64")):
            f.call("llvm.aarch64.hint", void, constant(1, i32))

    # -- working ---------------------------------------------------------------------------------------------------

    def write_chunks(self) -> None:
        """Write chunks: take part in the job as the thread of this index, until no chunk is left."""
        f = self.function("chunks", void, index=i32)
        kernel, table = (f.load(ptr, f.offset(self.job, i64, n), 8) for n in (0, 1))
        count, grain, shares = (f.load(i64, f.offset(self.job, i64, n), 8) for n in (2, 3, 4))
        # There may be more workers than the job has shares; then some workers start with the same share.
        own = f.urem(f.zext(f.arguments[0], i64), shares)
        self.take_chunks(f, kernel, table, count, grain, shares, own, lambda: constant(False, i1))
        f.ret()

    def take_chunks(
        self,
        f: Function,
        kernel: Value,
        table: Value,
        count: Value,
        grain: Value,
        shares: Value,
        own: Value,
        ends: Callable[[], Value],
    ) -> Value:
        """Write the loop that runs the chunks left in a share, and then those of the shares after it. `ends` is written
        after each chunk and returns whether to stop; the result is whether it stopped the loop."""
        none, one = constant(0, i64), constant(1, i64)
        chunks = f.udiv(f.sub(f.add(count, grain), one), grain)
        least, more = f.udiv(chunks, shares), f.urem(chunks, shares)

        def get_size(share: Value) -> Value:
            return f.add(least, f.zext(f.icmp("slt", share, more), i64))

        # A thread without a share lets the owners of shares begin.
        with f.when(f.icmp("eq", get_size(own), none)):
            with f.loop(none, constant(_COURTESY, i64)):
                self.pause(f)
        with f.repeat(none, own) as shared:
            passed, share = shared.values
            first, size = f.add(f.mul(share, least), f.smin(share, more)), get_size(share)
            counter = f.offset(self.taken, i64, share)
            with f.repeat() as region:
                # Reading is cheaper than an atomic update: at the end all threads check all shares.
                known = f.icmp("slt", f.atomic_load(i64, counter, "monotonic"), size)
                with f.when(known, constant(False, i1), constant(False, i1)) as attempt:
                    taken = f.atomic_update("add", counter, one, "monotonic")
                    left = f.icmp("slt", taken, size)
                    with f.when(left, constant(False, i1)) as ran:
                        _run_chunk(f, kernel, table, f.mul(f.add(first, taken), grain), count, grain)
                        ran.give(ends())
                    attempt.give(left, ran.results[0])
                left, stopped = attempt.results
                region.again(f.and_(left, f.not_(stopped)))
            following = f.add(share, one)
            around = f.select(f.icmp("eq", following, shares), none, following)
            passed = f.add(passed, one)
            shared.again(f.and_(f.not_(stopped), f.icmp("slt", passed, shares)), passed, around)
        return stopped

    def write_enter(self) -> None:
        """Write enter: register for the job, unless it is closed or has all the workers that are allowed; and leave,
        the inverse."""
        # Workers are counted first and checked afterwards: if all come at once, each compare-and-exchange that counts
        # only admitted workers would fail for all others, and 15 workers would take as long as a short job.
        f = self.function("enter", i1)
        before = f.atomic_update("add", self.gate, constant(1, i32), "acq_rel")
        free = f.icmp("ult", before, f.atomic_load(i32, self.allowed, "monotonic"))
        with f.when(f.not_(free)):
            f.call("leave", void)
        f.ret(free)

        f = self.function("leave", void)
        before = f.atomic_update("sub", self.gate, constant(1, i32), "acq_rel")
        with f.when(f.icmp("eq", before, constant(_CLOSED | _CALLER_SLEEPS | 1, i32)), unlikely=True):
            f.call("wake", void, self.gate, constant(1, i32))
        f.ret()

    def write_apart(self) -> None:
        """Write apart: leave the caller's processor. Linux may wake a thread on the processor that the caller runs on
        and leave it there for many milliseconds, above all if a thread of another library spins on the next one. To be
        moved elsewhere, a thread removes the processor from its affinity mask for a moment."""
        f = self.function("apart", void)
        if self.how is Waiting.FUTEX:
            here = _call(f, "sched_getcpu", i32)
            known = f.icmp("ult", here, constant(8 * _PROCESSOR_SET, i32))
            same = f.icmp("eq", here, f.atomic_load(i32, self.caller, "monotonic"))
            with f.when(f.and_(known, same)):
                allowed, others = f.alloca(i8, _PROCESSOR_SET), f.alloca(i8, _PROCESSOR_SET)
                me, size = constant(0, i32), constant(_PROCESSOR_SET, i64)
                status = _call(f, "sched_getaffinity", i32, me, size, allowed)
                with f.when(f.icmp("eq", status, constant(0, i32))):
                    f.copy(others, allowed, size)
                    word = f.offset(others, i64, f.zext(f.lshr(here, constant(6, i32)), i64))
                    bit = f.shl(constant(1, i64), f.zext(f.and_(here, constant(63, i32)), i64))
                    f.store(f.and_(f.load(i64, word, 8), f.xor(bit, constant(-1, i64))), word, 8)
                    # Without another processor the first call fails, and the thread stays.
                    f.call("sched_setaffinity", i32, me, size, others)
                    f.call("sched_setaffinity", i32, me, size, allowed)
        f.ret()

    def write_worker(self) -> None:
        """Write worker: the main function of a thread. Its pointer argument holds its index and the initial
        generation."""
        f = self.function("worker", ptr, first=ptr)
        float_mode.set_default(f, self.triple)
        last = f.alloca(i32, align=4)
        start = f.ptrtoint(f.arguments[0], i64)
        f.store(f.trunc(start, i32), last, 4)
        index = f.trunc(f.lshr(start, constant(32, i64)), i32)
        look, sleep, awake, work, finish = map(f.label, ("look", "sleep", "awake", "work", "finish"))
        one = constant(1, i32)
        f.branch(look)

        f.start(look)
        seen = f.load(i32, last, 4)
        spun = _call(f, "spin", i32, self.generation, seen)
        f.branch_if(f.icmp("eq", spun, seen), sleep, work)

        # The number of sleepers is raised before the generation is compared, and a caller raises the generation before
        # it reads the number: one of the two sees the other.
        f.start(sleep)
        f.atomic_update("add", self.sleepers, one, "seq_cst")
        f.call("park", void, self.generation, seen)
        f.atomic_update("sub", self.sleepers, one, "seq_cst")
        woken = f.atomic_load(i32, self.generation, "acquire")
        f.branch_if(f.icmp("eq", woken, seen), sleep, work)

        f.start(work)
        now = f.phi(i32, (spun, look), (woken, sleep))
        slept = f.phi(i1, (constant(False, i1), look), (constant(True, i1), sleep))
        f.store(now, last, 4)
        f.branch_if(f.icmp("ne", f.atomic_load(i32, self.ending, "acquire"), constant(0, i32)), finish, awake)

        # This is before registration: callers do not wait for workers that are still on their way.
        f.start(awake)
        with f.when(slept):
            f.call("apart", void)
        with f.when(_call(f, "enter", i1)):
            with f.when(slept):
                self.wake_others(f)
            f.call("chunks", void, index)
            f.call("leave", void)
        f.branch(look)

        f.start(finish)
        f.ret(zero(ptr))

    def wake_others(self, f: Function) -> None:
        """Wake two sleepers, which wake two more each: the caller need not wake all itself."""
        asleep = f.atomic_load(i32, self.sleepers, "seq_cst")
        with f.when(f.icmp("sgt", asleep, constant(0, i32)), unlikely=True):
            f.call("wake", void, self.generation, constant(2, i32))

    # -- starting a job --------------------------------------------------------------------------------------------

    def write_grow(self) -> None:
        """Write grow: create the workers that are allowed and do not exist yet. They block all signals, which are for
        Python."""
        f = self.function("grow", void)
        created, allowed = f.load(i32, self.created, 4), f.atomic_load(i32, self.allowed, "monotonic")
        if self.how is Waiting.CONDITION:
            with f.when(f.icmp("eq", created, constant(0, i32))):
                f.call("pthread_mutex_init", i32, self.module.variable("lock", i8, _MUTEX), zero(ptr))
                f.call("pthread_cond_init", i32, self.module.variable("condition", i8, _CONDITION), zero(ptr))
        every, previous = f.alloca(i8, _SIGNAL_SET), f.alloca(i8, _SIGNAL_SET)
        replace = constant(3 if "apple" in self.triple else 2, i32)
        f.call("sigfillset", i32, every)
        f.call("pthread_sigmask", i32, replace, every, previous)
        generation = f.zext(f.atomic_load(i32, self.generation, "monotonic"), i64)
        with f.repeat(created) as region:
            count = region.values[0]
            index = f.zext(f.add(count, constant(1, i32)), i64)  # the caller is thread 0
            first = f.inttoptr(f.or_(f.shl(index, constant(32, i64)), generation), ptr)
            handle = f.offset(self.threads, i64, count)
            status = _call(f, "pthread_create", i32, handle, zero(ptr), self.module.address("worker"), first)
            started = f.icmp("eq", status, constant(0, i32))
            following = f.add(count, f.zext(started, i32))
            region.again(f.and_(started, f.icmp("slt", following, allowed)), following)
        f.store(following, self.created, 4)
        # If the system cannot create more threads, the existing ones are used and no more are requested.
        with f.when(f.not_(started), unlikely=True):
            f.atomic_store(following, self.allowed, "monotonic")
        f.call("pthread_sigmask", i32, replace, previous, zero(ptr))
        f.ret()

    def write_finish(self) -> None:
        """Write finish: wait until the last worker has left a closed job that has workers inside."""
        f = self.function("finish", void)
        count = constant(_CALLER_SLEEPS - 1, i32)
        with f.repeat() as region:
            state = f.atomic_load(i32, self.gate, "acquire")
            inside = f.icmp("ne", f.and_(state, count), constant(0, i32))
            with f.when(inside):
                spun = _call(f, "spin", i32, self.gate, state)
                with f.when(f.icmp("eq", spun, state), unlikely=True):
                    mark = constant(_CALLER_SLEEPS, i32)
                    before = f.atomic_update("or", self.gate, mark, "acq_rel")
                    with f.when(f.icmp("ne", f.and_(before, count), constant(0, i32))):
                        f.call("park", void, self.gate, f.or_(before, mark))
            region.again(inside)
        f.ret()

    def write_parallel(self) -> None:
        """Write weft_parallel(kernel, table, count, grain): kernel(table, begin, end) for each chunk of [0, count). Its
        status is 0, or INTERRUPTED if an interrupt stopped it between two chunks."""
        f = self.function("weft_parallel", i64, kernel=ptr, table=ptr, count=i64, size=i64)
        kernel, table, count, size = f.arguments
        grain = f.smax(size, constant(1, i64))
        alone = f.label("alone")
        if self.how is Waiting.NO_THREADS:
            f.branch(alone)
        else:
            self.write_sharing(f, kernel, table, count, grain, alone)

        f.start(alone)
        watch = interrupt.watch(f, self.triple)
        interrupted, after, end = f.label("interrupted"), f.label("after"), f.label("end")
        with f.loop(0, count, grain) as begin:
            _run_chunk(f, kernel, table, begin, count, grain)
            f.branch_if(self.is_interrupted(f, watch), interrupted, after, unlikely=True)
            f.start(after)
        f.branch(end)
        f.start(interrupted)
        f.ret(constant(interrupt.INTERRUPTED, i64))
        f.start(end)
        f.ret(constant(0, i64))

    def is_interrupted(self, f: Function, watch: Value) -> Value:
        """Check for interrupts and return whether to stop; the caller checks after each chunk."""
        return f.icmp("eq", interrupt.look(f, watch), constant(0, i64))

    def write_sharing(self, f: Function, kernel: Value, table: Value, count: Value, grain: Value, alone: str) -> None:
        """Run the chunks as a job and return; or branch to `alone` if there is one chunk, no worker, or another job
        running."""
        one, no_bits = constant(1, i32), constant(0, i32)
        several, claim, share = map(f.label, ("several", "claim", "share"))
        f.branch_if(f.icmp("sgt", count, grain), several, alone)

        f.start(several)
        allowed = f.atomic_load(i32, self.allowed, "monotonic")
        f.branch_if(f.icmp("eq", allowed, no_bits), alone, claim)

        f.start(claim)
        _, mine = f.compare_exchange(self.owner, no_bits, one, "acquire")
        f.branch_if(mine, share, alone)

        f.start(share)
        with f.when(f.icmp("slt", f.load(i32, self.created, 4), allowed), unlikely=True):
            f.call("grow", void)
        # There may be fewer workers than requested, if the system cannot create more threads.
        shares = f.zext(f.add(f.atomic_load(i32, self.allowed, "monotonic"), one), i64)
        for i, value in enumerate((kernel, table, count, grain, shares)):
            f.store(value, f.offset(self.job, i64, i), 8)
        if self.how is Waiting.FUTEX:
            f.atomic_store(_call(f, "sched_getcpu", i32), self.caller, "monotonic")
        self.set_taken(f, shares, constant(0, i64))
        # Workers that came too late for the last job may still be leaving: they stay counted.
        f.atomic_update("and", self.gate, constant(~(_CLOSED | _CALLER_SLEEPS), i32), "acq_rel")
        f.atomic_update("add", self.generation, one, "seq_cst")
        self.wake_others(f)
        status = self.write_own_chunks(f, kernel, table, count, grain, shares)
        inside = f.atomic_update("or", self.gate, constant(_CLOSED, i32), "acq_rel")
        with f.when(f.icmp("ne", inside, no_bits)):
            f.call("finish", void)
        f.atomic_store(no_bits, self.owner, "release")
        f.ret(status)

    def write_own_chunks(
        self, f: Function, kernel: Value, table: Value, count: Value, grain: Value, shares: Value
    ) -> Value:
        """Write the caller's part in the job and return the status: like `chunks`, but after an interrupt it marks all
        chunks as taken."""
        watch = interrupt.watch(f, self.triple)
        interrupted = self.take_chunks(
            f, kernel, table, count, grain, shares, constant(0, i64), lambda: self.is_interrupted(f, watch)
        )
        with f.when(interrupted, unlikely=True):
            self.set_taken(f, shares, count)
        return f.select(interrupted, constant(interrupt.INTERRUPTED, i64), constant(0, i64))

    def set_taken(self, f: Function, shares: Value, chunks: Value) -> None:
        """Set the number of chunks taken from each share."""
        with f.loop(constant(0, i64), shares) as share:
            f.atomic_store(chunks, f.offset(self.taken, i64, share), "monotonic")

    def write_copy(self) -> None:
        """Write weft_copy_bytes(target, source, size, grain): copy bytes with all threads, in chunks of `grain`."""
        f = self.function("copy_chunk", void, table=ptr, begin=i64, end=i64)
        table, begin, end = f.arguments
        target, source = f.load(ptr, table, 8), f.load(ptr, f.offset(table, ptr, 1), 8)
        f.copy(f.offset(target, i8, begin), f.offset(source, i8, begin), f.sub(end, begin))
        f.ret()

        def copy(f: Function) -> Value:
            table, (*ends, size, grain) = f.alloca(ptr, 2, 8), f.arguments
            for i, address in enumerate(ends):
                f.store(address, f.offset(table, ptr, i), 8)
            return _call(f, "weft_parallel", i64, self.module.address("copy_chunk"), table, size, grain)

        parameters = [
            Parameter("target", ptr),
            Parameter("source", ptr),
            Parameter("size", i64),
            Parameter("grain", i64),
        ]
        interrupt.write_without_gil(self.module, "weft_copy_bytes", parameters, copy)

    # -- the number of threads -------------------------------------------------------------------------------------

    def write_stop(self) -> None:
        """Write stop: end all workers. The caller owns the pool, so that none of them is working."""
        f = self.function("stop", void)
        none, one = constant(0, i32), constant(1, i32)
        created = f.load(i32, self.created, 4)
        f.atomic_store(one, self.ending, "release")
        f.atomic_update("add", self.generation, one, "seq_cst")
        with f.when(f.icmp("ne", created, none)):
            f.call("wake", void, self.generation, constant(_EVERYONE, i32))
        with f.loop(0, created) as i:
            f.call("pthread_join", i32, f.load(i64, f.offset(self.threads, i64, i), 8), zero(ptr))
        f.store(none, self.created, 4)
        f.atomic_store(none, self.ending, "monotonic")
        f.ret()

    def write_switches(self) -> None:
        """Write weft_pool_start, weft_pool_stop and weft_pool_reset."""
        none, one = constant(0, i32), constant(1, i32)
        # Workers beyond the number stay alive but do not enter jobs.
        f = self.function("weft_pool_start", void, workers=i32)
        f.atomic_store(f.smin(f.smax(f.arguments[0], none), constant(MOST_WORKERS, i32)), self.allowed, "monotonic")
        f.ret()

        # Ends all workers and returns 1; or returns 0 without effect while a job is running.
        f = self.function("weft_pool_stop", i32)
        _, mine = f.compare_exchange(self.owner, none, one, "acquire")
        with f.when(mine):
            if self.how is not Waiting.NO_THREADS:
                f.call("stop", void)
            f.atomic_store(none, self.owner, "release")
        f.ret(f.zext(mine, i32))

        # For a child process after a fork: it has its parent's variables but none of the threads.
        f = self.function("weft_pool_reset", void)
        for address in (self.owner, self.sleepers, self.created, self.ending):
            f.atomic_store(none, address, "monotonic")
        f.atomic_store(constant(_CLOSED, i32), self.gate, "release")
        f.ret()


def _call(f: Function, name: str, returns: Type, *arguments: Value) -> Value:
    """Call a function that returns a value."""
    result = f.call(name, returns, *arguments)
    assert result is not None
    return result


def _run_chunk(f: Function, kernel: Value, table: Value, begin: Value, count: Value, grain: Value) -> None:
    """Run the chunk at `begin`; the last chunk may be short."""
    f.call_pointer(kernel, void, table, begin, f.smin(f.add(begin, grain), count))


# ------------------------------------------------------------------------------------------------- the pool in Python

_lock = held(threading.Lock())
_library: LoadedCode | None = None
# The setting last applied to the native pool.
_applied = -1


def library() -> LoadedCode:
    """Return the pool of this process, compiled and loaded at the first call."""
    global _library
    if _library is None:
        code = pool_object(host())
        with _lock:
            if _library is None:
                _library = link.load(code)
                link.provide({name: _library.addresses[name] for name in ("weft_parallel", *interrupt.NAMES)})
                interrupt.register_library(_library)
                forks.before(_before_fork)
                forks.in_child(_after_fork)
                atexit.register(_at_exit)
    return _library


@functools.cache
def _function(name: str, returns: Any = None, *arguments: Any) -> Callable[..., Any]:
    return library().function(name, returns, *arguments)


def available() -> int:
    """Return how many threads can run at once in this process."""
    processors = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        processors = min(processors, len(os.sched_getaffinity(0)))
    return max(1, processors)


def threads() -> int:
    """Return how many threads a program that starts now may use, including the calling thread."""
    return min(config.num_threads or available(), MOST_WORKERS + 1)


def prepare() -> None:
    """Apply this thread's setting to the pool. There is one pool, so the program that started last decides."""
    if config.num_threads != _applied:
        _apply()


def _apply() -> None:
    global _applied
    start = _function("weft_pool_start", None, ctypes.c_int32)
    with _lock:
        _applied = config.num_threads
        start(threads() - 1)


@functools.cache
def _copy() -> Callable[[int, int, int, int], int] | None:
    if "weft_copy_bytes" not in library().addresses:
        return None
    return interrupt.python_function(library(), "weft_copy_bytes", *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)


def copy(target: int, source: int, size: int, grain: int) -> None:
    """Copy bytes of this process between two addresses, with all threads in chunks of `grain`. The exception of a
    signal handler ends it early."""
    shared = _copy() if size > grain else None
    if shared is None:
        ctypes.memmove(target, source, size)
        return
    prepare()
    shared(target, source, size, grain)


def set_threads(count: int) -> None:
    """Set how many threads programs use, in the whole process; 0 uses as many as can run at once.

    Threads are started by the first loop that is shared among them, and never with 1.
    """
    config.update("num_threads", count)
    prepare()


def stop(patience: float = 0.0) -> bool:
    """End all workers; the next job starts new ones. Return False if a job was running for all of `patience`
    seconds."""
    if _library is None:
        return True
    stop_once = _function("weft_pool_stop", ctypes.c_int32)
    deadline = time.monotonic() + patience
    while not stop_once():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)
    return True


def _before_fork() -> None:
    # A fork copies only the calling thread, and Python warns if there are others.
    stop()


def _after_fork() -> None:
    _function("weft_pool_reset")()


def _at_exit() -> None:
    # A daemon thread may be in the middle of a long job: the process exits without waiting for it.
    _function("weft_pool_start", None, ctypes.c_int32)(0)
    stop(patience=0.1)
