"""`ShardedArray`: an array in shards, one on each device of a mesh.

Its shards are single-device arrays, in the order of the mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.base import conversion, dtypes
from weft.base.arguments import described, indices
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.memo import Memo
from weft.base.settings import config
from weft.base.source import Location, user_line
from weft.ir.types import ArrayType, array_type
from weft.runtime.array import ConcreteArray, array_at, copy_array, put, wrap
from weft.runtime.device import devices, exists, get_placement
from weft.runtime.held import HeldArray
from weft.runtime.layouts import Layout, get_layout
from weft.runtime.memory_backend import memory_backend
from weft.runtime.padding import pad, shapes_here, strip_padding
from weft.runtime.processes.moving import Box, exchange_boxes, slice_box
from weft.runtime.unreduced import first_of_terms, sum_value
from weft.sharding.device import Device, MemorySpace, is_addressable
from weft.sharding.layout import Shard
from weft.sharding.mesh import Mesh
from weft.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding, as_auto_sharding
from weft.sharding.spec import UNCONSTRAINED


class ShardedArray(HeldArray):
    """Array in shards: its type, its sharding, and the shards on devices of this process in the order of the mesh.

    Each shard is committed to its device. All have one shape (`padding.py`).
    """

    __slots__ = ("_addresses", "_donated_at", "_memory", "_parts", "_whole", "_whole_memory", "aval", "sharding")

    aval: ArrayType
    sharding: Sharding

    def __init__(
        self,
        aval: ArrayType,
        sharding: Sharding,
        parts: Sequence[ConcreteArray] | None,
        addresses: bytes | None = None,
        memory: Any = None,
    ):
        self.aval = aval
        self.sharding = sharding
        # Most arrays have only the 64-bit addresses of their shards and `memory`: a list with a separate allocation
        # for each shard, a tuple of allocations that shards may share, or one for all. The shards become arrays on
        # demand. An array with neither shards nor memory is deleted.
        self._parts: tuple[ConcreteArray, ...] | None = None if parts is None else tuple(parts)
        self._addresses = addresses
        self._memory = memory
        self._whole: np.ndarray | None = None  # all elements, after the first use
        self._whole_memory: Any = None

    @property
    def _held(self) -> tuple[ConcreteArray, ...]:
        """Shards on devices of this process, padded as they are in memory."""
        parts = self._parts
        if parts is None:
            if self._memory is None:
                self._raise_deleted()
            parts = self._parts = self._build_parts()
        return parts

    def _build_parts(self) -> tuple[ConcreteArray, ...]:
        aval = array_type(self.sharding.shard_shape(self.aval.shape), self.aval.dtype, self.aval.weak_type)
        memory, addresses = self._memory, np.frombuffer(self._addresses or b"", np.int64).tolist()
        own = memory if isinstance(memory, (list, tuple)) else [memory] * len(addresses)
        return tuple(
            array_at(get_placement(device, True), None, aval, allocation, address)
            for device, allocation, address in zip(
                filter(is_addressable, self.sharding.device_tuple), own, addresses, strict=True
            )
        )

    def addresses(self) -> bytes:
        """Return the addresses of the shards, as 64-bit integers in the order of the mesh."""
        found = self._addresses
        if found is None or (self._parts is None and self._memory is None):
            pointers = [part._address() for part in self._held]
            found = self._addresses = np.array(pointers, np.int64).tobytes()
        return found

    @property
    def _value(self) -> np.ndarray:
        """All elements, gathered once."""
        if self._whole is not None:
            return self._whole
        if self.is_deleted():
            self._raise_deleted()
        if self.is_fully_replicated and self._held:
            self._whole = self._held[0]._value
            return self._whole
        if not self.is_fully_addressable:
            raise ArgumentError(
                "This array has shards on devices of other processes, so this process cannot read all of it.",
                received=f"{self.aval.short()} with {self.sharding!r}",
                fix=(
                    "x.addressable_shards   for the shards of this process",
                    "weft.experimental.multihost_utils.process_allgather(x, tiled=True)   on all processes",
                ),
            )
        if isinstance(self.sharding, NamedSharding) and self.sharding.spec.unreduced:
            self._whole = sum_value(self)
            return self._whole
        backend = memory_backend(self.sharding.device_tuple[0])
        self._whole, self._whole_memory = backend.gather(self.addresses(), get_layout(self.aval, self.sharding))
        return self._whole

    def owned_memory(self) -> list[Any] | None:
        """Return the allocations of the shards if each has its own and only this array refers to them, else None.

        Reading shards creates arrays of them, which can be the source of other arrays.
        """
        return self._memory if type(self._memory) is list and self._parts is None else None

    def gather_to_one_device(self) -> ConcreteArray:
        """Return the same elements in one buffer on one device."""
        return ConcreteArray(self._value, self.aval.plain)

    # -- life cycle ------------------------------------------------------------------------------------------------

    def delete(self) -> None:
        """Free the buffers; using the array afterwards is an error."""
        for part in self._parts or ():
            part.delete()
        self._parts = self._whole = self._whole_memory = self._memory = self._addresses = None

    def _donate(self, location: Location | None) -> None:
        self.delete()
        self._donated_at = location

    def is_deleted(self) -> bool:
        if self._parts is None:
            return self._memory is None
        return any(part.is_deleted() for part in self._parts)

    def block_until_ready(self) -> ShardedArray:
        """Wait until the elements of all shards are computed; return the array."""
        memory = self._memory
        if memory is not None and self._parts is None:
            backend = memory_backend(self.sharding.device_tuple[0])
            for allocation in memory if isinstance(memory, (list, tuple)) else (memory,):
                backend.wait(allocation)
            return self
        for part in self._held:
            part.block_until_ready()
        return self

    def is_ready(self) -> bool:
        """Return whether the elements of all shards are computed."""
        return not self.is_deleted() and all(part.is_ready() for part in self._held)

    # -- where it is -----------------------------------------------------------------------------------------------

    def devices(self) -> set[Device]:
        return self.sharding.device_set

    @property
    def device(self) -> Device | Sharding:
        """The device if there is only one, else the sharding."""
        devices = self.sharding.device_tuple
        return devices[0] if len(devices) == 1 else self.sharding

    @property
    def committed(self) -> bool:
        return True

    @property
    def is_fully_addressable(self) -> bool:
        return self.sharding.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        return self.sharding.is_fully_replicated

    def addressable_data(self, index: int) -> ConcreteArray:
        """Return the shard on one of the devices of this process."""
        return self._shown[index]

    @property
    def _shown(self) -> Sequence[ConcreteArray]:
        """Shards on devices of this process, without padding."""
        held = self._held
        if self.sharding.is_even(self.aval.shape):
            return held
        return [strip_padding(p, s) for p, s in zip(held, shapes_here(self.sharding, self.aval.shape), strict=True)]

    @property
    def addressable_shards(self) -> list[Shard]:
        """Shards on devices of this process, in the order of the mesh."""
        return [shard for shard in self.global_shards if is_addressable(shard.device)]

    @property
    def global_shards(self) -> list[Shard]:
        """All shards, in the order of the mesh; those on devices of other processes without data."""
        data = iter(self._shown)
        indices = self.sharding.devices_indices_map(self.aval.shape)
        return [
            Shard(device, self.sharding, self.aval.shape, next(data) if is_addressable(device) else None)
            for device in indices
        ]

    @property
    def itemsize(self) -> int:
        return dtypes.storage(self.aval.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, on all devices."""
        return self.size * self.itemsize

    def on_device_size_in_bytes(self) -> int:
        """Return the bytes that the shards on devices of this process take."""
        return sum(part.on_device_size_in_bytes() for part in self._held)

    def unsafe_buffer_pointer(self) -> int:
        if len(self._held) != 1:
            raise ArgumentError(
                "An array in several shards has no single address.",
                received=repr(self.sharding),
                fix="x.addressable_data(i).unsafe_buffer_pointer()",
            )
        return self._held[0].unsafe_buffer_pointer()

    # -- copies ----------------------------------------------------------------------------------------------------

    def copy_to_host_async(self) -> None:
        """Copy the elements of all shards to the host without waiting for a computation in progress."""
        if self._whole is None and self.is_fully_replicated and self._held:
            self._held[0].copy_to_host_async()
        elif self._whole is None:
            super().copy_to_host_async()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._held[0].__dlpack_device__() if len(self._held) == 1 else super().__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self._held[0].__dlpack__(**options) if len(self._held) == 1 else super().__dlpack__(**options)

    def __reduce__(self) -> Any:
        return wrap, (np.array(self._value), self.aval.plain)  # another process has other devices

    def __copy__(self) -> ShardedArray:
        return ShardedArray(self.aval, self.sharding, [part.__copy__() for part in self._held])

    def __deepcopy__(self, memo: Any) -> ShardedArray:
        return ShardedArray(self.aval, self.sharding, [part.__deepcopy__(memo) for part in self._held])

    def __repr__(self) -> str:
        if not self.is_deleted() and not (self.is_fully_addressable or self.is_fully_replicated):
            return f"Array(shape={self.aval.shape}, dtype={dtypes.name(self.aval.dtype)}, sharding={self.sharding!r})"
        return super().__repr__()


