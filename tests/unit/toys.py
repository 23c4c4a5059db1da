"""A platform with one device, whose memory and programs are those of CPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weft.runtime import device as device_module, platforms as platforms_module
from weft.runtime.cpu.execution_backend import CpuExecutionBackend
from weft.runtime.cpu.memory_backend import CpuMemoryBackend
from weft.runtime.execution_backend import execution_backends
from weft.runtime.memory_backend import memory_backends
from weft.runtime.platforms import platforms
from weft.sharding.device import Device


class ToyPlatform:
    """A platform with one device, whose memory and programs are those of CPUs."""

    def __init__(self) -> None:
        self._device = Device(0, "toy", 0, "a toy")

    def devices(self) -> tuple[Device, ...]:
        return (self._device,)

    def are_enumerated(self) -> bool:
        return True

    def join(self, counts: Any, rank: int, chosen: Any) -> None:
        raise AssertionError("no process joins others here")

    def absence(self) -> str:
        return "There are no toys."


class ToyMemoryBackend(CpuMemoryBackend):
    platform = "toy"


class ToyExecutionBackend(CpuExecutionBackend):
    platform = "toy"


def register_toy(monkeypatch: pytest.MonkeyPatch, may_be_present: Callable[[], bool] | None = None) -> None:
    """Register the platform until the end of a test."""
    for registry in (platforms, memory_backends, execution_backends):
        monkeypatch.setattr(registry, "_loaders", dict(registry._loaders))
        monkeypatch.setattr(registry, "loaded", dict(registry.loaded))
    for name in ("_names", "_target_names", "accelerators"):
        monkeypatch.setattr(platforms_module, name, dict(getattr(platforms_module, name)))
    monkeypatch.setattr(device_module, "accelerators", platforms_module.accelerators)
    monkeypatch.setattr(device_module, "_placements", dict(device_module._placements))
    platforms_module.register_platform("toy", ToyPlatform, aliases=("plaything",), may_be_present=may_be_present)
    memory_backends.register("toy", ToyMemoryBackend)
    execution_backends.register("toy", ToyExecutionBackend)
