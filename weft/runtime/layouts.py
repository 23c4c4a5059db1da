"""Positions of the shards of an array, computed once for each type and sharding."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.memo import Memo
from weft.ir.types import ArrayType
from weft.runtime.device import Placement, get_placement
from weft.runtime.padding import pad
from weft.sharding.device import is_addressable
from weft.sharding.shardings import Sharding


class Layout(NamedTuple):
    """Shards of an array on devices of this process, in the order of the mesh.

    For each shard: its placement, the slices that cut it out of the array, and the index of the first shard that is
    equal to it. `offsets` has the byte offset of each shard in the array, or is None if a shard is not contiguous
    there.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    placements: tuple[Placement, ...]
    indices: tuple[tuple[slice, ...], ...]
    firsts: tuple[int, ...]
    part_shape: tuple[int, ...]
    part_bytes: int
    offsets: tuple[int, ...] | None

    def pad_shard(self, part: np.ndarray) -> np.ndarray:
        """Pad a shard that was cut out of the array to the shape that it has in memory."""
        return pad(part, self.part_shape)

    @property
    def bytes(self) -> int:
        """The size of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


_layouts: Memo[tuple[ArrayType, Sharding], Layout] = Memo(1024)


def get_layout(aval: ArrayType, sharding: Sharding) -> Layout:
    """Return the layout of arrays of a type with a sharding."""
    found = _layouts.get((aval, sharding))
    return found or _layouts.keep((aval, sharding), _layout(aval, sharding))


def _layout(aval: ArrayType, sharding: Sharding) -> Layout:
    shape: Any = aval.shape
    dtype = dtypes.storage(aval.dtype)
    mapped = sharding.devices_indices_map(shape)
    here = {device: index for device, index in mapped.items() if is_addressable(device)}
    bounds = [tuple((s.start or 0, s.stop) for s in index) for index in here.values()]
    firsts: dict[Any, int] = {}
    for i, bound in enumerate(bounds):
        firsts.setdefault(bound, i)
    part_shape: Any = sharding.shard_shape(shape)
    split = [i for i, (part, whole) in enumerate(zip(part_shape, shape, strict=True)) if part != whole]
    offsets = None
    if sharding.is_even(shape) and (
        not split or math.prod(part_shape[: split[-1]]) == 1
    ):  # nothing but the part is between its ends
        strides = [math.prod(shape[i + 1 :]) * dtype.itemsize for i in range(len(shape))]
        offsets = tuple(
            sum(start * stride for (start, _), stride in zip(bound, strides, strict=True)) for bound in bounds
        )
    return Layout(
        shape,
        dtype,
        tuple(get_placement(device, True) for device in here),
        tuple(here.values()),
        tuple(firsts[bound] for bound in bounds),
        part_shape,
        math.prod(part_shape) * dtype.itemsize,
        offsets,
    )
