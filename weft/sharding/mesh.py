"""Meshes: grids of devices with named axes. An `AbstractMesh` has only the axes, a `Mesh` also the devices."""

from __future__ import annotations

import enum
import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from weft.base.arguments import described, indices, sequence
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.memo import cached_property
from weft.base.settings import config
from weft.sharding.device import AbstractDevice, Device, is_addressable

AxisName = Any  # a string, or anything else that can be hashed


class AxisType(enum.Enum):
    """How the sharding of values over a mesh axis is chosen: by the compiler (Auto), by their types (Explicit), or by
    the user inside of `shard_map` (Manual).

    >>> import weft
    >>> mesh = weft.make_mesh((1,), ("data",), (weft.sharding.AxisType.Auto,))
    >>> mesh.axis_types
    (Auto,)
    """

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


class BaseMesh:
    """Names, sizes and types of the axes of a mesh."""

    axis_names: tuple[AxisName, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]

    @cached_property
    def shape(self) -> OrderedDict[AxisName, int]:
        """Size of each axis by name, in order."""
        return OrderedDict(zip(self.axis_names, self.axis_sizes, strict=True))

    @cached_property
    def shape_tuple(self) -> tuple[tuple[AxisName, int], ...]:
        return tuple(self.shape.items())

    @cached_property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(self.axis_sizes) if self.axis_names else 0

    @property
    def empty(self) -> bool:
        return self.size == 0

    def _find_axes(self, axis_type: AxisType) -> tuple[AxisName, ...]:
        return tuple(n for n, t in zip(self.axis_names, self.axis_types, strict=True) if t is axis_type)

    @cached_property
    def auto_axes(self) -> tuple[AxisName, ...]:
        return self._find_axes(AxisType.Auto)

    @cached_property
    def explicit_axes(self) -> tuple[AxisName, ...]:
        return self._find_axes(AxisType.Explicit)

    @cached_property
    def manual_axes(self) -> tuple[AxisName, ...]:
        return self._find_axes(AxisType.Manual)

    @property
    def are_all_axes_auto(self) -> bool:
        return not self.empty and len(self.auto_axes) == len(self.axis_names)

    @property
    def are_all_axes_explicit(self) -> bool:
        return not self.empty and len(self.explicit_axes) == len(self.axis_names)

    @property
    def are_all_axes_manual(self) -> bool:
        return not self.empty and len(self.manual_axes) == len(self.axis_names)

    def _axes_text(self) -> str:
        axes = ", ".join(f"{name!r}: {size}" for name, size in self.shape_tuple)
        return f"{axes}, axis_types={self.axis_types}" if axes else ""


_abstract_meshes: weakref.WeakValueDictionary[Any, AbstractMesh] = weakref.WeakValueDictionary()


