"""Shardings: how an array is distributed over devices.

A `NamedSharding` applies a `PartitionSpec` to a mesh. Equal shardings are one object, so the fast comparison is
identity.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.memo import cached_property
from weft.sharding.device import MEMORY_KINDS, Device, is_addressable
from weft.sharding.mesh import AbstractMesh, AxisType, Mesh, flat_position
from weft.sharding.spec import UNCONSTRAINED, PartitionSpec, entry_axes, split_axes

Index = tuple[slice, ...]


class Sharding:
    """Distribution of an array over devices and their memories.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> sharding = wnp.ones((4, 2)).sharding
    >>> isinstance(sharding, weft.sharding.Sharding), sharding.shard_shape((4, 2))
    (True, (4, 2))
    """

    @property
    def device_tuple(self) -> tuple[Device, ...]:
        """Devices in the order of the mesh."""
        raise NotImplementedError(f"{type(self).__name__} has no device_tuple")

    def partition_counts(self, ndim: int) -> tuple[int, ...]:
        """Return the number of shards along each of `ndim` dimensions."""
        raise NotImplementedError(f"{type(self).__name__} has no partition_counts")

    def part_indices(self, ndim: int) -> tuple[tuple[int, ...], ...]:
        """Return, for each device in order, the index of its shard along each of `ndim` dimensions."""
        raise NotImplementedError(f"{type(self).__name__} has no part_indices")

    @property
    def memory_kind(self) -> str | None:
        """Kind of memory that the array is in."""
        raise NotImplementedError(f"{type(self).__name__} has no memory_kind")

    def with_memory_kind(self, kind: str) -> Sharding:
        """Return the same sharding in another kind of memory."""
        raise NotImplementedError(f"{type(self).__name__} has no with_memory_kind")

    def check_compatible_aval(self, aval_shape: Sequence[Any]) -> None:
        """Raise unless arrays of this shape can have the sharding."""

    @property
    def device_set(self) -> set[Device]:
        return set(self.device_tuple)

    @property
    def num_devices(self) -> int:
        return len(self.device_tuple)

    @property
    def addressable_devices(self) -> set[Device]:
        """Devices of this process."""
        return {d for d in self.device_tuple if is_addressable(d)}

    @property
    def has_addressable_devices(self) -> bool:
        return any(map(is_addressable, self.device_tuple))

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices belong to this process."""
        return all(map(is_addressable, self.device_tuple))

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device has the whole array."""
        raise NotImplementedError(f"{type(self).__name__} has no is_fully_replicated")

    def shard_shape(self, global_shape: Sequence[Any]) -> tuple[Any, ...]:
        """Return the shape of a shard; of the largest one if a dimension does not split evenly.

        The last shards are then smaller: see `devices_indices_map`.
        """
        shape = tuple(global_shape)
        self.check_compatible_aval(shape)
        counts = self.partition_counts(len(shape))
        return tuple(-(-size // count) if count > 1 else size for size, count in zip(shape, counts, strict=True))

    def is_even(self, global_shape: Sequence[Any]) -> bool:
        """Return whether all shards of an array have the same shape."""
        counts = self.partition_counts(len(global_shape))
        return all(count == 1 or size % count == 0 for size, count in zip(global_shape, counts, strict=True))

    def check_even(self, global_shape: Sequence[Any]) -> None:
        """Raise unless all shards of an array have the same shape."""
        shape = tuple(global_shape)
        self.check_compatible_aval(shape)
        for dim, (size, count) in enumerate(zip(shape, self.partition_counts(len(shape)), strict=True)):
            if count > 1 and size % count != 0:
                raise ArgumentError(
                    f"Dimension {dim} has {size} elements, which do not split evenly into {count} parts.",
                    received=f"shape {shape} with {self!r}",
                    fix=f"pad dimension {dim} to {-(-size // count) * count}, leave it whole (None in the spec), or"
                    " split it over an axis that is Auto",
                )

    def devices_indices_map(self, global_shape: Sequence[Any]) -> Mapping[Device, Index]:
        """Return the slices of an array that each device has.

        If a dimension does not split evenly, the last shards are smaller than others, or empty.
        """
        shape = tuple(global_shape)
        sizes, counts = self.shard_shape(shape), self.partition_counts(len(shape))
        return {
            device: tuple(
                slice(None) if count == 1 else slice(min(part * size, whole), min((part + 1) * size, whole))
                for part, size, count, whole in zip(parts, sizes, counts, shape, strict=True)
            )
            for device, parts in zip(self.device_tuple, self.part_indices(len(shape)), strict=True)
        }

    def addressable_devices_indices_map(self, global_shape: Sequence[Any]) -> Mapping[Device, Index]:
        """Return the slices of an array that each device of this process has."""
        everywhere = self.devices_indices_map(global_shape)
        return {device: index for device, index in everywhere.items() if is_addressable(device)}

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Return whether arrays with `ndim` dimensions have the same shards on the same devices and memory."""
        if self is other:
            return True
        if not isinstance(other, Sharding):
            return False
        return (
            self.device_tuple == other.device_tuple
            and self.memory_kind == other.memory_kind
            and self.partition_counts(ndim) == other.partition_counts(ndim)
            and self.part_indices(ndim) == other.part_indices(ndim)
            and self._pending_sums() == other._pending_sums()
        )

    def _pending_sums(self) -> tuple[frozenset[Any], frozenset[Any]]:
        """Return the axes over which a sum is pending: of the value, and of its cotangent."""
        return frozenset(), frozenset()


