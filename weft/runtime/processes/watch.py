"""Silence: what a process concludes when it does not hear from another one.

A thread that watches cannot run in a process that is stopped, or whose main thread keeps Python's lock in C code. So
silence is judged by the others: process 0 watches all, and all watch process 0, which sends heartbeats too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from weft.base.settings import config
from weft.runtime.processes.fence import Fence
from weft.runtime.processes.links import Link

# Seconds after which a host that confirms nothing counts as lost. A cable may be out for some seconds.
CUT = 20.0
# A control thread that did not run for longer than this was stopped itself, and could not hear the others.
PAUSE = 2.0


class Finding(NamedTuple):
    """Conclusion about a silent process.

    `kind`: "report" for a message, "lost" if it counts as dead, "stuck" if `abort_after` ends all processes.
    """

    kind: Literal["report", "lost", "stuck"]
    rank: int
    text: str


class Watch:
    """Watch over the processes that are linked to this one. One that is silent for `timeout` seconds counts as dead."""

    def __init__(self, timeout: float, fence: Fence) -> None:
        self._timeout = timeout
        self._fence = fence
        self._reported: dict[int, float] = {}  # silent processes, and when they were heard of last
        self._looked = time.monotonic()

    def pause(self, links: Mapping[int, Link]) -> None:
        """Forgive the others the time in which this process did not run."""
        now = time.monotonic()
        paused, self._looked = now - self._looked, now
        if paused > PAUSE:
            for link in links.values():
                link.heard += paused

    def silent_ranks(self) -> list[int]:
        """Return the processes that were reported as silent and have not been heard of since."""
        return list(self._reported)

    def look(self, links: Mapping[int, Link], name: str, last: str, rank: int) -> Iterator[Finding]:
        """Yield what follows from the silence of a process with this name and last activity."""
        link, now = links[rank], time.monotonic()
        silent = now - link.heard
        if link.socket is None or silent < config.stuck_after:
            heard = self._reported.pop(rank, None)
            if heard is not None and link.socket is not None:
                yield Finding("report", rank, f"{name} answers again, after {link.heard - heard:.0f} s")
        host = link.host_silence()
        is_cut = host is not None and host > min(silent, CUT) / 2 and silent > PAUSE
        if is_cut and silent > min(CUT, self._timeout):
            why = "its host confirms nothing, so the network to it is cut or it is down"
            yield Finding("lost", rank, f"{name} cannot be reached for {silent:.0f} s: {why}; {last}.")
        elif silent > self._timeout:
            why = self._describe(rank, host)
            yield Finding("lost", rank, f"{name} has not been heard of for {silent:.0f} s{why}; {last}.")
        elif config.abort_after and silent > config.abort_after:
            yield Finding("stuck", rank, f"{name} does not answer for {silent:.0f} s{self._describe(rank, host)}")
        elif silent >= config.stuck_after and rank not in self._reported:
            self._reported[rank] = link.heard
            if is_cut:
                left = max(min(CUT, self._timeout) - silent, 0.0)
                why = f": its host confirms nothing. It counts as lost in {left:.0f} s"
            else:
                why = self._describe(rank, host)
            yield Finding("report", rank, f"{name} does not answer for {silent:.0f} s{why}; {last}")

    def _describe(self, rank: int, host: float | None) -> str:
        """Describe why a process may be silent whose host is there."""
        state = self._fence.describe_state(rank)
        if state:
            return f": it is {state}"
        if host is None:
            return ""
        return ". Its host does, so it is stopped, swapped out, or keeps Python's lock (GIL) in C code"
