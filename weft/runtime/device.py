"""The devices of this process, and where arrays are put on them."""

from __future__ import annotations

import functools
import os
import threading

from weft.base.forks import held
from weft.base.settings import config, num_cpu_devices
from weft.runtime.backend import Backend, platforms, register
from weft.runtime.memory import DeviceMemory
from weft.sharding import SingleDeviceSharding
from weft.sharding.device import Device


def _cpu_backend() -> Backend:
    # What runs programs is loaded with the first one.
    from weft.runtime.cpu.backend import CpuBackend

    return CpuBackend()


def _cpu(index: int) -> Device:
    return Device(index, "cpu", 0, f"cpu with {os.cpu_count()} cores")


register("cpu", _cpu_backend)
CPU = _cpu(0)


@functools.cache
def _cpus() -> tuple[Device, ...]:
    """The CPU devices. How many there are is fixed when they are first asked for; the first is always there."""
    return (CPU, *map(_cpu, range(1, num_cpu_devices.fixed())))


def devices(backend: str | None = None) -> list[Device]:
    """The devices of a platform."""
    if backend not in (None, *platforms()):
        raise RuntimeError(f"There is no backend {backend!r} here; devices are on: {', '.join(platforms())}.")
    return list(_cpus())


def default_device() -> Device:
    """Where arrays go unless told otherwise."""
    chosen = config.default_device
    if chosen is None:
        return CPU
    return devices(chosen)[0] if isinstance(chosen, str) else known(chosen)


def known(device: Device) -> Device:
    """The device that there is, of one that is equal to it."""
    if device is CPU:
        return device
    for found in _cpus():
        if found == device:
            return found
    there = ", ".join(map(repr, _cpus()))
    raise RuntimeError(
        f"There is no device {device!r}; there are: {there}. More CPU devices are made by "
        "weft.config.update('num_cpu_devices', n) right after `import weft`."
    )


class Placement:
    """The device of an array, and whether it is committed to it: an array that is not follows those it is used with.
    Equal ones are one object."""

    __slots__ = ("committed", "device", "memory", "sharding")

    def __init__(self, device: Device, committed: bool) -> None:
        self.device = device
        self.committed = committed
        self.memory = _memory(device)
        self.sharding = SingleDeviceSharding(device)

    def __repr__(self) -> str:
        return f"{self.device!r}{', committed' if self.committed else ''}"


_placements: dict[tuple[Device, bool], Placement] = {}
_memories: dict[Device, DeviceMemory] = {}
_lock = held(threading.RLock())


def _memory(device: Device) -> DeviceMemory:
    return _memories.get(device) or _memories.setdefault(device, DeviceMemory())


def placement_of(device: Device, committed: bool) -> Placement:
    """Where an array is that is on a device."""
    key = (device, committed)
    found = _placements.get(key)
    if found is not None:
        return found
    with _lock:
        return _placements.get(key) or _placements.setdefault(key, Placement(known(device), committed))


# Where arrays are unless somebody names a device.
HOME = placement_of(CPU, False)


def default_placement() -> Placement:
    """Where results are put if no operand is committed to a device."""
    return HOME if config.default_device is None else placement_of(default_device(), False)
