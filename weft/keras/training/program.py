"""The programs of `fit`, `evaluate` and `predict`: a step over batches of data in memory, from `start` to `stop`.

One program with dynamic bounds runs a whole epoch, a chunk of it, or a single batch, with the same bits. A last batch
with fewer rows is a static step of its own: padding would be wrong for batch statistics and for losses that take a
mean.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.keras.training.logs import Packing
from weft.keras.training.step import Step

# Values of variables are replaced together under this lock, so that no other thread sees half of a step.
STATE = threading.Lock()


class State:
    """The variables of a step, split into written and unwritten ones.

    Args:
        step: the step.
    """

    def __init__(self, step: Step) -> None:
        self.moving = [step.variables[i] for i in step.written]
        self.fixed = [step.variables[i] for i in step.fixed]

    def read(self) -> tuple[list[Any], list[Any]]:
        """Return the present arrays of written and of unwritten variables."""
        with STATE:
            return [variable._value for variable in self.moving], [variable._value for variable in self.fixed]

    def write(self, values: Sequence[Any]) -> None:
        """Replace the arrays of the written variables."""
        if values:
            with STATE:
                for variable, value in zip(self.moving, values, strict=True):
                    variable._value = value


def rows(array: Any, order: Any, start: Any, count: int) -> Any:
    """Return `count` rows of an array from `start` on, in the given order (None: as stored)."""
    if order is None:
        return lax.dynamic_slice_in_dim(array, start, count)
    chosen = lax.dynamic_slice(order, (start,), (count,))
    return array.at[chosen].get(mode="promise_in_bounds")


class LogsOf:
    """The logs of a program: results of metrics after its last batch, or the result of its last step.

    Args:
        step: the step.
        results: a function for the results of metrics, computed once per chunk, if the step returns exactly these;
            None uses the result of the step.
    """

    def __init__(self, step: Step, results: Callable[[], Any] | None) -> None:
        self.step = step
        self.results = results
        if results is None:
            self.packing = Packing(step.result)
        else:
            self.packing = Packing(weft.eval_shape(lambda v: step.read(results, v), step.value_specs()))

    @property
    def carried(self) -> bool:
        """Whether the result of a step is carried from batch to batch."""
        return self.results is None

    def initial(self) -> Any:
        """Return the zeros that a loop carries before its first step, or None if logs are not carried."""
        if not self.carried:
            return None
        return weft.tree.map(lambda spec: wnp.zeros(spec.shape, spec.dtype), self.step.result)

    def pack_logs(self, values: Sequence[Any], last: Any) -> tuple[Any, list[Any]]:
        """Pack the logs after the last batch."""
        return self.packing.pack(last if self.results is None else self.step.read(self.results, values))


class Pace:
    """The time per batch as last measured. The first call compiles and is ignored."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.fresh = True

    def update_pace(self, seconds: float, batches: int) -> None:
        """Record that `batches` batches took `seconds`."""
        if self.fresh:
            self.fresh = False
        else:
            each = seconds / batches
            self.seconds = each if self.seconds is None else 0.5 * (self.seconds + each)


class StepProgram:
    """A step on one batch, and on batches of data in memory.

    Args:
        step: the step, traced for the batch.
        logs: the logs that the programs return.
        batch_size: rows of a batch.
        table: the largest number of batches in a chunk whose logs are all returned; 0 returns those of the last batch.
    """

    def __init__(self, step: Step, logs: LogsOf, batch_size: int, table: int = 0) -> None:
        self.step = step
        self.logs = logs
        self.batch_size = batch_size
        self.table = table
        self.packing = logs.packing
        self.variables = step.variables
        self.state = State(step)
        self.pace = Pace()
        self._one = weft.jit(self._one_batch)
        self._many = weft.jit(self._chunk)
        self._rest = weft.jit(self._last_rows)

    def _one_batch(self, moving: list[Any], fixed: list[Any], batch: Any) -> tuple[list[Any], Any]:
        result, moving = self.step.call(self.step.merge(moving, fixed), batch)
        return moving, self.logs.pack_logs(self.step.merge(moving, fixed), result)

    def _last_rows(self, moving: list[Any], fixed: list[Any], data: Any, order: Any, start: Any) -> Any:
        batch = weft.tree.map(lambda array: rows(array, order, start, self.batch_size), data)
        return self._one_batch(moving, fixed, batch)

    def _chunk(
        self, moving: list[Any], fixed: list[Any], data: Any, order: Any, start: Any, stop: Any
    ) -> tuple[list[Any], Any, Any]:
        def body(i: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            moving, _, table = carry
            batch = weft.tree.map(lambda array: rows(array, order, i * self.batch_size, self.batch_size), data)
            result, moving = self.step.call(self.step.merge(moving, fixed), batch)
            if self.table:
                vector, _ = self.logs.pack_logs(self.step.merge(moving, fixed), result)
                table = lax.dynamic_update_slice(table, vector[None], (i - start, 0))
            return moving, (result if self.logs.carried else None), table

        table = wnp.zeros((self.table, len(self.logs.packing.scalars)), self.logs.packing.dtype) if self.table else None
        moving, last, table = lax.fori_loop(start, stop, body, (moving, self.logs.initial(), table))
        return moving, self.logs.pack_logs(self.step.merge(moving, fixed), last), table

    def run_batch(self, batch: Any) -> Any:
        """Run one batch, assign the variables' new values and return packed logs."""
        moving, logs = self._one(*self.state.read(), batch)
        self.state.write(moving)
        return logs

    def run_chunk(self, data: Any, order: Any, start: int, stop: int) -> tuple[Any, Any]:
        """Run batches `start` to `stop` of data in memory.

        Returns packed logs of the last one, and the table of all.
        """
        moving, logs, table = self._many(*self.state.read(), data, order, np.int32(start), np.int32(stop))
        self.state.write(moving)
        return logs, table

    def run_last_rows(self, data: Any, order: Any, start: int) -> Any:
        """Run the batch of `batch_size` rows from row `start` on, assign the new values and return packed logs."""
        moving, logs = self._rest(*self.state.read(), data, order, np.int32(start))
        self.state.write(moving)
        return logs
