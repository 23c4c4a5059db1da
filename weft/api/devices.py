"""Where arrays live: devices, and moving arrays to and from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes, tree
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.ir.types import is_value
from weft.runtime import device as runtime_device
from weft.runtime.array import ConcreteArray, from_numpy
from weft.runtime.held import HeldArray
from weft.runtime.sharded import ShardedArray, split
from weft.sharding import NamedSharding, Sharding, SingleDeviceSharding
from weft.sharding.device import Device
from weft.trace.tracer import Tracer
from weft.transforms.key_reuse import is_key_type


def devices(backend: str | None = None) -> list[Device]:
    """All devices of a backend (default: of the default one)."""
    return runtime_device.devices(backend)


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """The devices of this process."""
    return runtime_device.devices(backend)


def device_count(backend: str | None = None) -> int:
    """How many devices there are in all processes."""
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many devices this process has."""
    return len(local_devices(backend=backend))


def process_index(backend: str | None = None) -> int:
    """The number of this process."""
    return 0


def process_count(backend: str | None = None) -> int:
    """How many processes there are."""
    return 1


host_id, host_count = process_index, process_count


def default_backend() -> str:
    """The platform where arrays go unless told otherwise."""
    return runtime_device.default_device().platform


def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: bool | None = None
) -> Any:
    """Each leaf of `x` as an array on `device` (a device or a sharding, or a tree of them that is a prefix of `x`;
    default: where it is, or the default device)."""
    if is_place(device):
        return tree.map(lambda leaf: _put(leaf, device), x)
    leaves, structure = tree.flatten(x)
    places = tree.broadcast_prefix(device, x, is_leaf=is_place)
    return tree.unflatten(structure, [_put(leaf, place) for leaf, place in zip(leaves, places, strict=True)])


def is_place(value: Any) -> bool:
    """Whether a value says where to put an array, rather than being a tree of such values."""
    return value is None or isinstance(value, (Device, Sharding)) or tree.all_leaves([value])


def _put(leaf: Any, place: Any) -> Any:
    """One array on a device, or as a sharding says."""
    if isinstance(leaf, Tracer):
        return leaf
    array = held(leaf)
    if isinstance(place, NamedSharding):
        return split(array, place)
    target = _device_of(place)
    if target is None:
        return array
    if isinstance(array, ShardedArray):
        array = array.gathered()
    assert isinstance(array, ConcreteArray)
    if target != array.device:
        what = f"device_put cannot move an array to {target!r}."
        raise ArgumentError(what, received=array.aval.short(), fix=f"there is {array.device!r}")
    return array


def held(leaf: Any) -> HeldArray:
    """An array that has its numbers, of an array or a number."""
    if isinstance(leaf, HeldArray):
        return leaf
    if not is_value(leaf):
        what = "device_put takes arrays and numbers."
        raise ArgumentTypeError(what, received=f"{leaf!r} of type {type(leaf).__name__}")
    return from_numpy(leaf, weak_type=dtypes.is_weakly_typed(leaf))


def _device_of(device: Any) -> Device | None:
    if device is None or isinstance(device, Device):
        return device
    if isinstance(device, SingleDeviceSharding):
        return device.device
    what = "device_put takes a device or a sharding."
    raise ArgumentTypeError(what, received=f"{device!r} of type {type(device).__name__}")


def check_placement(caller: str, backend: str | None = None, **wanted: Any) -> None:
    """Whether devices, shardings or trees of them, by the name of their argument, ask for nothing but the one device
    there is."""
    if backend is not None:
        runtime_device.devices(backend)
    for word, value in wanted.items():
        for leaf in tree.leaves(value):
            devices = getattr(leaf, "device_set", {leaf} if isinstance(leaf, Device) else None)
            if devices is None or any(d not in runtime_device.devices() for d in devices):
                there = ", ".join(map(repr, runtime_device.devices()))
                what = f"{caller}: {word} names devices; there is {there}."
                received = f"{leaf!r} of type {type(leaf).__name__}"
                raise ArgumentError(what, received=received, fix=f"leave {word} out")


def device_get(x: Any) -> Any:
    """Each leaf of `x` as a NumPy array; keys, and values that are traced, as they are."""
    return tree.map(lambda leaf: leaf if has_no_numbers(leaf) else np.asarray(leaf), x)


def has_no_numbers(leaf: Any) -> bool:
    """Whether NumPy cannot hold a value: it is traced, a key, or no array."""
    return isinstance(leaf, Tracer) or not hasattr(leaf, "__array__") or is_key_type(getattr(leaf, "aval", None))


def block_until_ready(x: Any) -> Any:
    """Wait until every array in `x` has its numbers; gives `x` back."""
    for leaf in tree.leaves(x):
        if isinstance(leaf, HeldArray):
            leaf.block_until_ready()
    return x


def copy_to_host_async(x: Any) -> Any:
    """Start copying every array in `x` to the host; gives `x` back."""
    for leaf in tree.leaves(x):
        if isinstance(leaf, HeldArray):
            leaf.copy_to_host_async()
    return x
