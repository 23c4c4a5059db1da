"""The thread pool: native threads that share the chunks of a loop with the thread that asks for it.

The pool is LLVM text of our own, compiled once in a process; its threads never touch Python. A *job* is a kernel over
[0, count), cut into chunks of a fixed size, so that what is computed does not depend on how many threads there are. The
caller starts on the chunks at once. A worker that comes in time registers and helps; when no chunk is left the caller
closes the job and waits only for workers that have registered. So one that sleeps never holds it up.

Each thread has a *share* of the chunks, the same in every job with as many chunks: what one job leaves in the cache of
a processor is there for the next one, and no other processor has to give it away first. Who is done with its own share
takes chunks of others.

    owner       1 while a job is under way. Who finds it taken (another thread, or a kernel that starts a job of its
                own) runs its chunks alone: nobody ever waits for the pool.
    gate        how many workers are inside the job, with marks for `closed` and `the caller sleeps`.
    taken       how many chunks of each share were taken.
    generation  counts jobs; workers watch it, for a while awake and then asleep.

Sleeping and waking are Linux futexes where the number of that system call is known (x86-64, AArch64, RISC-V), and a
mutex and a condition variable elsewhere, as on macOS. Where there are no pthreads, on Windows, all runs in the caller.
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
from weft.compiler.target.cpu.link import Library, Object, Tier
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
# How often a thread without a share pauses before it takes chunks of others, about a microsecond.
_COURTESY = 32
# How long a worker looks for the next job, and a caller for the last worker, before going to sleep.
SPIN_NANOSECONDS = 100_000

# The number of the futex system call, by the beginning of the triple.
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129  # both private to the process
# Bytes that a set of signals, a mutex and a condition variable take at most on any system.
_SIGNAL_SET, _MUTEX, _CONDITION = 128, 64, 64
# Marks in the gate, above the number of workers inside.
_CLOSED, _CALLER_SLEEPS = 1 << 30, 1 << 29
# Nothing else is in the two cache lines of a variable that threads write.
_LINE = 128
_EVERYONE = (1 << 31) - 1
# Bytes of a set of processors, as the C library has it.
_PROCESSOR_SET = 128


class Waiting(Enum):
    """How threads sleep until there is something to do."""

    FUTEX = 0
    CONDITION = 1
    NO_THREADS = 2


def waiting(triple: str) -> Waiting:
    """How threads sleep on a machine."""
    if "windows" in triple:
        return Waiting.NO_THREADS
    return Waiting.FUTEX if "linux" in triple and triple.split("-")[0] in _FUTEX else Waiting.CONDITION


def pool_text(target: Target, how: Waiting | None = None) -> str:
    """The module with `weft_parallel` and what starts and stops its threads."""
    return _Text(target, waiting(target.triple) if how is None else how).module.text()


@functools.cache
def pool_object(target: Target | None = None, how: Waiting | None = None) -> Object:
    """The pool as machine code, which takes a fifth of the time without passes and is as quick: what it does is wait
    and call."""
    target = target or host()
    how = waiting(target.triple) if how is None else how
    return objects.cached_object(f"pool {how.name}", lambda: pool_text(target, how), target, Tier.QUICK)


class _Text:
    """Writes the functions of the pool into a module."""

    def __init__(self, target: Target, how: Waiting) -> None:
        self.triple = target.triple
        self.how = how
        module = self.module = Module(target.triple, vector_bits=target.vector_bits or 128)

        def line(name: str) -> Value:
            return module.variable(name, i8, _LINE, _LINE)

        self.owner, self.gate = line("owner"), line("gate")
        self.taken = module.variable("taken", i64, MOST_WORKERS + 1, _LINE)
        self.generation, self.sleepers = line("generation"), line("sleepers")
        # Kernel, table, count, grain and number of shares; and the processor that the caller was on.
        self.job, self.caller = line("job"), line("caller")
        self.allowed, self.created, self.ending = line("allowed"), line("created"), line("ending")
        self.threads = module.variable("threads", i64, MOST_WORKERS, _LINE)
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
            queue.write(self)
        self.write_parallel()
        if how is not Waiting.NO_THREADS:
            self.write_copy()
        self.write_switches()

    def function(self, name: str, returns: Type, **parameters: Type) -> Function:
        """Begin a function; those that are not exported are internal."""
        linkage = "" if name.startswith("weft_") else "internal"
        return self.module.function(name, returns, [Parameter(n, t) for n, t in parameters.items()], linkage)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def write_waiting(self) -> None:
        """now, spin, park and wake: looking at a number until it changes, first awake and then asleep."""
        f = self.function("now", i64)
        f.ret(interrupt.nanoseconds(f, self.triple))

        f = self.function("spin", i32, address=ptr, seen=i32)
        address, seen = f.arguments
        deadline = f.add(_call(f, "now", i64), constant(SPIN_NANOSECONDS, i64))
        with f.repeat(constant(0, i32)) as region:
            self.pause(f)
            value = f.atomic_load(i32, address, "acquire")
            # A look at the clock costs about as much as a pause, so it is rare.
            due = f.icmp("eq", f.and_(region.values[0], constant(63, i32)), constant(63, i32))
            with f.when(due, constant(False, i1)) as look:
                look.give(f.icmp("sge", _call(f, "now", i64), deadline))
            same = f.icmp("eq", value, seen)
            region.again(
                f.select(look.results[0], constant(False, i1), same), f.add(region.values[0], constant(1, i32))
            )
        f.ret(value)

        # Until the number changes, or for 50 ms at most.
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
        """Call futex with a number. The C library's `syscall` is variadic, which on Linux is an ordinary call."""
        address, value = f.arguments
        call = constant(_FUTEX[self.triple.split("-")[0]], i64)
        arguments = (constant(operation, i64), f.zext(value, i64), time, zero(ptr), constant(0, i64))
        f.call("syscall", i64, call, address, *arguments)

    def write_condition(self, park: Function, wake: Function) -> None:
        """One condition variable for all numbers: who wakes up looks whether it was for him."""
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
        """Tell the processor that this is a loop that waits."""
        if self.triple.startswith("x86_64"):
            f.call("llvm.x86.sse2.pause", void)
        elif self.triple.startswith(("aarch64", "arm64")):
            f.call("llvm.aarch64.hint", void, constant(1, i32))

    # -- working ---------------------------------------------------------------------------------------------------

    def write_chunks(self) -> None:
        """chunks: take part in the job until no chunk is left, as the thread of an index."""
        f = self.function("chunks", void, index=i32)
        kernel, table = (f.load(ptr, f.offset(self.job, i64, n), 8) for n in (0, 1))
        count, grain, shares = (f.load(i64, f.offset(self.job, i64, n), 8) for n in (2, 3, 4))
        # There may be more workers than the job has shares; then some have one in common.
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
        """Run the chunks of a share that nobody has taken, and then those of the shares after it. `ends` is written
        after each chunk, and says whether to stop; returns whether it did."""
        none, one = constant(0, i64), constant(1, i64)
        chunks = f.udiv(f.sub(f.add(count, grain), one), grain)
        least, more = f.udiv(chunks, shares), f.urem(chunks, shares)

        def size_of(share: Value) -> Value:
            return f.add(least, f.zext(f.icmp("slt", share, more), i64))

        # Whoever has no share lets those begin who have.
        with f.when(f.icmp("eq", size_of(own), none)):
            with f.loop(none, constant(_COURTESY, i64)):
                self.pause(f)
        with f.repeat(none, own) as shared:
            passed, share = shared.values
            first, size = f.add(f.mul(share, least), f.smin(share, more)), size_of(share)
            counter = f.offset(self.taken, i64, share)
            with f.repeat() as region:
                # Reading is less than writing: at the end all look at all shares.
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
        """enter: register for the job, unless it is closed or has as many workers as are allowed. leave: the
        contrary."""
        # Whoever comes is counted first and asked then: if all come at once, each attempt to count only those who may
        # would fail for all others, and 15 workers would take as long as a short job.
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
        """apart: leave the caller's processor. Linux may wake a thread on the one that the caller runs on, and leave it
        there for many milliseconds, above all if a thread of another library spins on the next one. To be put
        elsewhere a thread forbids itself the processor for a moment."""
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
                    # Where there is no other one the first call fails, and the thread stays.
                    f.call("sched_setaffinity", i32, me, size, others)
                    f.call("sched_setaffinity", i32, me, size, allowed)
        f.ret()

    def write_worker(self) -> None:
        """worker: the life of a thread. As its pointer it gets its index, and the generation to start from."""
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

        # The number of sleepers is raised before the generation is compared, and a caller raises the generation
        # before it reads the number: one of the two sees the other.
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

        # Before it registers: nobody waits for a thread that is on its way.
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
        """Wake two sleepers, each of which wakes two more: a caller need not wait until all have been called."""
        asleep = f.atomic_load(i32, self.sleepers, "seq_cst")
        with f.when(f.icmp("sgt", asleep, constant(0, i32)), unlikely=True):
            f.call("wake", void, self.generation, constant(2, i32))

    # -- starting a job --------------------------------------------------------------------------------------------

    def write_grow(self) -> None:
        """grow: make the workers that are allowed and not there yet. They take no signals, which are for Python."""
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
        # Where the system has no more threads, those that are there must do, and nobody asks again.
        with f.when(f.not_(started), unlikely=True):
            f.atomic_store(following, self.allowed, "monotonic")
        f.call("pthread_sigmask", i32, replace, previous, zero(ptr))
        f.ret()

    def write_finish(self) -> None:
        """finish: wait until the last worker has left a closed job, which has one inside."""
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
        """weft_parallel(kernel, table, count, grain): kernel(table, begin, end) for each chunk of [0, count). Its
        status is 0, unless it was interrupted between two chunks."""
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
        """Whether to go on no further; to be asked by the caller after each chunk."""
        return f.icmp("eq", interrupt.look(f, watch), constant(0, i64))

    def write_sharing(self, f: Function, kernel: Value, table: Value, count: Value, grain: Value, alone: str) -> None:
        """Run the chunks as a job and return; or go to `alone`, where that cannot be or gains nothing."""
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
        # Not as many workers as are allowed may be there, where the system has no more threads.
        shares = f.zext(f.add(f.atomic_load(i32, self.allowed, "monotonic"), one), i64)
        for i, value in enumerate((kernel, table, count, grain, shares)):
            f.store(value, f.offset(self.job, i64, i), 8)
        if self.how is Waiting.FUTEX:
            f.atomic_store(_call(f, "sched_getcpu", i32), self.caller, "monotonic")
        self.set_taken(f, shares, constant(0, i64))
        # Whoever came too late for the last job may be about to leave: they are still counted.
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
        """The caller's part in the job: as `chunks`, but when interrupted it leaves no chunk to anybody. Gives the
        status."""
        watch = interrupt.watch(f, self.triple)
        interrupted = self.take_chunks(
            f, kernel, table, count, grain, shares, constant(0, i64), lambda: self.is_interrupted(f, watch)
        )
        with f.when(interrupted, unlikely=True):
            self.set_taken(f, shares, count)
        return f.select(interrupted, constant(interrupt.INTERRUPTED, i64), constant(0, i64))

    def set_taken(self, f: Function, shares: Value, chunks: Value) -> None:
        """Say how many chunks of each share were taken."""
        with f.loop(constant(0, i64), shares) as share:
            f.atomic_store(chunks, f.offset(self.taken, i64, share), "monotonic")

    def write_copy(self) -> None:
        """weft_copy_bytes(target, source, size, grain): copy bytes by all threads, which take so many at a time."""
        f = self.function("copy_chunk", void, table=ptr, begin=i64, end=i64)
        table, begin, end = f.arguments
        target, source = f.load(ptr, table, 8), f.load(ptr, f.offset(table, ptr, 1), 8)
        f.copy(f.offset(target, i8, begin), f.offset(source, i8, begin), f.sub(end, begin))
        f.ret()

        def copied(f: Function) -> Value:
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
        interrupt.write_without_gil(self.module, "weft_copy_bytes", parameters, copied)

    # -- the number of threads -------------------------------------------------------------------------------------

    def write_stop(self) -> None:
        """stop: end all workers. The caller is the owner, so that none of them is at work."""
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
        """weft_pool_start, weft_pool_stop and weft_pool_reset."""
        none, one = constant(0, i32), constant(1, i32)
        # Workers beyond the number stay where they are, but do not enter jobs.
        f = self.function("weft_pool_start", void, workers=i32)
        f.atomic_store(f.smin(f.smax(f.arguments[0], none), constant(MOST_WORKERS, i32)), self.allowed, "monotonic")
        f.ret()

        # Ends all workers and returns 1; or 0, and does nothing, where a job is under way.
        f = self.function("weft_pool_stop", i32)
        _, mine = f.compare_exchange(self.owner, none, one, "acquire")
        with f.when(mine):
            if self.how is not Waiting.NO_THREADS:
                f.call("stop", void)
            f.atomic_store(none, self.owner, "release")
        f.ret(f.zext(mine, i32))

        # For a process just forked, which has the numbers of its parent, but none of the threads.
        f = self.function("weft_pool_reset", void)
        for address in (self.owner, self.sleepers, self.created, self.ending):
            f.atomic_store(none, address, "monotonic")
        f.atomic_store(constant(_CLOSED, i32), self.gate, "release")
        f.ret()


