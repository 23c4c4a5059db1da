"""The devices of this process. One CPU device here; targets add theirs."""

from __future__ import annotations

import os

from weft.base.settings import config
from weft.runtime.backend import Backend, register
from weft.sharding.device import Device


def _cpu() -> Backend:
    # What runs programs is loaded with the first one.
    from weft.runtime.cpu.backend import CpuBackend

    return CpuBackend()


register("cpu", _cpu)
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
