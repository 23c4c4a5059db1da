"""`ShardedArray`: an array in parts, one on each device of a mesh.

Its parts are arrays of one buffer, in the order of the mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.arguments import described, indices
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.memo import Memo
from weft.base.settings import config
from weft.base.source import Location, user_line
from weft.ir.types import ArrayType, array_type
from weft.runtime.array import ConcreteArray, array_at, copied, put, wrap
from weft.runtime.backend import backend_of
from weft.runtime.device import devices, exists, placement_of
from weft.runtime.held import HeldArray
from weft.runtime.layouts import Layout, layout_of
from weft.runtime.padding import ended, padded, shapes_here
from weft.runtime.processes.moving import Box, box_of, moved
from weft.runtime.unreduced import first_of_terms, summed_value
from weft.sharding.device import Device, MemorySpace, is_addressable
from weft.sharding.layout import Shard
from weft.sharding.mesh import Mesh
from weft.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding, compiled_sharding
from weft.sharding.spec import UNCONSTRAINED


class ShardedArray(HeldArray):
    """An array in parts: its type, its sharding, and the parts on devices of this process in the order of the mesh,
    each committed to its device. All have one shape (`padding.py`)."""

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
        # Most arrays are known by where their parts are: 64-bit addresses, and what they are in: a list with an
        # allocation of its own for each part, a tuple of allocations that parts may share, or one for all. The parts
        # become arrays when somebody asks for them. With neither parts nor memory it is deleted.
        self._parts: tuple[ConcreteArray, ...] | None = None if parts is None else tuple(parts)
        self._addresses = addresses
        self._memory = memory
        self._whole: np.ndarray | None = None  # all elements, once somebody has asked for them
        self._whole_memory: Any = None

    @property
    def _held(self) -> tuple[ConcreteArray, ...]:
        """The parts on devices of this process as they are in memory."""
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
            array_at(placement_of(device, True), None, aval, allocation, address)
            for device, allocation, address in zip(
                filter(is_addressable, self.sharding.device_tuple), own, addresses, strict=True
            )
        )

    def addresses(self) -> bytes:
        """Where the parts are, as 64-bit integers in the order of the mesh."""
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
                "This array has parts on devices of other processes, so this process cannot read all of it.",
                received=f"{self.aval.short()} with {self.sharding!r}",
                fix=(
                    "x.addressable_shards   for the parts that are here",
                    "weft.experimental.multihost_utils.process_allgather(x, tiled=True)   on all processes",
                ),
            )
        if isinstance(self.sharding, NamedSharding) and self.sharding.spec.unreduced:
            self._whole = summed_value(self)
            return self._whole
        backend = backend_of(self.sharding.device_tuple[0])
        self._whole, self._whole_memory = backend.gather(self.addresses(), layout_of(self.aval, self.sharding))
        return self._whole

    def owned_memory(self) -> list[Any] | None:
        """The allocations of the parts, if each part has its own and nobody but this array can see them: who looks at
        parts has arrays of them, and other arrays are made of those."""
        return self._memory if type(self._memory) is list and self._parts is None else None

    def gathered(self) -> ConcreteArray:
        """The same elements in one buffer on one device."""
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
        """Wait until the elements of all parts are there; returns the array."""
        memory = self._memory
        if memory is not None and self._parts is None:
            backend = backend_of(self.sharding.device_tuple[0])
            for allocation in memory if isinstance(memory, (list, tuple)) else (memory,):
                backend.wait(allocation)
            return self
        for part in self._held:
            part.block_until_ready()
        return self

    def is_ready(self) -> bool:
        """Whether the elements of all parts are there."""
        return not self.is_deleted() and all(part.is_ready() for part in self._held)

    # -- where it is -----------------------------------------------------------------------------------------------

    def devices(self) -> set[Device]:
        return self.sharding.device_set

    @property
    def device(self) -> Device | Sharding:
        """The device, if there is one; else the sharding."""
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
        """The part on one of the devices of this process."""
        return self._shown[index]

    @property
    def _shown(self) -> Sequence[ConcreteArray]:
        """The parts on devices of this process without what is beyond their ends."""
        held = self._held
        if self.sharding.is_even(self.aval.shape):
            return held
        return [ended(p, s) for p, s in zip(held, shapes_here(self.sharding, self.aval.shape), strict=True)]

    @property
    def addressable_shards(self) -> list[Shard]:
        """The parts on devices of this process, in the order of the mesh."""
        return [shard for shard in self.global_shards if is_addressable(shard.device)]

    @property
    def global_shards(self) -> list[Shard]:
        """All parts, in the order of the mesh; those on devices of other processes without data."""
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
        """The bytes of all elements, wherever they are."""
        return self.size * self.itemsize

    def on_device_size_in_bytes(self) -> int:
        """The bytes that the parts of all devices of this process take."""
        return sum(part.on_device_size_in_bytes() for part in self._held)

    def unsafe_buffer_pointer(self) -> int:
        if len(self._held) != 1:
            raise ArgumentError(
                "An array in several parts has no single address.",
                received=repr(self.sharding),
                fix="x.addressable_data(i).unsafe_buffer_pointer()",
            )
        return self._held[0].unsafe_buffer_pointer()

    # -- copies ----------------------------------------------------------------------------------------------------

    def copy_to_host_async(self) -> None:
        """Have the elements of all parts copied to the host; nothing waits for those that are being computed."""
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


# What arrays of a type become that are split by a sharding: their type, and where their parts are.
_splits: Memo[tuple[ArrayType, NamedSharding], tuple[ArrayType, Layout]] = Memo(1024)


def split(array: HeldArray, sharding: NamedSharding) -> ShardedArray:
    """An array put on the devices of a mesh, each with its part."""
    if isinstance(array, ShardedArray) and array.sharding is sharding:
        return array
    found = _splits.get((array.aval, sharding))
    if found is None:
        check_devices(sharding)
        sharding.check_compatible_aval(array.shape)
        placed = placed_type(array.aval, sharding)
        found = _splits.keep((array.aval, sharding), (placed, layout_of(placed, sharding)))
    aval, layout = found
    if isinstance(array, ShardedArray) and array.sharding.is_equivalent_to(sharding, array.ndim):
        return ShardedArray(aval, sharding, array._held)
    if isinstance(array, ShardedArray) and not (array.is_fully_addressable or array.is_fully_replicated):
        parts = _moved_parts(array, sharding)
        return ShardedArray(aval, sharding, [on_device(v, aval, d) for d, v in parts.items()])
    if not layout.placements:
        return ShardedArray(aval, sharding, ())
    whole = sharding.is_fully_replicated and not sharding.spec.unreduced
    if whole and isinstance(array, ConcreteArray) and not layout.placements[0].backend.reads_host:
        return ShardedArray(aval, sharding, [put(array, placement) for placement in layout.placements])
    value = array._value
    if sharding.spec.unreduced:
        shape, first = sharding.shard_shape(aval.shape), first_of_terms(sharding)
        indices = sharding.addressable_devices_indices_map(aval.shape)
        own = lambda device, i: padded(value[i], shape) if device in first else np.zeros(shape, value.dtype)
        return ShardedArray(aval, sharding, [on_device(own(device, i), aval, device) for device, i in indices.items()])
    return ShardedArray(aval, sharding, None, *layout.placements[0].backend.scatter(value, layout))


def resharded(array: HeldArray, sharding: Sharding | None) -> HeldArray:
    """An array as a sharding splits it, which may be one over a mesh without devices: those are the array's, or of the
    mesh that is set, and if there are none it is as it was: whole. None leaves it where it is and takes that out of its
    type."""
    if sharding is None:
        if isinstance(array, ShardedArray) and isinstance(array.sharding, NamedSharding):
            compiled = compiled_sharding(array.sharding)
            if array.sharding.spec.unreduced:  # parts are terms, which are summed
                return split(array, compiled)
            return ShardedArray(array.aval.plain, compiled, array._held)
        return array
    if not isinstance(sharding, NamedSharding):
        placement = placement_of(sharding.device_tuple[0], True)
        return put(array.gathered() if isinstance(array, ShardedArray) else array, placement)  # type: ignore[arg-type]
    spec = sharding.spec.update(partitions=[None if e is UNCONSTRAINED else e for e in sharding.spec.partitions])
    mesh: Any = sharding.mesh
    if not isinstance(mesh, Mesh):
        own = getattr(array.sharding, "mesh", None)
        mesh = next((m for m in (own, config.mesh) if isinstance(m, Mesh) and m.shape_tuple == mesh.shape_tuple), None)
        if mesh is None:
            return array
        mesh = mesh.update(axis_types=sharding.mesh.axis_types)
    return split(array, NamedSharding(mesh, spec, sharding._kind))


def _moved_parts(array: ShardedArray, sharding: NamedSharding) -> dict[Device, np.ndarray]:
    """The parts of a sharding on devices of this process, from an array with parts in several processes, which are sent
    what they lack. Of terms the first is all of it, and the others are zero."""
    indices, shape = sharding.devices_indices_map(array.shape), sharding.shard_shape(array.shape)
    terms = first_of_terms(sharding) if sharding.spec.unreduced else indices.keys()
    wanted: dict[int, list[Box]] = {}
    for device, index in indices.items():
        if device in terms:
            wanted.setdefault(device.process_index, []).append(box_of(index, array.shape))
    values = iter(_moved(array, wanted, f"the resharding of {array.aval.short()}"))
    zeros = np.zeros(shape, dtypes.storage(array.aval.dtype))
    return {d: padded(next(values), shape) if d in terms else zeros for d in indices if is_addressable(d)}


def gathered_value(array: ShardedArray, processes: Iterable[int]) -> np.ndarray:
    """All elements of an array with parts in several processes; all `processes` ask for it together."""
    everything: Box = tuple((0, size) for size in array.shape)
    wanted = {process: [everything] for process in processes}
    (whole,) = _moved(array, wanted, f"the gathering of {array.aval.short()}")
    whole.flags.writeable = False
    return whole


def _moved(array: ShardedArray, wanted: dict[int, list[Box]], what: str) -> list[np.ndarray]:
    """The boxes that this process wants of an array with parts in several processes."""
    if isinstance(array.sharding, NamedSharding) and array.sharding.spec.unreduced:
        raise ArgumentError(
            "An array of several processes that is unreduced is summed by a program.",
            received=f"{array.aval.short()} with {array.sharding!r}",
            fix="weft.jit(lambda x: weft.sharding.reshard(x, spec))(x)",
            at=user_line(),
        )
    parts: dict[Box, np.ndarray] = {}
    owners: dict[Box, list[int]] = {}
    for shard in array.global_shards:
        box = box_of(shard.index, array.shape)
        processes = owners.setdefault(box, [])
        if shard.device.process_index not in processes:
            processes.append(shard.device.process_index)
        if shard.data is not None:
            parts.setdefault(box, shard.data._value)
    return moved(parts, owners, wanted, dtypes.storage(array.aval.dtype), what, user_line())


def on_device(value: np.ndarray, aval: ArrayType, device: Device) -> ConcreteArray:
    """A part as an array of its own: a copy in the memory of its device, to which it is committed."""
    return copied(value, array_type(value.shape, aval.dtype, aval.weak_type), placement_of(device, True))


def placed_type(aval: ArrayType, sharding: Sharding) -> ArrayType:
    """The type of an array with a sharding, in the memory that it names."""
    space = MemorySpace.Device if sharding.memory_kind in (None, "device") else MemorySpace.Host
    return array_type(aval.shape, aval.dtype, aval.weak_type, sharding, memory_space=space)


def check_devices(sharding: Sharding) -> None:
    """Whether arrays can be put on the devices of a sharding."""
    for device in sharding.device_tuple:
        if is_addressable(device) and not exists(device):
            what = f"There is no {device!r} here to put an array on."
            raise ArgumentError(what, received=repr(sharding), fix=f"some of the {len(devices())} of weft.devices()")


def assembled(aval: ArrayType, sharding: Sharding, parts: Sequence[ConcreteArray]) -> HeldArray:
    """The array of a plain type whose parts these are, each committed to its device, in the order of the mesh; all of
    one shape (`padded`)."""
    if parts and isinstance(sharding, SingleDeviceSharding) and sharding.memory_kind == "device":
        return parts[0]
    return ShardedArray(placed_type(aval, sharding), sharding, parts)


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence[Any], *, dtype: Any = None
) -> HeldArray:
    """The array whose parts are on devices already: `arrays` has the part of each device of this process, in any order.

    Args:
        shape: the shape of the whole array.
        sharding: how it is split.
        arrays: the parts, each on its device. Those that are not committed to a device get the devices that are left,
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
            f"The sharding has {len(part_devices)} devices in this process, each with a part.",
            received=f"{len(arrays)} arrays for {sharding!r}",
            fix="an array for each device of sharding.addressable_devices_indices_map(shape)",
        )
    arrays = _in_order(arrays, part_devices)
    for i, part in enumerate(arrays):
        if part.shape != wanted[i] or part.dtype != arrays[0].dtype:
            raise ArgumentError(
                f"Part {i} does not have the shape and dtype that it has by the sharding.",
                received=f"{part.aval.short()} where {wanted[i]} of {dtypes.name(arrays[0].dtype)} is needed",
                fix="the parts that sharding.devices_indices_map(shape) cuts out, all of one dtype",
            )
    arrays = [
        put(part, placement_of(device, True))
        if part.shape == largest
        else on_device(padded(part._value, largest), part.aval, device)
        for part, device in zip(arrays, part_devices, strict=True)
    ]
    kind = arrays[0].dtype if arrays else dtypes.canonicalize_dtype(dtype)
    return assembled(array_type(shape, kind), sharding, arrays)


