"""The checkpoints of a training: one for each step in a directory of its own, written in the background."""

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
from weft.checkpointing import index as indices, orbax, orbax_writing, tensor_file
from weft.checkpointing.restoring import Metadata, metadata_of, restore
from weft.checkpointing.saving import MAX_FILE_BYTES, Processes, delete, snapshot, write

_STEP = re.compile("0|[1-9][0-9]*", re.ASCII)
logger = logging.getLogger("weft")


class CheckpointManager:
    """The checkpoints below a directory, by step, under the names that Orbax has.

    `save` copies the tree to the host's memory and returns; a thread writes it. What goes wrong there is raised by the
    next call, or by `wait_until_finished` and `close`. Arrays may be donated or deleted as soon as `save` has returned.

    After each save those checkpoints are deleted that are not to be retained: all but the last `max_to_keep` ones, or
    with `best_fn` (metrics -> number) all but the best ones of those that have metrics, `best_mode` being "max" or
    "min". Those of steps that `keep_period` divides stay for good.

    `save_interval_steps`: `save` does nothing at other steps than its multiples and the first.
    `enable_async_checkpointing=False`: `save` returns when all is written.
    `barrier`: as for `checkpointing.save`; it is called by the thread that writes.
    `layout="orbax"`: checkpoints that `orbax.checkpoint` reads; `save` takes a dict of trees, the items of a
    checkpoint, and `restore` returns one.
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
        self.directory = os.path.abspath(os.fspath(directory))
        self._max_to_keep = None if max_to_keep is None else _count("max_to_keep", max_to_keep)
        self._interval = _count("save_interval_steps", save_interval_steps)
        self._keep_period = None if keep_period is None else _count("keep_period", keep_period)
        if best_fn is not None:
            function_of(best_fn, "best_fn", "best_fn=lambda metrics: metrics['accuracy']")
        if best_mode not in ("max", "min"):
            raise ArgumentError("best_mode is 'max' or 'min'.", received=f"best_mode={best_mode!r}")
        self._best_fn, self._best_sign = best_fn, 1 if best_mode == "max" else -1
        self._asynchronous = enable_async_checkpointing
        self._max_file_bytes = max_file_bytes
        self._processes = Processes.here(barrier)
        self._pending: _Pending | None = None
        self._closed = False
        tensor_file.make_directory(self.directory)

    # -- what is there ---------------------------------------------------------------------------------------------

    def all_steps(self) -> list[int]:
        """The steps of which there is a checkpoint, in order. One that is being written does not count."""
        self.check_for_errors()
        return self._steps()

    def _steps(self) -> list[int]:
        return sorted(step for step in self._directories() if self._exists(step))

    def _directories(self) -> list[int]:
        """The steps that have a directory, with a checkpoint or the beginning of one."""
        with os.scandir(self.directory) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
        return [int(name) for name in names if _STEP.fullmatch(name)]

    def _exists(self, step: int) -> bool:
        return (orbax_writing.exists if self._orbax else indices.exists)(self._path(step))

    def _remove(self, step: int) -> None:
        (orbax_writing.delete if self._orbax else delete)(self._path(step))

    def _path(self, step: int) -> str:
        return os.path.join(self.directory, str(step))

    def latest_step(self) -> int | None:
        """The last step of which there is a checkpoint; None if there is none."""
        return max(self.all_steps(), default=None)

    def best_step(self) -> int | None:
        """The step with the best metrics of those that have any (the last one without `best_fn`)."""
        self.check_for_errors()
        if self._best_fn is None:
            return self.latest_step()
        ranked = self._ranked(self._steps())
        return ranked[-1] if ranked else None

    def _ranked(self, steps: list[int]) -> list[int]:
        """The steps that have metrics, from the worst to the best; of equal ones the later is better."""
        assert self._best_fn is not None
        found = {step: indices.read(self._path(step)).metrics for step in steps}
        judged = {step: metrics for step, metrics in found.items() if metrics is not None}
        scores = {step: self._best_sign * self._best_fn(metrics) for step, metrics in judged.items()}
        return sorted(scores, key=lambda step: (scores[step], step))

    def metadata(self, step: int | None = None) -> Metadata:
        """What the checkpoint of a step (default: the last) says of itself."""
        path = self._path(self._existing(step))
        return orbax.metadata_of_items(path) if self._orbax else metadata_of(indices.read(path))

    def _existing(self, step: int | None) -> int:
        """A step of which there is a checkpoint; for None, the last."""
        steps = self.all_steps()
        if step is None and steps:
            return steps[-1]
        if step not in steps:
            wanted = "no checkpoint" if step is None else f"no checkpoint of step {step}"
            there = f"there are those of {steps}" if steps else "there are none"
            raise FileNotFoundError(f"There is {wanted} in {self.directory!r}; {there}.")
        assert step is not None
        return step

    # -- saving ----------------------------------------------------------------------------------------------------

    def should_save(self, step: int) -> bool:
        """Whether `save` would save this step: it is the first, or a later one that is a multiple of the interval."""
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
        """Save a tree as the checkpoint of a step, unless the interval says otherwise; whether it was (or will be).

        With `force` the interval does not matter, and the step may be an earlier one. A save that is going on is waited
        for first. `metrics` and `metadata` are values of JSON.
        """
        if self._closed:
            raise ArgumentError("This CheckpointManager is closed.", received=self.directory)
        self.wait_until_finished()
        if not force and not self.should_save(step):
            return False
        if self._exists(_step(step)):
            fix = f"manager.delete({step})   before it is saved again"
            raise ArgumentError(f"There is a checkpoint of step {step} already.", received=self.directory, fix=fix)
        put = self._writer(step, tree, metadata, metrics)

        def run() -> None:
            if self._processes.index == 0:
                self._delete_unfinished(step)
            put()
            if self._processes.index == 0:
                self._delete_others()
            self._processes.barrier(f"after step {step} all processes see the same checkpoints")

        if self._asynchronous:
            self._pending = _Pending(step, run)
        else:
            run()
        return True

    def _writer(self, step: int, tree: Any, metadata: Any, metrics: Any) -> Callable[[], None]:
        """A function that writes a tree as it is now."""
        path, processes = self._path(step), self._processes
        if self._orbax:
            if metadata is not None or metrics is not None:
                raise ArgumentError("layout='orbax' cannot have metadata or metrics.", received="metadata or metrics")
            items = orbax_writing.Items(tree, copy=self._asynchronous)
            return lambda: items.write(path, processes)
        taken = snapshot(tree, copy=self._asynchronous, step=step, metadata=metadata, metrics=metrics)
        most = self._max_file_bytes
        return lambda: write(path, taken, overwrite=False, max_file_bytes=most, processes=processes)

    def _delete_unfinished(self, current: int) -> None:
        """Delete what is left of saves that were not finished, other than of the one that begins: before it is written,
        since then no other process can be at work on another one."""
        if self._orbax:
            orbax_writing.delete_unfinished(self.directory)
        for step in self._directories():
            if step != current and not self._exists(step):
                self._remove(step)

    def _delete_others(self) -> None:
        """Delete what is not retained."""
        if self._max_to_keep is None:
            return
        candidates = self._steps() if self._best_fn is None else self._ranked(self._steps())
        for step in candidates[: max(len(candidates) - self._max_to_keep, 0)]:
            if self._keep_period is None or step % self._keep_period != 0:
                self._remove(step)

    def wait_until_finished(self) -> None:
        """Wait for the save that is going on, and raise what went wrong with it."""
        pending = self._pending
        if pending is not None:
            pending.join()
            self._pending = None
            pending.check()

    def check_for_errors(self) -> None:
        """Raise what went wrong with the last save, if it has ended."""
        if self._pending is not None and self._pending.has_ended():
            self.wait_until_finished()

    # -- restoring and deleting ------------------------------------------------------------------------------------

    def restore(
        self, step: int | None = None, like: Any = None, shardings: Any = None, *, partial: bool = False
    ) -> Any:
        """The tree of a step (default: the last), as `checkpointing.restore` returns it. A save that is going on is
        waited for first."""
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
        if self._processes.index == 0:
            self._remove(step)
        self._processes.barrier(f"the checkpoint of step {step} is deleted")

    def close(self) -> None:
        """Wait for the save that is going on; there can be no other afterwards."""
        self._closed = True
        self.wait_until_finished()

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Outcome:
    """What came of a save in the background."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.error: BaseException | None = None

    def log(self) -> None:
        """Log an error that nobody has asked for."""
        if self.error is not None:
            logger.error("the checkpoint of step %d was not written", self.step, exc_info=self.error)


class _Pending:
    """A save that a thread does. The interpreter does not end before the thread has."""

    def __init__(self, step: int, run: Callable[[], None]) -> None:
        self._outcome = outcome = _Outcome(step)
        self._process = os.getpid()

        def guarded() -> None:
            try:
                run()
            except BaseException as error:
                outcome.error = error

        self._thread = threading.Thread(target=guarded, name=f"checkpoint of step {step}", daemon=False)
        self._thread.start()
        weakref.finalize(self, outcome.log)  # at the end of the process too

    def has_ended(self) -> bool:
        return not self._thread.is_alive() or os.getpid() != self._process

    def join(self) -> None:
        if os.getpid() == self._process:  # else this process was forked, and the thread is the other one's
            self._thread.join()

    def check(self) -> None:
        """Raise what went wrong."""
        error, self._outcome.error = self._outcome.error, None
        if error is not None:
            error.add_note(f"while the checkpoint of step {self._outcome.step} was written in the background")
            raise error


def _step(step: Any) -> int:
    if type(step) is not int or step < 0:
        raise ArgumentTypeError("A step is an int that is not negative.", received=described(step), fix="int(step)")
    return step


def _count(name: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ArgumentError(f"{name} is a positive int.", received=f"{name}={value!r}")
    return value
