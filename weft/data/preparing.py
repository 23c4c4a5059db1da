"""The work of a worker: read samples, transform them and make a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from weft.data.adapter import to_host_arrays
from weft.data.batching import Buckets, Collation
from weft.data.source import ArraySource, fetch
from weft.data.transforms import DROPPED, Transform, apply_transforms


@dataclass
class Task:
    """The description of one batch for a worker."""

    epoch: int
    batch: int
    indices: np.ndarray | range | list[int]
    samples: list[Any] | None = None  # of an iterable source
    length: int | None = None  # of the bucket
    rows: int = 0  # of the batch in all processes
    example: int | None = None  # index of a sample for types, if this process has no row of the batch
    after: Any = None  # the state of an iterable source after the samples

    def describe(self) -> str:
        """Describe the task for messages."""
        return f"batch {self.batch} of epoch {self.epoch}"


@dataclass
class Preparation:
    """The function from tasks to batches, which is sent to worker processes.

    If `collation` is None, batches are formed later, because samples may be dropped: the result is then a list of pairs
    of a sample and its length.
    """

    source: Any
    transforms: tuple[Transform, ...]
    collation: Collation | None
    seed: int
    batched: bool = True  # False if each element of the source is a batch
    buckets: Buckets | None = None

    @property
    def only_takes(self) -> bool:
        """Whether batches are rows of arrays, without transforms."""
        return isinstance(self.source, ArraySource) and not self.transforms and self.collation == Collation()

    def __call__(self, task: Task) -> Any:
        if self.only_takes:
            return self.source.take(task.indices)
        if not len(task.indices) and task.example is not None:
            whole = self._batch(Task(task.epoch, task.batch, [task.example], length=task.length))
            return weft.tree.map(lambda leaf: leaf[:0], whole)
        return self._batch(task)

    def _batch(self, task: Task) -> Any:
        samples = self._samples(task)
        if self.collation is None:
            return samples
        if not self.batched:
            return to_host_arrays(samples[0], None)
        return self.collation(samples, task.length)

    def _samples(self, task: Task) -> list[Any]:
        samples = task.samples
        if samples is None:
            try:
                samples = fetch(self.source, task.indices)
            except Exception as error:
                error.add_note(f"weft.data was reading {task.describe()}, indices {_shown(task.indices)}.")
                raise
        if not self.transforms and self.collation is not None:
            return samples
        found: list[Any] = []
        for index, sample in zip(task.indices, samples, strict=True):
            try:
                length = 0 if self.buckets is None or self.collation is not None else self.buckets.length(sample)
                result = apply_transforms(sample, self.transforms, self.seed, task.epoch, int(index))
            except Exception as error:
                error.add_note(f"weft.data was transforming sample {index}, of {task.describe()}.")
                raise
            if result is not DROPPED:
                found.append(result if self.collation is not None else (result, length))
        return found


def _shown(indices: Any) -> str:
    first = ", ".join(str(int(i)) for i in indices[:4])
    return f"{first}, ..." if len(indices) > 4 else first
