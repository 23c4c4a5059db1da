"""Placement of batches on a device or the devices of a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P


def batch_sharding(device: Any) -> NamedSharding | None:
    """Return the sharding of batches, or None for a single device. The first axis of a mesh splits rows."""
    if isinstance(device, Mesh):
        return NamedSharding(device, P(device.axis_names[0]))
    return device if isinstance(device, NamedSharding) else None


def placement(device: Any) -> Callable[[Any, int | None], Any]:
    """Return a function `put(batch, rows)` that copies a batch to a device or mesh; `rows` is its global number of
    rows.
    """
    sharding = batch_sharding(device)
    if sharding is None:
        return lambda batch, rows: weft.device_put(batch, device)
    processes = len({each.process_index for each in sharding.mesh.devices.flat})

    def put(batch: Any, rows: int | None) -> Any:
        def of_leaf(leaf: Any) -> Any:
            shape = np.shape(leaf)
            split = NamedSharding(sharding.mesh, P(*sharding.spec[: len(shape)]))
            if processes == 1:
                return weft.device_put(leaf, split)
            whole = None if rows is None else (rows, *shape[1:])
            return weft.make_array_from_process_local_data(split, leaf, whole)

        return weft.tree.map(of_leaf, batch)

    return put