def _in_order(arrays: Sequence[Any], devices: Sequence[Device]) -> list[ConcreteArray]:
    """The parts in the order of the devices that they are committed to; the others come where a device is left."""
    by_device: dict[Device, ConcreteArray] = {}
    free: list[ConcreteArray] = []
    for i, part in enumerate(arrays):
        if not isinstance(part, ConcreteArray):
            what = "make_array_from_single_device_arrays takes arrays of one device."
            raise ArgumentTypeError(what, received=described(part), fix="weft.device_put(part, device)")
        if not part.committed:
            free.append(part)
        elif part.device not in devices:
            raise ArgumentError(
                f"Part {i} is committed to a device that is not one of the sharding's.",
                received=f"{part.aval.short()} on {part.device!r} where the sharding has {list(devices)}",
                fix="weft.device_put(part, device)",
            )
        elif part.device in by_device:
            raise ArgumentError(
                f"Part {i} is committed to the device of another part.",
                received=f"{part.aval.short()} on {part.device!r}",
                fix="weft.device_put(part, device) with another device for each part",
            )
        else:
            by_device[part.device] = part
    rest = iter(free)
    return [by_device[device] if device in by_device else next(rest) for device in devices]


def make_array_from_callback(
    shape: Sequence[int], sharding: Sharding, data_callback: Callable[[Any], Any], dtype: Any = None
) -> HeldArray:
    """The array whose part at each index `data_callback(index)` returns; it is called once for each different part of
    this process.

    Args:
        shape: the shape of the whole array.
        sharding: how it is split.
        data_callback: a function from a tuple of slices to the part of the array there.
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
            values[key] = dtypes.canonical_array(np.asarray(part, None if hasattr(part, "dtype") else dtype))
            wanted = None if dtype is None else dtypes.canonicalize_dtype(dtype)
            if wanted not in (None, values[key].dtype):
                raise ArgumentError(
                    "make_array_from_callback: the data is not of the dtype that was asked for.",
                    received=f"{dtypes.name(values[key].dtype)} for dtype={dtypes.name(wanted)}",
                    fix="leave out dtype, or convert what data_callback returns",
                    at=user_line(),
                )
        value = values[key]
        held.append(on_device(value, array_type(value.shape, value.dtype), device))
    return make_array_from_single_device_arrays(shape, sharding, held, dtype=dtype)
