"""`Loader`: batches of the samples of a source."""

from __future__ import annotations

import copy
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

import weft
from weft.data import processes
from weft.data.ahead import Ahead
from weft.data.batching import Buckets, Collation, Plan, rows_in
from weft.data.order import Order, check_seed
from weft.data.placing import batch_sharding, placement
from weft.data.position import Position, parse_position
from weft.data.preparing import Preparation, Task
from weft.data.reading import Reader, chunks, has_state, shuffle_samples
from weft.data.sharing import Share, make_share
from weft.data.source import as_source, fetch, is_map_style
from weft.data.spec import batch_spec
from weft.data.transforms import Filter, as_transforms
from weft.data.workers import Pool, WorkerFailureError
from weft.errors import ArgumentError, ArgumentTypeError

WorkerType = Literal["thread", "process", "spawn", "fork"]
LARGE_BYTES = 1 << 20  # batches of arrays from this size on are read by a thread
Element = tuple[Position, Any]  # a batch, and the position after it


class Loader:
    """Batches of the samples of a source, read ahead by threads or processes.

    `for batch in loader` is one epoch; the next loop is the next epoch, in another order if the loader shuffles. The
    samples of a batch and their random numbers depend on the seed, the epoch and the index of the sample, not on
    workers or on earlier reads. So `restore` continues exactly where `state` was called.

    Args:
        source: A tree of arrays, whose rows are samples; or an object with `__len__` and `__getitem__`, such as a list
            of samples; or an iterable, or a function that returns an iterator.
        batch_size: Number of samples in a batch, over all processes. None: elements of the source are batches.
        shuffle: Permute samples anew in each epoch; "batch" permutes within batches only. For an iterable source, the
            size of a buffer from which random samples are drawn.
        seed: Seed of the order and of `RandomMap`.
        transforms: Functions of a sample, `Map`, `RandomMap` and `Filter`, applied in order.
        drop_remainder: Drop a last batch with fewer samples.
        pad: Size that samples are padded to: "longest" (of the batch), "bucket" (the boundary of its bucket), a size
            of the first dimension, or a tree of these and None that is a prefix of a sample.
        pad_value: The value of padding.
        buckets: Grouping of samples of similar length into batches.
        collate: Function from a list of samples to a batch, in place of stacking arrays.
        workers: Number of workers that prepare batches; with 0 one thread reads ahead, or none if `prefetch` is 0.
        worker_type: "thread", or "spawn" ("process") or "fork" for processes.
        prefetch: Number of finished batches to hold, beyond those that workers are preparing.
        device: Destination of batches: a device, a sharding, or a mesh, whose first axis splits rows. None leaves them
            on the host as NumPy arrays.
        shard: The rows of a batch that this process reads: "process", (index, count), or None for all.
        timeout: Seconds after which an unfinished batch raises an error that names it.

    Example:
        >>> x, y = np.arange(10.0).reshape(5, 2), np.arange(5)
        >>> loader = Loader((x, y), batch_size=2, shuffle=True, seed=1)
        >>> len(loader), sorted(int(label) for _, labels in loader for label in labels)
        (3, [0, 1, 2, 3, 4])
    """

    def __init__(
        self,
        source: Any,
        batch_size: int | None = 32,
        *,
        shuffle: bool | int | Literal["batch"] = False,
        seed: int = 0,
        transforms: Sequence[Any] = (),
        drop_remainder: bool = False,
        pad: Any = None,
        pad_value: Any = 0,
        buckets: Buckets | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        workers: int = 0,
        worker_type: WorkerType = "thread",
        prefetch: int = 2,
        device: Any = None,
        shard: tuple[int, int] | str | None = "process",
        timeout: float | None = None,
    ) -> None:
        self.source, self.batch_size, self.shuffle = as_source(source), batch_size, shuffle
        self.seed, self.drop_remainder, self.buckets = check_seed(seed), drop_remainder, buckets
        self.workers, self.worker_type, self.prefetch, self.timeout = workers, worker_type, prefetch, timeout
        self.transforms = as_transforms(transforms)
        self.collation = Collation(pad, pad_value, collate)
        self.device = device
        self.is_map_style = is_map_style(self.source)
        self._check()
        # A source of batches has already chosen the rows of this process.
        self._shard = None if batch_size is None else shard
        self._share = make_share(self._shard, batch_sharding(device))
        # With a Filter, or buckets of an iterable source, batches are known only after samples are read.
        self._regroups = any(isinstance(t, Filter) for t in self.transforms) or (
            buckets is not None and not self.is_map_style
        )
        self._check_padding()
        self._put = None if device is None else placement(device)
        self._pool: Pool | None = None
        self._position, self._is_restored = Position(), False

    def _check(self) -> None:
        for name in ("batch_size", "workers", "prefetch"):
            value, least = getattr(self, name), int(name == "batch_size")
            if value is not None and (not isinstance(value, (int, np.integer)) or value < least):
                raise ArgumentError(f"{name} of a Loader must be at least {least}.", received=repr(value))
        if self.worker_type not in ("thread", "process", "spawn", "fork"):
            raise ArgumentError(
                "worker_type must be 'thread', 'spawn' (or 'process') or 'fork'.", received=repr(self.worker_type)
            )
        if not self.is_map_style and (self.shuffle is True or self.shuffle == "batch"):
            raise ArgumentError(
                "shuffle must be a buffer size for an iterable source.",
                received=f"shuffle={self.shuffle!r}",
                fix=("Loader(source, shuffle=1000)", "a source with __len__ and __getitem__"),
            )
        if self.batch_size is None and (self.buckets is not None or self.collation != Collation()):
            raise ArgumentError("Elements that are batches (batch_size=None) cannot be padded, bucketed or collated.")

    def _check_padding(self) -> None:
        kinds = [self.collation.pad] if isinstance(self.collation.pad, str) else weft.tree.leaves(self.collation.pad)
        if unknown := [k for k in kinds if isinstance(k, str) and k not in ("longest", "bucket")]:
            raise ArgumentError("pad must be 'longest', 'bucket' or a size.", received=repr(unknown[0]))
        if "bucket" in kinds and self.buckets is None:
            raise ArgumentError("pad='bucket' needs buckets.", fix="Loader(..., buckets=weft.data.Buckets((32, 64)))")
        if "longest" in kinds and self._share != Share() and not self._regroups:
            raise ArgumentError(
                "pad='longest' cannot be combined with shards: each process would pad its rows to another size.",
                fix=("pad=128", "pad='bucket', with buckets"),
            )

    def placed(self, device: Any) -> Loader:
        """Return a loader of the same batches that puts them on a device or shards them.

        Of several processes each reads the rows of its devices. The position of this loader does not change.
        """
        found = copy.copy(self)
        found.device, found._put = device, placement(device)
        found._share = make_share(found._shard, batch_sharding(device))
        found._check_padding()
        return found

    # ------------------------------------------------------------------------------------------------------ properties

    @functools.cached_property
    def plan(self) -> Plan | None:
        """The indices of batches; None for an iterable source. The lengths of samples are read if buckets need them."""
        if not self.is_map_style:
            return None
        shuffle: Any = self.shuffle if self.shuffle == "batch" else bool(self.shuffle)
        size = self.batch_size or 1
        order = Order(len(self.source), shuffle, self.seed, size)
        if self.buckets is None or self._regroups:
            return Plan(order, size, self.drop_remainder)
        return Plan(order, size, self.drop_remainder, self.buckets, self._lengths(self.buckets))

    def _lengths(self, buckets: Buckets) -> np.ndarray:
        count = len(self.source)
        if buckets.lengths is None or callable(buckets.lengths):
            return np.fromiter((buckets.length(fetch(self.source, [i])[0]) for i in range(count)), np.int64, count)
        found = np.asarray(buckets.lengths)
        if found.shape != (count,):
            raise ArgumentError(
                "Buckets must have one length per sample.",
                received=f"shape {found.shape} for {count} samples",
            )
        return found

    @property
    def size(self) -> int | None:
        """Number of batches of an epoch, or None if it is only known after reading."""
        return None if self.plan is None or self._regroups else self.plan.size

    @property
    def delivers_rows(self) -> bool:
        """Whether batches are rows of arrays in memory, without transforms."""
        return self._preparation.only_takes

    @property
    def samples(self) -> int | None:
        """Number of samples of the source, or None if it has no length."""
        return len(self.source) if self.is_map_style else None

    @property
    def skips(self) -> str:
        """How a position is restored: by "index", by the "state" of the source, or by "reading"."""
        if self.is_map_style:
            return "reading" if self._regroups and self.buckets is not None else "index"
        return "state" if not self.shuffle and not self._regroups and has_state(self.source) else "reading"

    def __len__(self) -> int:
        if self.size is None:
            raise ArgumentTypeError(
                "The number of batches of this loader is unknown before they are read.",
                received="a Filter" if self.is_map_style else f"an iterable source, {type(self.source).__name__}",
            )
        return self.size

    @functools.cached_property
    def spec(self) -> Any:
        """Shapes and dtypes of batches as a tree of `ArraySpec`, from the first batch."""
        return batch_spec(self.first())

    def first(self) -> Any:
        """Return the first batch of epoch 0, without changing the position."""
        with self.batches() as found:
            for batch in found:
                return batch
        raise ArgumentError("A loader must have at least one batch: it determines shapes and dtypes.")

    # -------------------------------------------------------------------------------------------------------- position

    @property
    def epoch(self) -> int:
        """The epoch of the position."""
        return self._position.epoch

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings that must be equal where a position is restored; the number of processes may differ."""
        return {"seed": self.seed, "batch_size": self.batch_size, "samples": self.samples}

    def state(self) -> dict[str, Any]:
        """Return the position after the last delivered batch, as a dict of JSON.

        >>> loader = Loader(range(6), batch_size=2)
        >>> batches = iter(loader)
        >>> first, state = next(batches), loader.state()
        >>> loader.restore(state)
        >>> list(loader)
        [array([2, 3]), array([4, 5])]
        """
        return self._position.as_dict(self._settings)

    def restore(self, state: dict[str, Any]) -> None:
        """Start the next loop at a position that `state` of this or an equal loader returned."""
        self._position, self._is_restored = parse_position(state, self._settings), True

    get_state = state_dict = state
    set_state = load_state_dict = restore

    def set_epoch(self, epoch: int) -> None:
        """Start the next loop at the begin of an epoch."""
        self._position, self._is_restored = Position(epoch), True

    # ------------------------------------------------------------------------------------------------------- iteration

    def __iter__(self) -> LoaderIterator:
        """Iterate over the rest of the epoch of a restored position, or else over the next epoch."""
        position = self._position
        if not self._is_restored and position.batches:
            position = Position(position.epoch + 1)
        self._position, self._is_restored = position, False
        return LoaderIterator(self, position, tracked=True)

    def batches(self, epoch: int = 0, start: int = 0) -> LoaderIterator:
        """Return an iterator of any epoch from batch `start` on, without changing the position of the loader."""
        return LoaderIterator(self, self._at(epoch, start))

    def _at(self, epoch: int, start: int) -> Position:
        return Position(epoch, start, start if not self._regroups else 0)

    def resume(self, state: dict[str, Any]) -> LoaderIterator:
        """Return an iterator that continues after a position of `state`, without changing the loader's position."""
        return LoaderIterator(self, parse_position(state, self._settings))

    def repeat(self, epochs: int | None = None) -> LoaderIterator:
        """Return an iterator of `epochs` epochs from the position on (None: without end), with no pause between
        them.
        """
        position, self._is_restored = self._position, False
        return LoaderIterator(self, position, tracked=True, epochs=epochs)

    def close(self) -> None:
        """End the workers; the next loop starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None, "_put": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._put = None if self.device is None else placement(self.device)

    # -------------------------------------------------------------------------------------------------------- pipeline

    @property
    def _reads_ahead(self) -> bool:
        """Whether a thread runs the pipeline.

        Workers suffice if they do all the work. Copying small rows of arrays is faster than handing them from one
        thread to another.
        """
        if not self.prefetch:
            return False
        if not self.is_map_style or self._put is not None or self._regroups:
            return True
        if self.workers:
            return False
        return not self.delivers_rows or self.source.row_bytes * (self.batch_size or 1) >= LARGE_BYTES

    def elements(self, position: Position, epochs: int | None = 1) -> Iterator[Element]:
        """Return an iterator of the batches of `epochs` epochs from a position on, each with the position after it."""
        if self.workers:
            self._workers()  # start processes in the calling thread, so that it gets their errors

        def read() -> Iterator[Element]:
            for epoch in itertools.islice(itertools.count(position.epoch), epochs):
                start = position if epoch == position.epoch else Position(epoch)
                is_empty = not start.batches
                for element in self._epoch(start):
                    is_empty = False
                    yield element
                if is_empty:
                    return  # later epochs are empty too

        return Ahead(read, self.prefetch) if self._reads_ahead or (epochs != 1 and self.prefetch) else read()

    def _epoch(self, position: Position) -> Iterator[Element]:
        tasks = self._tasks(position)
        prepare = self._preparation
        if self.workers:
            window = self.workers if self._reads_ahead else self.workers + self.prefetch
            results = self._workers().run(tasks, window)
        else:
            results = ((task, prepare(task)) for task in tasks)
        found = self._regroup(results, position) if self._regroups else self._with_positions(results)
        for after, batch, rows in found:
            yield after, batch if self._put is None else self._put(batch, rows)

    @property
    def _preparation(self) -> Preparation:
        source = self.source if self.is_map_style else None  # tasks carry the samples of iterable sources
        return Preparation(
            source,
            self.transforms,
            None if self._regroups else self.collation,
            self.seed,
            self.batch_size is not None,
            self.buckets,
        )

    def _workers(self) -> Pool:
        if self._pool is None or not self._pool.is_open:
            if self.worker_type == "thread":
                executors: Sequence[Any] = [self._preparation] * self.workers
            else:
                method = "spawn" if self.worker_type == "process" else self.worker_type
                executors = processes.start(self.workers, self._preparation, method)
            self._pool = Pool(executors, self.timeout)
        return self._pool

    def _tasks(self, position: Position) -> Iterator[Task]:
        """Yield the tasks of an epoch from a position on.

        If samples are regrouped into batches later, a task is a block of indices, the same in all processes.
        """
        epoch, start = position.epoch, position.block
        if self.plan is None:
            yield from self._tasks_of_iterable(position)
            return
        plan = Plan(self.plan.order, self.plan.batch_size) if self._regroups else self.plan
        for i, (indices, length) in enumerate(plan.batches(epoch, start), start):
            rows = slice(None) if self._regroups else self._share.rows(len(indices))
            yield Task(epoch, i, indices[rows], None, length, len(indices), int(indices[0]))

    def _tasks_of_iterable(self, position: Position) -> Iterator[Task]:
        reader = Reader(self.source, position.epoch, position.source)
        pairs: Iterator[tuple[int, Any]] = reader
        if self.shuffle:
            pairs = shuffle_samples(reader, int(self.shuffle), self.seed, position.epoch)
        first = position.block if position.source is not None else 0
        for i, (indices, samples) in enumerate(chunks(pairs, self.batch_size or 1), first):
            if i < position.block:
                continue
            if self.batch_size is not None and len(indices) < self.batch_size and self._drops_blocks:
                return
            rows = slice(None) if self._regroups else self._share.rows(len(indices))
            state = reader.state() if not self.shuffle and not self._regroups else None
            own = samples[rows]
            if not own:  # this process has no row of the batch: one sample determines the types of its empty batch
                yield Task(position.epoch, i, indices[:1], samples[:1], None, len(indices), -1, state)
            else:
                yield Task(position.epoch, i, indices[rows], own, None, len(indices), None, state)

    @property
    def _drops_blocks(self) -> bool:
        return self.drop_remainder and not self._regroups

    def _with_positions(self, results: Iterator[tuple[Task, Any]]) -> Iterator[tuple[Position, Any, int | None]]:
        """Yield results that are batches, each with the position after it and its number of rows."""
        for task, batch in results:
            if task.example == -1:
                batch = weft.tree.map(lambda leaf: leaf[:0], batch)
            after = Position(task.epoch, task.batch + 1, task.batch + 1, 0, task.after)
            yield after, batch, None if self.batch_size is None else task.rows

    def _regroup(
        self, results: Iterator[tuple[Task, Any]], position: Position
    ) -> Iterator[tuple[Position, Any, int | None]]:
        """Group results that are lists of samples into batches; yield them as `_with_positions` does."""
        batch_size = self.batch_size or 1
        count, skipped = position.batches, position.offset
        # By bucket: the block of each sample, its offset in the block, and the sample.
        waiting: dict[int, list[tuple[int, int, Any]]] = {}
        to_skip = 0 if position.block or position.offset else position.batches
        count -= to_skip
        for task, samples in results:
            for offset, (sample, length) in enumerate(samples):
                if skipped:
                    skipped -= 1
                    continue
                bucket = 0 if self.buckets is None else self.buckets.bucket(length)
                group = waiting.setdefault(bucket, [])
                group.append((task.batch, offset, sample))
                size = batch_size if self.buckets is None else self.buckets.batch_size(bucket, batch_size)
                if len(group) == size:
                    count += 1
                    after = Position(task.epoch, count, *self._cursor(task.batch, offset + 1))
                    if count > to_skip:
                        yield after, *self._collate(group, bucket)
                    waiting[bucket] = []
        for bucket, group in sorted(waiting.items()):
            if group and not self.drop_remainder:
                count += 1
                after = Position(position.epoch, count, *self._cursor(group[-1][0] + 1, 0))
                if count > to_skip:
                    yield after, *self._collate(group, bucket)

    def _cursor(self, block: int, offset: int) -> tuple[int, int]:
        """Return the position of the next sample.

        With buckets earlier samples may still wait for their batch, so a position is restored by reading from the
        start.
        """
        return (block, offset) if self.buckets is None else (0, 0)

    def _collate(self, group: list[tuple[int, int, Any]], bucket: int) -> tuple[Any, int]:
        length = None if self.buckets is None else self.buckets.boundary(bucket)
        samples = [sample for _, _, sample in group]
        if self.batch_size is None:
            return samples[0], rows_in(samples[0])
        own = self._share.rows(len(samples))
        batch = self.collation(samples, length)
        return weft.tree.map(lambda leaf: leaf[own], batch) if self._share != Share() else batch, len(samples)


class LoaderIterator:
    """Iterator of the batches of a loader from a position on. If `tracked`, the loader's position follows it."""

    def __init__(self, loader: Loader, position: Position, tracked: bool = False, epochs: int | None = 1) -> None:
        self._loader, self.position, self._tracked, self._epochs = loader, position, tracked, epochs
        self._last = None if epochs is None else position.epoch + epochs - 1
        self._elements: Iterator[Element] | None = None
        self._process = os.getpid()

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        if self._elements is None or self._process != os.getpid():
            # The first batch, or a forked process without threads and workers: start them at the position.
            self._process = os.getpid()
            epochs = None if self._last is None else self._last - self.position.epoch + 1
            self._elements = self._loader.elements(self.position, epochs)
        try:
            position, batch = next(self._elements)
        except StopIteration:
            if self._tracked:
                self._loader._position = Position(self.position.epoch + 1)
            self.close()
            raise
        except BaseException as error:
            self.close()
            if isinstance(error, WorkerFailureError):
                self._loader.close()
            raise
        self.position = position
        if self._tracked:
            self._loader._position = position
        return batch

    def state(self) -> dict[str, Any]:
        """Return the position after the last delivered batch, as a dict of JSON."""
        return self.position.as_dict(self._loader._settings)

    get_state = state_dict = state

    def close(self) -> None:
        """Stop reading."""
        elements, self._elements = self._elements, iter(())
        self._tracked = False
        if elements is not None and hasattr(elements, "close"):
            elements.close()

    def __enter__(self) -> LoaderIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