# The type and the layout of arrays of a type after `split` by a sharding.
_splits: Memo[tuple[ArrayType, NamedSharding], tuple[ArrayType, Layout]] = Memo(1024)


def split(array: HeldArray, sharding: NamedSharding) -> ShardedArray:
    """Shard an array over the devices of a mesh."""
    if isinstance(array, ShardedArray) and array.sharding is sharding:
        return array
    found = _splits.get((array.aval, sharding))
    if found is None:
        check_devices(sharding)
        sharding.check_compatible_aval(array.shape)
        placed = type_with_sharding(array.aval, sharding)
        found = _splits.keep((array.aval, sharding), (placed, get_layout(placed, sharding)))
    aval, layout = found
    if isinstance(array, ShardedArray) and array.sharding.is_equivalent_to(sharding, array.ndim):
        return ShardedArray(aval, sharding, array._held)
    if isinstance(array, ShardedArray) and not (array.is_fully_addressable or array.is_fully_replicated):
        parts = _exchange_shards(array, sharding)
        return ShardedArray(aval, sharding, [on_device(v, aval, d) for d, v in parts.items()])
    if not layout.placements:
        return ShardedArray(aval, sharding, ())
    whole = sharding.is_fully_replicated and not sharding.spec.unreduced
    if whole and isinstance(array, ConcreteArray) and not layout.placements[0].memory_backend.reads_host:
        return ShardedArray(aval, sharding, [put(array, placement) for placement in layout.placements])
    value = array._value
    if sharding.spec.unreduced:
        shape, first = sharding.shard_shape(aval.shape), first_of_terms(sharding)
        indices = sharding.addressable_devices_indices_map(aval.shape)
        own = lambda device, i: pad(value[i], shape) if device in first else np.zeros(shape, value.dtype)
        return ShardedArray(aval, sharding, [on_device(own(device, i), aval, device) for device, i in indices.items()])
    return ShardedArray(aval, sharding, None, *layout.placements[0].memory_backend.scatter(value, layout))


