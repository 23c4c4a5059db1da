"""What a process is doing, as others are told, and what is known to have failed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import ProcessFailureError, ProgramMismatchError

RECORDS = 64  # how many of the last sections of each set of processes are compared


@dataclass(frozen=True)
class Verdict:
    """What has failed, as all processes are told."""

    kind: str  # "died" or "mismatch"
    text: str
    processes: tuple[int, ...] = ()

    def raise_(self) -> None:
        """Raise the error that it is."""
        if self.kind == "mismatch":
            fix = "let all processes call the same functions in the same order, with arguments of the same types"
            raise ProgramMismatchError(self.text, fix=fix)
        raise ProcessFailureError(self.text, failed_processes=self.processes)


# What a process does with others before it has done anything.
NOTHING_YET = "nothing with others yet"


def where_is_this() -> str:
    """How messages name this process besides its index."""
    return f"host {platform.node()}, pid {os.getpid()}"


class Page:
    """What a process is doing. Other threads read it while it changes: each entry is replaced as a whole."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.where = where_is_this()
        # For whom, in what, since when, and whether it goes on by itself where it has been started.
        self.wait: tuple[tuple[int, ...], str, float, bool] | None = None
        self.sections = 0  # how many it is in, in which something is done or started together
        self.doing: str = NOTHING_YET
        self.chains: dict[tuple[int, ...], tuple[int, str]] = {}
        self.records: dict[tuple[int, ...], list[tuple[int, str, str]]] = {}
        self.comparing = False  # whether it compares what is to be run with others
        self.ended: str | None = None  # how, once it has
        self.failed = False  # whether by an error
        self.preempted = False
        self.step: int | None = None
        self.steps = threading.Lock()  # held while the step changes, or is reported for a preemption

    @contextlib.contextmanager
    def waiting(self, peers: Sequence[int], doing: str, started: bool = False) -> Iterator[None]:
        """While this process waits for others. `started` says that it is for what goes on by itself once it has been
        started, as work of GPUs does."""
        self.wait = (tuple(peers), doing, time.monotonic(), started)
        try:
            yield
        finally:
            self.wait = None

    def record(self, ranks: tuple[int, ...], what: str, digest: str, line: str | None) -> str:
        """Note the next section of a set of processes; returns the digest of all of them."""
        count, before = self.chains.get(ranks, (0, ""))
        chain = hashlib.blake2b(f"{before} {digest}".encode(), digest_size=16).hexdigest()
        self.chains[ranks] = count + 1, chain
        self.doing = f"{what}" + (f" at {line}" if line else "")
        # The list is replaced, not changed: the control thread may be writing it down.
        self.records[ranks] = [*self.records.get(ranks, [])[1 - RECORDS :], (count + 1, chain, self.doing)]
        return chain

    def written(self) -> dict[str, Any]:
        """The page as JSON has it. Clocks differ, so it says for how long."""
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
