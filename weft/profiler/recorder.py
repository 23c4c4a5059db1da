"""Recorder of a profile: spans of time summed by line, and a sampler for the time between them.

A recorder belongs to the thread that started it. It adds up, as it goes, the time of each span without what is inside
of it, and the time between spans, which is Python's: a sampler looks every millisecond at which line the thread is;
gaps too short for that go to the line of the span that follows. So nearly all of the time has a line.
"""

from __future__ import annotations

import sys
import threading
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from weft.base import spans
from weft.base.source import Location, is_internal, user_location
from weft.base.spans import Listener, Log, Span, now

SAMPLE_SECONDS = 1e-3


class Key(NamedTuple):
    """Key by which time is summed. The line is that of the user: a code object and an offset."""

    category: str
    name: str
    code: CodeType | None
    offset: int

    @property
    def line(self) -> Location | None:
        return None if self.code is None else Location(self.code, self.offset)


class Run(NamedTuple):
    """Run of a compiled program, with its log."""

    span: Span
    log: Any


class Steps:
    """Sums over the runs of one program, called from one line."""

    def __init__(self, line: Location | None, steps: list[Any]) -> None:
        self.line = line
        self.steps = steps
        self.runs = 0
        self._sums = np.zeros((len(steps), 2), np.int64)

    def add(self, log: Log) -> int:
        """Add one run; returns the nanoseconds that its steps took."""
        self.runs += 1
        self._sums += log.sums
        return int(log.sums[:, 1].sum())

    @property
    def counts(self) -> list[int]:
        """Number of runs of each step."""
        return self._sums[:, 0].tolist()

    @property
    def nanoseconds(self) -> list[int]:
        """Total nanoseconds of each step."""
        return self._sums[:, 1].tolist()


class Recorder(Listener):
    """Sums of the spans from `start` to `stop`; with `events` every single span is stored too."""

    def __init__(self, events: bool = False) -> None:
        self.events = events
        self.thread = threading.get_ident()
        self.totals: dict[Key, list[int]] = {}  # nanoseconds and count, of the recorder's thread
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
        self._sampler = threading.Thread(target=self._sample, name="weft-sampler", daemon=True)
        self._sampler.start()
        spans.begin(self)
        self._samples = []
        self.begin = self._last = now()

    def stop(self) -> None:
        self._gap(now(), user_location())
        self.end = self._last
        spans.end(self)
        self._finished.set()
        if self._sampler is not None:
            self._sampler.join()

    @property
    def nanoseconds(self) -> int:
        """Time from start to stop."""
        return self.end - self.begin

    # -- spans -----------------------------------------------------------------------------------------------------

    def enter(self, thread: int, moment: int, line: Location | None) -> None:
        """Handle the begin of an outermost span of a thread."""
        if thread == self.thread:
            self._gap(moment, line)
            self._outside = False

    def leave(self, span: Span, inside: int, outermost: bool) -> None:
        """Handle the end of a span; `inside` nanoseconds of it belong to nested spans."""
        own = span.thread == self.thread
        self._add(own, _key(span.category, span.name, span.line), span.end - span.begin - inside)
        if self.events:
            self.spans.append(span)
        if own and outermost:
            self._last, self._outside = span.end, True

    def record_run(self, program: Any, span: Span, log: Log) -> int:
        """Handle the run of a program; return the nanoseconds of its steps."""
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

    def mark_end(self, span: Span) -> None:
        """Handle the end of a block that the user named."""
        if self.events:
            self.spans.append(span)

    def _add(self, own: bool, key: Key, taken: int) -> None:
        with self._lock:
            entry = (self.totals if own else self.others).setdefault(key, [0, 0])
            entry[0] += taken
            entry[1] += 1

    # -- between spans ---------------------------------------------------------------------------------------------

    def _gap(self, moment: int, line: Location | None) -> None:
        """Attribute the time since the last span to Python."""
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
                frame = _user_frame(sys._current_frames().get(self.thread))
                if frame is not None and self._outside:
                    self._samples.append((frame.f_code, frame.f_lasti, now()))


def _user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the user's code."""
    while frame is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _key(category: str, name: str, line: Location | None) -> Key:
    return Key(category, name, None, 0) if line is None else Key(category, name, line.code, line.offset)
