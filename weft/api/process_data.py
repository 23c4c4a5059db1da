"""Arrays from what each process has loaded, and what a process must load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.api.shardings import is_sharding, shardings_for
from weft.base import tree
from weft.base.arguments import indices
from weft.base.errors import ArgumentError
from weft.base.source import user_line
from weft.runtime.sharded import make_array_from_callback
from weft.sharding.device import is_addressable
from weft.sharding.shardings import Index, Sharding


def parts_here(sharding: Sharding, ndim: int) -> list[list[int]]:
    """Which parts of each of `ndim` dimensions devices of this process have, in order."""
    pairs = zip(sharding.device_tuple, sharding.part_indices(ndim), strict=True)
    here = [parts for device, parts in pairs if is_addressable(device)]
    return [sorted({parts[dim] for parts in here}) for dim in range(ndim)]


def process_slices(sharding: Sharding, global_shape: Sequence[int]) -> Index:
    """What this process must load of an array: a slice of each dimension that has all parts of its devices."""
    shape = indices(global_shape, "global_shape of process_slices")
    sizes, counts, found = sharding.shard_shape(shape), sharding.partition_counts(len(shape)), []
    for dim, (size, parts, whole) in enumerate(zip(sizes, parts_here(sharding, len(shape)), shape, strict=True)):
        if not parts:
            found.append(slice(0, 0))
            continue
        if parts != list(range(parts[0], parts[-1] + 1)):
            raise ArgumentError(
                f"The parts of this process are no range of dimension {dim}.",
                received=f"parts {parts} of {counts[dim]} for {sharding!r}",
                fix="order the devices of the mesh by process, or weft.make_array_from_callback",
                at=user_line(),
            )
        found.append(slice(min(parts[0] * size, whole), min((parts[-1] + 1) * size, whole)))
    return tuple(found)


def local_to_global_shape(sharding: Sharding, local_shape: Sequence[int]) -> tuple[int | None, ...]:
    """The shape of an array of which each process has a part of `local_shape`; None for a dimension of which that does
    not say it: processes have different numbers of parts, or parts of different sizes."""
    shape = indices(local_shape, "local_shape of local_to_global_shape")
    ndim = len(shape)
    sharding.check_compatible_aval(shape)
    counts, here = sharding.partition_counts(ndim), parts_here(sharding, ndim)
    by_process: dict[int, list[set[int]]] = {}
    for device, parts in zip(sharding.device_tuple, sharding.part_indices(ndim), strict=True):
        own = by_process.setdefault(device.process_index, [set() for _ in shape])
        for dim, part in enumerate(parts):
            own[dim].add(part)
    result: list[int | None] = []
    for dim, size in enumerate(shape):
        same = len({len(parts[dim]) for parts in by_process.values()}) == 1
        local = len(here[dim])
        if same and local == counts[dim]:
            result.append(size)  # all of it is here
        else:
            result.append(size // local * counts[dim] if same and local and size % local == 0 else None)
    return tuple(result)


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """Arrays of which each process has loaded a part: the leaves of `local_data`, split as `sharding` says, a sharding
    or a tree of them that is a prefix of `local_data`.

    A process passes what `process_slices` says, or, along a dimension in which its data is as large as the array, all
    of it. `global_shape` is the shape of the array, or a tree of shapes; where it is None, or None for a dimension, it
    follows from the local one: processes have parts of one size. So it is needed for a dimension that does not split
    evenly between processes.

    Args:
        sharding: a sharding, or a tree of them.
        local_data: a tree of NumPy arrays.
        global_shape: the shape of the array, or a tree of shapes.

    Returns:
        A tree of sharded arrays.

    >>> import numpy as np
    >>> import weft
    >>> mesh = weft.make_mesh((1,), ("data",))
    >>> sharding = weft.NamedSharding(mesh, weft.P("data"))
    >>> weft.make_array_from_process_local_data(sharding, np.arange(4.0, dtype=np.float32)).shape
    (4,)
    """
    leaves, structure = tree.flatten(local_data)
    wanted = shardings_for(sharding, local_data, "make_array_from_process_local_data", "sharding")
    is_shape = lambda s: s is None or (isinstance(s, (tuple, list)) and all(d is None or isinstance(d, int) for d in s))
    if is_shape(global_shape):
        shapes = [global_shape] * len(leaves)
    else:
        shapes = tree.broadcast_prefix(global_shape, local_data, is_leaf=is_shape)
    return tree.unflatten(structure, [_array(*each) for each in zip(leaves, wanted, shapes, strict=True)])


def _array(local: Any, sharding: Any, global_shape: Any) -> Any:
    if not is_sharding(sharding) or sharding is None:
        raise ArgumentError("make_array_from_process_local_data takes a sharding for each array.", received="None")
    value = np.asarray(local)
    found = local_to_global_shape(sharding, value.shape)
    wanted = found if global_shape is None else tuple(global_shape)
    if len(wanted) != value.ndim:
        raise ArgumentError(
            "global_shape of make_array_from_process_local_data has an entry for each dimension.",
            received=f"{wanted} for local data of shape {value.shape}",
            fix="global_shape=None, for it to follow from the local shape",
            at=user_line(),
        )
    shape = tuple(f if g is None else g for g, f in zip(wanted, found, strict=True))
    if None in shape:
        raise ArgumentError(
            "The shape of the array does not follow from the local data: processes have different numbers of parts, or"
            " parts of different sizes.",
            received=f"{value.shape}, of an array {shape}",
            fix="global_shape=(...)",
            at=user_line(),
        )
    slices = process_slices(sharding, shape)  # type: ignore[arg-type]
    starts = []
    for dim, (size, whole, own) in enumerate(zip(value.shape, shape, slices, strict=True)):
        if size not in (whole, own.stop - own.start):
            raise ArgumentError(
                f"Dimension {dim} of the local data is neither what this process has of the array nor all of it.",
                received=f"{size} elements where it has {own.start}:{own.stop} of {whole}",
                fix="local_data[weft.process_slices(sharding, global_shape)]",
                at=user_line(),
            )
        starts.append(0 if size == whole else own.start)

    def part(index: Index) -> np.ndarray:
        moved = zip(index, starts, strict=True)
        return value[tuple(s if s.start is None else slice(s.start - a, s.stop - a) for s, a in moved)]

    return make_array_from_callback(shape, sharding, part, value.dtype)  # type: ignore[arg-type]
