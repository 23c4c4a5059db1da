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

    def __init__(self, communicator: Any = None) -> None:
        if not is_installed():
            raise ArgumentError(
                "This process was started by MPI, and mpi4py is not installed.",
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
        """Start to send and receive; returns at once."""
        communicator, byte, at = self._communicator, self._mpi.BYTE, self._mpi.memory.fromaddress
        requests = [communicator.Irecv([at(m.address, m.nbytes), byte], m.peer, m.tag) for m in receives]
        requests += [communicator.Isend([at(m.address, m.nbytes), byte], m.peer, m.tag) for m in sends]
        return MpiRequest(self, requests, receives)

    def error(self, error: Any) -> TransportError:
        """What MPI has raised, and who has died as far as it knows (ULFM: some implementations of MPI survive)."""
        mpi = self._mpi
        kinds = {getattr(mpi, name, None) for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")}
        if error.Get_error_class() not in kinds - {None, mpi.ERR_UNKNOWN}:
            return TransportError(f"MPI: {error}")
        group = self._communicator.Get_failed()
        lost = group.Translate_ranks(None, self._communicator.group) if group.size else []
        group.Free()
        return TransportError(f"MPI: {error}", lost)

    def shrunk(self, seconds: float) -> MpiTransport:
        """The transport of those that are left, if this MPI survives the death of processes (ULFM)."""
        outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def shrink() -> None:
            try:
                self._communicator.Revoke()
                outcome.put(self._communicator.Shrink())
            except NotImplementedError:
                outcome.put(TransportError("this MPI does not survive the death of processes (no ULFM)"))
            except self._mpi.Exception as error:
                outcome.put(TransportError(f"MPI: {error}"))

        # Open MPI's nonblocking form fails on communicators that are revoked, and the other has no time limit.
        threading.Thread(target=shrink, name="weft shrink", daemon=True).start()
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
    """Messages under way: those that are received first."""

    def __init__(self, transport: MpiTransport, requests: list[Any], receives: Sequence[Message]) -> None:
        self._transport = transport
        self._mpi = mpi = transport._mpi
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
            raise self._transport.error(self._first_error(error)) from None
        if self._done:
            for message, status in zip(self._receives, self._statuses, strict=False):
                count = status.Get_count(self._mpi.BYTE)
                if count != message.nbytes:
                    what = f"process {message.peer} sent {count} bytes where {message.nbytes} were expected"
                    raise TransportError(what)
        return self._done

    def _first_error(self, error: Any) -> Any:
        """What is wrong with one of the messages, where MPI says that it is in its status."""
        mpi = self._mpi
        if error.Get_error_class() != mpi.ERR_IN_STATUS:
            return error
        found = [mpi.Exception(status.Get_error()) for status in self._statuses]
        fine = {mpi.SUCCESS, mpi.ERR_PENDING}
        return next((e for e in found if e.Get_error_class() not in fine), error)
