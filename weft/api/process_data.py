"""Arrays from the data that each process has loaded, and the data that a process must load."""

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
    """Return the indices of the shards that devices of this process have along each of `ndim` dimensions, in order."""
    pairs = zip(sharding.device_tuple, sharding.part_indices(ndim), strict=True)
    here = [parts for device, parts in pairs if is_addressable(device)]
    return [sorted({parts[dim] for parts in here}) for dim in range(ndim)]


def process_slices(sharding: Sharding, global_shape: Sequence[int]) -> Index:
    """Return the part of an array that this process must load: for each dimension, the slice with all shards of its
    devices."""
    shape = indices(global_shape, "global_shape of process_slices")
    sizes, counts, found = sharding.shard_shape(shape), sharding.partition_counts(len(shape)), []
    for dim, (size, parts, whole) in enumerate(zip(sizes, parts_here(sharding, len(shape)), shape, strict=True)):
        if not parts:
            found.append(slice(0, 0))
            continue
        if parts != list(range(parts[0], parts[-1] + 1)):
            raise ArgumentError(
                f"The shards of a process must be contiguous along dimension {dim}.",
                received=f"parts {parts} of {counts[dim]} for {sharding!r}",
                fix="order the devices of the mesh by process, or weft.make_array_from_callback",
                at=user_line(),
            )
        found.append(slice(min(parts[0] * size, whole), min((parts[-1] + 1) * size, whole)))
    return tuple(found)


def local_to_global_shape(sharding: Sharding, local_shape: Sequence[int]) -> tuple[int | None, ...]:
    """Return the shape of an array from the shape of the part that each process has. A dimension is None if that does
    not determine it: processes have different numbers of shards, or shards of different sizes."""
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
    """Make arrays from the parts that each process has loaded: the leaves of `local_data`, with a sharding, or a tree
    of shardings that is a prefix of `local_data`.

    A process passes the part that `process_slices` returns, or the whole array along any dimension. `global_shape` is
    the shape of the array, or a tree of shapes. If it, or one of its entries, is None, it is derived from the local
    shape, which needs parts of one size: it must be passed for dimensions that do not split evenly between processes.

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
        raise ArgumentError("make_array_from_process_local_data needs a sharding for each array.", received="None")
    value = np.asarray(local)
    found = local_to_global_shape(sharding, value.shape)
    wanted = found if global_shape is None else tuple(global_shape)
    if len(wanted) != value.ndim:
        raise ArgumentError(
            "global_shape of make_array_from_process_local_data must have an entry for each dimension.",
            received=f"{wanted} for local data of shape {value.shape}",
            fix="global_shape=None, to derive it from the local shape",
            at=user_line(),
        )
    shape = tuple(f if g is None else g for g, f in zip(wanted, found, strict=True))
    if None in shape:
        raise ArgumentError(
            "global_shape must be passed if processes have different numbers of shards, or shards of different sizes.",
            received=f"{value.shape}, of an array {shape}",
            fix="global_shape=(...)",
            at=user_line(),
        )
    slices = process_slices(sharding, shape)  # type: ignore[arg-type]
    starts = []
    for dim, (size, whole, own) in enumerate(zip(value.shape, shape, slices, strict=True)):
        if size not in (whole, own.stop - own.start):
            raise ArgumentError(
                f"Dimension {dim} of the local data must be the part of this process, or the whole dimension.",
                received=f"{size} elements where it has {own.start}:{own.stop} of {whole}",
                fix="local_data[weft.process_slices(sharding, global_shape)]",
                at=user_line(),
            )
        starts.append(0 if size == whole else own.start)

    def part(index: Index) -> np.ndarray:
        moved = zip(index, starts, strict=True)
        return value[tuple(s if s.start is None else slice(s.start - a, s.stop - a) for s, a in moved)]

    return make_array_from_callback(shape, sharding, part, value.dtype)  # type: ignore[arg-type]
