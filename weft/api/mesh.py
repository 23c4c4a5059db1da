"""Meshes of this process's devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.arguments import indices
from weft.base.errors import ArgumentError
from weft.runtime.device import devices as all_devices
from weft.sharding.device import Device
from weft.sharding.mesh import AxisType, Mesh


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[Any],
    axis_types: Sequence[AxisType] | None = None,
    *,
    devices: Sequence[Device] | None = None,
) -> Mesh:
    """Make a mesh of devices (by default the first ones of `weft.devices()`) with axes of these sizes, names and types;
    axes are Explicit unless `axis_types` says otherwise.

    Args:
        axis_shapes: the size of each axis.
        axis_names: the name of each axis.
        axis_types: an `AxisType` for each axis.
        devices: as many devices as the product of the sizes.

    Returns:
        A `Mesh`.

    >>> import weft
    >>> mesh = weft.make_mesh((1,), ("data",))
    >>> dict(mesh.shape)
    {'data': 1}
    """
    shape = indices(axis_shapes, "axis_shapes of make_mesh")
    if len(shape) != len(axis_names):
        raise ArgumentError(
            "make_mesh: there must be as many axis_names as axis_shapes.",
            received=f"{tuple(axis_shapes)} and {tuple(axis_names)}",
            fix="make_mesh((4, 2), ('x', 'y')): a name for each size",
        )
    there = list(all_devices() if devices is None else devices)
    count = math.prod(shape)
    if len(there) < count or (devices is not None and len(there) != count):
        raise ArgumentError(
            f"make_mesh: axes of sizes {shape} need {count} devices.",
            received=f"{len(there)} devices",
            fix=("weft.config.update('num_cpu_devices', n)   right after `import weft`", "a smaller mesh"),
        )
    grid = np.array(there[:count], object).reshape(shape)
    return Mesh(grid, tuple(axis_names), axis_types or (AxisType.Explicit,) * len(shape))
