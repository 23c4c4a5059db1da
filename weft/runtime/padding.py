"""Padding of shards of dimensions that do not split evenly.

In memory all shards have the shape of the largest one, so that programs need no special case. Elements beyond the end
of a shard have no meaning and are never shown to users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.types import array_type
from weft.runtime.array import ConcreteArray, adopt_array
from weft.sharding.device import is_addressable
from weft.sharding.shardings import Index, Sharding


def pad(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Pad a shard to the shape that it has in memory.

    The padding repeats elements of the shard, or is zero if it has none, so that programs compute nothing unusual
    there.
    """
    if value.shape == shape:
        return value
    if not value.size:
        return np.zeros(shape, value.dtype)
    for dim, size in enumerate(shape):
        if value.shape[dim] < size:
            value = value.take(np.arange(size) % value.shape[dim], dim)
    return value


def strip_padding(part: ConcreteArray, shape: tuple[int, ...]) -> ConcreteArray:
    """Return a view of a padded shard without its padding."""
    if part.shape == shape:
        return part
    value = part._value[tuple(map(slice, shape))]
    return adopt_array(value, array_type(shape, part.dtype, part.aval.weak_type), part._placement)


def index_shape(index: Index, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the part of an array that slices cut out."""
    return tuple(len(range(size)[own]) for own, size in zip(index, shape, strict=True))


def shapes_here(sharding: Sharding, shape: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the shapes of the shards on devices of this process, in the order of the mesh."""
    return [index_shape(i, shape) for d, i in sharding.devices_indices_map(shape).items() if is_addressable(d)]
