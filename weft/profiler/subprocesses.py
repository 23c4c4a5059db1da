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
    """Registration of another process, which is traced together with this one until the object is called or garbage
    collected."""

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
    """Stop the traces that `begin_traces` began. Processes that have ended meanwhile are left out with a warning."""
    answers = [_ask_or_warn(pid, port, "stop") for pid, port in asked.items()]
    return [json.loads(answer) for answer in answers if answer is not None]


def merge(trace: dict[str, Any], others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge traces, with the times of the other processes converted to the clock of this one."""
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
    """Request a path from a server on this machine, without a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://localhost:{port}/{what}", timeout=PATIENCE) as answer:
            content: bytes = answer.read()
            packed = answer.headers.get("Content-Encoding") == "gzip"
    except (urllib.error.URLError, OSError) as error:
        reason = f"The profiler server of process {pid} does not answer at port {port}: {error}."
        raise RuntimeError(f"{reason} It must be started there by weft.profiler.start_server({port}).") from error
    return zlib.decompress(content, wbits=31) if packed else content
