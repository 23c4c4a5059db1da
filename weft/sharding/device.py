"""Devices as plain data: which there are, and what runs on them, is the runtime's to say."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")  # the memories that an array may be put in


class MemorySpace(enum.Enum):
    """Where a value is, as far as its type says: in a device's memory, in the host's, or in either."""

    Device = enum.auto()
    Host = enum.auto()
    Any = enum.auto()

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"


@dataclass(frozen=True)
class Device:
    """Where arrays are stored and programs run."""

    id: int
    platform: str
    process_index: int = 0
    device_kind: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id={self.id})"

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"


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
