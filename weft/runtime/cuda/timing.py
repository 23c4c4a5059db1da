"""Times of the steps of a program on a GPU, by events in its stream before and after each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.compiler.program.ir import Step

# Most events that wait to be read; a graph has as many as its steps need.
MOST_PENDING = 2048


class StepTimer:
    """Timer that records events at the beginning and end of steps.

    In a graph (`recorded`) the end of a step is the beginning of the next; steps that the host starts one by one may
    have gaps between them.
    """

    def __init__(self, driver: Any, recorded: bool) -> None:
        self._driver, self._recorded = driver, recorded
        self._first: Any = None
        self._last: Any = None
        self._pending: list[tuple[Step, Any, Any]] = []
        self._read: list[tuple[Step, int, int]] = []

    def begin(self, work: Any) -> None:
        """Record the beginning of the next step."""
        if self._last is None or not self._recorded:
            self._last = self._mark(work)
        if self._first is None:
            self._first = self._last

    def end(self, step: Step, work: Any) -> None:
        """Record the end of a step, which has been started."""
        last = self._mark(work)
        self._pending.append((step, self._last, last))
        self._last = last
        if not self._recorded and len(self._pending) >= MOST_PENDING:
            self._read.extend(self._times())
            self._pending.clear()

    def _mark(self, work: Any) -> Any:
        event = self._driver.event()
        work.mark(event)
        return event

    def times(self, began: int) -> Iterator[tuple[Step, int, int]]:
        """Wait for all work, and yield every step with its beginning and end.

        The first one began at `began` by the host's clock.
        """
        for step, begin, end in (*self._read, *self._times()):
            yield step, began + begin, began + end

    def _times(self) -> list[tuple[Step, int, int]]:
        """Return the beginnings and ends of pending steps, in nanoseconds from the first event."""
        self._driver.synchronize()
        moments: dict[int, int] = {}

        def moment(event: Any) -> int:
            if id(event) not in moments:
                moments[id(event)] = self._driver.nanoseconds_between(self._first, event)
            return moments[id(event)]

        return [(step, moment(begin), moment(end)) for step, begin, end in self._pending]
