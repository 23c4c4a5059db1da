"""Private attributes of JAX's objects that libraries read; `install` adds them to the classes of Weft."""

from __future__ import annotations

from typing import Any

from weft.api.jit_function import JitFunction
from weft.sharding.device import Device, is_addressable
from weft.sharding.shardings import Sharding


def _device_assignment(sharding: Any) -> tuple[Device, ...]:
    return sharding.device_tuple


def _addressable_device_assignment(sharding: Any) -> tuple[Device, ...]:
    return tuple(filter(is_addressable, sharding.device_tuple))


def add_attributes() -> None:
    """Add them, and give jitted functions the name of their class by which libraries recognise them."""
    JitFunction.__qualname__ = "PjitFunction"
    for function in (_device_assignment, _addressable_device_assignment):
        setattr(Sharding, function.__name__, property(function))
