"""The devices of this process, and the placement of arrays on them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from weft.base.forks import held
from weft.base.settings import AUTOMATIC, config, default_device as default_device_setting
from weft.base.state import Config
from weft.runtime.cpu.devices import CPU as CPU
from weft.runtime.memory_backend import memory_backend, memory_backends
from weft.runtime.platforms import accelerators, canonical_name, find_platform, is_platform_name, platforms
from weft.sharding import SingleDeviceSharding
from weft.sharding.device import Device, is_addressable, process_index as current_process, set_memory_statistics

logger = logging.getLogger("weft")


def are_used() -> bool:
    """Return whether devices have been enumerated, so that they cannot change any more."""
    return any(platform.are_enumerated() for platform in platforms.loaded.values())


def join(counts: Sequence[int], rank: int, chosen: tuple[int, ...] | None = None) -> None:
    """Make this process number `rank` of several, with `counts` CPU devices each.

    `chosen` are the hardware indices of the accelerators that this process uses, if they were specified. Existing
    arrays are on the first CPU device, which stays the same object with another id.
    """
    for name in platforms.names():
        platforms.get(name).join(counts, rank, chosen)
    # These tables hash devices by their old ids.
    with _lock:
        found = list(_placements.values())
        _placements.clear()
        _placements.update({(placement.device, placement.committed): placement for placement in found})
    for backend in memory_backends.loaded.values():
        backend.update_devices()


def devices(backend: str | None = None) -> list[Device]:
    """Return the devices of a platform, by default that of the default device, in all processes."""
    platform = find_platform(default_platform() if backend is None else backend)
    found = platform.devices()
    if not found:
        raise RuntimeError(f"Unknown backend {backend!r}. {platform.absence()}")
    return list(found)


def local_devices(backend: str | None = None, process_index: int | None = None) -> list[Device]:
    """Return the devices of a platform in one process, by default this one."""
    process = current_process() if process_index is None else process_index
    return [d for d in devices(backend) if d.process_index == process]


def default_device() -> Device:
    """Return the configured default device, or the first CPU device."""
    chosen = config.default_device
    if chosen == AUTOMATIC:
        choose_default_device()
        chosen = config.default_device
    if chosen is None:
        return CPU
    return local_devices(chosen)[0] if isinstance(chosen, str) else known(chosen)


def default_platform() -> str:
    """Return the platform of the default device outside of `with` blocks."""
    if Config.default_device == AUTOMATIC:
        choose_default_device()
    chosen = Config.default_device
    return CPU.platform if chosen is None else canonical_name(getattr(chosen, "platform", chosen))


def list_default_accelerators() -> list[str]:
    """Return the platforms among which the default device will be chosen; nothing if it is chosen already, or a CPU."""
    if Config.default_device != AUTOMATIC:
        return []
    return [name for name in _find_default_platforms() if name != CPU.platform]


def _find_default_platforms() -> list[str]:
    names = [canonical_name(name.strip()) for name in Config.platforms.split(",") if name.strip()]
    if names or Config.num_cpu_devices > 1:
        return names or [CPU.platform]
    return [name for name, may_be_present in accelerators.items() if may_be_present()]


def choose_default_device() -> None:
    """Choose the default device: of the first platform with devices among those of the setting `platforms`, or else
    among accelerators that may be present; None for CPUs. Several CPU devices are a choice of CPUs."""
    with _lock:
        if Config.default_device != AUTOMATIC:
            return
        names = _find_default_platforms()
        found = next((name for name in names if name == CPU.platform or _has_devices(name)), None)
        if found is None and Config.platforms:
            raise RuntimeError(
                f"No platform of the setting platforms={Config.platforms!r} has devices here. "
                f"{find_platform(names[0]).absence()}"
            )
        chosen = None if found == CPU.platform else found
        default_device_setting.set_global(chosen)
    if chosen is not None:
        device = local_devices(chosen)[0]
        logger.info("Computing on %r (%s) by default; WEFT_PLATFORMS=cpu chooses the CPU.", device, device.device_kind)


def _has_devices(name: str) -> bool:
    return any(is_addressable(device) for device in find_platform(name).devices())


def look_for_accelerators() -> None:
    """Choose the default device at its first use, if a setting asks for that or an accelerator may be present."""
    if Config.default_device is None and (Config.platforms or any(check() for check in accelerators.values())):
        default_device_setting.set_global(AUTOMATIC)


def _all_like(device: Device) -> tuple[Device, ...]:
    """Return the devices of a device's platform, or nothing if the platform is unknown."""
    return find_platform(device.platform).devices() if is_platform_name(device.platform) else ()


def exists(device: Device) -> bool:
    """Return whether a device exists in any process."""
    return device in _all_like(device)


def known(device: Device) -> Device:
    """Return the existing device that is equal to `device`; raise if there is none, or if it is another process's."""
    if device is CPU:
        return device
    for found in _all_like(device):
        if found == device:
            if not is_addressable(found):
                raise RuntimeError(
                    f"Arrays must be put on devices of this process; got {found!r} of process {found.process_index}."
                )
            return found
    there = ", ".join(map(repr, devices()))
    raise RuntimeError(
        f"There is no device {device!r}; there are: {there}. More CPU devices are made by "
        "weft.config.update('num_cpu_devices', n) right after `import weft`."
    )


class Placement:
    """Device of an array, and whether the array is committed to it. An uncommitted array follows the operands it is
    used with. Equal placements are one object.
    """

    __slots__ = ("committed", "device", "memory", "memory_backend", "sharding")

    def __init__(self, device: Device, committed: bool) -> None:
        self.device = device
        self.committed = committed
        self.memory_backend = memory_backend(device)
        self.memory: Any = self.memory_backend.memory(device)  # programs of the platform use more than `Allocator`
        self.sharding = SingleDeviceSharding(device)

    def __repr__(self) -> str:
        return f"{self.device!r}{', committed' if self.committed else ''}"


_placements: dict[tuple[Device, bool], Placement] = {}
_lock = held(threading.RLock())


def get_placement(device: Device, committed: bool) -> Placement:
    """Return the placement on a device."""
    key = (device, committed)
    found = _placements.get(key)
    if found is not None:
        return found
    with _lock:
        return _placements.get(key) or _placements.setdefault(key, Placement(known(device), committed))


set_memory_statistics(lambda device: memory_backend(device).memory(known(device)).statistics())
# The placement of arrays in programs that name no devices.
HOME = get_placement(CPU, False)


look_for_accelerators()


def default_placement() -> Placement:
    """Return the placement of results without an operand that is committed to a device."""
    return HOME if config.default_device is None else get_placement(default_device(), False)