_named: weakref.WeakValueDictionary[Any, NamedSharding] = weakref.WeakValueDictionary()


class NamedSharding(Sharding):
    """Sharding of an array over a mesh by a `PartitionSpec`. Equal shardings are one object.

    Args:
        mesh: a `Mesh` or `AbstractMesh`.
        spec: a `PartitionSpec`.
        memory_kind: the kind of memory of the devices.

    >>> import weft
    >>> from weft.sharding import PartitionSpec as P
    >>> mesh = weft.make_mesh((1,), ("data",))
    >>> weft.NamedSharding(mesh, P("data", None)).shard_shape((4, 2))
    (4, 2)
    """

    mesh: Mesh | AbstractMesh
    spec: PartitionSpec
    _kind: str | None
    _key: tuple[Any, ...]
    _hash: int

    def __new__(
        cls,
        mesh: Mesh | AbstractMesh,
        spec: PartitionSpec,
        memory_kind: str | None = None,
        _logical_device_ids: Any = None,
    ) -> NamedSharding:
        if not isinstance(mesh, (Mesh, AbstractMesh)):
            raise ArgumentTypeError(
                "NamedSharding needs a mesh.", received=described(mesh), fix="weft.sharding.Mesh(devices, names)"
            )
        if not isinstance(spec, PartitionSpec):
            raise ArgumentTypeError(
                "NamedSharding needs a PartitionSpec.", received=described(spec), fix=f"P({spec!r}), or P() for whole"
            )
        # The device's own memory is the default, so "device" is the same as None.
        kind = check_memory_kind(memory_kind) if memory_kind != "device" else None
        key = (mesh, spec, kind)
        known = _named.get(key)
        if known is not None:
            return known
        _check_spec(mesh, spec)
        self = super().__new__(cls)
        self.mesh, self.spec, self._kind = mesh, spec, kind
        self._key, self._hash = key, hash(key)
        return _named.setdefault(key, self)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, NamedSharding) and self._key == other._key)

    def __reduce__(self) -> Any:
        return NamedSharding, (self.mesh, self.spec, self._kind)

    @property
    def memory_kind(self) -> str | None:
        return self._kind or ("device" if isinstance(self.mesh, Mesh) else None)

    def with_memory_kind(self, kind: str) -> NamedSharding:
        return NamedSharding(self.mesh, self.spec, kind)

    def update(self, **changes: Any) -> NamedSharding:
        """Return a copy with `mesh`, `spec` or `memory_kind` changed."""
        return NamedSharding(**{"mesh": self.mesh, "spec": self.spec, "memory_kind": self._kind, **changes})

    @property
    def device_tuple(self) -> tuple[Device, ...]:
        if not isinstance(self.mesh, Mesh):
            raise ArgumentError(
                "A sharding over an AbstractMesh has no devices.",
                received=repr(self),
                fix="NamedSharding(mesh, spec) with a weft.sharding.Mesh of devices",
            )
        return self.mesh.device_tuple

    @property
    def replicated_axes(self) -> frozenset[Any]:
        """Mesh axes along which all devices have the same shard."""
        used = {*split_axes(self.spec.partitions), *self.spec.unreduced, *self.spec.reduced}
        return frozenset(n for n in self.mesh.axis_names if n not in used)

    @cached_property
    def is_fully_replicated(self) -> bool:
        sizes = self.mesh.shape
        return not self.spec.unreduced and all(sizes[n] == 1 for n in split_axes(self.spec.partitions))

    def partition_counts(self, ndim: int) -> tuple[int, ...]:
        sizes, counts = self.mesh.shape, []
        for entry in self.spec.partitions[:ndim]:
            count = 1
            for name in entry_axes(entry):
                count *= sizes[name]
            counts.append(count)
        return (*counts, *[1] * (ndim - len(counts)))

    def part_indices(self, ndim: int) -> tuple[tuple[int, ...], ...]:
        entries = self.spec.partitions[:ndim]
        whole = (0,) * (ndim - len(entries))
        return tuple(
            (*(flat_position(self.mesh, entry_axes(e), coordinates) for e in entries), *whole)
            for coordinates in np.ndindex(*self.mesh.axis_sizes)
        )

    def check_compatible_aval(self, aval_shape: Sequence[Any]) -> None:
        if len(self.spec) > len(aval_shape):
            raise ArgumentError(
                f"{self.spec!r} has entries for {len(self.spec)} dimensions: it is only valid for values of rank at"
                f" least {len(self.spec)}, but was applied to a value of rank {len(aval_shape)}.",
                received=f"shape {tuple(aval_shape)} with {self!r}",
                fix=f"at most {len(aval_shape)} entries; dimensions without one are whole",
            )

    def _pending_sums(self) -> tuple[frozenset[Any], frozenset[Any]]:
        return self.spec.unreduced, self.spec.reduced

    def __repr__(self) -> str:
        kind = "" if self.memory_kind is None else f", memory_kind={self.memory_kind}"
        return f"NamedSharding(mesh={self.mesh!s}, spec={self.spec!r}{kind})"


