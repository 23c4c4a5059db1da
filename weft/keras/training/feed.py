"""Feeds of batches into programs: data in memory by chunks, streams one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

import weft
from weft import data
from weft.keras.core.layouts import current_distribution, shard_batch
from weft.keras.training.arguments import canonical, on_device, pack_data, with_class_weight
from weft.keras.training.logs import Packing


class Program(Protocol):
    """A runner of batches: `StepProgram` or `EagerProgram`."""

    packing: Packing
    batch_size: int

    def run_batch(self, batch: Any) -> Any: ...


class Ran(NamedTuple):
    """The result of a call: the number of batches, their packed logs with the packing, and logs of each batch if
    requested.
    """

    batches: int
    logs: Any
    packing: Packing
    table: Any = None


ProgramFor = Callable[[Any], Any]

# Batches of streams are collected into one call if a step takes less than this.
RING, SHORT_STEP, RING_BYTES = 16, 5e-4, 2**23


def spec_of_rows(tree: Any, count: int) -> Any:
    """Return the types of a batch of `count` rows of these arrays."""
    return weft.tree.map(lambda leaf: weft.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), tree)


def spec_of_batch(batch: Any) -> Any:
    """Return the types of a batch, as Weft computes with it."""
    canonical = weft.dtypes.canonicalize_dtype
    return weft.tree.map(lambda leaf: weft.ShapeDtypeStruct(np.shape(leaf), canonical(leaf.dtype)), batch)


def batch_key(batch: Any) -> Any:
    """Return the structure and types of a batch as a hashable key."""
    leaves, structure = weft.tree.flatten(batch)
    return structure, tuple([(leaf.shape, leaf.dtype) for leaf in leaves])


class ResidentFeed:
    """Data in memory.

    Args:
        adapter: the data.
        program_for: the program for a type of batch.
    """

    def __init__(self, adapter: data.Adapter, program_for: ProgramFor) -> None:
        assert adapter.resident is not None and adapter.samples is not None and adapter.batch_size is not None
        self.adapter = adapter
        self.program_for = program_for
        self.data = on_device(pack_data(*adapter.resident))
        self.size: int | None = adapter.size
        self.full, rest = divmod(adapter.samples, adapter.batch_size)
        self.rest = rest if adapter.size is not None and adapter.size > self.full else 0
        self.batch_size = adapter.batch_size
        self.epoch = -1
        self.order: Any = None
        self._programs: dict[int, Any] = {}
        self._ahead: tuple[int, Any] | None = None

    def prepare(self) -> Any:
        """Return the program for the first batch."""
        return self._program(self.batch_size if self.full else self.rest)

    def _program(self, count: int) -> Any:
        if count not in self._programs:
            self._programs[count] = self.program_for(spec_of_rows(self.data, count))
        return self._programs[count]

    def begin(self, epoch: int, start: int = 0) -> None:
        """Make batch `start` of an epoch the next one."""
        if epoch != self.epoch:
            found = self._ahead[1] if self._ahead and self._ahead[0] == epoch else self.adapter.order(epoch)
            self.order = None if found is None else on_device(found)
            self.epoch = epoch
            self._ahead = None

    def look_ahead(self) -> None:
        """Compute the order of the next epoch while a program runs."""
        if self._ahead is None and self.order is not None:
            self._ahead = (self.epoch + 1, self.adapter.order(self.epoch + 1))

    def run(self, start: int, count: int) -> Ran | None:
        """Run up to `count` batches from batch `start` on; None if no batch is left."""
        if start < self.full:
            program = self._program(self.batch_size)
            stop = min(start + count, self.full)
            if program.table:
                stop = min(stop, start + program.table)
            logs, table = program.run_chunk(self.data, self.order, start, stop)
            return Ran(stop - start, logs, program.packing, table)
        if start == self.full and self.rest:
            program = self._program(self.rest)
            logs = program.run_last_rows(self.data, self.order, start * self.batch_size)
            return Ran(1, logs, program.packing, None)
        return None

    def state(self) -> dict[str, Any] | None:
        """Return None: the position in memory is the epoch and the batch, without a stream."""
        return None

    def close(self) -> None:
        """Do nothing: data in memory has nothing to close."""


class StreamFeed:
    """Batches that are read one by one.

    Args:
        adapter: the data.
        program_for: the program for a type of batch.
    """

    def __init__(self, adapter: data.Adapter, program_for: ProgramFor) -> None:
        self.adapter = adapter
        self.program_for = program_for
        self.size = adapter.size
        self.batches: data.Batches | None = None
        self._held: tuple[Any, Any, Any] | None = None  # a batch, its type, and the position before it
        self._most = 1
        self.class_weight: Mapping[int, float] | None = None

    def prepare(self) -> Any:
        """Return the program for the first batch."""
        return self.program_for(spec_of_batch(shard_batch(self.pack_data(self.adapter.first()))))

    def pack_data(self, batch: tuple[Any, Any, Any]) -> Any:
        """Pack a batch as a step's `data`, with sample weights for `class_weight`."""
        x, y, sample_weight = batch
        if self.class_weight is not None:
            sample_weight = with_class_weight(y, self.class_weight)
        return canonical(pack_data(x, y, sample_weight))

    def begin(self, epoch: int, start: int = 0) -> None:
        """Make batch `start` of an epoch the next one."""
        self.close()
        self.batches = self.adapter.batches(epoch, start)

    def resume(self, state: dict[str, Any]) -> None:
        """Continue with the batch after the position of `state`."""
        self.close()
        self.batches = self.adapter.resume(state)

    def look_ahead(self) -> None:
        """Do nothing: streams are read ahead by their own threads."""

    def run(self, start: int, count: int) -> Ran | None:
        """Run up to `count` batches; None if no batch is left."""
        done = 0
        ran: Ran | None = None
        while done < count:
            found = self._collect(min(count - done, self._most))
            if not found:
                break
            # Under a distribution there is one at a time; of several processes it may have rows of this one only.
            batch = shard_batch(found[0])
            program = self.program_for(spec_of_batch(batch))
            if len(found) == 1:
                ran = Ran(1, program.run_batch(batch), program.packing)
            else:
                logs, table = program.run_chunk(make_ring(found), None, 0, len(found))
                ran = Ran(len(found), logs, program.packing, table)
            done += len(found)
            self._most = self._ring(program, found[0])
            if program.table:
                break
        return None if ran is None else ran._replace(batches=done)

    def _collect(self, most: int) -> list[Any]:
        """Collect at most `most` next batches, as long as they have one type."""
        assert self.batches is not None
        found: list[Any] = []
        kind: Any = None
        if self._held is not None:
            found, kind = [self._held[0]], self._held[1]
            self._held = None
        while len(found) < most:
            before = self.batches.state() if most > 1 and found else None
            batch = next(self.batches, None)
            if batch is None:
                break
            batch = self.pack_data(batch)
            own = batch_key(batch) if most > 1 else None
            if found and own != kind:
                self._held = (batch, own, before)
                break
            found.append(batch)
            kind = own
        return found

    def _ring(self, program: Any, batch: Any) -> int:
        """Return the number of batches to collect for one call: several if steps are short and batches small."""
        seconds = program.pace.seconds
        size = sum(leaf.nbytes for leaf in weft.tree.leaves(batch))
        short = seconds is not None and seconds < SHORT_STEP and size * RING <= RING_BYTES
        short = short and current_distribution() is None
        return RING if short and hasattr(program, "run_chunk") else 1

    def state(self) -> dict[str, Any] | None:
        """Return the position for `resume`: a batch that was read but not run is read again. None before the first
        epoch.
        """
        if self.batches is None:
            return None
        return self.batches.state() if self._held is None else self._held[2]

    def close(self) -> None:
        """Stop reading."""
        self._held = None
        if self.batches is not None:
            self.batches.close()
        self.batches = None


def make_ring(batches: list[Any]) -> Any:
    """Stack batches in arrays with room for `RING`, so that one program runs any number of them."""

    def of_leaves(*leaves: Any) -> Any:
        first = np.asarray(leaves[0])
        whole = np.empty((RING * first.shape[0], *first.shape[1:]), first.dtype)
        np.concatenate(leaves, out=whole[: len(leaves) * first.shape[0]])
        return whole

    return on_device(weft.tree.map(of_leaves, *batches))


Feed = ResidentFeed | StreamFeed
