"""The devices of a plugin, and its client, which serves its memory and its programs too."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from weft.base.forks import held
from weft.runtime.pjrt import tpu
from weft.runtime.pjrt.client import Client, Hardware
from weft.runtime.pjrt.plugin import Plugin, PluginError
from weft.runtime.pjrt.plugins import Installed, client_options
from weft.sharding.device import Device, process_index

_lock = held(threading.RLock())
_plugins: dict[str, Plugin] = {}
_platforms: dict[str, PjrtPlatform] = {}


def load_plugin(found: Installed) -> Plugin:
    """Return the loaded plugin of a library; there is one for each path."""
    with _lock:
        plugin = _plugins.get(found.path)
        if plugin is None:
            if found.name == "tpu":
                tpu.prepare_environment()
            plugin = _plugins[found.path] = Plugin(found.name, found.path)
        return plugin


class PjrtPlatform:
    """The devices of a plugin. Its client is created when they are first used."""

    def __init__(self, plugin: Installed) -> None:
        self.plugin = plugin
        self._client: Client | None = None
        self._failure = ""
        self._found: tuple[Device, ...] | None = None

    @property
    def client(self) -> Client | None:
        """Client of the plugin; None if it could not be created, for the reason that `absence` gives."""
        with _lock:
            if self._client is None and not self._failure:
                if self.plugin.name == "tpu" and not tpu.has_hardware():
                    self._failure = "no PCI device of this machine is a TPU"
                    return None
                try:
                    self._client = Client(load_plugin(self.plugin), client_options(self.plugin.name))
                except PluginError as error:
                    self._failure = error.message.strip()
            return self._client

    def devices(self) -> tuple[Device, ...]:
        """Return the devices of this process."""
        if self._found is None:
            client = self.client
            hardware = enumerate(() if client is None else client.devices)
            process, name = process_index(), self.plugin.platform
            self._found = tuple(Device(h.id, name, process, h.kind, index) for index, h in hardware)
        return self._found

    def are_enumerated(self) -> bool:
        """Return whether the client exists."""
        return self._found is not None

    def join(self, counts: Sequence[int], rank: int, chosen: tuple[int, ...] | None) -> None:
        """Make the devices those of process `rank`: each process has a client of its own."""
        for device in self._found or ():
            object.__setattr__(device, "process_index", rank)

    def absence(self) -> str:
        """Return a sentence for users that says why there are no devices."""
        return f"The PJRT plugin {self.plugin.name!r} ({self.plugin.path}) has no devices here: {self._failure}."


def get_platform(plugin: Installed) -> PjrtPlatform:
    """Return the platform of a plugin."""
    with _lock:
        return _platforms.setdefault(plugin.platform, PjrtPlatform(plugin))


def get_client(device: Device) -> Client:
    """Return the client of a device."""
    client = _platforms[device.platform].client
    assert client is not None  # it has devices
    return client


def get_hardware(device: Device) -> Hardware:
    """Return the plugin's description of a device."""
    assert device.local_hardware_id is not None
    return get_client(device).devices[device.local_hardware_id]
