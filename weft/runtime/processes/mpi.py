"""MPI as a transport, through mpi4py: the wheels of MPICH or Open MPI, or any MPI of the machine."""

from __future__ import annotations

import importlib.util
import os
import queue
import threading
from collections.abc import Sequence
from typing import Any

from weft.base.errors import ArgumentError
from weft.base.lazy import lazy, load
from weft.runtime.processes.transport import Message, Messages, NothingBorrowed, TransportError

mpi4py = lazy("mpi4py")

# Environment variables that launchers set: MPICH and Intel MPI, Open MPI, Slurm, MVAPICH.
LAUNCHED = ("PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def is_launched() -> bool:
    """Return whether a launcher of MPI has started this process."""
    return any(name in os.environ for name in LAUNCHED)


def is_installed() -> bool:
    """Return whether mpi4py is installed."""
    return importlib.util.find_spec("mpi4py") is not None


class MpiTransport(Messages):
    """Transport by a communicator of its own."""

    def __init__(self, communicator: Any = None) -> None:
        if not is_installed():
            raise ArgumentError(
                "mpi4py must be installed in a process that MPI has started.",
                fix="pip install 'weft-jit[mpi]'   (or mpi4py for the MPI of this machine)",
            )
        # A process that has lost another one must be able to end: finalizing would wait for the dead.
        mpi4py.rc.finalize = False
        MPI = load("mpi4py.MPI")
        self._mpi: Any = MPI
        self._communicator: Any = MPI.COMM_WORLD.Dup() if communicator is None else communicator
        self.rank: int = self._communicator.rank
        self.size: int = self._communicator.size
        self.tags = int(self._communicator.Get_attr(MPI.TAG_UB) or 32767)
        self.name = f"mpi4py {mpi4py.__version__}, {MPI.Get_library_version().split(chr(10))[0].strip(chr(0))[:80]}"

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> MpiRequest:
        """Start to send and receive; return at once."""
        communicator, byte, at = self._communicator, self._mpi.BYTE, self._mpi.memory.fromaddress
        requests = [communicator.Irecv([at(m.address, m.nbytes), byte], m.peer, m.tag) for m in receives]
        requests += [communicator.Isend([at(m.address, m.nbytes), byte], m.peer, m.tag) for m in sends]
        return MpiRequest(self, requests, receives)

    def error(self, error: Any) -> TransportError:
        """Convert an error of MPI, with the processes that have died if MPI knows them (ULFM)."""
        mpi = self._mpi
        kinds = {getattr(mpi, name, None) for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")}
        if error.Get_error_class() not in kinds - {None, mpi.ERR_UNKNOWN}:
            return TransportError(f"MPI: {error}")
        group = self._communicator.Get_failed()
        lost = group.Translate_ranks(None, self._communicator.group) if group.size else []
        group.Free()
        return TransportError(f"MPI: {error}", lost)

    def shrink(self, seconds: float) -> MpiTransport:
        """Return the transport of the surviving processes, if this MPI supports that (ULFM)."""
        outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def run() -> None:
            try:
                self._communicator.Revoke()
                outcome.put(self._communicator.Shrink())
            except NotImplementedError:
                outcome.put(TransportError("this MPI does not survive the death of processes (no ULFM)"))
            except self._mpi.Exception as error:
                outcome.put(TransportError(f"MPI: {error}"))

        # Open MPI's nonblocking form fails on revoked communicators, and the blocking one has no timeout.
        threading.Thread(target=run, name="weft shrink", daemon=True).start()
        try:
            left = outcome.get(timeout=seconds)
        except queue.Empty:
            raise TransportError("not all processes that are left have called shrink") from None
        if isinstance(left, TransportError):
            raise left
        return MpiTransport(left)

    def close(self) -> None:
        """Finalize MPI."""
        if not self._mpi.Is_finalized():
            self._communicator.Free()
            self._mpi.Finalize()


class MpiRequest(NothingBorrowed):
    """Pending messages, receives first."""

    def __init__(self, transport: MpiTransport, requests: list[Any], receives: Sequence[Message]) -> None:
        self._transport = transport
        self._mpi = mpi = transport._mpi
        self._requests = requests
        self._receives = receives
        self._statuses = [mpi.Status() for _ in requests]
        self._done = not requests

    def test(self) -> bool:
        """Make progress, and return whether all messages have ended."""
        if self._done:
            return True
        try:
            self._done = self._mpi.Request.Testall(self._requests, self._statuses)
        except self._mpi.Exception as error:
            raise self._transport.error(self._first_error(error)) from None
        if self._done:
            for message, status in zip(self._receives, self._statuses, strict=False):
                count = status.Get_count(self._mpi.BYTE)
                if count != message.nbytes:
                    what = f"process {message.peer} sent {count} bytes where {message.nbytes} were expected"
                    raise TransportError(what)
        return self._done

    def _first_error(self, error: Any) -> Any:
        """Return the error of the first failed message if MPI reports it in a status, otherwise the error itself."""
        mpi = self._mpi
        if error.Get_error_class() != mpi.ERR_IN_STATUS:
            return error
        found = [mpi.Exception(status.Get_error()) for status in self._statuses]
        fine = {mpi.SUCCESS, mpi.ERR_PENDING}
        return next((e for e in found if e.Get_error_class() not in fine), error)