class AbstractMesh(BaseMesh):
    """Axes of a mesh without devices: enough to plan and to type programs. Equal meshes are one object.

    Args:
        axis_sizes: the size of each axis.
        axis_names: the name of each axis.
        axis_types: an `AxisType` for each axis.
        abstract_device: the kind of the devices, if it is known.

    >>> import weft
    >>> dict(weft.sharding.AbstractMesh((2, 4), ("data", "model")).shape)
    {'data': 2, 'model': 4}
    """

    def __new__(
        cls,
        axis_sizes: Sequence[int],
        axis_names: str | Sequence[AxisName],
        axis_types: AxisType | Sequence[AxisType] | None = None,
        *,
        abstract_device: AbstractDevice | None = None,
    ) -> AbstractMesh:
        sizes = indices(axis_sizes, "axis_sizes of an AbstractMesh")
        names = _names(axis_names)
        if len(sizes) != len(names):
            raise ArgumentError(
                "AbstractMesh needs a name for each of its axes.",
                received=f"axis_sizes {sizes} and axis_names {names}",
                fix="AbstractMesh((4, 2), ('x', 'y'))",
            )
        types = _types(axis_types, names)
        key = (sizes, names, types, abstract_device)
        known = _abstract_meshes.get(key)
        if known is not None:
            return known
        self = super().__new__(cls)
        self.axis_sizes, self.axis_names, self.axis_types = sizes, names, types
        self.abstract_device = abstract_device
        self._key, self._hash = key, hash(key)
        return _abstract_meshes.setdefault(key, self)

    abstract_device: AbstractDevice | None
    _key: tuple[Any, ...]
    _hash: int

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        # Two threads may each make the first one of its kind, so identity is only the fast path.
        return self is other or (isinstance(other, AbstractMesh) and self._key == other._key)

    def __reduce__(self) -> Any:
        return _abstract_mesh, (self.axis_sizes, self.axis_names, self.axis_types, self.abstract_device)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        return self

    def update(
        self,
        axis_sizes: Sequence[int] | None = None,
        axis_names: Sequence[AxisName] | None = None,
        axis_types: Sequence[AxisType] | None = None,
        *,
        abstract_device: AbstractDevice | None = None,
    ) -> AbstractMesh:
        """Return a copy with some fields changed."""
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            abstract_device=self.abstract_device if abstract_device is None else abstract_device,
        )

    def update_axis_types(self, name_to_type: Mapping[AxisName, AxisType]) -> AbstractMesh:
        """Return a copy with other types for the named axes."""
        types = [name_to_type.get(n, t) for n, t in zip(self.axis_names, self.axis_types, strict=True)]
        return self.update(axis_types=types)

    def _no_devices(self, attribute: str) -> Any:
        raise ArgumentError(
            f"An AbstractMesh has no {attribute}: it has a number of devices, and needs none of them.",
            received=repr(self),
            fix="weft.sharding.Mesh(devices, axis_names)",
        )

    @property
    def devices(self) -> Any:
        return self._no_devices("devices")

    @property
    def device_ids(self) -> Any:
        return self._no_devices("device_ids")

    @property
    def local_devices(self) -> Any:
        return self._no_devices("local_devices")

    @property
    def local_mesh(self) -> Any:
        return self._no_devices("local_mesh")

    @property
    def is_multi_process(self) -> Any:
        return self._no_devices("is_multi_process")

    def __repr__(self) -> str:
        device = self.abstract_device
        kind = "" if device is None else f", {device!s}"
        return f"AbstractMesh({self._axes_text() or '(), axis_types=()'}{kind})"


def _abstract_mesh(sizes: Any, names: Any, types: Any, device: Any) -> AbstractMesh:
    return AbstractMesh(sizes, names, types, abstract_device=device)


_meshes: weakref.WeakValueDictionary[Any, Mesh] = weakref.WeakValueDictionary()


# Equal meshes are one object, so the previous mesh of a thread that enters one is not stored in the mesh.
_entered = threading.local()