def _call(f: Function, name: str, returns: Type, *arguments: Value) -> Value:
    """Call a function that returns something."""
    result = f.call(name, returns, *arguments)
    assert result is not None
    return result


def _run_chunk(f: Function, kernel: Value, table: Value, begin: Value, count: Value, grain: Value) -> None:
    """The chunk at `begin`, the last of which may be short."""
    f.call_pointer(kernel, void, table, begin, f.smin(f.add(begin, grain), count))


# ------------------------------------------------------------------------------------------------- the pool in Python

_lock = held(threading.Lock())
_library: Library | None = None
# The setting that the native pool was last told.
_applied = -1


def library() -> Library:
    """The pool of this process, compiled and loaded when it is first asked for."""
    global _library
    if _library is None:
        code = pool_object(host())
        with _lock:
            if _library is None:
                _library = link.load(code)
                link.provide({name: _library.addresses[name] for name in ("weft_parallel", *interrupt.NAMES)})
                interrupt.loaded(_library)
                forks.before(_before_fork)
                forks.in_child(_after_fork)
                atexit.register(_at_exit)
    return _library


@functools.cache
def _function(name: str, returns: Any = None, *arguments: Any) -> Callable[..., Any]:
    return library().function(name, returns, *arguments)


def available() -> int:
    """How many threads can run at once in this process."""
    processors = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        processors = min(processors, len(os.sched_getaffinity(0)))
    return max(1, processors)


def threads() -> int:
    """How many threads a program that starts now may use, the calling one among them."""
    return min(config.num_threads or available(), MOST_WORKERS + 1)


def prepare() -> None:
    """Tell the pool the setting of this thread. There is one pool, so the program that started last decides."""
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
    """Copy bytes of this process from an address to another, by all threads, which take `grain` of them at a time. The
    exception of a signal ends it early."""
    shared = _copy() if size > grain else None
    if shared is None:
        ctypes.memmove(target, source, size)
        return
    prepare()
    shared(target, source, size, grain)


def set_threads(count: int) -> None:
    """Set how many threads programs use, in the whole process; 0 is as many as can run at once.

    Threads are started by the first loop that is shared among them, and never with 1.
    """
    config.update("num_threads", count)
    prepare()


def stop(patience: float = 0.0) -> bool:
    """End all workers; the next job starts new ones. False where a job was under way for all of `patience` seconds."""
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
    # A fork copies one thread only, and Python warns where there are others.
    stop()


def _after_fork() -> None:
    _function("weft_pool_reset")()


def _at_exit() -> None:
    # A daemon may be in the middle of a job that takes long: the process ends without waiting for it.
    _function("weft_pool_start", None, ctypes.c_int32)(0)
    stop(patience=0.1)