def reshard_array(array: HeldArray, sharding: Sharding | None) -> HeldArray:
    """Reshard an array.

    None keeps its shards where they are and drops the sharding from its type (unreduced terms are summed). A sharding
    over an abstract mesh gets the devices of the array's mesh, or of the mesh that is set; without either, the array
    is returned unchanged.
    """
    if sharding is None:
        if isinstance(array, ShardedArray) and isinstance(array.sharding, NamedSharding):
            compiled = as_auto_sharding(array.sharding)
            if array.sharding.spec.unreduced:  # the shards are terms, which `split` sums
                return split(array, compiled)
            return ShardedArray(array.aval.plain, compiled, array._held)
        return array
    if not isinstance(sharding, NamedSharding):
        placement = get_placement(sharding.device_tuple[0], True)
        return put(array.gather_to_one_device() if isinstance(array, ShardedArray) else array, placement)  # type: ignore[arg-type]
    spec = sharding.spec.update(partitions=[None if e is UNCONSTRAINED else e for e in sharding.spec.partitions])
    mesh: Any = sharding.mesh
    if not isinstance(mesh, Mesh):
        own = getattr(array.sharding, "mesh", None)
        mesh = next((m for m in (own, config.mesh) if isinstance(m, Mesh) and m.shape_tuple == mesh.shape_tuple), None)
        if mesh is None:
            return array
        mesh = mesh.update(axis_types=sharding.mesh.axis_types)
    return split(array, NamedSharding(mesh, spec, sharding._kind))


