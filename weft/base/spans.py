"""Spans of time: who was at work when, and for which line of the user. Nobody records unless a `Recorder` is active.

A recorder belongs to the thread that started it. It adds up, as it goes, the time of each span without what is inside
of it, and the time between spans, which is Python's: a sampler looks every millisecond at which line the thread is;
gaps too short for that go to the line of the span that follows. So nearly all of the time has a line.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

import numpy as np

from weft.base.forks import held
from weft.base.source import Location, is_internal, user_location

SAMPLE_SECONDS = 1e-3


def now() -> int:
    """Nanoseconds of the clock that native code reads too."""
    if hasattr(time, "clock_gettime_ns"):
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return time.monotonic_ns()


class Span(NamedTuple):
    """Something that took time."""

    category: str
    name: str
    begin: int
    end: int
    thread: int
    line: Location | None
    details: dict[str, Any]


class Key(NamedTuple):
    """What time is added up by. The line is where code of the user was: a code object and an offset."""

    category: str
    name: str
    code: CodeType | None
    offset: int

    @property
    def line(self) -> Location | None:
        return None if self.code is None else Location(self.code, self.offset)


class Log(Protocol):
    """What a run of a program noted about its steps."""

    @property
    def steps(self) -> list[Any]: ...
    @property
    def sums(self) -> np.ndarray[Any, np.dtype[np.int64]]: ...


class Run(NamedTuple):
    """One run of a compiled program, with its log."""

    span: Span
    log: Any


class Steps:
    """What the runs of one program, called from one line, add up to."""

    def __init__(self, line: Location | None, steps: list[Any]) -> None:
        self.line = line
        self.steps = steps
        self.runs = 0
        self._sums = np.zeros((len(steps), 2), np.int64)

    def add(self, log: Log) -> int:
        """Add one run; gives the nanoseconds that its steps took."""
        self.runs += 1
        self._sums += log.sums
        return int(log.sums[:, 1].sum())

    @property
    def counts(self) -> list[int]:
        """How often each step ran."""
        return self._sums[:, 0].tolist()

    @property
    def nanoseconds(self) -> list[int]:
        """How long each step took in all."""
        return self._sums[:, 1].tolist()


class Recorder:
    """Adds up what happens from `start` to `stop`; with `events` it also keeps every single span."""

    def __init__(self, events: bool = False) -> None:
        self.events = events
        self.thread = threading.get_ident()
        self.totals: dict[Key, list[int]] = {}  # nanoseconds and how often, of the recorder's thread
        self.others: dict[Key, list[int]] = {}  # the same of all other threads
        self.programs: dict[Any, Steps] = {}  # by program and line of the call
        self.other_programs: dict[Any, Steps] = {}
        self.spans: list[Span] = []
        self.runs: list[Run] = []
        self.begin = self.end = 0
        self._last = 0  # when the last span of the thread ended
        self._outside = True
        self._samples: list[tuple[CodeType, int, int]] = []
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._sampler: threading.Thread | None = None

    def start(self) -> None:
        global active
        self._sampler = threading.Thread(target=self._sample, name="weft-sampler", daemon=True)
        self._sampler.start()
        with _lock:
            active = (*active, self)
        self._samples = []
        self.begin = self._last = now()

    def stop(self) -> None:
        global active
        self._gap(now(), user_location())
        self.end = self._last
        with _lock:
            active = tuple(r for r in active if r is not self)
        self._finished.set()
        if self._sampler is not None:
            self._sampler.join()

    @property
    def nanoseconds(self) -> int:
        """The time from start to stop."""
        return self.end - self.begin

    # -- spans -----------------------------------------------------------------------------------------------------

    def entered(self, thread: int, moment: int, line: Location | None) -> None:
        """An outermost span of a thread begins."""
        if thread == self.thread:
            self._gap(moment, line)
            self._outside = False

    def left(self, span: Span, inside: int, outermost: bool) -> None:
        """A span ended, of which `inside` nanoseconds belong to others."""
        own = span.thread == self.thread
        self._add(own, _key(span.category, span.name, span.line), span.end - span.begin - inside)
        if self.events:
            self.spans.append(span)
        if own and outermost:
            self._last, self._outside = span.end, True

    def ran(self, program: Any, span: Span, log: Log) -> int:
        """A program ran; gives the nanoseconds of its steps."""
        programs = self.programs if span.thread == self.thread else self.other_programs
        key = (program, None if span.line is None else (span.line.code, span.line.offset))
        with self._lock:
            steps = programs.get(key)
            if steps is None:
                steps = programs[key] = Steps(span.line, log.steps)
            inside = steps.add(log)
        if self.events:
            self.runs.append(Run(span, log))
        return inside

    def _add(self, own: bool, key: Key, taken: int) -> None:
        with self._lock:
            entry = (self.totals if own else self.others).setdefault(key, [0, 0])
            entry[0] += taken
            entry[1] += 1

    # -- between spans ---------------------------------------------------------------------------------------------

    def _gap(self, moment: int, line: Location | None) -> None:
        """The time since the last span is Python's."""
        samples, self._samples = self._samples, []
        begin, self._last = self._last, moment
        if not samples:
            self._add(True, _key("python", "", line), moment - begin)
            return
        # Each moment goes to the nearest sample. They are not evenly spaced: busy threads are seen less often.
        for (code, offset, at), (_, _, following) in zip(samples, [*samples[1:], (None, 0, None)], strict=True):
            end = moment if following is None else min(max((at + following) // 2, begin), moment)
            self._add(True, Key("python", "", code, offset), end - begin)
            begin = end

    def _sample(self) -> None:
        while not self._finished.wait(SAMPLE_SECONDS):
            if self._outside:
                frame = user_frame(sys._current_frames().get(self.thread))
                if frame is not None and self._outside:
                    self._samples.append((frame.f_code, frame.f_lasti, now()))


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is the user's."""
    while frame is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _key(category: str, name: str, line: Location | None) -> Key:
    return Key(category, name, None, 0) if line is None else Key(category, name, line.code, line.offset)


class _Thread(threading.local):
    """The spans that this thread is in: nanoseconds inside of each; and whether it is in a run, whose own log says
    where its time went."""

    def __init__(self) -> None:
        self.inside: list[int] = []
        self.lines: list[Location | None] = []
        self.running = False


active: tuple[Recorder, ...] = ()
_lock = held(threading.Lock())
_thread = _Thread()


class span:
    """`with span(category, name):` records the time of a block. Without a line it is for that of the span around, or
    for the user's."""

    __slots__ = ("_begin", "_category", "_details", "_line", "_name", "_recorders")

    def __init__(self, category: str, name: str, line: Location | None = None, **details: Any) -> None:
        self._category, self._name, self._line, self._details = category, name, line, details
        self._recorders: tuple[Recorder, ...] = ()

    def __enter__(self) -> None:
        if not active or _thread.running:
            return
        self._recorders = active
        inside, lines = _thread.inside, _thread.lines
        self._line = line = self._line or (lines[-1] if lines else user_location())
        self._begin = now()
        if not inside:
            thread = threading.get_ident()
            for recorder in self._recorders:
                recorder.entered(thread, self._begin, line)
        inside.append(0)
        lines.append(line)

    def __exit__(self, *error: object) -> None:
        if not self._recorders:
            return
        end, inside = now(), _thread.inside
        others = inside.pop()
        _thread.lines.pop()
        made = Span(self._category, self._name, self._begin, end, threading.get_ident(), self._line, self._details)
        for recorder in self._recorders:
            recorder.left(made, others, not inside)
        if inside:
            inside[-1] += end - self._begin


@contextmanager
def mark(category: str, name: str, line: Location | None = None, **details: Any) -> Iterator[None]:
    """A name that the user gives to a block. It shows in traces; the time goes to what happens inside of it."""
    recorders, begin = active, now() if active else 0
    try:
        yield
    finally:
        if recorders:
            made = Span(category, name, begin, now(), threading.get_ident(), line, details)
            for recorder in recorders:
                if recorder.events:
                    recorder.spans.append(made)


class run_of:
    """`with run_of(program, name, log):` records a run of a program whose steps note their times in a log."""

    __slots__ = ("_begin", "_log", "_name", "_program", "_span")

    def __init__(self, program: Any, name: str, log: Log) -> None:
        self._program, self._name, self._log = program, name, log
        self._span: span | None = None

    def __enter__(self) -> None:
        if active and not _thread.running:
            self._span = span("run", self._name)
            self._span.__enter__()
            # What happens in callbacks is part of their steps.
            _thread.running = True
            self._begin = now()

    def __exit__(self, *error: object) -> None:
        if self._span is None:
            return
        end = now()
        _thread.running = False
        made = Span("run", self._name, self._begin, end, threading.get_ident(), _thread.lines[-1], {})
        taken = [recorder.ran(self._program, made, self._log) for recorder in self._span._recorders]
        _thread.inside[-1] += taken[0]
        self._span.__exit__()


def wants_events() -> bool:
    """Whether somebody keeps every single step."""
    return any(recorder.events for recorder in active)


@contextmanager
def measured(seconds: dict[str, float], category: str, name: str) -> Iterator[None]:
    """A span whose seconds are also added to a table, whether somebody records or not."""
    start = time.perf_counter()
    try:
        with span(category, name):
            yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
