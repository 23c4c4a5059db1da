"""Promises: the memory of arrays whose elements a program has yet to compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

# What waits for all jobs of a platform.
barriers: list[Callable[[], None]] = []


class Job(Protocol):
    """A program that was called and may not have run yet."""

    def wait(self) -> None:
        """Return when it has ended; raise the error that it ended with."""
        ...

    def is_done(self) -> bool:
        """Whether it has ended."""
        ...


class Promise:
    """Memory of a device that a job writes to: the allocation and an address in it. An array that has a promise for its
    memory has no pointer, so that whoever reads it comes by the way on which it is waited for."""

    __slots__ = ("address", "job", "memory")

    def __init__(self, memory: Any, address: int, job: Job) -> None:
        self.memory = memory
        self.address = address
        self.job = job


class _Borrowed:
    """Marks arrays over memory of a NumPy array, which its owner may write to after the call that they are made for."""

    address = 0


BORROWED: Any = _Borrowed()