def _check_spec(mesh: Mesh | AbstractMesh, spec: PartitionSpec) -> None:
    """Raise unless every axis of a spec is one of the mesh and is named once."""
    seen = set()
    names = (*split_axes(spec.partitions), *spec.unreduced, *spec.reduced)
    for name in names:
        if name is UNCONSTRAINED or name not in mesh.axis_names:
            raise ArgumentError(
                f"Resource axis: {name} of {spec!r} is not found in mesh, whose axes are"
                f" {', '.join(map(repr, mesh.axis_names)) or 'none'}.",
                received=f"{spec!r} for {mesh!s}",
                fix="the names of axes that the mesh was made with",
            )
        if name in seen:
            raise ArgumentError(
                f"An axis of a mesh must split one dimension only; {spec!r} has duplicate entries for `{name}`.",
                received=f"{spec!r} for {mesh!s}",
                fix=f"{name!r} for one dimension, another axis or None for the other",
            )
        seen.add(name)
    for name in (*spec.unreduced, *spec.reduced):
        if name not in mesh.explicit_axes:
            raise ArgumentError(
                f"An unreduced or reduced axis must be Explicit; {name!r} is not.",
                received=f"{spec!r} for {mesh!s}",
                fix="axis_types=(weft.sharding.AxisType.Explicit, ...) for the mesh",
            )


def type_sharding(sharding: Sharding | None, ndim: int) -> NamedSharding | None:
    """Return the part of a sharding that a type shows: its Explicit axes, on the abstract mesh, with an entry for each
    of `ndim` dimensions. None if there is none: the compiler chooses the sharding over Auto axes.
    """
    if not isinstance(sharding, NamedSharding):
        return None
    spec, explicit = sharding.spec, sharding.mesh.explicit_axes
    entries = [tuple(name for name in entry_axes(entry) if name in explicit) for entry in spec.partitions]
    whole = [None] * (ndim - len(entries))
    shown = spec.update(partitions=(*entries, *whole))
    if not (shown.unreduced or shown.reduced or any(map(entry_axes, shown.partitions))):
        return None
    return NamedSharding(sharding.mesh.abstract_mesh, shown)


def as_auto_sharding(sharding: NamedSharding) -> NamedSharding:
    """Return the sharding over Auto axes, as a constraint for the compiler."""
    mesh = sharding.mesh
    spec = sharding.spec.update(unreduced=frozenset(), reduced=frozenset())
    return NamedSharding(mesh.update(axis_types=(AxisType.Auto,) * len(mesh.axis_names)), spec, sharding._kind)


def check_memory_kind(kind: Any) -> Any:
    """Return a kind of memory, or None; raise if it does not exist."""
    if kind is not None and kind not in MEMORY_KINDS:
        raise ArgumentError(
            "`memory_kind` must be a kind of memory.",
            received=f"memory_kind={kind!r}",
            fix=f"one of {', '.join(map(repr, MEMORY_KINDS))}",
        )
    return kind


class SingleDeviceSharding(Sharding):
    """Sharding of an array that is whole on one device.

    Args:
        device: the device.
        memory_kind: the kind of memory of the device.

    >>> import weft
    >>> weft.sharding.SingleDeviceSharding(weft.devices()[0]).num_devices
    1
    """

    __slots__ = ("_device", "_kind")

    def __init__(self, device: Device, memory_kind: str | None = None):
        if not isinstance(device, Device):
            raise ArgumentTypeError(
                "SingleDeviceSharding needs a device.", received=described(device), fix="weft.devices()[0]"
            )
        self._device = device
        self._kind = check_memory_kind(memory_kind) if memory_kind != "device" else None

    @property
    def device(self) -> Device:
        return self._device

    @property
    def device_tuple(self) -> tuple[Device, ...]:
        return (self._device,)

    @property
    def memory_kind(self) -> str:
        return self._kind or "device"

    def with_memory_kind(self, kind: str) -> SingleDeviceSharding:
        return SingleDeviceSharding(self._device, kind)

    def partition_counts(self, ndim: int) -> tuple[int, ...]:
        return (1,) * ndim

    def part_indices(self, ndim: int) -> tuple[tuple[int, ...], ...]:
        return ((0,) * ndim,)

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def __hash__(self) -> int:
        return hash((self._device, self._kind))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, SingleDeviceSharding) and self._device == other._device and self._kind == other._kind

    def __reduce__(self) -> Any:
        return SingleDeviceSharding, (self._device, self._kind)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind={self.memory_kind})"


def make_single_device_sharding(device: Device, *, memory_kind: str | None = None) -> SingleDeviceSharding:
    """Return the sharding of an array that is whole on one device."""
    return SingleDeviceSharding(device, memory_kind)
