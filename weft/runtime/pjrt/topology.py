"""Compilation for machines that are not here: a topology describes the devices, and the plugin compiles for them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from weft.base.errors import ArgumentError, NotSupportedError
from weft.runtime.pjrt.client import Report, make_program
from weft.runtime.pjrt.devices import load_plugin
from weft.runtime.pjrt.options import write_compile_options
from weft.runtime.pjrt.plugin import (
    Code,
    Plugin,
    PluginError,
    keep_bytes,
    raise_for_user,
    read_pointers,
    read_text,
)
from weft.runtime.pjrt.plugins import WHEELS, find_plugin


class Topology:
    """Devices of a machine, by a name that its plugin knows, such as "v5e:2x4" for libtpu."""

    def __init__(self, name: str, platform: str = "tpu") -> None:
        self.name, self.platform = name, platform
        self.plugin = require_plugin(name, platform)
        alive: list[Any] = []
        try:
            created = self.plugin(
                "TopologyDescription_Create",
                topology_name=keep_bytes(name.encode(), alive),
                topology_name_size=len(name.encode()),
            )
        except PluginError as error:
            raise ArgumentError(
                f"The topology must be one that the plugin {platform!r} knows.",
                received=f"{name!r}: {error.message.strip()}",
                fix=("topology='v5e:2x4'   for 8 chips", "topology='v5p:2x2x4'   for 16 chips"),
            ) from None
        self.handle: int = created.topology
        found = self.plugin("TopologyDescription_GetDeviceDescriptions", topology=self.handle)
        descriptions = read_pointers(found.descriptions, found.num_descriptions)
        self.devices = [self.plugin("DeviceDescription_Id", device_description=d).id for d in descriptions]
        kind = self.plugin("DeviceDescription_Kind", device_description=descriptions[0])
        self.device_kind = read_text(kind.device_kind, kind.device_kind_size)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self.plugin.destroy("TopologyDescription", "topology", self.handle)

    def compile(self, text: str, what: str, count: int = 1) -> Report | str:
        """Compile a module of StableHLO for the first `count` devices.

        Return the executable, which cannot be run here, or the message of the plugin if its memory does not suffice.
        """
        options = write_compile_options(self.choose_devices(count))
        alive: list[Any] = []
        program = make_program(self.plugin, text, alive)
        try:
            found = self.plugin(
                "Compile",
                topology=self.handle,
                program=ctypes.addressof(program),
                compile_options=keep_bytes(options, alive),
                compile_options_size=len(options),
            )
        except PluginError as error:
            if error.code == Code.RESOURCE_EXHAUSTED:
                return error.message.strip()
            raise_for_user(error, self.plugin.name, f"The compilation of {what} for {self.name}")
        return Report(self.plugin, found.executable)

    def choose_devices(self, count: int) -> Sequence[int]:
        """Return the numbers of the first devices; raise if there are fewer."""
        if count > len(self.devices):
            raise ArgumentError(
                "The mesh must not have more devices than the topology.",
                received=f"a mesh of {count} devices, and {self.name!r} with {len(self.devices)}",
                fix="a smaller mesh, or a larger topology",
            )
        return self.devices[:count]


def require_plugin(topology: str, platform: str) -> Plugin:
    """Return the plugin that knows the topologies of a platform; raise if it is not installed."""
    found = find_plugin(platform)
    if found is None:
        wheel = WHEELS.get(platform, platform)
        raise NotSupportedError(
            f"A plan for the topology {topology!r} must be compiled by a PJRT plugin for {platform!r}.",
            received="no such plugin is installed",
            fix=f"pip install {wheel}",
        )
    return load_plugin(found)
