"""Signals during native code: Ctrl-C and alarms stop loops, and exceptions of Python callbacks propagate.

Python's own handler of a signal only records it; the function that a user set for it runs when the main thread is back
in Python. Native code runs without the GIL and may run for hours, so it polls: it reads the clock now and then, and
every few hundredths of a second the main thread takes the GIL and lets Python run pending signal handlers. If one
raises, the exception stays set in the thread, native code ends with `INTERRUPTED`, and the call from Python raises it.

A check costs as much as a few instructions of a program, so each run has a *budget* of steps between two checks: it
doubles while steps are fast, and shrinks when they are slow. The state of a run is its *watch*, three integers: the
budget after the next check, the time of the last check, and the time of the last poll for signals.

Everything here is written into the module of the pool, and uses only the stable ABI of Python's C API.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from weft.base.forks import in_child
from weft.compiler.target.cpu import link
from weft.compiler.target.llvm import Function, Module, Parameter, Value, constant, i32, i64, ptr, void, zero

# Status of an interrupted program: an exception is set in the thread.
INTERRUPTED = 3
RAISED = 1
# Budget before the first check, and the largest budget between two. A launch and an iteration of a loop cost 1.
FIRST_BUDGET, MOST_BUDGET = 4, 128
# Cost of a job of the pool and of a call of a routine: they take longer.
JOB_COST = 8
# Indices of a watch, and its size.
NEXT_BUDGET, LAST_LOOK, LAST_POLL, WATCH_SIZE = 0, 1, 2, 3
# Ticks between two polls for signals; checks further apart than SLOW are too rare, closer than QUICK too frequent.
# Ticks are cycles of the counter of x86 (1 to 5 of them a nanosecond), nanoseconds elsewhere.
_PERIOD, _SLOW, _QUICK = 100_000_000, 20_000_000, 1_000_000
_PYTHON = (
    "PyErr_CheckSignals",
    "PyErr_Occurred",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyLong_FromVoidPtr",
    "PyObject_Call",
    "PyThread_get_thread_ident",
    "PyTuple_New",
    "PyTuple_SetItem",
    "Py_DecRef",
)
# Exported functions of this module.
NAMES = ("weft_look", "weft_host", "weft_signals_to", "weft_host_is")
# Variables of the queue: whether its programs are cancelled, and the thread that runs it.
CANCELLED, QUEUE_THREAD = "queue_cancelled", "queue_thread"

link.provide({name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _PYTHON})


# -------------------------------------------------------------------------------------------------------- native code


def watch(f: Function, triple: str) -> Value:
    """Allocate a watch that starts now."""
    address = f.alloca(i64, WATCH_SIZE, 8)
    now = ticks(f, triple)
    for word, value in ((NEXT_BUDGET, constant(FIRST_BUDGET, i64)), (LAST_LOOK, now), (LAST_POLL, now)):
        f.store(value, f.offset(address, i64, word), 8)
    return address


def look(f: Function, watch: Value) -> Value:
    """Check for interrupts: return the budget until the next check, or 0 if the run must end as `INTERRUPTED`."""
    return _call(f, "weft_look", i64, watch)


def ticks(f: Function, triple: str) -> Value:
    """Read a monotonic clock that is cheap to read."""
    if triple.startswith("x86_64"):
        return _call(f, "llvm.readcyclecounter", i64)
    return nanoseconds(f, triple)


def nanoseconds(f: Function, triple: str) -> Value:
    """Read the monotonic clock of a POSIX system."""
    clock = f.alloca(i64, 2, 8)
    f.call("clock_gettime", i32, constant(6 if "apple" in triple else 1, i32), clock)
    seconds, rest = f.load(i64, clock, 8), f.load(i64, f.offset(clock, i64, 1), 8)
    return f.add(f.mul(seconds, constant(1_000_000_000, i64)), rest)


def write_without_gil(
    module: Module, name: str, parameters: list[Parameter], body: Callable[[Function], Value]
) -> None:
    """Write a function for `python_function`: it releases the GIL while its body runs and returns the status of the
    body."""
    f = module.function(name, i64, parameters)
    saved = _call(f, "PyEval_SaveThread", ptr)
    status = body(f)
    f.call("PyEval_RestoreThread", void, saved)
    f.ret(status)


def write(module: Module, triple: str) -> None:
    """Write the functions of this file into a module."""
    main, host = module.variable("main_thread", i64), module.variable("host_function", i64)
    _write_setter(module, "weft_signals_to", main)
    _write_setter(module, "weft_host_is", host)
    _write_poll(module, triple, main)
    _write_look(module, triple)
    _write_host(module, host)


def _write_setter(module: Module, name: str, variable: Value) -> None:
    f = module.function(name, void, [Parameter("value", i64)])
    f.atomic_store(f.arguments[0], variable, "monotonic")
    f.ret()


def _write_poll(module: Module, triple: str, main: Value) -> None:
    """Write poll: let Python handle its signals if this is the main thread. It returns 1 if an exception is set, or if
    this thread runs the queue and its programs are cancelled."""
    f = module.function("poll", i64, [], "internal")
    known = f.atomic_load(i64, main, "monotonic")
    if "windows" in triple:  # C's long has 32 bits
        mine = f.icmp("eq", _call(f, "PyThread_get_thread_ident", i32), f.trunc(known, i32))
    else:
        mine = f.icmp("eq", _call(f, "PyThread_get_thread_ident", i64), known)
    with f.when(mine, constant(0, i64)) as asked:
        gil = _call(f, "PyGILState_Ensure", i32)
        # An exception that is set already must not be replaced by another one.
        free = f.icmp("eq", _call(f, "PyErr_Occurred", ptr), zero(ptr))
        with f.when(free, constant(1, i64)) as handled:
            handled.give(f.zext(f.icmp("ne", _call(f, "PyErr_CheckSignals", i32), constant(0, i32)), i64))
        f.call("PyGILState_Release", void, gil)
        asked.give(handled.results[0])
    if "windows" in triple:  # no threads, no queue
        f.ret(asked.results[0])
        return
    thread = f.atomic_load(i64, module.variable(QUEUE_THREAD, i64), "monotonic")
    queued = f.icmp("eq", _call(f, "PyThread_get_thread_ident", i64), thread)
    ended = f.atomic_load(i64, module.variable(CANCELLED, i64), "monotonic")
    f.ret(f.or_(asked.results[0], f.select(queued, ended, constant(0, i64))))


def _write_look(module: Module, triple: str) -> None:
    """Write weft_look(watch): see `look`."""
    f = module.function("weft_look", i64, [Parameter("watch", ptr)])
    budget_at, look_at, poll_at = (f.offset(f.arguments[0], i64, n) for n in range(WATCH_SIZE))
    now = ticks(f, triple)
    passed = f.sub(now, f.load(i64, look_at, 8))
    f.store(now, look_at, 8)
    before = f.load(i64, budget_at, 8)
    more = f.smin(f.shl(before, constant(1, i64)), constant(MOST_BUDGET, i64))
    less = f.smax(f.lshr(before, constant(3, i64)), constant(1, i64))
    slower = f.select(f.icmp("ugt", passed, constant(_SLOW, i64)), less, before)
    budget = f.select(f.icmp("ult", passed, constant(_QUICK, i64)), more, slower)
    f.store(budget, budget_at, 8)
    due = f.icmp("ugt", f.sub(now, f.load(i64, poll_at, 8)), constant(_PERIOD, i64))
    with f.when(due, budget, unlikely=True) as asked:
        raised = f.icmp("ne", _call(f, "poll", i64), constant(0, i64))
        after = ticks(f, triple)
        f.store(after, poll_at, 8)
        f.store(after, look_at, 8)
        asked.give(f.select(raised, constant(0, i64), budget))
    f.ret(asked.results[0])


def _write_host(module: Module, host: Value) -> None:
    """Write weft_host(table, parameters, registers): call the function of `set_host` with the three addresses. An
    exception stays set, wherever in the call it was raised."""
    f = module.function("weft_host", i64, [Parameter(name, ptr) for name in ("table", "parameters", "registers")])
    gil = _call(f, "PyGILState_Ensure", i32)
    free = f.icmp("eq", _call(f, "PyErr_Occurred", ptr), zero(ptr))
    with f.when(free, constant(RAISED, i64)) as called:
        values = [_call(f, "PyLong_FromVoidPtr", ptr, argument) for argument in f.arguments]
        arguments = _call(f, "PyTuple_New", ptr, constant(len(values), i64))
        whole = f.icmp("ne", arguments, zero(ptr))
        for value in values:
            whole = f.and_(whole, f.icmp("ne", value, zero(ptr)))
        with f.when(whole, constant(RAISED, i64)) as there:
            for i, value in enumerate(values):
                f.call("PyTuple_SetItem", i32, arguments, constant(i, i64), value)
            function = f.inttoptr(f.atomic_load(i64, host, "monotonic"), ptr)
            result = _call(f, "PyObject_Call", ptr, function, arguments, zero(ptr))
            f.call("Py_DecRef", void, arguments)
            fine = f.icmp("ne", result, zero(ptr))
            with f.when(fine, constant(RAISED, i64)) as returned:
                f.call("Py_DecRef", void, result)
                returned.give(constant(0, i64))
            there.give(returned.results[0])
        called.give(there.results[0])
    f.call("PyGILState_Release", void, gil)
    f.ret(called.results[0])


def _call(f: Function, name: str, returns: Any, *arguments: Value) -> Value:
    result = f.call(name, returns, *arguments)
    assert result is not None
    return result


# ------------------------------------------------------------------------------------------------- functions of Python


def python_function(library: link.LoadedCode, name: str, *arguments: Any) -> Callable[..., int]:
    """Return a function written by `write_without_gil` as a callable; it raises the exception that is set when it
    returns."""
    function = ctypes.PYFUNCTYPE(ctypes.c_int64, *arguments)(library.addresses[name])
    function.library = library  # type: ignore[attr-defined]
    return function


_library: link.LoadedCode | None = None
_host: Callable[[int, int, int], object] | None = None


def register_library(library: link.LoadedCode) -> None:
    """Register the loaded library of these functions: from now on the main thread polls for signals."""
    global _library
    _library = library
    _tell_thread()
    if _host is not None:
        set_host(_host)


@in_child
def _tell_thread() -> None:
    # In a forked process, the thread that forked is the main thread.
    if _library is not None:
        _library.function("weft_signals_to", None, ctypes.c_int64)(threading.main_thread().ident)


def set_host(function: Callable[[int, int, int], object]) -> None:
    """Set the Python function that `weft_host` calls, and keep a reference to it."""
    global _host
    _host = function
    if _library is not None:
        _library.function("weft_host_is", None, ctypes.c_int64)(id(function))
