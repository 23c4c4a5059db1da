"""Conversion of recordings to traces for Chrome (about://tracing) and Perfetto (ui.perfetto.dev)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

from weft.base.spans import Span
from weft.compiler.provenance import costs, step_lines
from weft.profiler.recorder import Recorder, Run
from weft.profiler.report import step_name

PRODUCER = "weft"


def to_chrome(recorder: Recorder) -> dict[str, Any]:
    """Convert a recording to Chrome's format: complete events with times in microseconds from the start."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    events: list[dict[str, Any]] = [_meta("process_name", 0, PRODUCER)]
    threads = dict.fromkeys([recorder.thread, *(s.thread for s in recorder.spans)])
    events += [_meta("thread_name", thread, names.get(thread, f"thread {thread}")) for thread in threads]
    events += [_event(recorder, span) for span in recorder.spans]
    # Steps that ran on other devices have lines of their own, whose ids are not those of threads.
    devices = dict.fromkeys(run.log.device for run in recorder.runs if run.log.device is not None)
    lines = {name: -1 - i for i, name in enumerate(devices)}
    events += [_meta("thread_name", line, name) for name, line in lines.items()]
    for run in recorder.runs:
        events += _steps(recorder, run, lines.get(run.log.device, run.span.thread))
    dropped = sum(run.log.dropped for run in recorder.runs)
    other = {"producer": PRODUCER, "dropped": dropped, "begin": recorder.begin}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}


def _meta(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": os.getpid(), "tid": thread, "args": {"name": name}}


def _event(recorder: Recorder, span: Span) -> dict[str, Any]:
    arguments = dict(span.details)
    if span.line is not None:
        arguments["line"] = span.line.describe()
    return _complete(recorder, span.name, span.category, span.begin, span.end, span.thread, arguments)


def _steps(recorder: Recorder, run: Run, line: int) -> Iterator[dict[str, Any]]:
    """Make the events of the steps of one run, on the line of the run or on that of a device."""
    steps = run.log.steps
    cost = costs(steps)
    about: list[tuple[str, dict[str, Any]]] = []
    for step in steps:
        lines = sorted(step_lines(step))
        arguments = {
            "kind": step.label,
            "flops": cost[step].flops,
            "functions": cost[step].functions,
            "bytes": cost[step].bytes,
            "lines": [f"{os.path.basename(line.file)}:{line.number}" for line in lines],
        }
        about.append((step_name(step), arguments))
    for index, begin, end in run.log.events.tolist():
        name, arguments = about[index]
        yield _complete(recorder, name, "kernel", begin, end, line, arguments)


def _complete(
    recorder: Recorder, name: str, category: str, begin: int, end: int, thread: int, arguments: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name or category,
        "cat": category,
        "ts": (begin - recorder.begin) / 1e3,
        "dur": (end - begin) / 1e3,
        "pid": os.getpid(),
        "tid": thread,
        "args": arguments,
    }
