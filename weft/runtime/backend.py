"""How the devices of a platform compile and run programs; `runtime/device.py` has their memory.

Everything above asks the backend of a device and knows no platform by name. A backend is loaded when a program is first
compiled for one of its devices, so that a process which only looks at devices loads none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from weft.base.errors import ArgumentError
from weft.sharding.device import Device

if TYPE_CHECKING:
    from weft.compiler.target.target import Target
    from weft.ir.jaxpr import Jaxpr
    from weft.runtime.cpu.executable import Executable


class Backend(Protocol):
    """What a platform can do."""

    platform: str

    def target(self, device: Device) -> Target:
        """The machine that programs for a device are compiled for."""
        ...

    def compile(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        device: Device,
        again: Callable[[], Executable] | None = None,
        flat: str = "no",
    ) -> Executable:
        """The program, whose constants are arguments, as an executable. With `again` it has one flag for all its
        checks, and that is the one with traps, which tells what was found. A `flat` one is for arrays of any length."""
        ...


_loaders: dict[str, Callable[[], Backend]] = {}
_loaded: dict[str, Backend] = {}


def register(platform: str, load: Callable[[], Backend]) -> None:
    """Have the backend of a platform made by a function, when it is first asked for."""
    _loaders[platform] = load


def platforms() -> list[str]:
    """The platforms that have a backend."""
    return list(_loaders)


def backend_of(device: Device) -> Backend:
    """The backend that a device belongs to."""
    found = _loaded.get(device.platform)
    if found is None:
        load = _loaders.get(device.platform)
        if load is None:
            what = f"There is no backend for {device!r}."
            raise ArgumentError(what, received=device.platform, fix=f"devices are on: {', '.join(_loaders)}")
        found = _loaded[device.platform] = load()
    return found
