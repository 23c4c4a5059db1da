"""`predict`: outputs of all batches, concatenated in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import data, lax
from weft.keras.core.layouts import own_rows, shard_batch, whole_everywhere
from weft.keras.training.arguments import canonical, on_device, pack_data
from weft.keras.training.feed import spec_of_batch, spec_of_rows
from weft.keras.training.loop import CHUNK_SECONDS, FIRST_CHUNK, GROWTH
from weft.keras.training.program import Pace, State, rows
from weft.keras.training.step import Step


class PredictProgram:
    """A step whose outputs are returned, on one batch and over batches of data in memory.

    Args:
        step: the step, traced for the batch.
        batch_size: rows of a batch.
    """

    def __init__(self, step: Step, batch_size: int) -> None:
        self.step = step
        self.batch_size = batch_size
        self.pace = Pace()
        self.state = State(step)
        self._one = weft.jit(self._one_batch)
        # The outputs are donated, so that each chunk writes into the same memory.
        self._many = weft.jit(self._chunk, donate_argnums=2)

    def _one_batch(self, moving: list[Any], fixed: list[Any], batch: Any) -> tuple[list[Any], Any]:
        result, moving = self.step.call(self.step.merge(moving, fixed), batch)
        return moving, whole_everywhere(result)

    def _chunk(
        self, moving: list[Any], fixed: list[Any], outputs: Any, arrays: Any, start: Any, stop: Any
    ) -> tuple[list[Any], Any]:
        def body(i: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            moving, outputs = carry
            first = i * self.batch_size
            batch = weft.tree.map(lambda array: rows(array, None, first, self.batch_size), arrays)
            result, moving = self.step.call(self.step.merge(moving, fixed), batch)
            write = lambda whole, part: lax.dynamic_update_slice_in_dim(whole, part, first, 0)
            return moving, weft.tree.map(write, outputs, result)

        return lax.fori_loop(start, stop, body, (moving, outputs))

    def empty(self, count: int) -> Any:
        """Return outputs of `count` rows that are not written yet."""
        return weft.tree.map(lambda spec: wnp.zeros((count, *spec.shape[1:]), spec.dtype), self.step.result)

    def run_batch(self, batch: Any) -> Any:
        """Return the outputs of one batch."""
        moving, outputs = self._one(*self.state.read(), batch)
        self.state.write(moving)
        return outputs

    def run_chunk(self, outputs: Any, arrays: Any, start: int, stop: int) -> Any:
        """Run batches `start` to `stop` and write the outputs into `outputs`."""
        moving, outputs = self._many(*self.state.read(), outputs, arrays, np.int32(start), np.int32(stop))
        self.state.write(moving)
        return outputs


def as_numpy(tree: Any) -> Any:
    """Convert results to NumPy arrays that may be written to."""
    return np.array(tree) if isinstance(tree, weft.Array) else weft.tree.map(np.array, tree)


def row_wise(result: Any, count: int) -> bool:
    """Return whether all outputs of a batch have as many rows as the batch."""
    return all(spec.shape[:1] == (count,) for spec in weft.tree.leaves(result))


def predict_arrays(
    model: Any,
    adapter: data.Adapter,
    program_for: Callable[[Any], Any],
    callbacks: Any,
    steps: int | None,
    every_batch: bool,
) -> Any:
    """Predict data in memory."""
    assert adapter.samples is not None and adapter.batch_size is not None and adapter.size is not None
    arrays = on_device(pack_data(*adapter.resident))  # type: ignore[misc]
    size = adapter.batch_size
    count = adapter.samples if steps is None else min(adapter.samples, steps * size)
    full, rest = divmod(count, size)
    parts: list[Any] = []
    if full and not every_batch and (full > 1 or rest):
        program = program_for(spec_of_rows(arrays, size))
        if row_wise(program.step.result, size):
            parts.append(_chunks(program, arrays, full, callbacks))
            full_from = full
        else:
            full_from = 0
    else:
        full_from = 0
    every = _Every(model.steps_per_execution, callbacks)
    for i in range(full_from, full + bool(rest)):
        part = weft.tree.map(lambda leaf, i=i: leaf[i * size : min((i + 1) * size, count)], arrays)
        program = program_for(spec_of_batch(part))
        parts.append(every.run(program, part, i))
        if model.stop_predicting:
            break
    every.end()
    return concatenate_outputs(parts)


def predict_batches(
    model: Any, batches: Any, program_for: Callable[[Any], Any], callbacks: Any, steps: int | None
) -> Any:
    """Predict a stream."""
    parts: list[Any] = []
    every = _Every(model.steps_per_execution, callbacks)
    for i, found in enumerate(batches):
        if steps is not None and i >= steps:
            break
        # Ignore the targets of a stream for training.
        batch = canonical(pack_data(found[0]))
        batch = shard_batch(batch)
        parts.append(own_rows(every.run(program_for(spec_of_batch(batch)), batch, i)))
        if model.stop_predicting or (steps is not None and i + 1 >= steps):
            break
    every.end()
    return concatenate_outputs(parts)


class _Every:
    """Runner of batches one by one, with hooks around each `count` batches.

    Args:
        count: the number of batches of an execution.
        callbacks: the callbacks whose hooks are called.
    """

    def __init__(self, count: int, callbacks: Any) -> None:
        self.count, self.callbacks = count, callbacks
        self.outputs: list[Any] = []
        self.last = -1

    def run(self, program: Any, batch: Any, i: int) -> Any:
        """Return the outputs of batch `i`."""
        if not self.outputs:
            self.callbacks.on_predict_batch_begin(i, {})
        self.outputs.append(program.run_batch(batch))
        self.last = i
        found = self.outputs[-1]
        if len(self.outputs) == self.count:
            self.end()
        return found

    def end(self) -> None:
        """Call the hooks of the end of an execution, if one is open."""
        if self.outputs:
            logs = {"outputs": self.outputs[0] if len(self.outputs) == 1 else concatenate_outputs(self.outputs)}
            self.outputs = []
            self.callbacks.on_predict_batch_end(self.last, logs)
            self.callbacks.on_predict_chunk_end(self.last, logs)


def _chunks(program: PredictProgram, arrays: Any, full: int, callbacks: Any) -> Any:
    outputs = program.empty(full * program.batch_size)
    start, last = 0, 0
    while start < full:
        each = program.pace.seconds
        count = FIRST_CHUNK if each is None else max(1, int(CHUNK_SECONDS / max(each, 1e-9)))
        count = min(count, full - start, max(last, FIRST_CHUNK) * GROWTH if last else full)
        began = time.perf_counter()
        outputs = program.run_chunk(outputs, arrays, start, start + count)
        weft.block_until_ready(outputs)
        program.pace.update_pace(time.perf_counter() - began, count)
        start, last = start + count, count
        callbacks.on_predict_chunk_end(start - 1, {})
    return outputs


def concatenate_outputs(parts: Sequence[Any]) -> Any:
    """Concatenate the outputs of all batches, as NumPy arrays."""
    if len(parts) == 1:
        return as_numpy(parts[0])
    host = [weft.tree.map(np.asarray, part) for part in parts]
    return weft.tree.map(lambda *leaves: np.concatenate(leaves), *host)
