"""Promises: the memory of arrays whose elements a queued program has yet to compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

# Functions that wait for all jobs of a platform.
barriers: list[Callable[[], None]] = []


class Job(Protocol):
    """Queued call of a program, which may not have run yet."""

    def wait(self) -> None:
        """Block until it has ended; raise the error that it ended with."""
        ...

    def is_done(self) -> bool:
        """Return whether it has ended."""
        ...


class Promise:
    """Memory of a device that a job writes to: the allocation and an address in it.

    An array whose memory is a promise has no pointer, so that every reader takes the path that waits for the job.
    """

    __slots__ = ("address", "job", "memory")

    def __init__(self, memory: Any, address: int, job: Job) -> None:
        self.memory = memory
        self.address = address
        self.job = job


class _Borrowed:
    """Marker of arrays over the memory of a NumPy array, whose owner may write to it after the call they are passed
    to.
    """

    address = 0


BORROWED: Any = _Borrowed()
