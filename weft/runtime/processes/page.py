"""The state of a process as it is sent to the others, and verdicts about failures."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from weft.base.dataclass import dataclass
from weft.base.errors import ProcessFailureError, ProgramMismatchError

RECORDS = 64  # number of the latest sections of each set of processes that are compared


@dataclass(frozen=True)
class Verdict:
    """Failure, as it is broadcast to all processes."""

    kind: str  # "died" or "mismatch"
    text: str
    processes: tuple[int, ...] = ()
    received: str | None = None  # the lines in which programs differ

    def raise_(self) -> None:
        """Raise the failure as an error."""
        if self.kind == "mismatch":
            fix = "let all processes call the same functions in the same order, with arguments of the same types"
            raise ProgramMismatchError(self.text, received=self.received, fix=fix)
        raise ProcessFailureError(self.text, failed_processes=self.processes)


class Difference(NamedTuple):
    """First section in which two processes differ: the processes of the section, its number, and for each of the two
    its rank and what it does."""

    ranks: tuple[int, ...]
    number: int
    first: tuple[int, str]
    second: tuple[int, str]


class Details(NamedTuple):
    """Lines of text that all processes of a section must have in common, and how each is shown."""

    compared: Sequence[str]
    shown: Sequence[str]


def first_difference(one: Sequence[Sequence[str]], first: int, other: Sequence[Sequence[str]], second: int) -> str:
    """Return the first line in which the details of two processes differ, for both."""
    a, b = one[0], other[0]
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    line = lambda texts: texts[1][at].strip() if at < len(texts[1]) else "nothing more"
    return f"process {first}: {line(one)}\nprocess {second}: {line(other)}"


# `doing` of a process that has not entered any section.
NOTHING_YET = "nothing with others yet"


def where_is_this() -> str:
    """Return the host and pid of this process, for messages."""
    return f"host {platform.node()}, pid {os.getpid()}"


class Page:
    """State of a process. Other threads read it while it changes: each entry is replaced as a whole."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.where = where_is_this()
        # The processes that it waits for, the section, since when, and whether that makes progress once started.
        self.wait: tuple[tuple[int, ...], str, float, bool] | None = None
        self.sections = 0  # number of nested sections that it is in
        self.doing: str = NOTHING_YET
        self.chains: dict[tuple[int, ...], tuple[int, str]] = {}
        self.records: dict[tuple[int, ...], list[tuple[int, str, str]]] = {}
        # What the latest sections have in common, which is sent only if processes differ.
        self._details: dict[tuple[int, ...], list[tuple[int, Details | None]]] = {}
        self.comparing = False  # whether it compares a program with others
        self.ended: str | None = None  # the reason, once it has ended
        self.failed = False  # whether by an error
        self.preempted = False
        self.step: int | None = None
        self.steps = threading.Lock()  # held while the step changes, or is reported for a preemption

    @contextlib.contextmanager
    def waiting(self, peers: Sequence[int], doing: str, started: bool = False) -> Iterator[None]:
        """Show in the block that this process waits for others.

        `started`: it waits for work that makes progress once it has been started, as work of GPUs does.
        """
        self.wait = (tuple(peers), doing, time.monotonic(), started)
        try:
            yield
        finally:
            self.wait = None

    def record(
        self, ranks: tuple[int, ...], what: str, digest: str, line: str | None, details: Details | None = None
    ) -> str:
        """Record the next section of a set of processes; return the digest of all their sections."""
        count, before = self.chains.get(ranks, (0, ""))
        chain = hashlib.blake2b(f"{before} {digest}".encode(), digest_size=16).hexdigest()
        self.chains[ranks] = count + 1, chain
        self.doing = f"{what}" + (f" at {line}" if line else "")
        # The list is replaced, not changed: the control thread may be serializing it.
        self.records[ranks] = [*self.records.get(ranks, [])[1 - RECORDS :], (count + 1, chain, self.doing)]
        self._details[ranks] = [*self._details.get(ranks, [])[1 - RECORDS :], (count + 1, details)]
        return chain

    def find_details(self, ranks: Sequence[int], count: int) -> Details | None:
        """Return what the section of this number has in common for these processes, if it is known and recent."""
        return dict(self._details.get(tuple(ranks), ())).get(count)

    def to_json(self) -> dict[str, Any]:
        """Return the page for JSON. Clocks differ between hosts, so it has durations, not times."""
        wait = self.wait
        return {
            "rank": self.rank,
            "wait": None if wait is None else [list(wait[0]), wait[1], time.monotonic() - wait[2], wait[3]],
            "sections": self.sections,
            "doing": self.doing,
            "records": [[list(ranks), entries] for ranks, entries in list(self.records.items())],
            "comparing": self.comparing,
            "ended": self.ended,
            "failed": self.failed,
            "preempted": self.preempted,
        }
