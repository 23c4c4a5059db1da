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
from weft.data.order import Order, checked_seed
from weft.data.placing import placement, sharding_of
from weft.data.position import Position, position_of
from weft.data.preparing import Preparation, Task
from weft.data.reading import Reader, chunks, has_state, shuffled
from weft.data.sharing import Share, share_of
from weft.data.source import fetch, is_map_style, source_of
from weft.data.spec import spec_of
from weft.data.transforms import Filter, transforms_of
from weft.data.workers import Pool, WorkerFailureError
from weft.errors import ArgumentError, ArgumentTypeError

WorkerType = Literal["thread", "process", "spawn", "fork"]
LARGE_BYTES = 1 << 20  # a batch of arrays that is worth a thread
Element = tuple[Position, Any]  # a batch, and the position behind it


class Loader:
    """Batches of the samples of a source, read ahead by threads or processes.

    `for batch in loader` is one epoch; the next loop is the next epoch, in another order if the loader shuffles. Which
    samples a batch has, and what is random about them, depends on the seed, the epoch and the index of the sample: not
    on workers, and not on what was read before. So `restore` continues exactly where `state` was called.

    Args:
        source: A tree of arrays, of which each row is a sample; or an object with `__len__` and `__getitem__`, such as
            a list of samples; or an iterable, or a function that returns an iterator.
        batch_size: Samples of a batch, those of all processes together. None: elements of the source are batches.
        shuffle: Whether samples are in another order in each epoch. "batch": within batches only. Of an iterable
            source, the size of a buffer from which a random sample is taken.
        seed: What the order and `RandomMap` depend on.
        transforms: What is done with each sample, in order: functions, `Map`, `RandomMap`, `Filter`.
        drop_remainder: Whether a last batch of fewer samples is left out.
        pad: How samples of different sizes are made equal: "longest" (of the batch), "bucket" (the boundary of its
            bucket), the size of the first dimension, or a tree of these and None that is a prefix of a sample.
        pad_value: What is added.
        buckets: Samples of similar length are put together.
        collate: A function of a list of samples that returns a batch, instead of stacking arrays.
        workers: How many workers prepare batches; 0: one thread reads ahead, or none if `prefetch` is 0.
        worker_type: "thread", or "spawn" ("process") or "fork" for processes.
        prefetch: How many batches are ready beyond those that workers are working on.
        device: Where batches are put: a device, a sharding, or a mesh, over whose first axis rows are split. None: they
            are NumPy arrays.
        shard: Which rows of a batch this process reads: "process", (index, count), or None for all.
        timeout: Seconds after which a batch that is not ready is an error that names it.

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
        self.source, self.batch_size, self.shuffle = source_of(source), batch_size, shuffle
        self.seed, self.drop_remainder, self.buckets = checked_seed(seed), drop_remainder, buckets
        self.workers, self.worker_type, self.prefetch, self.timeout = workers, worker_type, prefetch, timeout
        self.transforms = transforms_of(transforms)
        self.collation = Collation(pad, pad_value, collate)
        self.device = device
        self.is_map_style = is_map_style(self.source)
        self._check()
        # Elements that are batches already belong to whoever made the source.
        self._shard = None if batch_size is None else shard
        self._share = share_of(self._shard, sharding_of(device))
        # Samples that are left out, or whose batch is known when they are there, are put together in the end.
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
                raise ArgumentError(f"{name} of a Loader is at least {least}.", received=repr(value))
        if self.worker_type not in ("thread", "process", "spawn", "fork"):
            raise ArgumentError(
                "worker_type is 'thread', 'spawn' (or 'process') or 'fork'.", received=repr(self.worker_type)
            )
        if not self.is_map_style and (self.shuffle is True or self.shuffle == "batch"):
            raise ArgumentError(
                "An iterable source is shuffled through a buffer, whose size is to be said.",
                received=f"shuffle={self.shuffle!r}",
                fix=("Loader(source, shuffle=1000)", "a source with __len__ and __getitem__"),
            )
        if self.batch_size is None and (self.buckets is not None or self.collation != Collation()):
            raise ArgumentError("batch_size=None means that elements are batches: nothing is padded or collated.")

    def _check_padding(self) -> None:
        kinds = [self.collation.pad] if isinstance(self.collation.pad, str) else weft.tree.leaves(self.collation.pad)
        if unknown := [k for k in kinds if isinstance(k, str) and k not in ("longest", "bucket")]:
            raise ArgumentError("pad is 'longest', 'bucket' or a size.", received=repr(unknown[0]))
        if "bucket" in kinds and self.buckets is None:
            raise ArgumentError("pad='bucket' needs buckets.", fix="Loader(..., buckets=weft.data.Buckets((32, 64)))")
        if "longest" in kinds and self._share != Share() and not self._regroups:
            raise ArgumentError(
                "pad='longest' is another size in each process, since each reads its own rows.",
                fix=("pad=128", "pad='bucket', with buckets"),
            )

    def placed(self, device: Any) -> Loader:
        """A loader of the same batches that puts them on a device, or splits them as a sharding says: of several
        processes each reads the rows that its devices have. The position of this one stays what it is."""
        found = copy.copy(self)
        found.device, found._put = device, placement(device)
        found._share = share_of(found._shard, sharding_of(device))
        found._check_padding()
        return found

    # -------------------------------------------------------------------------------------------------- what is known

    @functools.cached_property
    def plan(self) -> Plan | None:
        """The indices of batches; None for an iterable source. Reads lengths of samples if buckets need them."""
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
                "lengths of Buckets has one for each sample.", received=f"shape {found.shape} for {count} samples"
            )
        return found

    @property
    def size(self) -> int | None:
        """How many batches an epoch has; None if nobody knows before reading."""
        return None if self.plan is None or self._regroups else self.plan.size

    @property
    def delivers_rows(self) -> bool:
        """Whether batches are rows of arrays in memory, as they are."""
        return self._preparation.only_takes

    @property
    def samples(self) -> int | None:
        """How many samples the source has; None if it does not say."""
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
                "How many batches this loader has is known when they have been read.",
                received="a Filter" if self.is_map_style else f"an iterable source, {type(self.source).__name__}",
            )
        return self.size

    @functools.cached_property
    def spec(self) -> Any:
        """A tree of `ArraySpec`: shapes and dtypes of batches, of which one is read for that."""
        return spec_of(self.first())

    def first(self) -> Any:
        """The first batch of epoch 0. The position stays what it is."""
        with self.batches() as found:
            for batch in found:
                return batch
        raise ArgumentError("This loader has no batch, so shapes and dtypes are not known.")

    # -------------------------------------------------------------------------------------------------------- position

    @property
    def epoch(self) -> int:
        """The epoch that the position is in."""
        return self._position.epoch

    @property
    def _settings(self) -> dict[str, Any]:
        """What must be the same where a position is restored; processes may be more or fewer."""
        return {"seed": self.seed, "batch_size": self.batch_size, "samples": self.samples}

    def state(self) -> dict[str, Any]:
        """The position behind the last batch that was delivered: a dict of JSON.

        >>> loader = Loader(range(6), batch_size=2)
        >>> batches = iter(loader)
        >>> first, state = next(batches), loader.state()
        >>> loader.restore(state)
        >>> list(loader)
        [array([2, 3]), array([4, 5])]
        """
        return self._position.as_dict(self._settings)

    def restore(self, state: dict[str, Any]) -> None:
        """Have the next loop begin at a position that `state` returned, of this loader or of one like it."""
        self._position, self._is_restored = position_of(state, self._settings), True

    get_state = state_dict = state
    set_state = load_state_dict = restore

    def set_epoch(self, epoch: int) -> None:
        """Have the next loop be that of an epoch."""
        self._position, self._is_restored = Position(epoch), True

    # ------------------------------------------------------------------------------------------------------- iteration

    def __iter__(self) -> LoaderIterator:
        """The rest of the epoch of a position that was restored, or else an epoch from its start: the first that was
        not begun."""
        position = self._position
        if not self._is_restored and position.batches:
            position = Position(position.epoch + 1)
        self._position, self._is_restored = position, False
        return LoaderIterator(self, position, tracked=True)

    def batches(self, epoch: int = 0, start: int = 0) -> LoaderIterator:
        """The batches of any epoch, from batch `start` on. The position of the loader stays what it is."""
        return LoaderIterator(self, self._at(epoch, start))

    def _at(self, epoch: int, start: int) -> Position:
        return Position(epoch, start, start if not self._regroups else 0)

    def resume(self, state: dict[str, Any]) -> LoaderIterator:
        """The batches that follow a position that `state` returned. The position of the loader stays what it is."""
        return LoaderIterator(self, position_of(state, self._settings))

    def repeat(self, epochs: int | None = None) -> LoaderIterator:
        """The batches of so many epochs from the position on, or of all that follow, without a pause between them."""
        position, self._is_restored = self._position, False
        return LoaderIterator(self, position, tracked=True, epochs=epochs)

    def close(self) -> None:
        """End workers; the next loop starts others."""
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
        """Whether a thread runs the pipeline. Workers are enough where they do all the work, and rows of arrays are
        copied more quickly than they are handed from a thread to another, unless they are large."""
        if not self.prefetch:
            return False
        if not self.is_map_style or self._put is not None or self._regroups:
            return True
        if self.workers:
            return False
        return not self.delivers_rows or self.source.row_bytes * (self.batch_size or 1) >= LARGE_BYTES

    def elements(self, position: Position, epochs: int | None = 1) -> Iterator[Element]:
        """The batches of some epochs from a position on, each with the position behind it."""

        if self.workers:
            self._workers()  # processes are started by the thread that asks for batches, and errors of it are its own

        def read() -> Iterator[Element]:
            for epoch in itertools.islice(itertools.count(position.epoch), epochs):
                start = position if epoch == position.epoch else Position(epoch)
                is_empty = not start.batches
                for element in self._epoch(start):
                    is_empty = False
                    yield element
                if is_empty:
                    return  # so are all that follow

        return Ahead(read, self.prefetch) if self._reads_ahead or (epochs != 1 and self.prefetch) else read()

    def _epoch(self, position: Position) -> Iterator[Element]:
        tasks = self._tasks(position)
        prepare = self._preparation
        if self.workers:
            window = self.workers if self._reads_ahead else self.workers + self.prefetch
            results = self._workers().run(tasks, window)
        else:
            results = ((task, prepare(task)) for task in tasks)
        found = self._regrouped(results, position) if self._regroups else self._grouped(results)
        for after, batch, rows in found:
            yield after, batch if self._put is None else self._put(batch, rows)

    @property
    def _preparation(self) -> Preparation:
        source = self.source if self.is_map_style else None  # samples of others come with the task
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
        """What is to be prepared, from a position on. Where samples are put together later, a task is a block of
        indices, of all processes."""
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
            pairs = shuffled(reader, int(self.shuffle), self.seed, position.epoch)
        first = position.block if position.source is not None else 0
        for i, (indices, samples) in enumerate(chunks(pairs, self.batch_size or 1), first):
            if i < position.block:
                continue
            if self.batch_size is not None and len(indices) < self.batch_size and self._drops_blocks:
                return
            rows = slice(None) if self._regroups else self._share.rows(len(indices))
            state = reader.state() if not self.shuffle and not self._regroups else None
            own = samples[rows]
            if not own:  # this process has no row of the batch, and its samples are where types come from
                yield Task(position.epoch, i, indices[:1], samples[:1], None, len(indices), -1, state)
            else:
                yield Task(position.epoch, i, indices[rows], own, None, len(indices), None, state)

    @property
    def _drops_blocks(self) -> bool:
        return self.drop_remainder and not self._regroups

    def _grouped(self, results: Iterator[tuple[Task, Any]]) -> Iterator[tuple[Position, Any, int | None]]:
        """Results that are batches."""
        for task, batch in results:
            if task.example == -1:
                batch = weft.tree.map(lambda leaf: leaf[:0], batch)
            after = Position(task.epoch, task.batch + 1, task.batch + 1, 0, task.after)
            yield after, batch, None if self.batch_size is None else task.rows

    def _regrouped(
        self, results: Iterator[tuple[Task, Any]], position: Position
    ) -> Iterator[tuple[Position, Any, int | None]]:
        """Results that are lists of samples: batches of those."""
        batch_size = self.batch_size or 1
        count, skipped = position.batches, position.offset
        # By bucket: where each sample was, as a block and an offset in it, and the sample.
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
                        yield after, *self._collated(group, bucket)
                    waiting[bucket] = []
        for bucket, group in sorted(waiting.items()):
            if group and not self.drop_remainder:
                count += 1
                after = Position(position.epoch, count, *self._cursor(group[-1][0] + 1, 0))
                if count > to_skip:
                    yield after, *self._collated(group, bucket)

    def _cursor(self, block: int, offset: int) -> tuple[int, int]:
        """Where the next sample is; with buckets some before it wait, so a position is found by reading."""
        return (block, offset) if self.buckets is None else (0, 0)

    def _collated(self, group: list[tuple[int, int, Any]], bucket: int) -> tuple[Any, int]:
        length = None if self.buckets is None else self.buckets.boundary(bucket)
        samples = [sample for _, _, sample in group]
        if self.batch_size is None:
            return samples[0], rows_in(samples[0])
        own = self._share.rows(len(samples))
        batch = self.collation(samples, length)
        return weft.tree.map(lambda leaf: leaf[own], batch) if self._share != Share() else batch, len(samples)


class LoaderIterator:
    """The batches of a loader from a position on. `tracked`: the position of the loader follows."""

    def __init__(self, loader: Loader, position: Position, tracked: bool = False, epochs: int | None = 1) -> None:
        self._loader, self.position, self._tracked, self._epochs = loader, position, tracked, epochs
        self._last = None if epochs is None else position.epoch + epochs - 1
        self._elements: Iterator[Element] | None = None
        self._process = os.getpid()

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        if self._elements is None or self._process != os.getpid():
            # The first batch; or a forked process, which has neither threads nor workers: they start where it is.
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
        """The position behind the last batch that was delivered: a dict of JSON."""
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
