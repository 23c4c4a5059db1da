"""Checkpoints of a training run: one per step, each in a directory of its own, written in the background."""

from __future__ import annotations

import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal

from weft.base.arguments import described, function_of
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.checkpointing import index as indices, orbax, orbax_writing, storage, tensor_file
from weft.checkpointing.processes import Processes
from weft.checkpointing.restoring import Metadata, index_metadata, restore
from weft.checkpointing.saving import MAX_FILE_BYTES, delete, snapshot, write

_STEP = re.compile("0|[1-9][0-9]*", re.ASCII)
logger = logging.getLogger("weft")


class CheckpointManager:
    """Checkpoints below a directory, one per step, with the method names of Orbax.

    `save` copies the NumPy arrays of a tree, refers to the others, and returns; a thread writes them. An error of the
    thread is raised by the next call, or by `wait_until_finished` and `close`. Arrays may be donated or
    deleted as soon as `save` has returned; memory that is still being written is not reused, so it is freed later.

    Args:
        directory: the directory that holds a directory for each step; it is created if missing.
        max_to_keep: number of checkpoints to retain after each save, the last ones, or the best ones with `best_fn`;
            None retains all.
        save_interval_steps: `save` skips steps that are not multiples of this number, except for the first.
        keep_period: checkpoints of multiples of this number are never deleted.
        best_fn: function from the metrics of a checkpoint to the number that ranks it.
        best_mode: whether "max" or "min" of that number is best.
        enable_async_checkpointing: False makes `save` return after everything is written.
        max_file_bytes: largest size of a file, as for `checkpointing.save`.
        barrier: as for `checkpointing.save`; the writing thread calls it.
        layout: "orbax" writes checkpoints that `orbax.checkpoint` reads: `save` takes a dict of trees, the items of
            the checkpoint, and `restore` returns one.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        max_to_keep: int | None = None,
        save_interval_steps: int = 1,
        keep_period: int | None = None,
        best_fn: Callable[[Any], float] | None = None,
        best_mode: Literal["max", "min"] = "max",
        enable_async_checkpointing: bool = True,
        max_file_bytes: int = MAX_FILE_BYTES,
        barrier: Callable[[str], None] | None = None,
        layout: Literal["weft", "orbax"] = "weft",
    ) -> None:
        if layout not in ("weft", "orbax"):
            raise ArgumentError("layout must be 'weft' or 'orbax'.", received=f"layout={layout!r}")
        self._orbax = layout == "orbax"
        if self._orbax and best_fn is not None:
            raise ArgumentError("layout='orbax' cannot be combined with best_fn.", received="best_fn")
        self.directory = storage.absolute(directory)
        if self._orbax and storage.is_url(self.directory):
            raise ArgumentError(
                "layout='orbax' needs a directory; object storage takes layout='weft'.", received=self.directory
            )
        self._max_to_keep = None if max_to_keep is None else _count("max_to_keep", max_to_keep)
        self._interval = _count("save_interval_steps", save_interval_steps)
        self._keep_period = None if keep_period is None else _count("keep_period", keep_period)
        if best_fn is not None:
            function_of(best_fn, "best_fn", "best_fn=lambda metrics: metrics['accuracy']")
        if best_mode not in ("max", "min"):
            raise ArgumentError("best_mode must be 'max' or 'min'.", received=f"best_mode={best_mode!r}")
        self._best_fn, self._best_sign = best_fn, 1 if best_mode == "max" else -1
        self._asynchronous = enable_async_checkpointing
        self._max_file_bytes = max_file_bytes
        self._processes = Processes.here(barrier)
        self._pending: _Pending | None = None
        self._closed = False
        tensor_file.make_directory(self.directory)

    # -- steps ---------------------------------------------------------------------------------------------------

    def all_steps(self) -> list[int]:
        """Return the steps that have a complete checkpoint, in ascending order. A save in progress does not count."""
        self.check_for_errors()
        return self._steps()

    def _steps(self) -> list[int]:
        return sorted(step for step in self._directories() if self._exists(step))

    def _directories(self) -> list[int]:
        """Return the steps that have a directory, with a complete checkpoint or an unfinished one."""
        return [int(name) for name in storage.list_directories(self.directory) if _STEP.fullmatch(name)]

    def _exists(self, step: int) -> bool:
        return (orbax_writing.exists if self._orbax else indices.exists)(self._path(step))

    def _remove(self, step: int) -> None:
        (orbax_writing.delete if self._orbax else delete)(self._path(step))

    def _path(self, step: int) -> str:
        return os.path.join(self.directory, str(step))

    def latest_step(self) -> int | None:
        """Return the last step that has a checkpoint, or None without checkpoints."""
        return max(self.all_steps(), default=None)

    def best_step(self) -> int | None:
        """Return the step with the best metrics (the last step without `best_fn`), or None if no step has metrics."""
        self.check_for_errors()
        if self._best_fn is None:
            return self.latest_step()
        ranked = self._rank(self._steps())
        return ranked[-1] if ranked else None

    def _rank(self, steps: list[int]) -> list[int]:
        """Sort the steps that have metrics from worst to best; of equal metrics the later step is better."""
        assert self._best_fn is not None
        found = {step: indices.read(self._path(step)).metrics for step in steps}
        judged = {step: metrics for step, metrics in found.items() if metrics is not None}
        scores = {step: self._best_sign * self._best_fn(metrics) for step, metrics in judged.items()}
        return sorted(scores, key=lambda step: (scores[step], step))

    def metadata(self, step: int | None = None) -> Metadata:
        """Return tree structure, step, metadata and metrics of the checkpoint of a step (default: the last)."""
        path = self._path(self._existing(step))
        return orbax.item_metadata(path) if self._orbax else index_metadata(indices.read(path))

    def _existing(self, step: int | None) -> int:
        """Return a step that has a checkpoint (the last one for None); raise if it has none."""
        steps = self.all_steps()
        if step is None and steps:
            return steps[-1]
        if step not in steps:
            wanted = "no checkpoint" if step is None else f"no checkpoint of step {step}"
            there = f"there are checkpoints of steps {steps}" if steps else "the directory has no checkpoints"
            raise FileNotFoundError(f"There is {wanted} in {self.directory!r}; {there}.")
        assert step is not None
        return step

    # -- saving ----------------------------------------------------------------------------------------------------

    def should_save(self, step: int) -> bool:
        """Return whether `save` would save a step: it is the first, or a later multiple of the interval."""
        latest = self.latest_step()
        return latest is None or (latest < _step(step) and step % self._interval == 0)

    def save(
        self,
        step: int,
        tree: Any,
        *,
        metrics: Any = None,
        metadata: Mapping[str, Any] | None = None,
        force: bool = False,
    ) -> bool:
        """Save a tree as the checkpoint of a step, if `should_save` or `force`.

        A save in progress is finished first.

        Args:
            step: the step, a nonnegative integer.
            tree: the tree to save.
            metrics: value of JSON that `best_fn` ranks the checkpoint by.
            metadata: value of JSON to save with the tree.
            force: save regardless of the interval, and also a step before the last one.

        Returns:
            Whether the step is saved.
        """
        if self._closed:
            raise ArgumentError("A closed CheckpointManager cannot save.", received=self.directory)
        self.wait_until_finished()
        if not force and not self.should_save(step):
            return False
        if self._exists(_step(step)):
            fix = f"manager.delete({step})   before saving the step again"
            raise ArgumentError(f"There is a checkpoint of step {step} already.", received=self.directory, fix=fix)
        put = self._writer(step, tree, metadata, metrics)

        def run() -> None:
            put()
            with self._processes.stage(f"after step {step} all processes see the same checkpoints"):
                if self._processes.is_first:
                    self._delete_others()

        if self._asynchronous:
            self._pending = _Pending(step, run)
        else:
            run()
        return True

    def _writer(self, step: int, tree: Any, metadata: Any, metrics: Any) -> Callable[[], None]:
        """Take a snapshot of a tree, and return a function that writes it."""
        path, processes = self._path(step), self._processes
        prepare = (lambda: self._delete_partial(step)) if processes.is_first else None
        if self._orbax:
            if metadata is not None or metrics is not None:
                raise ArgumentError("layout='orbax' cannot have metadata or metrics.", received="metadata or metrics")
            items = orbax_writing.Items(tree, copy=self._asynchronous)
            return lambda: items.write(path, processes, prepare)
        described: dict[str, Any] = {"step": step, "metadata": metadata, "metrics": metrics}
        taken = snapshot(tree, copy=self._asynchronous, near=processes.near, **described)
        settings: dict[str, Any] = {"max_file_bytes": self._max_file_bytes, "processes": processes, "prepare": prepare}
        return lambda: write(path, taken, overwrite=False, **settings)

    def _delete_partial(self, current: int) -> None:
        """Delete the remains of unfinished saves, except for the step that is saved next.

        This runs before the step is written, when no other process can be writing another one.
        """
        if self._orbax:
            orbax_writing.delete_partial(self.directory)
        for step in self._directories():
            if step != current and not self._exists(step):
                self._remove(step)

    def _delete_others(self) -> None:
        """Delete the checkpoints that are not retained."""
        if self._max_to_keep is None:
            return
        candidates = self._steps() if self._best_fn is None else self._rank(self._steps())
        for step in candidates[: max(len(candidates) - self._max_to_keep, 0)]:
            if self._keep_period is None or step % self._keep_period != 0:
                self._remove(step)

    def wait_until_finished(self) -> None:
        """Wait for the save in progress, and raise its error if it failed."""
        pending = self._pending
        if pending is not None:
            pending.join()
            self._pending = None
            pending.check()

    def check_for_errors(self) -> None:
        """Raise the error of the last save if it has failed; return at once if it is still in progress."""
        if self._pending is not None and self._pending.is_done():
            self.wait_until_finished()

    # -- restoring and deleting ------------------------------------------------------------------------------------

    def restore(
        self, step: int | None = None, like: Any = None, shardings: Any = None, *, partial: bool = False
    ) -> Any:
        """Restore the tree of a step (default: the last) as `checkpointing.restore` does.

        A save in progress is finished first.
        """
        self.wait_until_finished()
        path = self._path(self._existing(step))
        if self._orbax:
            return orbax.restore_items(path, like, shardings, partial)
        return restore(path, like, shardings, partial=partial)

    def delete(self, step: int) -> None:
        """Delete the checkpoint of a step."""
        self.wait_until_finished()
        self._existing(_step(step))
        self._processes.barrier(f"all processes have seen the checkpoint of step {step}")
        with self._processes.stage(f"the checkpoint of step {step} is deleted"):
            if self._processes.is_first:
                self._remove(step)

    def close(self) -> None:
        """Wait for the save in progress and refuse further saves."""
        self._closed = True
        self.wait_until_finished()

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Outcome:
    """The result of a save in the background."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.error: BaseException | None = None

    def log(self) -> None:
        """Log an error that was not raised in the main thread."""
        if self.error is not None:
            logger.error("the checkpoint of step %d was not written", self.step, exc_info=self.error)


