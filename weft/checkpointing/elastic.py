"""Checkpoints of every step in the memory of a host, over those on disk: what a training that is started again loses
is the time of the start, and no step.

The launcher keeps a directory for the job, in memory where the host has room, that outlives its processes. Processes
that are started again after a failure read there what the earlier ones, also the dead ones, have written.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from weft.base.errors import CheckpointMismatchError, FileFormatError
from weft.checkpointing import tensor_file
from weft.checkpointing.manager import CheckpointManager
from weft.checkpointing.processes import Processes
from weft.checkpointing.restoring import Metadata
from weft.runtime.processes.fence import host_identifier

logger = logging.getLogger("weft")

# Environment variables of a launcher: the directory of a job on a host, and how many times all were started again.
DIRECTORY, RESTARTS = "WEFT_JOB_DIRECTORY", "WEFT_RESTART_COUNT"


class ElasticManager:
    """Checkpoints of every step in memory and of some on disk; a training resumes from the newest of both.

    All processes of a job use it together, like a `CheckpointManager`. Under `weft.launch --max-restarts N` the memory
    is that of the job, and freed at its end. Each of several hosts keeps the shards of its devices: a training that is
    started again with the same mesh finds them there. On one host the number of processes may change between starts.

    Args:
        directory: the directory of checkpoints on disk.
        save_interval_steps: `save` writes the multiples of this number to disk.
        memory: the directory in memory, by default a part of the launcher's (WEFT_JOB_DIRECTORY).
        max_to_keep: number of checkpoints to retain on disk.

    >>> import tempfile, weft.numpy as wnp
    >>> from weft import checkpointing
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with checkpointing.ElasticManager(f"{folder}/disk", 100, memory=f"{folder}/memory") as manager:
    ...         for step in range(3):
    ...             manager.save(step, {"w": wnp.ones(2) * step})
    ...         manager.restore()["w"].tolist()
    [2.0, 2.0]
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        save_interval_steps: int = 100,
        *,
        memory: str | os.PathLike[str] | None = None,
        max_to_keep: int | None = 2,
    ) -> None:
        self._disk = CheckpointManager(directory, max_to_keep=max_to_keep, save_interval_steps=save_interval_steps)
        self._interval = save_interval_steps
        processes = dataclasses.replace(Processes.here(None), label=" (in memory)")
        place = _place(self._disk.directory) if memory is None else os.path.abspath(os.fspath(memory))
        self._memory: CheckpointManager | None = None
        if place is None:
            logger.warning("ElasticManager has no memory of a job (weft.launch): checkpoints are on disk only")
        else:
            hosts = _gather(processes, "directories in memory", _identify(place))
            near = frozenset(rank for rank, host in enumerate(hosts) if host == hosts[processes.index])
            self._memory = CheckpointManager(place, max_to_keep=2)
            # The threads of both managers pass barriers at the same time.
            near_or_all = None if len(near) == processes.count else near
            self._memory._processes = dataclasses.replace(processes, near=near_or_all)
        self._has_reported = int(os.environ.get(RESTARTS, "0")) == 0

    @property
    def has_memory(self) -> bool:
        """Whether checkpoints are kept in memory too."""
        return self._memory is not None

    @property
    def spans_hosts(self) -> bool:
        """Whether the memory is that of several hosts, each with the shards of its devices."""
        return self._memory is not None and self._memory._processes.near is not None

    def _try_memory(self, act: Callable[[CheckpointManager], object]) -> None:
        """Call a function of the manager in memory, if there is one, and do without it if its directory is full.

        A save that fails in one process raises in all, so all of them do without it.
        """
        try:
            if self._memory is not None:
                act(self._memory)
        except OSError as error:
            logger.warning("ElasticManager: checkpoints are on disk only from now on: %s", error)
            self._memory = None

    def _managers(self) -> list[CheckpointManager]:
        return [self._disk] if self._memory is None else [self._memory, self._disk]

    def all_steps(self) -> list[int]:
        """Return the steps that have a complete checkpoint, in the memory of all hosts or on disk, in ascending
        order."""
        return sorted({*self._steps_in_memory(), *self._disk.all_steps()})

    def _steps_in_memory(self) -> list[int]:
        self._try_memory(lambda memory: memory.wait_until_finished())
        if self._memory is None:
            return []
        steps, processes = self._memory.all_steps(), self._memory._processes
        if processes.near is None:
            return steps
        found = [set(json.loads(text)) for text in _gather(processes, "steps in memory", json.dumps(steps))]
        return sorted(set.intersection(*found))

    def latest_step(self) -> int | None:
        """Return the last step that has a checkpoint, or None without checkpoints."""
        return max(self.all_steps(), default=None)

    def _manager(self, step: int | None) -> tuple[CheckpointManager, int | None]:
        """Return the manager that has a step, by default the last one, and the step."""
        in_memory, on_disk = self._steps_in_memory(), self._disk.all_steps()
        chosen = max(in_memory + on_disk, default=None) if step is None else step
        if self._memory is not None and chosen in in_memory:
            return self._memory, chosen
        return self._disk, chosen

    def save(
        self,
        step: int,
        tree: Any,
        *,
        metadata: Mapping[str, Any] | None = None,
        on_disk: bool | None = None,
    ) -> None:
        """Save a tree in memory as the checkpoint of a step, and on disk if the step is a multiple of the interval.

        Args:
            step: the step, a nonnegative integer.
            tree: the tree to save.
            metadata: value of JSON to save with the tree.
            on_disk: whether to save it on disk, regardless of the interval.
        """
        self._try_memory(lambda memory: memory.save(step, tree, metadata=metadata, force=True))
        if step % self._interval == 0 if on_disk is None else on_disk:
            self._disk.save(step, tree, metadata=metadata, force=True)

    def metadata(self, step: int | None = None) -> Metadata:
        """Return what is saved with the checkpoint of a step (default: the last)."""
        manager, chosen = self._manager(step)
        return manager.metadata(chosen)

    def restore(self, step: int | None = None, like: Any = None, shardings: Any = None) -> Any:
        """Restore the tree of a step (default: the last) as `checkpointing.restore` does.

        After a restart the first process writes from where it resumes and how many seconds were lost to stderr.
        """
        self.wait_until_finished()
        manager, chosen = self._manager(step)
        restored = self._restore_from_memory(manager, chosen, like, shardings)
        if not self._has_reported and manager._processes.index == 0:
            lost = time.time() - os.stat(os.path.join(manager.directory, str(chosen), "index.json")).st_mtime
            place = "memory" if manager is self._memory else "disk"
            print(f"weft: resuming from step {chosen} in {place}; {lost:.1f} s lost", file=sys.stderr, flush=True)
        self._has_reported = True
        return restored

    def _restore_from_memory(self, manager: CheckpointManager, step: int | None, like: Any, shardings: Any) -> Any:
        """Restore from a manager; raise in all processes if the memory of a host lacks a shard."""
        if manager._processes.near is None:
            return manager.restore(step, like, shardings)
        restored, failure = None, ""
        try:
            restored = manager.restore(step, like, shardings)
        except FileFormatError as error:
            failure = str(error).splitlines()[0]
        failures = [text for text in _gather(manager._processes, "restored from memory", failure) if text]
        if failures:
            raise CheckpointMismatchError(
                "The memory of each host must have the shards of its devices.",
                received=failures[0],
                fix=f"manager.restore(step) with a step on disk: {self._disk.all_steps()}",
            )
        return restored

    def delete(self, step: int) -> None:
        """Delete the checkpoint of a step, in memory and on disk."""
        in_memory = step in self._steps_in_memory()
        for manager in self._managers():
            if in_memory if manager is self._memory else step in manager.all_steps():
                manager.delete(step)

    def wait_until_finished(self) -> None:
        """Wait for the saves in progress, and raise their errors if they failed."""
        self._try_memory(lambda memory: memory.wait_until_finished())
        self._disk.wait_until_finished()

    def close(self) -> None:
        """Wait for the saves in progress and refuse further saves."""
        self._try_memory(lambda memory: memory.close())
        self._disk.close()

    def __enter__(self) -> ElasticManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _place(directory: str) -> str | None:
    """Return a directory in the job's for checkpoints of a directory on disk, or None without a job."""
    job = os.environ.get(DIRECTORY)
    return os.path.join(job, f"checkpoints-{zlib.crc32(directory.encode()):08x}") if job else None


def _identify(place: str) -> str:
    """Create a directory; return a text that is the same for processes that see the same one."""
    tensor_file.make_directory(place)
    found = os.stat(place)
    return f"{host_identifier()}:{found.st_dev}:{found.st_ino}"


def _gather(processes: Processes, name: str, text: str) -> list[str]:
    """Gather a text of each process."""
    if processes.vote is None:
        return [text]
    found = processes.vote(f"{name}{processes.label}", text)
    return [found[rank] for rank in range(processes.count)]
