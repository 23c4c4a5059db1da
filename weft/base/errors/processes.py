"""Errors of programs that run in several processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.errors.layout import WeftError


class ProgramMismatchError(WeftError, RuntimeError):
    """The processes that run one program together have diverged.

    Every process must call the same functions on meshes of several processes, in the same order, with arguments of the
    same types and shardings and under the same settings. The message names the processes that differ and what each of
    them does. Branch on values that are equal in all processes, not on `weft.process_index()`.

    Wrong::

        # with several processes: python -m weft.launch -n 2 this_file.py
        import weft
        from weft.experimental import multihost_utils

        weft.distributed.initialize()
        if weft.process_index() == 0:
            multihost_utils.sync_global_devices("saved")
        else:
            multihost_utils.sync_global_devices("loaded")

    Right::

        # with several processes: python -m weft.launch -n 2 this_file.py
        import weft
        from weft.experimental import multihost_utils

        weft.distributed.initialize()
        if weft.process_index() == 0:
            print("saving")
        multihost_utils.sync_global_devices("saved")
    """


class ProcessFailureError(WeftError, RuntimeError):
    """Another process has died or ended while this one depends on it.

    The message names the process, its host and its last operation. `failed_processes` contains the indices of the
    processes. Shards that only failed processes held are lost: restart from the last checkpoint.

    Wrong::

        # with several processes: python -m weft.launch -n 2 this_file.py
        import weft
        from weft.experimental import multihost_utils

        weft.distributed.initialize()
        if weft.process_index() == 0:
            multihost_utils.process_allgather(1.0)

    Right::

        # with several processes: python -m weft.launch -n 2 this_file.py
        import weft
        from weft.experimental import multihost_utils

        weft.distributed.initialize()
        multihost_utils.process_allgather(1.0)
    """

    def __init__(self, what: object = "", *, failed_processes: Sequence[int] = (), **details: Any) -> None:
        super().__init__(what, **details)
        self.failed_processes = tuple(failed_processes)


class CheckpointWriteError(WeftError, OSError):
    """Another process could not write its part of a checkpoint.

    The message has the error of each process that failed, which raises that error itself; `failed_processes` contains
    their indices. All processes continue, and the previous checkpoint is intact.

    Wrong::

        # with several processes: python -m weft.launch -n 2 this_file.py
        import tempfile
        import weft
        import weft.numpy as wnp
        from weft import checkpointing

        weft.distributed.initialize()
        folder = tempfile.gettempdir() if weft.process_index() == 0 else "/dev/null"
        checkpointing.save(f"{folder}/weft_state", {"w": wnp.ones(3)}, overwrite=True)

    Right::

        # with several processes: python -m weft.launch -n 2 this_file.py
        import tempfile
        import weft
        import weft.numpy as wnp
        from weft import checkpointing

        weft.distributed.initialize()
        checkpointing.save(f"{tempfile.gettempdir()}/weft_state", {"w": wnp.ones(3)}, overwrite=True)
    """

    def __init__(self, what: object = "", *, failed_processes: Sequence[int] = (), **details: Any) -> None:
        super().__init__(what, **details)
        self.failed_processes = tuple(failed_processes)
