"""Devices, and moving arrays to and from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes, tree
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.source import user_line, user_location
from weft.ir.context import context
from weft.ir.types import is_value
from weft.primitives.movement.device_put import device_put as device_put_primitive
from weft.primitives.movement.sharding_constraint import reshard, sharding_constraint
from weft.runtime import device as runtime_device
from weft.runtime.array import ConcreteArray, from_numpy, put
from weft.runtime.device import Placement, get_placement
from weft.runtime.guards import check_transfer, explicit_transfers
from weft.runtime.held import HeldArray, live_arrays as all_live_arrays
from weft.runtime.platforms import canonical_name
from weft.runtime.processes import world
from weft.runtime.sharded import ShardedArray, split
from weft.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from weft.sharding.current import current_mesh
from weft.sharding.device import Device
from weft.sharding.layout import Format
from weft.sharding.shardings import type_sharding
from weft.sharding.spec import split_axes
from weft.trace.tracer import Tracer
from weft.transforms.key_reuse import is_key_type


def devices(backend: str | None = None) -> list[Device]:
    """Return all devices of a backend (default: of the default one), in all processes.

    Args:
        backend: a platform such as "cpu" or "gpu"; the default one if None.

    Returns:
        A list of `Device`s; with an unknown platform it raises.

    >>> import weft
    >>> len(weft.devices()) == weft.device_count()
    True
    """
    return runtime_device.devices(backend)


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """Return the devices of a process, by default of this one.

    Args:
        process_index, host_id: the index of the process; `host_id` is an alias.
        backend: a platform such as "cpu" or "gpu"; the default one if None.

    Returns:
        A list of `Device`s.

    >>> import weft
    >>> weft.local_devices()[0] in weft.devices()
    True
    """
    process = host_id if process_index is None else process_index
    if process is not None and not 0 <= process < process_count():
        raise ArgumentError(
            "process_index must be the index of a process.",
            received=f"process_index={process}",
            fix=f"0 to {process_count() - 1}",
        )
    return runtime_device.local_devices(backend, process)


def device_count(backend: str | None = None) -> int:
    """Return the number of devices in all processes.

    Args:
        backend: a platform such as "cpu" or "gpu"; the default one if None.

    Returns:
        A Python integer.

    >>> import weft
    >>> weft.device_count() >= 1
    True
    """
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """Return the number of devices of this process.

    Args:
        backend: a platform such as "cpu" or "gpu"; the default one if None.

    Returns:
        A Python integer.

    >>> import weft
    >>> weft.local_device_count() >= 1
    True
    """
    return len(local_devices(backend=backend))


def process_index(backend: str | None = None) -> int:
    """Return the index of this process.

    Args:
        backend: a platform such as "cpu" or "gpu"; the default one if None.

    Returns:
        A Python integer from 0 up.

    >>> import weft
    >>> weft.process_index()
    0
    """
    return world.current().rank


def process_count(backend: str | None = None) -> int:
    """Return the number of processes.

    Args:
        backend: a platform such as "cpu" or "gpu"; the default one if None.

    Returns:
        A Python integer; 1 unless `weft.distributed.initialize` was called.

    >>> import weft
    >>> weft.process_count()
    1
    """
    return world.current().size


def process_indices(backend: str | None = None) -> list[int]:
    """Return the indices of all processes."""
    return list(range(process_count(backend)))


host_id, host_count, host_ids = process_index, process_count, process_indices


def live_arrays(platform: str | None = None) -> list[HeldArray]:
    """Return all arrays of this process that are referenced and not deleted, on one platform or on all. This scans all
    objects that Python tracks, so it is slow.

    >>> import weft
    >>> x = weft.numpy.ones(3)
    >>> any(a is x for a in weft.live_arrays())
    True
    """
    wanted = None if platform is None else canonical_name(platform)
    return [x for x in all_live_arrays() if wanted is None or any(d.platform == wanted for d in x.devices())]


def default_backend() -> str:
    """Return the platform of the default device.

    Returns:
        The name of a platform: "cpu" or "gpu".

    >>> import weft
    >>> weft.default_backend() == weft.devices()[0].platform
    True
    """
    return runtime_device.default_device().platform


def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: bool | None = None
) -> Any:
    """Put each leaf of `x` on `device` (a device or a sharding, or a tree of them that is a prefix of `x`) and commit
    it there, so that computations with it run there. Without `device` an array stays where it is, and a number goes to
    the default device.

    An array that is on the device already is not copied, unless `may_alias` is False. With `donate` (True, or a tree of
    flags that is a prefix of `x`) an array is deleted if it was copied. `src` is the device that cotangents are put on.
    In a jitted function a sharding on a mesh is a constraint for the compiler, and a single device changes nothing: a
    program runs on one device, or on a mesh.

    Args:
        x: a tree of arrays and numbers.
        device: a device, a sharding, or a tree of them.
        src: accepted for compatibility.
        donate: whether the memory of `x` may be reused; `x` cannot be used afterwards then.
        may_alias: whether the result may share memory with `x`.

    Returns:
        A tree of arrays.

    >>> import numpy as np
    >>> import weft
    >>> x = weft.device_put(np.arange(3), weft.devices()[0])
    >>> x.committed
    True
    """
    leaves, structure = tree.flatten(x)
    count = len(leaves)
    destinations = (
        [device] * count if is_destination(device) else tree.broadcast_prefix(device, x, is_leaf=is_destination)
    )
    donations = [donate] * count if isinstance(donate, bool) else tree.broadcast_prefix(donate, x)
    sources = [src] * count if is_destination(src) else tree.broadcast_prefix(src, x, is_leaf=is_destination)
    if may_alias and any(donations):
        raise ArgumentError(
            "device_put: an array cannot be both donated and aliased.",
            fix="leave out may_alias",
            jax="may_alias and donate cannot be True at the same time.",
        )
    with explicit_transfers():
        result = [_put(*each, may_alias) for each in zip(leaves, destinations, donations, sources, strict=True)]
    return tree.unflatten(structure, result)


def is_destination(value: Any) -> bool:
    """Return whether a value is a device or a sharding, and not a tree of them."""
    return value is None or isinstance(value, (Device, Sharding)) or tree.all_leaves([value])


def _put(leaf: Any, destination: Any, donated: bool, source: Any, may_alias: bool | None) -> Any:
    """Put one array on a device, or reshard it."""
    if isinstance(destination, Format):
        destination = destination.sharding
    if isinstance(destination, PartitionSpec):
        destination = NamedSharding(current_mesh("device_put to a PartitionSpec"), destination)
    if isinstance(leaf, Tracer):
        if isinstance(destination, NamedSharding):
            return reshard_traced(leaf, destination)
        device = _single_device(destination)
        return leaf if device is None else device_put_primitive(leaf, device=device, source=_single_device(source))
    if isinstance(destination, NamedSharding):
        whole = as_array(leaf, copy=False)  # each part is copied
        parts = split(whole, destination)
        if donated and parts is not whole:
            whole._donate(user_location())
        return parts
    target = _single_device(destination)
    where = None if target is None else _placement(target)
    array = as_array(leaf, where)
    if isinstance(array, ShardedArray):
        if where is None:
            return array
        array = array.gather_to_one_device()
    assert isinstance(array, ConcreteArray)
    if where is not None and where.device is not array._placement.device:
        check_transfer("device_to_device", f"{array.aval.short()} from {array._placement.device!r} to {where.device!r}")
    result = put(array, where or array._placement, may_alias is not False or leaf is not array)
    if donated and result is not array and result._placement.device is not array._placement.device:
        array._donate(user_location())
    return result


def reshard_traced(x: Any, sharding: NamedSharding) -> Any:
    """Reshard a traced value: a change of its type over Explicit axes, a constraint for the compiler over others."""
    aval: Any = x.aval
    taken = [a for a in split_axes(sharding.spec.partitions) if a in context.device_axes]
    if taken:
        others = [a for a in sharding.mesh.axis_names if a not in context.device_axes]
        raise ArgumentError(
            f"Inside of shard_map over {taken[0]!r} each device has its own part along it: no value is split over it.",
            received=f"{sharding.spec!r} for {aval.short()}",
            fix=f"a spec of {', '.join(map(repr, others))}" if others else "leave it out",
            at=user_line(),
        )
    typed = type_sharding(sharding, aval.ndim)
    if typed == aval.explicit_sharding:
        said = sharding.mesh.are_all_axes_explicit and (typed is not None or not isinstance(sharding.mesh, Mesh))
        return x if said else sharding_constraint(x, sharding=sharding)
    source = aval.explicit_sharding or NamedSharding(sharding.mesh.abstract_mesh, PartitionSpec(*[None] * aval.ndim))
    # Keep the mesh with its devices: nothing else in the program may name them.
    return reshard(x, sharding=sharding, source=source)


def _placement(device: Device) -> Placement:
    """Return the placement that commits an array to a device; raise if the device belongs to another process."""
    try:
        return get_placement(device, True)
    except RuntimeError as error:
        raise ArgumentError(f"device_put cannot move an array to {device!r}. {error}") from None


def as_array(leaf: Any, placement: Placement | None = None, copy: bool = True) -> HeldArray:
    """Return a leaf as an array with values: an array itself, or a new array from a number or a NumPy array. Without
    `copy` it may share the memory of NumPy, which the caller may change."""
    if isinstance(leaf, HeldArray):
        return leaf
    if not is_value(leaf):
        what = "device_put: the leaves must be arrays and numbers."
        raise ArgumentTypeError(what, received=f"{leaf!r} of type {type(leaf).__name__}")
    return from_numpy(leaf, weak_type=dtypes.is_weakly_typed(leaf), copy=copy, placement=placement)


def _single_device(device: Any) -> Device | None:
    """Return the device of a destination that is not on a mesh, or None."""
    if device is None or isinstance(device, Device):
        return device
    if isinstance(device, SingleDeviceSharding):
        return device.device
    what = "device_put: device must be a device or a sharding."
    fix = ("weft.devices()[0]", "weft.NamedSharding(mesh, weft.P('x'))")
    jax = f"Received invalid value: {device!r}"
    raise ArgumentError(what, received=f"{device!r} of type {type(device).__name__}", fix=fix, jax=jax)


def select_device(caller: str, device: Any, backend: str | None) -> Device | None:
    """Return the device that the arguments `device` and `backend` of a transformation select, or None."""
    if device is not None and backend is not None:
        what = f"{caller}: device and backend cannot be combined."
        raise ArgumentError(what, received=f"device={device!r} and backend={backend!r}", fix="leave out backend")
    if backend is not None:
        return runtime_device.local_devices(backend)[0]
    if device is not None and not isinstance(device, Device):
        what = f"{caller}: device must be a device."
        raise ArgumentTypeError(what, received=f"{device!r} of type {type(device).__name__}", fix="weft.devices()[0]")
    if device is not None and not runtime_device.exists(device):
        there = ", ".join(map(repr, runtime_device.devices()))
        raise ArgumentError(f"{caller}: the device must exist.", received=repr(device), fix=f"one of {there}")
    return device


def device_get(x: Any) -> Any:
    """Return each leaf of `x` as a NumPy array; keys and traced values stay unchanged.

    Args:
        x: a tree of arrays.

    Returns:
        A tree of NumPy arrays, read-only where they share memory.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> type(weft.device_get(wnp.ones(2))).__name__
    'ndarray'
    """
    with explicit_transfers():
        return tree.map(lambda leaf: leaf if is_valueless(leaf) else np.asarray(leaf), x)


def is_valueless(leaf: Any) -> bool:
    """Return whether NumPy cannot represent a value: it is traced, a key, or no array."""
    return isinstance(leaf, Tracer) or not hasattr(leaf, "__array__") or is_key_type(getattr(leaf, "aval", None))


def block_until_ready(x: Any) -> Any:
    """Wait until every array in `x` is computed; return `x`.

    Args:
        x: a tree; what is not an array is ignored.

    Returns:
        `x`. An error of the computation is raised here.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.block_until_ready({"x": wnp.ones(2)})
    {'x': Array([1., 1.], dtype=float32)}
    """
    for leaf in tree.leaves(x):
        if isinstance(leaf, HeldArray):
            leaf.block_until_ready()
    return x


def copy_to_host_async(x: Any) -> Any:
    """Start copying every array in `x` to the host; return `x`."""
    for leaf in tree.leaves(x):
        start = getattr(leaf, "copy_to_host_async", None)  # arrays of other libraries may have it too
        if start is not None:
            start()
    return x
