"""Devices and where an array lives. One CPU device here; targets add theirs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from weft.base.settings import config


@dataclass(frozen=True)
class Device:
    """A place where arrays live and programs run."""

    id: int
    platform: str
    process_index: int = 0
    device_kind: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id={self.id})"

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"


@dataclass(frozen=True)
class SingleDeviceSharding:
    """The whole array on one device."""

    device: Device
    memory_kind: str | None = None

    @property
    def device_set(self) -> set[Device]:
        return {self.device}

    @property
    def is_fully_replicated(self) -> bool:
        return True

    @property
    def is_fully_addressable(self) -> bool:
        return True

    def shard_shape(self, global_shape: Any) -> tuple[int, ...]:
        return tuple(global_shape)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r})"


CPU = Device(0, "cpu", 0, f"cpu with {os.cpu_count()} cores")


def devices(backend: str | None = None) -> list[Device]:
    """The devices of a platform."""
    if backend not in (None, "cpu"):
        raise RuntimeError(f"There is no backend {backend!r} here; devices are on: cpu.")
    return [CPU]


def default_device() -> Device:
    """Where arrays go unless told otherwise."""
    chosen = config.default_device
    return chosen if isinstance(chosen, Device) else CPU
