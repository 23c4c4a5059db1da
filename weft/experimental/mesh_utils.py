"""Devices in the order of a mesh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.api.devices import devices as _devices
from weft.base.arguments import indices as _indices
from weft.base.errors import ArgumentError
from weft.base.publish import publish as _publish
from weft.sharding.device import Device


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """Arrange devices (all of them by default) in an array of `mesh_shape`, for `weft.sharding.Mesh`. CPU devices are
    equally near to each other, so they stay in order; the options, which are for other networks, have no effect.

    Args:
        mesh_shape: the sizes.
        devices: the devices; all by default.
        contiguous_submeshes: accepted for compatibility.
        allow_split_physical_axes: accepted for compatibility.

    Returns:
        A NumPy array of devices.

    >>> import weft
    >>> from weft.experimental import mesh_utils
    >>> mesh_utils.create_device_mesh((1,), weft.devices()[:1]).shape
    (1,)
    """
    shape = _indices(mesh_shape, "mesh_shape of create_device_mesh")
    there = list(_devices() if devices is None else devices)
    if len(there) != math.prod(shape):
        raise ArgumentError(
            f"create_device_mesh: a mesh of {shape} needs {math.prod(shape)} devices.",
            received=f"{len(there)} devices",
            fix="a mesh_shape whose product is the number of devices, or devices=weft.devices()[:n]",
        )
    return np.array(there, object).reshape(shape)


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """Arrange devices in an array whose dimension i has `dcn_mesh_shape[i]` blocks of `mesh_shape[i]`, with slow
    connections between blocks. A block has the devices of one process, so `process_is_granule` must be True.

    Args:
        mesh_shape: the sizes.
        dcn_mesh_shape: the number of blocks along each dimension.
        devices: the devices; all by default.
        process_is_granule: must be True.
        should_sort_granules_by_key: accepted for compatibility.
        allow_split_physical_axes: accepted for compatibility.

    Returns:
        A NumPy array of devices.

    >>> import weft
    >>> from weft.experimental import mesh_utils
    >>> mesh_utils.create_hybrid_device_mesh((1,), (1,), weft.devices()[:1], process_is_granule=True).shape
    (1,)
    """
    inner, outer = _indices(mesh_shape, "mesh_shape"), _indices(dcn_mesh_shape, "dcn_mesh_shape")
    if not process_is_granule:
        raise ArgumentError(
            "create_hybrid_device_mesh: these devices are grouped by process only.",
            received="process_is_granule=False",
            fix="process_is_granule=True",
        )
    groups: dict[int, list[Any]] = {}
    for device in _devices() if devices is None else devices:
        groups.setdefault(device.process_index, []).append(device)
    if len(groups) != math.prod(outer) or len(inner) != len(outer):
        raise ArgumentError(
            f"create_hybrid_device_mesh: dcn_mesh_shape {outer} needs {math.prod(outer)} processes and an entry for "
            "each dimension of mesh_shape.",
            received=f"{len(groups)} processes and mesh_shape {inner}",
            fix=f"a dcn_mesh_shape whose product is {len(groups)}",
        )
    keys = sorted(groups) if should_sort_granules_by_key else list(groups)
    blocks = np.empty(len(keys), object)
    for i, key in enumerate(keys):
        blocks[i] = create_device_mesh(inner, groups[key])
    return np.block(blocks.reshape(outer).tolist())


_publish(__name__)
