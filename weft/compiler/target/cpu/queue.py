"""Queue of programs that run asynchronously to Python, in the order of submission.

Everything here is written into the module of the pool and runs without the GIL. A *worker*, a Python thread that stays
in `weft_queue_work`, runs the programs in the queue. A thread that waits for a program while no thread runs the queue
runs it up to that program itself: so a call that is waited for at once does not switch threads.

    submitted, completed   number of programs submitted and ended; a program's index is its value of the first
    executor               1 while a thread runs the queue
    bell                   counts reasons to check the queue; the worker sleeps on it
    ended                  counts programs that have ended; waiting threads sleep on it
    cancelled              1 while programs are to end without running, or at their next check for interrupts

A signal whose Python handler raises while the main thread waits cancels all programs that are in the queue by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.compiler.target.cpu import interrupt
from weft.compiler.target.llvm import Function, Parameter, Value, constant, i1, i8, i32, i64, ptr, void

if TYPE_CHECKING:
    from weft.compiler.target.cpu.pool import _PoolText

# Capacity of the queue, and words per program: the function that runs it, its four arguments, its final status, its
# nanoseconds, and whether a waiting thread ran it.
MOST, WORDS = 64, 8
RUN, ARGUMENTS, STATUS, NANOSECONDS, WAITED_FOR = 0, 1, 5, 6, 7
# Nanoseconds for which a woken worker leaves the queue to waiting threads.
HESITATION = 80_000
# Exported functions.
_ENDS = ("submit", "work", "wait", "cancel", "close", "reset", "submitted", "completed", "programs")
NAMES = tuple(f"weft_queue_{end}" for end in _ENDS)
_LINE = 128
_NONE, _ONE, _EVERYONE = constant(0, i32), constant(1, i32), constant((1 << 31) - 1, i32)


def write(text: _PoolText) -> None:
    """Write the functions of the queue into the module of the pool, which has the functions for waiting."""
    _Queue(text)


class _Queue:
    def __init__(self, text: _PoolText) -> None:
        self.text, self.module = text, text.module
        names = ("submitted", "completed", "executor", "bell", "ended", "sleeping", "waiters", "closing")
        self.variables = {name: self.module.variable(f"queue_{name}", i8, _LINE, _LINE) for name in names}
        self.programs = self.module.variable("queue_programs", i64, MOST * WORDS, _LINE)
        self.cancelled = self.module.variable(interrupt.CANCELLED, i64)
        self.thread = self.module.variable(interrupt.QUEUE_THREAD, i64)
        self.write_take()
        self.write_ring()
        self.write_leave()
        self.write_run_next()
        self.write_hesitate()
        self.write_cancel()
        self.write_submit()
        parameters = [Parameter("index", i64)]
        interrupt.write_without_gil(self.module, "weft_queue_work", [], self.work)
        interrupt.write_without_gil(self.module, "weft_queue_wait", parameters, self.wait)
        self.write_switches()

    def __getattr__(self, name: str) -> Value:
        return self.variables[name]

    def left(self, f: Function, until: Value | None = None) -> Value:
        """Return whether programs are pending: any program, or one up to the index `until`."""
        last = f.atomic_load(i64, self.submitted, "acquire") if until is None else until
        return f.icmp("slt", f.atomic_load(i64, self.completed, "acquire"), last)

    def write_take(self) -> None:
        """Write queue_take: become the executor of the queue unless another thread is."""
        f = self.text.function("queue_take", i1)
        _, mine = f.compare_exchange(self.executor, _NONE, _ONE, "acquire")
        with f.when(mine):
            f.atomic_store(_call(f, "PyThread_get_thread_ident", i64), self.thread, "monotonic")
        f.ret(mine)

    def write_ring(self) -> None:
        """Write queue_ring: wake the worker."""
        f = self.text.function("queue_ring", void)
        f.atomic_update("add", self.bell, _ONE, "seq_cst")
        with f.when(f.icmp("ne", f.atomic_load(i32, self.sleeping, "seq_cst"), _NONE)):
            f.call("wake", void, self.bell, _ONE)
        f.ret()

    def write_leave(self) -> None:
        """Write queue_leave: stop being the executor. If programs are left the worker takes over."""
        f = self.text.function("queue_leave", void)
        f.atomic_store(constant(0, i64), self.thread, "monotonic")
        f.atomic_store(_NONE, self.executor, "seq_cst")
        with f.when(self.left(f)):
            f.call("queue_ring", void)
        f.ret()

    def write_run_next(self) -> None:
        """Write queue_run_next: run the first program in the queue and return its status; only the executor may call
        it."""
        f = self.text.function("queue_run_next", i64, waited_for=i64)
        done = f.atomic_load(i64, self.completed, "monotonic")
        slot = f.mul(f.and_(done, constant(MOST - 1, i64)), constant(WORDS, i64))
        word = lambda i: f.offset(self.programs, i64, f.add(slot, constant(i, i64)))
        asked = f.icmp("eq", f.atomic_load(i64, self.cancelled, "acquire"), constant(0, i64))
        start = _call(f, "now", i64)
        with f.when(asked, constant(interrupt.INTERRUPTED, i64)) as ran:
            arguments = [f.load(i64, word(ARGUMENTS + i), 8) for i in range(4)]
            run = f.inttoptr(f.load(i64, word(RUN), 8), ptr)
            pointers = [f.inttoptr(value, ptr) for value in arguments[:2]]
            result = f.call_pointer(run, i64, *pointers, *arguments[2:])
            assert result is not None
            ran.give(result)
        status = ran.results[0]
        f.store(status, word(STATUS), 8)
        f.store(f.arguments[0], word(WAITED_FOR), 8)
        f.store(f.sub(_call(f, "now", i64), start), word(NANOSECONDS), 8)
        f.atomic_store(f.add(done, constant(1, i64)), self.completed, "seq_cst")
        f.atomic_update("add", self.ended, _ONE, "seq_cst")
        with f.when(f.icmp("ne", f.atomic_load(i32, self.waiters, "seq_cst"), _NONE)):
            f.call("wake", void, self.ended, _EVERYONE)
        f.ret(status)

    def write_hesitate(self) -> None:
        """Write queue_hesitate: a woken worker waits a moment, because the submitting thread may wait at once and is
        faster."""
        f = self.text.function("queue_hesitate", void)
        deadline = f.add(_call(f, "now", i64), constant(HESITATION, i64))
        with f.repeat() as region:
            self.text.pause(f)
            free = f.icmp("eq", f.atomic_load(i32, self.executor, "monotonic"), _NONE)
            region.again(f.and_(free, f.icmp("slt", _call(f, "now", i64), deadline)))
        f.ret()

    def write_cancel(self) -> None:
        """Write weft_queue_cancel: cancel all programs in the queue, and return when they have ended."""
        f = self.text.function("weft_queue_cancel", void)
        f.atomic_store(constant(1, i64), self.cancelled, "seq_cst")
        with f.repeat() as region:
            with f.when(_call(f, "queue_take", i1)):
                with f.repeat() as rest:
                    with f.when(self.left(f)):
                        _call(f, "queue_run_next", i64, constant(0, i64))
                    rest.again(self.left(f))
                f.call("queue_leave", void)
            with f.when(self.left(f)):
                self.sleep(f)
            region.again(self.left(f))
        f.atomic_store(constant(0, i64), self.cancelled, "seq_cst")
        f.ret()

    def sleep(self, f: Function, until: Value | None = None) -> None:
        """Sleep until a program ends, or for a moment."""
        seen = f.atomic_load(i32, self.ended, "acquire")
        f.atomic_update("add", self.waiters, _ONE, "seq_cst")
        # Check again: the program may have ended, or the executor left, before it saw this thread among the waiters.
        busy = f.icmp("ne", f.atomic_load(i32, self.executor, "seq_cst"), _NONE)
        with f.when(f.and_(busy, self.left(f, until))):
            f.call("park_briefly", void, self.ended, seen)
        f.atomic_update("sub", self.waiters, _ONE, "seq_cst")

    def write_submit(self) -> None:
        """Write weft_queue_submit(run, code, frame, passed, all): append run(code, frame, passed, all) to the queue,
        which must have room; return its index, from 1 on. Only one thread at a time may call it."""
        names = ("run", "code", "frame", "passed", "all")
        f = self.text.function("weft_queue_submit", i64, **dict.fromkeys(names, i64))
        count = f.atomic_load(i64, self.submitted, "monotonic")
        slot = f.mul(f.and_(count, constant(MOST - 1, i64)), constant(WORDS, i64))
        for i, value in enumerate(f.arguments):
            f.store(value, f.offset(self.programs, i64, f.add(slot, constant(i, i64))), 8)
        index = f.add(count, constant(1, i64))
        f.atomic_store(index, self.submitted, "release")
        f.call("queue_ring", void)
        f.ret(index)

    def work(self, f: Function) -> Value:
        """Write weft_queue_work(): run submitted programs until `weft_queue_close`."""
        with f.repeat() as region:
            seen = f.atomic_load(i32, self.bell, "acquire")
            with f.when(self.left(f), constant(False, i1)) as some:
                some.give(_call(f, "queue_take", i1))
            mine = some.results[0]
            with f.when(mine):
                with f.repeat() as rest:
                    with f.when(self.left(f)):  # another thread may have run them before this one took over
                        _call(f, "queue_run_next", i64, constant(0, i64))
                    rest.again(self.left(f))
                f.call("queue_leave", void)
            going = f.icmp("eq", f.atomic_load(i32, self.closing, "acquire"), _NONE)
            with f.when(f.and_(f.not_(mine), going)):
                f.atomic_store(_ONE, self.sleeping, "seq_cst")
                f.call("park", void, self.bell, seen)
                f.atomic_store(_NONE, self.sleeping, "seq_cst")
                f.call("queue_hesitate", void)
            region.again(going)
        return constant(0, i64)

    def wait(self, f: Function) -> Value:
        """Write weft_queue_wait(index): wait until the program of this index has ended, or run it. The status is
        `INTERRUPTED` if a signal handler raised; then the queue is empty."""
        (index,) = f.arguments
        with f.repeat() as region:
            with f.when(self.left(f, index), constant(False, i1)) as waited:
                mine = _call(f, "queue_take", i1)
                with f.when(mine, constant(False, i1)) as ran:
                    with f.repeat() as rest:
                        with f.when(self.left(f, index), constant(False, i1)) as one:
                            status = _call(f, "queue_run_next", i64, constant(1, i64))
                            one.give(f.icmp("eq", status, constant(interrupt.INTERRUPTED, i64)))
                        rest.again(f.and_(f.not_(one.results[0]), self.left(f, index)))
                    with f.when(one.results[0], unlikely=True):  # later programs may read its missing results
                        f.atomic_store(constant(1, i64), self.cancelled, "seq_cst")
                    f.call("queue_leave", void)
                    ran.give(one.results[0])
                with f.when(f.not_(mine), ran.results[0]) as slept:
                    self.sleep(f, index)
                    slept.give(f.icmp("ne", _call(f, "poll", i64), constant(0, i64)))
                with f.when(slept.results[0], unlikely=True):
                    f.call("weft_queue_cancel", void)
                waited.give(slept.results[0])
            interrupted = waited.results[0]
            region.again(f.and_(f.not_(interrupted), self.left(f, index)))
        return f.select(interrupted, constant(interrupt.INTERRUPTED, i64), constant(0, i64))

    def write_switches(self) -> None:
        """Write weft_queue_close, which ends the worker; weft_queue_reset, for a child process after a fork, which has
        no worker; and functions that return the addresses of the counters and of the programs' records."""
        f = self.text.function("weft_queue_close", void)
        f.atomic_store(_ONE, self.closing, "seq_cst")
        f.call("queue_ring", void)
        f.ret()
        f = self.text.function("weft_queue_reset", void)
        for name in ("executor", "sleeping", "waiters", "closing"):
            f.atomic_store(_NONE, self.variables[name], "seq_cst")
        f.ret()
        for name in ("submitted", "completed", "programs"):
            address = self.variables.get(name, self.programs)
            f = self.text.function(f"weft_queue_{name}", i64)
            f.ret(f.ptrtoint(address, i64))


def _call(f: Function, name: str, returns: Any, *arguments: Value) -> Value:
    result = f.call(name, returns, *arguments)
    assert result is not None
    return result
