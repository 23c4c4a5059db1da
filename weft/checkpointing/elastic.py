"""Checkpoints of every step in the memory of a host, over those on disk: what a training that is started again loses
is the time of the start, and no step.

The launcher keeps a directory for the job, in memory where the host has room, that outlives its processes. Processes
that are started again after a failure read there what the earlier ones, also the dead ones, have written.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import time
import zlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from weft.checkpointing import tensor_file
from weft.checkpointing.manager import CheckpointManager
from weft.checkpointing.processes import Processes
from weft.checkpointing.restoring import Metadata

logger = logging.getLogger("weft")

# Environment variables of a launcher: the directory of a job on a host, and how many times all were started again.
DIRECTORY, RESTARTS = "WEFT_JOB_DIRECTORY", "WEFT_RESTART_COUNT"
_SHARED = "shared"  # the file by which processes find out whether they share a directory


class ElasticManager:
    """Checkpoints of every step in memory and of some on disk; a training resumes from the newest of both.

    All processes of a job use it together, like a `CheckpointManager`. Under `weft.launch --max-restarts N` the memory
    is that of the job, and freed at its end. Processes on several hosts do not share memory: checkpoints are then on
    disk only, and a warning says so. The number of processes may change between the starts.

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
        elif not _all_see(place, processes):
            logger.warning("ElasticManager: processes on several hosts share no memory: checkpoints are on disk only")
        else:
            self._memory = CheckpointManager(place, max_to_keep=2)
            # The threads of both managers pass barriers at the same time.
            self._memory._processes = processes
        self._has_reported = int(os.environ.get(RESTARTS, "0")) == 0

    @property
    def has_memory(self) -> bool:
        """Whether checkpoints are kept in memory too."""
        return self._memory is not None

    def _managers(self) -> list[CheckpointManager]:
        return [self._disk] if self._memory is None else [self._memory, self._disk]

    def all_steps(self) -> list[int]:
        """Return the steps that have a complete checkpoint in memory or on disk, in ascending order."""
        return sorted({step for manager in self._managers() for step in manager.all_steps()})

    def latest_step(self) -> int | None:
        """Return the last step that has a checkpoint, or None without checkpoints."""
        return max(self.all_steps(), default=None)

    def _manager(self, step: int | None) -> tuple[CheckpointManager, int | None]:
        """Return the manager that has a step, by default the last one."""
        chosen = self.latest_step() if step is None else step
        return next((m for m in self._managers() if chosen in m.all_steps()), self._disk), chosen

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
        if self._memory is not None:
            self._memory.save(step, tree, metadata=metadata, force=True)
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
        restored = manager.restore(chosen, like, shardings)
        if not self._has_reported and manager._processes.index == 0:
            lost = time.time() - os.stat(os.path.join(manager.directory, str(chosen), "index.json")).st_mtime
            place = "memory" if manager is self._memory else "disk"
            print(f"weft: resuming from step {chosen} in {place}; {lost:.1f} s lost", file=sys.stderr, flush=True)
        self._has_reported = True
        return restored

    def delete(self, step: int) -> None:
        """Delete the checkpoint of a step, in memory and on disk."""
        for manager in self._managers():
            if step in manager.all_steps():
                manager.delete(step)

    def wait_until_finished(self) -> None:
        """Wait for the saves in progress, and raise their errors if they failed."""
        for manager in self._managers():
            manager.wait_until_finished()

    def close(self) -> None:
        """Wait for the saves in progress and refuse further saves."""
        for manager in self._managers():
            manager.close()

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


def _all_see(place: str, processes: Processes) -> bool:
    """Return whether all processes see the same directory, as processes of one host do."""
    tensor_file.make_directory(place)
    path = os.path.join(place, _SHARED)
    processes.barrier(f"a directory is there{processes.label}")
    if processes.index == 0:
        with open(path, "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
    processes.barrier(f"a file is in it{processes.label}")
    failure = None if os.path.exists(path) else "no file"
    missing = processes.vote(f"all have looked for it{processes.label}", failure) if processes.vote else {}
    if processes.index == 0:
        os.unlink(path)
    return not missing