def _exchange_shards(array: ShardedArray, sharding: NamedSharding) -> dict[Device, np.ndarray]:
    """Return the shards of a sharding on devices of this process, from an array with shards in several processes.

    The processes send each other the shards they lack. The first term of an unreduced array is all of it, others are
    zero.
    """
    indices, shape = sharding.devices_indices_map(array.shape), sharding.shard_shape(array.shape)
    terms = first_of_terms(sharding) if sharding.spec.unreduced else indices.keys()
    wanted: dict[int, list[Box]] = {}
    for device, index in indices.items():
        if device in terms:
            wanted.setdefault(device.process_index, []).append(slice_box(index, array.shape))
    values = iter(_exchange(array, wanted, f"the resharding of {array.aval.short()}"))
    zeros = np.zeros(shape, dtypes.storage(array.aval.dtype))
    return {d: pad(next(values), shape) if d in terms else zeros for d in indices if is_addressable(d)}


def gather_value(array: ShardedArray, processes: Iterable[int]) -> np.ndarray:
    """Return all elements of an array with shards in several processes; a collective call of `processes`."""
    everything: Box = tuple((0, size) for size in array.shape)
    wanted = {process: [everything] for process in processes}
    (whole,) = _exchange(array, wanted, f"the gathering of {array.aval.short()}")
    whole.flags.writeable = False
    return whole


def _exchange(array: ShardedArray, wanted: dict[int, list[Box]], what: str) -> list[np.ndarray]:
    """Return the boxes that this process wants of an array with shards in several processes."""
    if isinstance(array.sharding, NamedSharding) and array.sharding.spec.unreduced:
        raise ArgumentError(
            "An unreduced array of several processes must be summed by a program before it is read or moved.",
            received=f"{array.aval.short()} with {array.sharding!r}",
            fix="weft.jit(lambda x: weft.sharding.reshard(x, spec))(x)",
            at=user_line(),
        )
    parts: dict[Box, np.ndarray] = {}
    owners: dict[Box, list[int]] = {}
    for shard in array.global_shards:
        box = slice_box(shard.index, array.shape)
        processes = owners.setdefault(box, [])
        if shard.device.process_index not in processes:
            processes.append(shard.device.process_index)
        if shard.data is not None:
            parts.setdefault(box, shard.data._value)
    return exchange_boxes(parts, owners, wanted, dtypes.storage(array.aval.dtype), what, user_line())


def on_device(value: np.ndarray, aval: ArrayType, device: Device) -> ConcreteArray:
    """Copy a shard to the memory of a device, as an array that is committed to it."""
    return copy_array(value, array_type(value.shape, aval.dtype, aval.weak_type), get_placement(device, True))


def type_with_sharding(aval: ArrayType, sharding: Sharding) -> ArrayType:
    """Return the type of an array with a sharding, in the memory space of its memory kind."""
    space = MemorySpace.Device if sharding.memory_kind in (None, "device") else MemorySpace.Host
    return array_type(aval.shape, aval.dtype, aval.weak_type, sharding, memory_space=space)


def check_devices(sharding: Sharding) -> None:
    """Raise if the devices of a sharding do not exist."""
    for device in sharding.device_tuple:
        if is_addressable(device) and not exists(device):
            what = f"Arrays must be put on devices that exist; there is no {device!r}."
            raise ArgumentError(what, received=repr(sharding), fix=f"some of the {len(devices())} of weft.devices()")


def assemble(aval: ArrayType, sharding: Sharding, parts: Sequence[ConcreteArray]) -> HeldArray:
    """Assemble an array of a plain type from its shards.

    They are committed to their devices, in the order of the mesh, and all of one shape (`padded`).
    """
    if parts and isinstance(sharding, SingleDeviceSharding) and sharding.memory_kind == "device":
        return parts[0]
    return ShardedArray(type_with_sharding(aval, sharding), sharding, parts)


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence[Any], *, dtype: Any = None
) -> HeldArray:
    """Assemble an array from shards that are on devices already: one for each device of this process, in any order.

    Args:
        shape: the shape of the whole array.
        sharding: the sharding of the array.
        arrays: the shards, each on its device. Uncommitted ones get the remaining devices,
            in the order of `sharding.addressable_devices_indices_map(shape)`.
        dtype: the dtype, where this process has no part.

    Returns:
        A sharded array.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft.sharding import PartitionSpec as P
    >>> sharding = weft.NamedSharding(weft.make_mesh((1,), ("data",)), P("data"))
    >>> part = weft.device_put(wnp.ones(2), weft.devices()[0])
    >>> weft.make_array_from_single_device_arrays((2,), sharding, [part]).shape
    (2,)
    """
    check_devices(sharding)
    shape = indices(shape, "shape of make_array_from_single_device_arrays")
    part_devices = list(sharding.addressable_devices_indices_map(shape))
    wanted, largest = shapes_here(sharding, shape), sharding.shard_shape(shape)
    if len(arrays) != len(part_devices):
        raise ArgumentError(
            f"There must be one array for each of the {len(part_devices)} devices that the sharding has in this "
            f"process.",
            received=f"{len(arrays)} arrays for {sharding!r}",
            fix="an array for each device of sharding.addressable_devices_indices_map(shape)",
        )
    arrays = _in_order(arrays, part_devices)
    for i, part in enumerate(arrays):
        if part.shape != wanted[i] or part.dtype != arrays[0].dtype:
            raise ArgumentError(
                f"Shard {i} does not have the shape and dtype that the sharding requires.",
                received=f"{part.aval.short()} where {wanted[i]} of {dtypes.name(arrays[0].dtype)} is needed",
                fix="the shards that sharding.devices_indices_map(shape) cuts out, all of one dtype",
            )
    arrays = [
        put(part, get_placement(device, True))
        if part.shape == largest
        else on_device(pad(part._value, largest), part.aval, device)
        for part, device in zip(arrays, part_devices, strict=True)
    ]
    kind = arrays[0].dtype if arrays else dtypes.canonicalize_dtype(dtype)
    return assemble(array_type(shape, kind), sharding, arrays)


