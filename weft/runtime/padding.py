"""Parts of dimensions that do not split evenly. In memory all parts have the shape of the largest one, so that programs
take and return them as they are; what is beyond the end of a part has no meaning, and nobody is shown it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.types import array_type
from weft.runtime.array import ConcreteArray, adopted
from weft.sharding.device import is_addressable
from weft.sharding.shardings import Index, Sharding


def padded(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A part as it is in memory. Beyond the end of a dimension its elements come again, or there are zeros, if it has
    none: so programs compute nothing unusual there."""
    if value.shape == shape:
        return value
    if not value.size:
        return np.zeros(shape, value.dtype)
    for dim, size in enumerate(shape):
        if value.shape[dim] < size:
            value = value.take(np.arange(size) % value.shape[dim], dim)
    return value


def ended(part: ConcreteArray, shape: tuple[int, ...]) -> ConcreteArray:
    """A part, as it is in memory, without what is beyond its end: a view of it."""
    if part.shape == shape:
        return part
    value = part._value[tuple(map(slice, shape))]
    return adopted(value, array_type(shape, part.dtype, part.aval.weak_type), part._placement)


def index_shape(index: Index, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of what slices cut out of an array."""
    return tuple(len(range(size)[own]) for own, size in zip(index, shape, strict=True))


def shapes_here(sharding: Sharding, shape: Sequence[Any]) -> list[tuple[int, ...]]:
    """The shapes of the parts on devices of this process, in the order of the mesh."""
    return [index_shape(i, shape) for d, i in sharding.devices_indices_map(shape).items() if is_addressable(d)]
