"""Time spans of work, with the user's line that they belong to. They are recorded only while a listener, such as a
profiler, is active."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from weft.base.forks import held
from weft.base.source import Location, user_location


def now() -> int:
    """Return nanoseconds of the monotonic clock, which native code reads too."""
    if hasattr(time, "clock_gettime_ns"):
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return time.monotonic_ns()


class Span(NamedTuple):
    """A named interval of time on one thread."""

    category: str
    name: str
    begin: int
    end: int
    thread: int
    line: Location | None
    details: dict[str, Any]


class Log(Protocol):
    """The step times that one run of a program recorded."""

    @property
    def steps(self) -> list[Any]: ...
    @property
    def sums(self) -> np.ndarray[Any, np.dtype[np.int64]]: ...


class Listener(Protocol):
    """The interface of span recorders; `events` requests single events for each step of programs."""

    events: bool

    def enter(self, thread: int, moment: int, line: Location | None) -> None:
        """Handle the begin of an outermost span of a thread."""
        ...

    def leave(self, span: Span, inside: int, outermost: bool) -> None:
        """Handle the end of a span; `inside` nanoseconds of it belong to nested spans."""
        ...

    def record_run(self, program: Any, span: Span, log: Log) -> int:
        """Handle the run of a program; return the nanoseconds of its steps."""
        ...

    def mark_end(self, span: Span) -> None:
        """Handle the end of a block that the user named."""
        ...


class _Thread(threading.local):
    """The open spans of this thread, with the nanoseconds of nested spans, and whether a program is running, whose own
    log accounts for the time."""

    def __init__(self) -> None:
        self.inside: list[int] = []
        self.lines: list[Location | None] = []
        self.running = False


active: tuple[Listener, ...] = ()
_lock = held(threading.Lock())
_thread = _Thread()


def begin(listener: Listener) -> None:
    """Add a listener."""
    global active
    with _lock:
        active = (*active, listener)


def end(listener: Listener) -> None:
    """Remove a listener."""
    global active
    with _lock:
        active = tuple(other for other in active if other is not listener)


class span:
    """`with span(category, name):` records the time of a block. Its default line is that of the enclosing span, or else
    the user's."""

    __slots__ = ("_begin", "_category", "_details", "_line", "_name", "_listeners")

    def __init__(self, category: str, name: str, line: Location | None = None, **details: Any) -> None:
        self._category, self._name, self._line, self._details = category, name, line, details
        self._listeners: tuple[Listener, ...] = ()

    def __enter__(self) -> None:
        if not active or _thread.running:
            return
        self._listeners = active
        inside, lines = _thread.inside, _thread.lines
        self._line = line = self._line or (lines[-1] if lines else user_location())
        self._begin = now()
        if not inside:
            thread = threading.get_ident()
            for listener in self._listeners:
                listener.enter(thread, self._begin, line)
        inside.append(0)
        lines.append(line)

    def __exit__(self, *error: object) -> None:
        if not self._listeners:
            return
        end, inside = now(), _thread.inside
        others = inside.pop()
        _thread.lines.pop()
        ended = Span(self._category, self._name, self._begin, end, threading.get_ident(), self._line, self._details)
        for listener in self._listeners:
            listener.leave(ended, others, not inside)
        if inside:
            inside[-1] += end - self._begin


@contextmanager
def mark(category: str, name: str, line: Location | None = None, **details: Any) -> Iterator[None]:
    """Record a block under the user's name. It is shown in traces; its time is attributed to the spans inside."""
    listeners, begin = active, now() if active else 0
    try:
        yield
    finally:
        if listeners:
            ended = Span(category, name, begin, now(), threading.get_ident(), line, details)
            for listener in listeners:
                listener.mark_end(ended)


class run_of:
    """`with run_of(program, name, log):` records a run of a program whose steps record their times in a log."""

    __slots__ = ("_begin", "_log", "_name", "_program", "_span")

    def __init__(self, program: Any, name: str, log: Log) -> None:
        self._program, self._name, self._log = program, name, log
        self._span: span | None = None

    def __enter__(self) -> None:
        if active and not _thread.running:
            self._span = span("run", self._name)
            self._span.__enter__()
            # Time in callbacks belongs to their steps.
            _thread.running = True
            self._begin = now()

    def __exit__(self, *error: object) -> None:
        if self._span is None:
            return
        end = now()
        _thread.running = False
        ended = Span("run", self._name, self._begin, end, threading.get_ident(), _thread.lines[-1], {})
        taken = [listener.record_run(self._program, ended, self._log) for listener in self._span._listeners]
        _thread.inside[-1] += taken[0]
        self._span.__exit__()


def wants_events() -> bool:
    """Return whether a listener records single steps."""
    return any(listener.events for listener in active)


@contextmanager
def measured(seconds: dict[str, float], category: str, name: str) -> Iterator[None]:
    """Open a span and also add its seconds to a table, even without listeners."""
    start = time.perf_counter()
    try:
        with span(category, name):
            yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
