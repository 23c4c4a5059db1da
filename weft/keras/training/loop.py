"""The loop over the batches of an epoch: chunks of about 50 ms with hooks in between.

Nothing waits for a program before the next one is enqueued.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from weft.keras.callbacks import CallbackList
from weft.keras.core.together import agree, any_process
from weft.keras.training.feed import Feed, Ran
from weft.keras.training.logs import Packing
from weft.keras.training.program import STATE

CHUNK_SECONDS = 0.05
# Number of batches in the first chunk, before a step is measured.
FIRST_CHUNK = 4
GROWTH = 16
# Largest number of batches in a chunk if the logs of each batch are requested.
TABLE = 512


class Safe:
    """The last state whose arrays were computed, to restore after an interrupt.

    Args:
        variables: the state.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        self.variables = list(variables)
        self.values = self.now()

    def now(self) -> list[Any]:
        """Return the present arrays of the variables."""
        with STATE:
            return [variable._value for variable in self.variables]

    def restore(self) -> None:
        """Restore the arrays from before, after an exception, if the present ones cannot be computed any more."""
        try:
            weft.block_until_ready(self.now())
        except Exception:  # any exception of an interrupted program
            with STATE:
                for variable, value in zip(self.variables, self.values, strict=True):
                    variable._value = value


@dataclass
class Cursor:
    """The index of the next batch in the epoch and in the data, and the number of batches so far."""

    batch: int = 0
    data_batch: int = 0
    done: int = 0


class EpochLoop:
    """Runs batches of an epoch.

    Args:
        model: for `stop_training`.
        feed: the data.
        callbacks: whose hooks are called.
        mode: "train" or "test".
        execution: the number of batches of a call, if a callback has batch hooks.
    """

    def __init__(self, model: Any, feed: Feed, callbacks: CallbackList, mode: str, execution: int = 1) -> None:
        self.model = model
        self.feed = feed
        self.callbacks = callbacks
        self.mode = mode
        self.execution = execution
        self.every_batch = callbacks.needs_every_batch(mode)
        self.wants_table = wants_table(callbacks, mode)
        self.pace = feed.prepare().pace
        self.boundaries = (
            [c.chunk_every for c in callbacks if getattr(c, "chunk_every", None)] if mode == "train" else []
        )
        self.position: Any = Cursor()
        self.after_chunk: Callable[[], None] | None = None
        self._begin = getattr(callbacks, f"on_{mode}_batch_begin")
        self._end = getattr(callbacks, f"on_{mode}_batch_end")
        self._chunk_end = getattr(callbacks, f"on_{mode}_chunk_end")

    def length(self, last: int) -> int:
        """Return the number of batches of the next chunk, given `last`, the number of the chunk before."""
        if self.every_batch:
            return self.execution
        if self.pace.seconds is None:
            count = FIRST_CHUNK
        else:
            count = max(1, int(CHUNK_SECONDS / max(self.pace.seconds, 1e-9)))
            if not self.pace.fresh:
                count = min(count, max(last, FIRST_CHUNK) * GROWTH) if last else count
        for every in self.boundaries:
            count = min(count, every - self.position.done % every)
        return count

    def run(self, limit: int | None, safe: Safe | None = None) -> dict[str, Any]:
        """Run batches from the position on until the data ends or `limit` are done; return the logs. The position
        advances with the batches.
        """
        position, last, logs = self.position, 0, {}
        pending: tuple[Ran, float, list[Any]] | None = None
        finished = time.perf_counter()
        while limit is None or limit > 0:
            count = self.length(last)
            if self.mode == "train" and not self.every_batch:
                # Hooks between chunks may write what processes have together: they are after the same batches in all.
                count = agree(count)
            if limit is not None:
                count = min(count, limit)
            if self.every_batch:
                self._begin(position.batch, {})
            started = time.perf_counter()
            ran = self.feed.run(position.data_batch, count)
            if ran is None:
                break
            last = ran.batches
            position.batch += last
            position.data_batch += last
            position.done += last
            limit = None if limit is None else limit - last
            after = safe.now() if safe is not None else []
            at_boundary = any(position.done % every == 0 for every in self.boundaries)
            if pending is not None:
                # Two chunks are on their way at most: the one before has to be there by now.
                logs, finished = self._finish_chunk(pending, finished, safe)
                pending = None
            if self.every_batch or at_boundary or self.wants_table or Packing.is_ready(ran.logs):
                logs, finished = self._finish_chunk((ran, started, after), finished, safe)
            else:
                pending = (ran, started, after)
                self.feed.look_ahead()
            self._hooks(ran, position.batch, logs)
            if self.after_chunk is not None:
                self.after_chunk()
            if self.mode == "train":
                self.model.stop_training = any_process(bool(self.model.stop_training))
                if self.model.stop_training:
                    break
            elif self.model.stop_evaluating:
                break
        if pending is not None:
            logs, _ = self._finish_chunk(pending, finished, safe)
        return logs

    def _finish_chunk(self, pending: tuple[Ran, float, list[Any]], before: float, safe: Safe | None) -> Any:
        ran, started, after = pending
        logs = ran.packing.unpack(ran.logs)
        now = time.perf_counter()
        self.pace.update_pace(now - max(started, before), ran.batches)
        if safe is not None:
            safe.values = after
        return logs, now

    def _hooks(self, ran: Ran, batch: int, logs: dict[str, Any]) -> None:
        if self.every_batch:
            self._end(batch - 1, logs)
        elif self.wants_table:
            self._late(ran, batch - ran.batches, logs)
        self._chunk_end(batch - 1, logs)

    def _late(self, ran: Ran, first: int, logs: dict[str, Any]) -> None:
        """Run the hooks of batches after the chunk that they are in."""
        rows = np.asarray(ran.table)[: ran.batches].tolist() if ran.table is not None else None
        for i in range(ran.batches):
            self._begin(first + i, {})
            row = logs if rows is None else dict(zip(ran.packing.scalars, rows[i], strict=True))
            self._end(first + i, row)


def wants_table(callbacks: CallbackList, mode: str) -> bool:
    """Return whether batch hooks run after each chunk, with a row of logs for every batch of it."""
    hooks = (f"on_{mode}_batch_begin", f"on_{mode}_batch_end")
    return callbacks.has(*hooks) and not callbacks.needs_every_batch(mode)
