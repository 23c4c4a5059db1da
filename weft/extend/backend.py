"""Backends under the names of `jax.extend.backend`: a backend is what runs programs on the devices of a platform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.api.devices import live_arrays
from weft.api.signatures import clear_caches
from weft.base.publish import publish as _publish
from weft.runtime import device as runtime_device
from weft.runtime.execution_backend import execution_backend
from weft.runtime.platforms import platforms
from weft.sharding.device import Device, process_index as get_process_index

__all__ = [
    "backends",
    "clear_backends",
    "clear_in_memory_compilation_cache",
    "get_backend",
    "get_default_device",
    "register_backend_cache",
]


class Client:
    """Platform with its devices and its runtime."""

    def __init__(self, platform: str):
        self.platform = platform
        self.platform_version = "weft"

    @property
    def runtime(self) -> Any:
        """Backend that runs programs."""
        return execution_backend(self.devices()[0])

    def devices(self) -> list[Device]:
        """Return all devices of the platform, in all processes."""
        return runtime_device.devices(self.platform)

    def local_devices(self) -> list[Device]:
        """Return the devices of this process."""
        return runtime_device.local_devices(self.platform)

    def device_count(self) -> int:
        """Return the number of devices in all processes."""
        return len(self.devices())

    def local_device_count(self) -> int:
        """Return the number of devices of this process."""
        return len(self.local_devices())

    def process_index(self) -> int:
        """Return the index of this process."""
        return get_process_index()

    def live_arrays(self) -> list[Any]:
        """Return the arrays of this process on the platform."""
        return live_arrays(self.platform)

    def __repr__(self) -> str:
        return f"Client({self.platform!r})"


def get_backend(platform: str | Client | None = None) -> Client:
    """Return the backend of a platform, by default that of the default device; raise RuntimeError if it has no
    devices."""
    if isinstance(platform, Client):
        return platform
    name = runtime_device.default_device().platform if platform is None else platform
    return Client(runtime_device.devices(name)[0].platform)


def backends() -> dict[str, Client]:
    """Return the backends that have devices, by platform."""
    found = {}
    for platform in platforms.names():
        try:
            found[platform] = get_backend(platform)
        except RuntimeError:  # no such device here
            continue
    return found


def get_default_device() -> Device:
    """Return the device where arrays go by default."""
    return runtime_device.default_device()


_caches: list[Callable[[], None]] = []


def register_backend_cache(cache: Any, for_what: str) -> None:
    """Register a cache of the caller's, which `clear_backends` then clears by its `cache_clear` or `clear`."""
    _caches.append(getattr(cache, "cache_clear", None) or cache.clear)


def clear_in_memory_compilation_cache() -> None:
    """Forget every compiled function."""
    clear_caches()


def clear_backends() -> None:
    """Forget every compiled function, and what was registered by `register_backend_cache`. Devices and arrays stay."""
    clear_caches()
    for clear in _caches:
        clear()


_publish(__name__)
