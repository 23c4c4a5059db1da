"""Programs on the devices of a mesh: one executable that the plugin runs on all of them, with its collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.errors import NotSupportedError
from weft.ir.jaxpr import Jaxpr, constants_to_arguments
from weft.runtime.device import Placement
from weft.runtime.pjrt.client import Buffer, Client
from weft.runtime.pjrt.devices import get_client, get_hardware
from weft.runtime.pjrt.executable import PjrtCompilation, PjrtExecutable, load_or_compile
from weft.runtime.pjrt.memory_backend import write_handles
from weft.sharding.device import Device, is_addressable


class PjrtDevicesExecutable:
    """Executable of a per-device jaxpr for the devices of a mesh, whose axes have these sizes.

    A call takes the handles of the shards of each argument in the order of the mesh.
    """

    def __init__(
        self, jaxpr: Jaxpr, donated: Sequence[bool], sizes: Mapping[Any, int], devices: Sequence[Device], platform: str
    ) -> None:
        if not all(map(is_addressable, devices)):
            raise NotSupportedError(
                "A mesh of devices of a PJRT plugin must be one of this process.",
                received=f"devices of the processes {sorted({d.process_index for d in devices})}",
                fix="weft.local_devices(backend=...)",
            )
        if len(set(devices)) < len(devices):
            raise NotSupportedError(
                "The setting `reproducible` must not have more parts than devices of a PJRT plugin.",
                received=f"{len(devices)} parts for {len(set(devices))} devices",
                fix="weft.config.update('reproducible', 0), or a mesh of CPU devices",
            )
        self.devices = tuple(devices)
        self.client: Client = get_client(devices[0])
        self.constants = [np.ascontiguousarray(np.asarray(getattr(c, "_value", c))) for c in jaxpr.consts]
        closed = constants_to_arguments(jaxpr)
        flags = (*[False] * len(jaxpr.consts), *donated) if any(donated) else ()
        compilation = PjrtCompilation(closed, flags, platform, dict(sizes))
        self.executable = PjrtExecutable(compilation, self.client)
        hardware = [get_hardware(d) for d in devices]
        self._loaded = load_or_compile(self.client, compilation, [h.id for h in hardware])
        self.executable._loaded[0] = self._loaded
        self._constants = [[self.client.put(c, h.handle) for c in self.constants] for h in hardware]
        self._results = len(closed.outvars)

    def __call__(
        self, addresses: bytes, donated: Sequence[Sequence[Any]], placements: Sequence[Placement]
    ) -> list[tuple[bytes, Any]]:
        """Run on shards, given by the handles of each argument's shards; return those of each result's."""
        passed = np.frombuffer(addresses, np.int64).reshape(-1, len(self.devices)).T.tolist()
        arguments = [[*(c.address for c in own), *row] for own, row in zip(self._constants, passed, strict=True)]
        found: list[list[Buffer]] = self.client.execute(self._loaded, arguments, self._results)
        columns = [[row[i] for row in found] for i in range(self._results)]
        return [(write_handles(column), column) for column in columns]
