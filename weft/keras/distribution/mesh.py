"""Devices by their names, and meshes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError
from weft.sharding import Mesh


def list_devices(device_type: str | None = None) -> list[str]:
    """Return the names of all devices, of all processes: `"cpu:0"`, `"gpu:3"`.

    Args:
        device_type: "cpu" or "gpu"; None: those that programs run on by default.

    Returns:
        A list of names.

    Example:
        >>> from weft import keras
        >>> keras.distribution.list_devices("cpu")[0]
        'cpu:0'
    """
    return [f"{device.platform}:{device.id}" for device in _devices(device_type)]


def get_device_count(device_type: str | None = None) -> int:
    """Return the number of devices.

    Args:
        device_type: "cpu" or "gpu"; None: those that programs run on by default.

    Returns:
        The length of `list_devices(device_type)`.

    Example:
        >>> from weft import keras
        >>> keras.distribution.get_device_count("cpu") >= 1
        True
    """
    return len(_devices(device_type))


def _devices(device_type: str | None) -> list[Any]:
    return list(weft.devices(None if device_type is None else device_type.lower()))


class DeviceMesh:
    """Devices in a grid whose axes have names.

    Args:
        shape: the size of each axis.
        axis_names: the name of each axis.
        devices: names as `list_devices` has them (or devices of Weft), as many as the grid has; all where None.

    Example:
        >>> from weft import keras
        >>> keras.distribution.DeviceMesh((1, 1), ("batch", "model"), ["cpu:0"])
        <DeviceMesh shape=(1, 1), axis_names=('batch', 'model')>
    """

    def __init__(self, shape: Sequence[int], axis_names: Sequence[str], devices: Any = None) -> None:
        if not shape or not axis_names or isinstance(axis_names, str) or len(shape) != len(axis_names):
            raise ArgumentError(
                "A mesh must have one size and one name for each axis.",
                received=f"shape={shape}, axis_names={axis_names}",
                fix='DeviceMesh((2, 4), ("batch", "model"))',
            )
        names = list_devices() if devices is None else list(np.asarray(devices, dtype=object).flat)
        count = int(np.prod(shape))
        if len(names) != count:
            raise ArgumentError(
                f"A mesh of shape {tuple(shape)} must have {count} devices.",
                received=f"{len(names)} devices: {', '.join(map(str, names[:8]))}{', ...' if len(names) > 8 else ''}",
                fix=f"devices=list_devices()[:{count}]" if len(names) > count else "a smaller mesh",
            )
        self._devices = np.array(names, dtype=object).reshape(tuple(shape))
        found = np.empty(tuple(shape), dtype=object)
        found.flat[:] = list(_found(names))
        self._mesh = Mesh(found, tuple(axis_names))

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self._devices.shape

    @property
    def axis_names(self) -> list[str]:
        """The name of each axis, in a list as in Keras."""
        return list(self._mesh.axis_names)

    @property
    def devices(self) -> np.ndarray:
        """The names of the devices, in the shape of the mesh."""
        return self._devices

    @property
    def backend_mesh(self) -> Mesh:
        """The mesh as Weft has it."""
        return self._mesh

    def part_count(self, axes: Any) -> int:
        """Return the number of parts that an axis, or a tuple of axes, splits into; 1 for None."""
        sizes = dict(zip(self.axis_names, self.shape, strict=True))
        names = () if axes is None else axes if isinstance(axes, tuple) else (axes,)
        return int(np.prod([sizes[name] for name in names], dtype=np.int64))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} shape={self.shape}, axis_names={tuple(self.axis_names)}>"


def _found(names: Iterable[Any]) -> Iterable[Any]:
    for name in names:
        if not isinstance(name, str):
            yield name
            continue
        platform, _, index = name.lower().partition(":")
        matching = [device for device in _devices(platform) if str(device.id) == index]
        if not matching:
            raise ArgumentError(
                "There is no such device.",
                received=repr(name),
                fix=(f"one of {', '.join(list_devices())}", "weft.config.update('num_cpu_devices', n)"),
            )
        yield matching[0]
