"""Arrays in parts, stacked along the axes of a mesh, with garbage beyond the ends of dimensions that do not split
evenly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.compiler.partition.rules import Dims
from weft.runtime.padding import shapes_here
from weft.runtime.sharded import ShardedArray, on_device

Sizes = Mapping[Any, int]


def beyond(x: np.ndarray) -> Any:
    """Return garbage for elements beyond the end of a dimension, which results must not depend on."""
    if x.dtype.names is not None:
        return x.flat[0]
    return np.asarray(np.nan if x.dtype.kind in "fc" else 77).astype(x.dtype)


def part_of(x: np.ndarray, dims: Dims, at: Mapping[Any, int], sizes: Sizes) -> np.ndarray:
    """Return the part of an array on the device at some coordinates."""
    index = []
    for size, axes in zip(x.shape, dims, strict=True):
        position = 0
        for a in axes:
            position = position * sizes[a] + at[a]
        local = -(-size // math.prod(sizes[a] for a in axes))
        index.append(np.arange(position * local, (position + 1) * local))
    inside = np.ix_(*(i < n for i, n in zip(index, x.shape, strict=True)))
    out = np.full([len(i) for i in index], beyond(x), x.dtype)
    out[inside] = x[np.ix_(*(i[i < n] for i, n in zip(index, x.shape, strict=True)))]
    return out


def stacked(x: Any, dims: Dims, sizes: Sizes, leading: int = 0) -> np.ndarray:
    """Stack the parts of all devices along the axes of the mesh, after some leading dimensions."""
    x = np.asarray(x)
    whole: Dims = ((),) * leading
    shape = tuple(sizes.values())
    coordinates = [dict(zip(sizes, i, strict=True)) for i in np.ndindex(*shape)]
    parts = [part_of(x, (*whole, *dims), at, sizes) for at in coordinates]
    out = np.stack(parts).reshape(*shape, *parts[0].shape)
    return np.moveaxis(out, range(len(shape)), range(leading, leading + len(shape)))


def inside(shape: tuple[int, ...], dims: Dims, sizes: Sizes, leading: int = 0) -> np.ndarray:
    """Return which elements of stacked parts are elements of the array."""
    return stacked(np.ones(shape, np.uint8), dims, sizes, leading) == 1


def poisoned(array: Any) -> Any:
    """Return an array on a mesh with nan, or other garbage, in the memory beyond the ends of its parts."""
    if not isinstance(array, ShardedArray):
        return array
    parts = []
    for part, shape in zip(array._held, shapes_here(array.sharding, array.shape), strict=True):
        value = np.array(part._value)
        outside = np.ones(value.shape, bool)
        outside[tuple(map(slice, shape))] = False
        value[outside] = beyond(value)
        parts.append(on_device(value, array.aval, part.device))
    return ShardedArray(array.aval, array.sharding, parts)
