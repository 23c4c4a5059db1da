"""Devices as plain data; the runtime enumerates them and runs programs on them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import field

from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError

MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")  # of the memories that an array may be in


class MemorySpace(enum.Enum):
    """Memory that the type of a value names: a device's, the host's, or either."""

    Device = enum.auto()
    Host = enum.auto()
    Any = enum.auto()

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"


@dataclass(frozen=True)
class Client:
    """Runtime of the devices of a platform. Equal clients are the same client."""

    platform: str
    runtime_type: str = "weft"


@dataclass(frozen=True)
class Device:
    """Device that stores arrays and runs programs.

    Args:
        id: the number of the device among all devices of its platform.
        platform: the kind of device, such as "cpu" or "gpu".
        process_index: the process that the device belongs to.
        device_kind: the name of the hardware.
        local_hardware_id: the number of the device in the driver of its host; None for CPU devices.

    >>> import weft
    >>> weft.devices()[0].id
    0
    """

    id: int
    platform: str
    process_index: int = 0
    device_kind: str = field(default="", compare=False)
    local_hardware_id: int | None = field(default=None, compare=False)

    @property
    def client(self) -> Client:
        """Client of the device's platform."""
        return Client(self.platform)

    def memory_stats(self) -> dict[str, int] | None:
        """Return allocator statistics in bytes, or None if they are not tracked, as on CPUs.

        Returns:
            A dict with `bytes_in_use` (arrays and programs), `peak_bytes_in_use`, `bytes_reserved` (in use, or pooled
            for reuse), `pool_bytes`, `largest_alloc_size`, `num_allocs`, `bytes_limit` and `bytes_reservable_limit`.

        >>> import weft
        >>> weft.devices("cpu")[0].memory_stats()
        """
        return _memory_statistics[0](self)

    def addressable_memories(self) -> list[Memory]:
        """Return the memories that an array on this device may be in."""
        return [Memory(kind, self) for kind in MEMORY_KINDS]

    def default_memory(self) -> Memory:
        """Return the memory that arrays are in by default."""
        return Memory(MEMORY_KINDS[0], self)

    def memory(self, kind: str) -> Memory:
        """Return the memory of a kind."""
        if kind not in MEMORY_KINDS:
            raise ArgumentError(f"A device has no memory of kind {kind!r}.", fix=" or ".join(map(repr, MEMORY_KINDS)))
        return Memory(kind, self)

    @property
    def host_id(self) -> int:
        """`process_index` under its older name."""
        return self.process_index

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id={self.id})"

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"


@dataclass(frozen=True)
class Memory:
    """Memory of a device. Its kind is `device`, `pinned_host` or `unpinned_host`."""

    kind: str
    device: Device

    @property
    def platform(self) -> str:
        """Platform of the device."""
        return self.device.platform

    def addressable_by_devices(self) -> list[Device]:
        """Return the devices that can access this memory."""
        return [self.device]


@dataclass(frozen=True)
class AbstractDevice:
    """Kind of device, for an `AbstractMesh`."""

    device_kind: str
    num_cores: int | None
    platform: str

    def __str__(self) -> str:
        return f"device_kind={self.device_kind}, num_cores={self.num_cores}, platform={self.platform}"

    def __repr__(self) -> str:
        return f"AbstractDevice({self!s})"


# Set by the runtime when it is loaded.
_memory_statistics: list[Callable[[Device], dict[str, int] | None]] = [lambda device: None]


def set_memory_statistics(function: Callable[[Device], dict[str, int] | None]) -> None:
    """Set the implementation of `Device.memory_stats`."""
    _memory_statistics[0] = function


_process_index = 0


def process_index() -> int:
    """Return the index of this process among the processes that run one program together."""
    return _process_index


def set_process_index(index: int) -> None:
    """Set the index of this process."""
    global _process_index
    _process_index = index


def is_addressable(device: Device) -> bool:
    """Return whether this process can read and write the memory of a device."""
    return device.process_index == process_index()


def first_local_device(devices: Sequence[Device]) -> Device:
    """Return the first device that belongs to this process, or the first of all if none does."""
    return next(filter(is_addressable, devices), devices[0])
