"""Devices as plain data: which there are, and what runs on them, is the runtime's to say."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import field

from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError

MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")  # the memories that an array may be put in


class MemorySpace(enum.Enum):
    """Where a value is, as far as its type says: in a device's memory, in the host's, or in either."""

    Device = enum.auto()
    Host = enum.auto()
    Any = enum.auto()

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"


@dataclass(frozen=True)
class Client:
    """What runs programs on the devices of a platform. Equal ones are one."""

    platform: str
    runtime_type: str = "weft"


@dataclass(frozen=True)
class Device:
    """Where arrays are stored and programs run.

    Args:
        id: its number among all devices of the platform.
        platform: "cpu" or "gpu".
        process_index: the process that it belongs to.
        device_kind: the name of the hardware.
        local_hardware_id: the number that the driver of its host has for it; None for CPU devices.

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
        """What runs programs on it: one for each platform."""
        return Client(self.platform)

    def memory_stats(self) -> dict[str, int] | None:
        """How much of its memory is used for what, in bytes; None where nobody counts, as on CPUs.

        Returns:
            A dict with `bytes_in_use` (arrays and programs), `peak_bytes_in_use`, `bytes_reserved` (in use, or pooled
            for reuse), `pool_bytes`, `largest_alloc_size`, `num_allocs`, `bytes_limit` and `bytes_reservable_limit`.

        >>> import weft
        >>> weft.devices("cpu")[0].memory_stats()
        """
        return _memory_statistics[0](self)

    def addressable_memories(self) -> list[Memory]:
        """The memories that an array may be put in with this device."""
        return [Memory(kind, self) for kind in MEMORY_KINDS]

    def default_memory(self) -> Memory:
        """The memory that arrays are in unless they say otherwise."""
        return Memory(MEMORY_KINDS[0], self)

    def memory(self, kind: str) -> Memory:
        """The memory of a kind."""
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
    """A memory of a device: one of the kinds `device`, `pinned_host` and `unpinned_host`."""

    kind: str
    device: Device

    @property
    def platform(self) -> str:
        """The platform of its device."""
        return self.device.platform

    def addressable_by_devices(self) -> list[Device]:
        """The devices that reach it."""
        return [self.device]


@dataclass(frozen=True)
class AbstractDevice:
    """A kind of device, without saying which one: what an `AbstractMesh` may be made of."""

    device_kind: str
    num_cores: int | None
    platform: str

    def __str__(self) -> str:
        return f"device_kind={self.device_kind}, num_cores={self.num_cores}, platform={self.platform}"

    def __repr__(self) -> str:
        return f"AbstractDevice({self!s})"


# What knows the memory of devices: the runtime, which says so when it is loaded.
_memory_statistics: list[Callable[[Device], dict[str, int] | None]] = [lambda device: None]


def set_memory_statistics(function: Callable[[Device], dict[str, int] | None]) -> None:
    """Say what `Device.memory_stats` returns."""
    _memory_statistics[0] = function


_process_index = 0


def process_index() -> int:
    """The index of this process among those that run one program together."""
    return _process_index


def set_process_index(index: int) -> None:
    """Say which of the processes this one is."""
    global _process_index
    _process_index = index


def is_addressable(device: Device) -> bool:
    """Whether this process can read and write the memory of a device."""
    return device.process_index == process_index()


def first_here(devices: Sequence[Device]) -> Device:
    """The first device of this process; the first of all, if it has none of them."""
    return next(filter(is_addressable, devices), devices[0])
