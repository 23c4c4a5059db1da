"""Processes of this machine that are traced together with this one, through the profiler servers that they run."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
import warnings
import weakref
import zlib
from collections.abc import Sequence
from typing import Any

from weft.base.forks import held

PATIENCE = 10.0
"""Seconds that a server may take to answer."""

_lock = held(threading.Lock())
_ports: dict[int, int] = {}


class Registration:
    """A process that is traced with this one until this object is called, or nobody holds it any more."""

    def __init__(self, pid: int, port: int) -> None:
        with _lock:
            if pid in _ports:
                raise RuntimeError(f"Process {pid} is registered already, with port {_ports[pid]}.")
            _ask(pid, port, "alive")
            _ports[pid] = port
        self._end = weakref.finalize(self, _forget, pid)

    def __call__(self) -> None:
        self._end()


def _forget(pid: int) -> None:
    with _lock:
        _ports.pop(pid, None)


def begin_traces() -> dict[int, int]:
    """Begin a trace in each registered process that runs; returns their ports, for `end_traces`."""
    with _lock:
        asked = dict(_ports)
    return {pid: port for pid, port in asked.items() if _ask_or_warn(pid, port, "start") is not None}


def end_traces(asked: dict[int, int]) -> list[dict[str, Any]]:
    """The traces that `begin_traces` began, less those of processes that have ended: what others recorded counts."""
    answers = [_ask_or_warn(pid, port, "stop") for pid, port in asked.items()]
    return [json.loads(answer) for answer in answers if answer is not None]


def merged(trace: dict[str, Any], others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One trace of all: events of the others at the times that this process's clock had."""
    own = trace["otherData"]
    for other in others:
        shift = (other["otherData"]["begin"] - own["begin"]) / 1e3
        for event in other["traceEvents"]:
            if "ts" in event:
                event["ts"] += shift
        trace["traceEvents"] += other["traceEvents"]
        own["dropped"] += other["otherData"]["dropped"]
    return trace


def _ask_or_warn(pid: int, port: int, what: str) -> bytes | None:
    try:
        return _ask(pid, port, what)
    except RuntimeError as error:
        warnings.warn(f"A trace lacks one process. {error}", RuntimeWarning, stacklevel=4)
        return None


def _ask(pid: int, port: int, what: str) -> bytes:
    """The answer of a server; it is on this machine, so that no proxy is asked."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://localhost:{port}/{what}", timeout=PATIENCE) as answer:
            content: bytes = answer.read()
            packed = answer.headers.get("Content-Encoding") == "gzip"
    except (urllib.error.URLError, OSError) as error:
        reason = f"The profiler server of process {pid} does not answer at port {port}: {error}."
        raise RuntimeError(f"{reason} It is started there by weft.profiler.start_server({port}).") from error
    return zlib.decompress(content, wbits=31) if packed else content
