"""MPI as a transport, through mpi4py: the wheels of MPICH or Open MPI, or any MPI of the machine."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from typing import Any

from weft.base.errors import ArgumentError
from weft.runtime.processes.transport import Message, Messages, NothingBorrowed, TransportError

# What launchers tell the processes that they start: MPICH and Intel MPI, Open MPI, Slurm, MVAPICH.
LAUNCHED = ("PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def is_launched() -> bool:
    """Whether a launcher of MPI has started this process."""
    return any(name in os.environ for name in LAUNCHED)


def is_installed() -> bool:
    """Whether there is an mpi4py."""
    return importlib.util.find_spec("mpi4py") is not None


class MpiTransport(Messages):
    """Messages by a communicator of their own."""

    def __init__(self) -> None:
        if not is_installed():
            raise ArgumentError(
                "This process was started by MPI, and mpi4py is not installed.",
                fix="pip install 'weft[mpi]'   (or mpi4py for the MPI of this machine)",
            )
        import mpi4py

        # A process that has lost another one must be able to end: finalizing would wait for the dead.
        mpi4py.rc.finalize = False
        from mpi4py import MPI

        self._mpi: Any = MPI
        self._communicator: Any = MPI.COMM_WORLD.Dup()
        self.rank: int = self._communicator.rank
        self.size: int = self._communicator.size
        self.tags = int(self._communicator.Get_attr(MPI.TAG_UB) or 32767)
        self.name = f"mpi4py {mpi4py.__version__}, {MPI.Get_library_version().split(chr(10))[0].strip(chr(0))[:80]}"

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> MpiRequest:
        """Start to send and receive; returns at once."""
        communicator, byte, at = self._communicator, self._mpi.BYTE, self._mpi.memory.fromaddress
        requests = [communicator.Irecv([at(m.address, m.nbytes), byte], m.peer, m.tag) for m in receives]
        requests += [communicator.Isend([at(m.address, m.nbytes), byte], m.peer, m.tag) for m in sends]
        return MpiRequest(self._mpi, requests, receives)

    def close(self) -> None:
        """Finalize MPI."""
        if not self._mpi.Is_finalized():
            self._communicator.Free()
            self._mpi.Finalize()


class MpiRequest(NothingBorrowed):
    """Messages under way: those that are received first."""

    def __init__(self, mpi: Any, requests: list[Any], receives: Sequence[Message]) -> None:
        self._mpi = mpi
        self._requests = requests
        self._receives = receives
        self._statuses = [mpi.Status() for _ in requests]
        self._done = not requests

    def test(self) -> bool:
        """Whether all messages have ended."""
        if self._done:
            return True
        try:
            self._done = self._mpi.Request.Testall(self._requests, self._statuses)
        except self._mpi.Exception as error:
            raise TransportError(f"MPI: {error}") from None
        if self._done:
            for message, status in zip(self._receives, self._statuses, strict=False):
                count = status.Get_count(self._mpi.BYTE)
                if count != message.nbytes:
                    what = f"process {message.peer} sent {count} bytes where {message.nbytes} were expected"
                    raise TransportError(what)
        return self._done