def _in_order(arrays: Sequence[Any], devices: Sequence[Device]) -> list[ConcreteArray]:
    """Sort shards by the devices that they are committed to; uncommitted ones fill the remaining positions."""
    by_device: dict[Device, ConcreteArray] = {}
    free: list[ConcreteArray] = []
    for i, part in enumerate(arrays):
        if not isinstance(part, ConcreteArray):
            what = "make_array_from_single_device_arrays: every shard must be an array on a single device."
            raise ArgumentTypeError(what, received=described(part), fix="weft.device_put(part, device)")
        if not part.committed:
            free.append(part)
        elif part.device not in devices:
            raise ArgumentError(
                f"Shard {i} must be committed to a device of the sharding, or to none.",
                received=f"{part.aval.short()} on {part.device!r} where the sharding has {list(devices)}",
                fix="weft.device_put(part, device)",
            )
        elif part.device in by_device:
            raise ArgumentError(
                f"Shard {i} must not be committed to the device of another shard.",
                received=f"{part.aval.short()} on {part.device!r}",
                fix="weft.device_put(part, device) with another device for each shard",
            )
        else:
            by_device[part.device] = part
    rest = iter(free)
    return [by_device[device] if device in by_device else next(rest) for device in devices]


def make_array_from_callback(
    shape: Sequence[int], sharding: Sharding, data_callback: Callable[[Any], Any], dtype: Any = None
) -> HeldArray:
    """Assemble an array from the shards that `data_callback(index)` returns; it is called once for each different
    shard of this process.

    Args:
        shape: the shape of the whole array.
        sharding: the sharding of the array.
        data_callback: a function from a tuple of slices to the shard of the array there.
        dtype: the dtype, where this process has no part.

    Returns:
        A sharded array.

    >>> import numpy as np
    >>> import weft
    >>> from weft.sharding import PartitionSpec as P
    >>> sharding = weft.NamedSharding(weft.make_mesh((1,), ("data",)), P("data"))
    >>> data = np.arange(4.0, dtype=np.float32)
    >>> weft.make_array_from_callback((4,), sharding, lambda index: data[index])
    Array([0., 1., 2., 3.], dtype=float32)
    """
    check_devices(sharding)
    shape = indices(shape, "shape of make_array_from_callback")
    values: dict[Any, np.ndarray] = {}
    held = []
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        key = tuple((s.start, s.stop) for s in index)
        if key not in values:
            part = data_callback(index)
            values[key] = conversion.canonical_array(np.asarray(part, None if hasattr(part, "dtype") else dtype))
            wanted = None if dtype is None else dtypes.canonicalize_dtype(dtype)
            if wanted not in (None, values[key].dtype):
                raise ArgumentError(
                    "make_array_from_callback: the data does not have the requested dtype.",
                    received=f"{dtypes.name(values[key].dtype)} for dtype={dtypes.name(wanted)}",
                    fix="leave out dtype, or convert what data_callback returns",
                    at=user_line(),
                )
        value = values[key]
        held.append(on_device(value, array_type(value.shape, value.dtype), device))
    return make_array_from_single_device_arrays(shape, sharding, held, dtype=dtype)