class _Pending:
    """A save in progress. Its thread is not a daemon: the interpreter waits for it at exit."""

    def __init__(self, step: int, run: Callable[[], None]) -> None:
        self._outcome = outcome = _Outcome(step)
        self._process = os.getpid()

        def run_and_record() -> None:
            try:
                run()
            except BaseException as error:
                outcome.error = error

        self._thread = threading.Thread(target=run_and_record, name=f"checkpoint of step {step}", daemon=False)
        self._thread.start()
        weakref.finalize(self, outcome.log)  # at the end of the process too

    def is_done(self) -> bool:
        return not self._thread.is_alive() or os.getpid() != self._process

    def join(self) -> None:
        if os.getpid() == self._process:  # a thread does not survive the fork into another process
            self._thread.join()

    def check(self) -> None:
        """Raise the error of the save, once."""
        error, self._outcome.error = self._outcome.error, None
        if error is not None:
            error.add_note(f"while the checkpoint of step {self._outcome.step} was written in the background")
            raise error


def _step(step: Any) -> int:
    if type(step) is not int or step < 0:
        raise ArgumentTypeError("A step must be a nonnegative int.", received=described(step), fix="int(step)")
    return step


def _count(name: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ArgumentError(f"{name} must be a positive int.", received=f"{name}={value!r}")
    return value
