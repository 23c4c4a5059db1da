"""The devices of this process, and where arrays are put on them."""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

from weft.base.forks import held
from weft.base.settings import config, num_cpu_devices
from weft.runtime.backend import backend_of, platforms, register
from weft.runtime.cpu.backend import CpuBackend
from weft.sharding import SingleDeviceSharding
from weft.sharding.device import Device


def _cpu(index: int) -> Device:
    return Device(index, "cpu", 0, f"cpu with {os.cpu_count()} cores")


register("cpu", CpuBackend)
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

    __slots__ = ("backend", "committed", "device", "memory", "sharding")

    def __init__(self, device: Device, committed: bool) -> None:
        self.device = device
        self.committed = committed
        self.backend = backend_of(device)
        self.memory: Any = self.backend.memory(device)  # its programs know more of it than `DeviceMemory` says
        self.sharding = SingleDeviceSharding(device)

    def __repr__(self) -> str:
        return f"{self.device!r}{', committed' if self.committed else ''}"


_placements: dict[tuple[Device, bool], Placement] = {}
_lock = held(threading.RLock())


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
