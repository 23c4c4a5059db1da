"""The processes that save one tree together: stages that all of them pass, or none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from weft.api import devices
from weft.base.errors import CheckpointWriteError, ProcessFailureError, ProgramMismatchError
from weft.runtime.processes import world
from weft.runtime.processes.page import where_is_this


def no_barrier(name: str) -> None:
    """Return at once: the barrier of a process without others."""


@dataclass(frozen=True)
class Processes:
    """The processes that save one tree together.

    Attributes:
        index: the index of this process.
        count: the number of processes.
        barrier: a function that returns when all processes have called it with the same name. If a process fails, its
            barrier must raise in the others.
        vote: a barrier that takes the error of this process too, and returns those of all, by index; None if errors
            cannot be passed on.
        near: the processes that share the directory, if not all do: each group writes all boxes that it has.
        label: text at the end of the names of stages: saves that run at the same time have different ones.
    """

    index: int
    count: int
    barrier: Callable[[str], object]
    vote: Callable[[str, str | None], Mapping[int, str]] | None = None
    near: frozenset[int] | None = None
    label: str = ""

    @property
    def is_first(self) -> bool:
        """Whether this process is the first of those that share the directory, which writes the index."""
        return self.index == (0 if self.near is None else min(self.near))

    def share(self, process: int) -> bool:
        """Return whether another process shares the directory."""
        return self.near is None or process in self.near

    @staticmethod
    def here(barrier: Callable[[str], object] | None) -> Processes:
        """Return the processes that run this program."""
        control = world.current().control
        index, count = devices.process_index(), devices.process_count()
        if barrier is not None:
            return Processes(index, count, barrier)
        if control is None:
            return Processes(index, count, no_barrier)
        return Processes(index, count, control.barrier, control.barrier)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Run a block in all processes and wait for its end in all of them; if it raises in one, raise in all."""
        name += self.label
        try:
            yield
        except Exception as error:
            if self.vote is not None:
                cause = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                with contextlib.suppress(ProcessFailureError, ProgramMismatchError):  # this error explains more
                    self.vote(name, f"process {self.index} ({where_is_this()}): {cause}")
            raise
        if self.vote is None:
            self.barrier(name)
            return
        failures = self.vote(name, None)
        if failures:
            raise CheckpointWriteError(
                "All processes must write their parts of a checkpoint; another one has failed.",
                received="\n".join(failures.values()),
                failed_processes=sorted(failures),
                fix="give the failed process space and permission in the directory, which all must share",
            )
