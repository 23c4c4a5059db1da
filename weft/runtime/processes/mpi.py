"""MPI as a transport, through mpi4py: the wheels of MPICH or Open MPI, or any MPI of the machine."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from weft.base.errors import ArgumentError, ProcessFailureError
from weft.base.lazy import lazy, load
from weft.runtime.processes.transport import Message, Messages, NothingBorrowed, TransportError

mpi4py = lazy("mpi4py")

INTERFACE_VARIABLES = ("UCX_NET_DEVICES", "FI_TCP_IFACE", "NCCL_SOCKET_IFNAME")


def is_installed() -> bool:
    """Return whether mpi4py is installed."""
    return importlib.util.find_spec("mpi4py") is not None


def load_mpi() -> Any:
    """Import mpi4py without initializing MPI."""
    if not is_installed():
        raise ArgumentError(
            "mpi4py must be installed in a process that is one of several.",
            fix="pip install 'weft-jit[mpi]'   (or mpi4py for the MPI of this machine)",
        )
    mpi4py.rc.initialize = False
    # A process that has lost another one must be able to end: finalizing would wait for the dead.
    mpi4py.rc.finalize = False
    return load("mpi4py.MPI")


def library_name() -> str:
    """Return the name and version of the MPI that mpi4py uses."""
    return str(load_mpi().Get_library_version()).split("\n")[0].strip("\0")[:80]


def is_open_mpi() -> bool:
    """Return whether mpi4py uses Open MPI, which joins only below its own launcher (PMIx)."""
    return "Open MPI" in library_name()


def use_pmi(file: int, rank: int, size: int) -> None:
    """Let MPI find the other processes by PMI at an open file, and by nothing else."""
    for name in [n for n in os.environ if n.startswith(("PMI_", "PMIX_", "HYDI_"))]:
        del os.environ[name]
    os.environ |= {"PMI_FD": str(file), "PMI_RANK": str(rank), "PMI_SIZE": str(size)}


def choose_interface() -> None:
    """Let MPI (UCX, libfabric) and NCCL use the network interface that WEFT_NETWORK_INTERFACE names."""
    interface = os.environ.get("WEFT_NETWORK_INTERFACE")
    for name in INTERFACE_VARIABLES if interface else ():
        os.environ.setdefault(name, interface or "")


def initialize_mpi(deadline: float, check: Callable[[], object]) -> None:
    """Initialize MPI, which waits for all processes.

    A thread calls C, because mpi4py would hold the GIL while it waits, and no error could be raised here.

    Args:
        deadline: time (`time.monotonic`) at which ProcessFailureError is raised.
        check: function that raises if another process has failed.
    """
    MPI = load_mpi()
    if MPI.Is_initialized():
        return
    choose_interface()
    library, done, codes = ctypes.CDLL(MPI.__file__), threading.Event(), []

    def run() -> None:
        codes.append(library.MPI_Init_thread(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int())))
        done.set()

    threading.Thread(target=run, name="weft MPI", daemon=True).start()
    pause = 0.001
    while not done.wait(pause):
        pause = min(2 * pause, 0.05)
        check()
        if time.monotonic() > deadline:
            raise ProcessFailureError(
                "Not all processes have initialized MPI in time, and its launcher does not say which ones.",
                fix=(
                    "look for a process that failed before weft.distributed.initialize, or that does not call it",
                    "python -m weft.launch -n 2 train.py   names it",
                    "weft.distributed.initialize(initialization_timeout=seconds)   to wait longer",
                ),
            )
    if codes[0] != MPI.SUCCESS:
        raise ArgumentError("MPI must be able to start.", received=f"error {codes[0]} of MPI_Init_thread")
    # mpi4py does this where it initializes MPI itself: errors are raised instead of ending the process.
    for communicator in (MPI.COMM_WORLD, MPI.COMM_SELF):
        communicator.Set_errhandler(MPI.ERRORS_RETURN)


def finalize_mpi() -> None:
    """Finalize MPI, without the GIL: the coordinator of the job may be a thread of this process."""
    MPI = load_mpi()
    if not MPI.Is_finalized():
        ctypes.CDLL(MPI.__file__).MPI_Finalize()


class MpiTransport(Messages):
    """Transport by a communicator of its own; `check` raises while it is created if another process has failed."""

    def __init__(self, communicator: Any = None, seconds: float = 300.0, check: Callable[[], object] = bool) -> None:
        MPI, deadline = load_mpi(), time.monotonic() + seconds
        self._mpi: Any = MPI
        self._communicator: Any = communicator
        if communicator is None:
            initialize_mpi(deadline, check)
            self._communicator, request = MPI.COMM_WORLD.Idup()
            while not request.Test():
                check()
                if time.monotonic() > deadline:
                    raise ProcessFailureError("Not all processes have initialized MPI in time.")
                time.sleep(0.0005)
        self.rank: int = self._communicator.rank
        self.size: int = self._communicator.size
        self.tags = int(self._communicator.Get_attr(MPI.TAG_UB) or 32767)
        self.name = f"mpi4py {mpi4py.__version__}, {library_name()}"

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
            finalize_mpi()


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