class Mesh(BaseMesh):
    """Grid of devices with one dimension for each named axis. Equal meshes are one object.

    Args:
        devices: an array of devices, with a dimension for each axis.
        axis_names: the name of each axis.
        axis_types: an `AxisType` for each axis.

    >>> import numpy as np
    >>> import weft
    >>> mesh = weft.sharding.Mesh(np.array(weft.devices()[:1]), ("data",))
    >>> mesh.shape["data"]
    1
    """

    devices: np.ndarray
    _key: tuple[Any, ...]
    _hash: int

    def __new__(
        cls,
        devices: Any,
        axis_names: str | Sequence[AxisName],
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> Mesh:
        grid = _grid(devices)
        names = _names(axis_names)
        if grid.ndim != len(names):
            raise ArgumentError(
                "Mesh needs a name for each dimension of its array of devices.",
                received=f"devices of shape {grid.shape} and axis_names {names}",
                jax="Mesh requires the ndim of its first argument (`devices`) to equal the length of its second "
                "argument "
                f"(`axis_names`), but got devices.ndim == {grid.ndim} and len(axis_names) == {len(names)}.",
                fix="Mesh(np.array(weft.devices()).reshape(4, 2), ('x', 'y'))",
            )
        types = _types(axis_types, names)
        if not grid.size:
            grid, names, types = np.empty((), object), (), ()
        key = (names, types, grid.shape, tuple(grid.flat))
        known = _meshes.get(key)
        if known is not None:
            return known
        self = super().__new__(cls)
        grid.flags.writeable = False
        self.devices, self.axis_names, self.axis_types = grid, names, types
        self.axis_sizes = grid.shape
        self._key, self._hash = key, hash(key)
        return _meshes.setdefault(key, self)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Mesh) and self._key == other._key)

    def __reduce__(self) -> Any:
        return Mesh, (np.array(self.devices), self.axis_names, self.axis_types)

    def __enter__(self) -> Mesh:
        """Set the mesh as the one that is used wherever none is named, as `set_mesh` does."""
        _entered.__dict__.setdefault("before", []).append(config._override("mesh", self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        config._override("mesh", _entered.before.pop())

    @cached_property
    def abstract_mesh(self) -> AbstractMesh:
        """Mesh of the same axes without devices."""
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    @cached_property
    def device_tuple(self) -> tuple[Device, ...]:
        """Devices in row-major order."""
        return () if self.empty else tuple(self.devices.flat)

    @cached_property
    def device_ids(self) -> np.ndarray:
        return np.array([d.id for d in self.device_tuple], int).reshape(self.devices.shape if self.device_tuple else 0)

    @cached_property
    def local_devices(self) -> list[Device]:
        """Devices of this process."""
        return [d for d in self.device_tuple if is_addressable(d)]

    @property
    def is_multi_process(self) -> bool:
        return len(self.local_devices) != len(self.device_tuple)

    @property
    def is_scalar(self) -> bool:
        return self.devices.ndim == 0

    @property
    def local_mesh(self) -> Mesh:
        """Smallest block of the mesh that contains all devices of this process."""
        if not self.is_multi_process:
            return self
        here = np.array([is_addressable(d) for d in self.device_tuple]).reshape(self.devices.shape)
        found = np.nonzero(here)
        block = self.devices[tuple(slice(i.min(), i.max() + 1) if i.size else slice(0) for i in found)]
        if not all(is_addressable(d) for d in block.flat):
            raise ArgumentError(
                "The devices of this process must be a block of the mesh to have a local mesh.",
                received=repr(self),
                fix="order the devices by process when the mesh is made",
            )
        return Mesh(block, self.axis_names, self.axis_types)

    def update(
        self,
        devices: Any = None,
        axis_names: Sequence[AxisName] | None = None,
        axis_types: Sequence[AxisType] | None = None,
    ) -> Mesh:
        """Return a copy with some fields changed."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    def __repr__(self) -> str:
        types = f", axis_types={self.axis_types}" if self.axis_types else ""
        return f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names!r}{types})"

    def __str__(self) -> str:
        return f"Mesh({self._axes_text()})"


def _grid(devices: Any) -> np.ndarray:
    """Copy an array or nested sequences of devices to a new array."""
    grid = np.array(devices, dtype=object)
    for device in grid.flat:
        if not isinstance(device, Device):
            raise ArgumentTypeError(
                "The elements of a mesh must be devices.",
                received=described(device),
                fix="Mesh(weft.devices(), ('x',))",
            )
    seen = set(grid.flat)
    if len(seen) != grid.size:
        twice = next(d for d in seen if sum(e == d for e in grid.flat) > 1)
        raise ArgumentError(
            "The devices of a mesh must be different.", received=f"{twice!r} several times", fix="weft.devices()"
        )
    return grid


def _names(axis_names: Any) -> tuple[AxisName, ...]:
    names = (axis_names,) if isinstance(axis_names, str) else sequence(axis_names, "axis_names of a mesh")
    for name in names:
        if name is None or names.count(name) > 1:
            raise ArgumentError(
                "The axes of a mesh must have different names.", received=f"axis_names {names}", fix="('x', 'y')"
            )
    return names


def _types(axis_types: Any, names: tuple[AxisName, ...]) -> tuple[AxisType, ...]:
    if axis_types is None:
        return (AxisType.Auto,) * len(names)
    single = isinstance(axis_types, AxisType)
    types: tuple[Any, ...] = (axis_types,) if single else sequence(axis_types, "axis_types of a mesh")
    if len(types) != len(names) or not all(isinstance(t, AxisType) for t in types):
        raise ArgumentError(
            "A mesh needs an AxisType for each of its axes.",
            received=f"axis_names {names} and axis_types {types}",
            fix=f"axis_types=(weft.sharding.AxisType.Auto,) * {len(names)}",
        )
    return types


def flat_position(mesh: BaseMesh, axes: Iterable[AxisName], coordinates: Sequence[int]) -> int:
    """Return the row-major index of coordinates of a mesh along some of its axes."""
    position = 0
    for name in axes:
        axis = mesh.axis_names.index(name)
        position = position * mesh.axis_sizes[axis] + coordinates[axis]
    return position
