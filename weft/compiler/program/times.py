"""Measured times of the steps of a program in one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.program.ir import Call, Copy, Fill, Launch, Step

# Steps whose time is recorded; the others only set a pointer or a counter.
TIMED = (Launch, Call, Copy, Fill)
# Number of integers in an event: step, begin, end.
EVENT_SIZE = 3


class StepTime(NamedTuple):
    """Number of times that a step ran in one run of its program, and their total duration."""

    step: Step
    runs: int
    nanoseconds: int


class StepLog:
    """Record of one run of a program: runs and total time of each step, and at most `events` single events.

    It is filled when the run has ended. `device` names the device that ran the steps, or is None for the calling
    thread.
    """

    def __init__(self, steps: Sequence[Step], events: int, device: str | None = None) -> None:
        self.device = device
        self.steps: list[Any] = list(steps)
        self.dropped = 0  # events beyond the capacity; they are counted in `times` all the same
        self._room = events
        self._indices = {step: i for i, step in enumerate(self.steps)}
        self._sums = np.zeros((len(self.steps), 2), np.int64)
        self._events: list[tuple[int, int, int]] = []

    def fill(self, ran: Iterable[tuple[Step, int, int]]) -> None:
        """Add measurements (step, begin, end), in nanoseconds of the monotonic clock."""
        for step, begin, end in ran:
            index = self._indices[step]
            self._sums[index] += (1, end - begin)
            if len(self._events) < self._room:
                self._events.append((index, begin, end))
            else:
                self.dropped += 1

    @property
    def sums(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Array with a row (runs, total nanoseconds) for each step."""
        return self._sums

    @property
    def times(self) -> list[StepTime]:
        """Number of runs and total time of every step."""
        return [StepTime(step, *row) for step, row in zip(self.steps, self._sums.tolist(), strict=True)]

    @property
    def events(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Rows of (index of the step, begin, end) in nanoseconds of the monotonic clock, in the order of time."""
        return np.array(self._events, np.int64).reshape(-1, EVENT_SIZE)
