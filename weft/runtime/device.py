"""The devices of this process, and the placement of arrays on them."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Sequence
from typing import Any

from weft.base.forks import held
from weft.base.settings import config, num_cpu_devices
from weft.runtime.backend import Backend, backend_of, platforms, register
from weft.runtime.cpu.backend import CpuBackend
from weft.runtime.processes import world
from weft.runtime.processes.gpus import Gpu, gpus_of_all
from weft.sharding import SingleDeviceSharding
from weft.sharding.device import Device, is_addressable, process_index as current_process, set_memory_statistics


def _cpu(index: int) -> Device:
    return Device(index, "cpu", 0, f"cpu with {os.cpu_count()} cores")


def _load_gpu() -> Backend:
    from weft.runtime.cuda.backend import CudaBackend

    return CudaBackend()


register("cpu", CpuBackend)
register("gpu", _load_gpu)
CPU = _cpu(0)
# Names of the GPU platform.
_GPU = ("gpu", "cuda")


@functools.cache
def _cpus() -> tuple[Device, ...]:
    """Return the CPU devices of this process, or of all processes if there are several.

    The first call fixes their number. The first device always exists.
    """
    return _of_all or (CPU, *map(_cpu, range(1, num_cpu_devices.fixed())))


def _gpus() -> tuple[Device, ...]:
    """Return the GPUs of all processes; the first call loads the driver.

    With several processes the first call is collective: all of them make it, and exchange what they see.
    """
    global _all_gpus
    found = _all_gpus
    if found is None:
        with world.current().lock:
            found = _all_gpus = _all_gpus if _all_gpus is not None else _found_gpus()
    return found


def _found_gpus() -> tuple[Device, ...]:
    from weft.runtime.cuda import driver

    seen = [Gpu(driver.name_of(i), driver.hardware_of(i)) for i in range(driver.count())]
    owned = gpus_of_all(seen, _chosen_gpus)
    pairs = [(process, gpu, index) for process, gpus in enumerate(owned) for index, gpu in gpus.items()]
    return tuple(Device(i, "gpu", p, gpu.name, index) for i, (p, gpu, index) in enumerate(pairs, _first_gpu))


# The CPU devices of all processes; empty with one process.
_of_all: tuple[Device, ...] = ()
# The GPUs after the first use; the id of the first one; and the driver indices of the visible GPUs that this process
# uses, if they were specified.
_all_gpus: tuple[Device, ...] | None = None
_first_gpu = 0
_chosen_gpus: tuple[int, ...] | None = None


def are_used() -> bool:
    """Return whether the devices have been enumerated, so that they cannot change any more."""
    return _cpus.cache_info().currsize > 0 or _all_gpus is not None


def join(counts: Sequence[int], rank: int, gpus: tuple[int, ...] | None = None) -> None:
    """Make this process number `rank` of several, with `counts` CPU devices each.

    `gpus` are the driver indices of this process's GPUs, if they were specified. Existing arrays are on the first
    device, which stays the same object with another id. When processes have been lost, all devices get ids that no
    device had before, so that objects of earlier meshes are not mistaken for current ones.
    """
    global _of_all, _all_gpus, _first_gpu, _chosen_gpus
    _first_gpu = max((d.id + 1 for d in _all_gpus or ()), default=_first_gpu)
    _all_gpus, _chosen_gpus = None, gpus
    start = max((d.id + 1 for d in _of_all), default=0)
    first = start + sum(counts[:rank])
    object.__setattr__(CPU, "id", first)
    object.__setattr__(CPU, "process_index", rank)
    owners = [process for process, count in enumerate(counts) for _ in range(count)]
    _of_all = tuple(CPU if i == first else Device(i, "cpu", p, CPU.device_kind) for i, p in enumerate(owners, start))
    _cpus.cache_clear()
    # These tables hash devices by their old ids.
    with _lock:
        found = list(_placements.values())
        _placements.clear()
        _placements.update({(placement.device, placement.committed): placement for placement in found})
    backend_of(CPU).devices_changed()


def devices(backend: str | None = None) -> list[Device]:
    """Return the devices of a platform, in all processes."""
    if backend in _GPU:
        if not _gpus():
            raise RuntimeError(
                f"Unknown backend {backend!r}. There is no GPU here: NVIDIA's driver (libcuda) is not installed, or "
                "finds none (see nvidia-smi). weft.devices() has the CPU devices."
            )
        return list(_gpus())
    if backend not in (None, "cpu"):
        raise RuntimeError(f"Unknown backend {backend!r}: devices are on {', '.join(platforms())}.")
    return list(_cpus())


def local_devices(backend: str | None = None, process_index: int | None = None) -> list[Device]:
    """Return the devices of a platform in one process, by default this one."""
    process = current_process() if process_index is None else process_index
    return [d for d in devices(backend) if d.process_index == process]


def default_device() -> Device:
    """Return the configured default device, or the first CPU device."""
    chosen = config.default_device
    if chosen is None:
        return CPU
    return local_devices(chosen)[0] if isinstance(chosen, str) else known(chosen)


def exists(device: Device) -> bool:
    """Return whether a device exists in any process."""
    return device in (_gpus() if device.platform == "gpu" else _cpus())


def known(device: Device) -> Device:
    """Return the existing device that is equal to `device`; raise if there is none, or if it is another process's."""
    if device is CPU:
        return device
    for found in _gpus() if device.platform == "gpu" else _cpus():
        if found == device:
            if not is_addressable(found):
                raise RuntimeError(
                    f"Arrays must be put on devices of this process; got {found!r} of process {found.process_index}."
                )
            return found
    there = ", ".join(map(repr, _cpus()))
    raise RuntimeError(
        f"There is no device {device!r}; there are: {there}. More CPU devices are made by "
        "weft.config.update('num_cpu_devices', n) right after `import weft`."
    )


class Placement:
    """Device of an array, and whether the array is committed to it. An uncommitted array follows the operands it is
    used with. Equal placements are one object.
    """

    __slots__ = ("backend", "committed", "device", "memory", "sharding")

    def __init__(self, device: Device, committed: bool) -> None:
        self.device = device
        self.committed = committed
        self.backend = backend_of(device)
        self.memory: Any = self.backend.memory(device)  # the backend's own programs use more than `DeviceMemory`
        self.sharding = SingleDeviceSharding(device)

    def __repr__(self) -> str:
        return f"{self.device!r}{', committed' if self.committed else ''}"


_placements: dict[tuple[Device, bool], Placement] = {}
_lock = held(threading.RLock())


def placement_of(device: Device, committed: bool) -> Placement:
    """Return the placement on a device."""
    key = (device, committed)
    found = _placements.get(key)
    if found is not None:
        return found
    with _lock:
        return _placements.get(key) or _placements.setdefault(key, Placement(known(device), committed))


set_memory_statistics(lambda device: backend_of(device).memory(known(device)).statistics())
# The placement of arrays in programs that name no devices.
HOME = placement_of(CPU, False)


def default_placement() -> Placement:
    """Return the placement of results without an operand that is committed to a device."""
    return HOME if config.default_device is None else placement_of(default_device(), False)
