"""Resharding: the collectives that change the sharding of a value, their bytes, and the operations themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.partition.rules import Dims
from weft.ir.parts import byte_count
from weft.primitives import collectives
from weft.primitives.collectives import merge_dims, split_dim
from weft.primitives.elementwise.arithmetic import mul
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.slicing import dynamic_slice, slice as slice_
from weft.primitives.reduction.reduce_other import reduce_and, reduce_or, reduce_prod, reduce_xor
from weft.sharding.routes import local_elements, route

# All-reduces; for other reductions the values of all devices are gathered and then reduced.
ALL_REDUCE = {"sum": collectives.psum, "max": collectives.pmax, "min": collectives.pmin}
REDUCE = {"prod": reduce_prod, "and": reduce_and, "or": reduce_or, "xor": reduce_xor}


@dataclass(frozen=True)
class Transfer:
    """One step of a resharding over an axis: a collective, or the slice of a device's own shard.

    Attributes:
        dim: the dimension that is gathered, scattered or sliced.
        source: the dimension from which an all-to-all takes the axis.
        bytes: the bytes that each device sends.
        reduction: the reduction of what an all-gather gathers, "" if none.
        multiple: the dimension is extended to a multiple of this before it is sliced.
        inner: whether more steps follow before values are shards of some sharding again.
    """

    kind: str
    axis: Any
    dim: int = -1
    source: int = -1
    bytes: float = 0.0
    reduction: str = ""
    multiple: int = 1
    inner: bool = False

    def after(self, dims: Dims) -> Dims:
        """Return how a value is split after an all-gather, an all-to-all or a slice."""
        axes = [list(own) for own in dims]
        if self.kind == "all_gather":
            axes[self.dim].remove(self.axis)
        else:
            if self.kind == "all_to_all":
                axes[self.source].remove(self.axis)
            axes[self.dim].append(self.axis)
        return tuple(tuple(own) for own in axes)


def reshard(
    aval: Any, src: Dims, dst: Dims, sizes: Mapping[Any, int], unreduced: Sequence[Any] = (), how: str = "sum"
) -> list[Transfer]:
    """Plan the collectives that bring a value from one sharding to another.

    Args:
        aval: the type of the whole value.
        src: how it is split.
        dst: how it is split after.
        sizes: sizes of the mesh axes.
        unreduced: the axes along which devices have partial results, which are combined.
        how: the reduction that combines them.
    """
    if src == dst and not unreduced:
        return []
    item = dtypes.storage(aval.dtype).itemsize
    transfers: list[Transfer] = []
    if how != "sum":
        local = item * local_elements(aval.shape, src, sizes)
        for axis in unreduced:
            n = sizes[axis]
            if how in ALL_REDUCE:
                transfers.append(Transfer(f"p{how}", axis, bytes=2 * local * (n - 1) / n))
            else:
                transfers.append(Transfer("all_gather", axis, bytes=local * (n - 1), reduction=how))
        unreduced = ()
    hops = route(byte_count(aval), tuple(aval.shape), src, tuple(unreduced), dst, tuple(sizes.items()))
    return transfers + [
        Transfer(h.kind, h.axis, h.dim, h.source, h.elements * item, "", h.multiple, h.inner) for h in hops
    ]


def apply(x: Any, transfers: Sequence[Transfer], sizes: Mapping[Any, int], shape: Sequence[int]) -> Any:
    """Bind the collectives of a resharding under the active trace. `shape` is that of the whole value: dimensions that
    do not split evenly are extended, and truncated when they are whole again."""
    for transfer in transfers:
        axis, n, dim = transfer.axis, sizes[transfer.axis], transfer.dim
        if transfer.kind in ("psum", "pmax", "pmin"):
            x = ALL_REDUCE[transfer.kind[1:]](x, axes=(axis,))
        elif transfer.reduction:
            x = collectives.all_gather(x, axis_name=axis, axis_size=n, all_gather_dimension=0, tiled=False)
            x = REDUCE[transfer.reduction](x, axes=(0,))
        elif transfer.kind == "reduce_scatter":
            x = extend(x, dim, n)
            x = collectives.reduce_scatter(x, axis_name=axis, axis_size=n, scatter_dimension=dim, tiled=True)
        elif transfer.kind == "all_gather":
            x = collectives.all_gather(x, axis_name=axis, axis_size=n, all_gather_dimension=dim, tiled=True)
            x = truncate(x, dim, shape[dim])
        elif transfer.kind == "all_to_all":
            x = exchange(extend(x, dim, n), axis, n, split=dim, concat=transfer.source)
            x = truncate(x, transfer.source, shape[transfer.source])
        else:
            x = slice_own_shard(extend(x, dim, transfer.multiple), axis, n, dim)
    return x


def exchange(x: Any, axis: Any, size: int, split: int, concat: int) -> Any:
    """Send the shards of dimension `split` to their devices, and concatenate what arrives along `concat`."""
    x = split_dim(x, split, size)
    x = collectives.all_to_all(x, axis_name=axis, axis_size=size, split_axis=split, concat_axis=concat)
    return merge_dims(x, concat)


def extend(x: Any, dim: int, count: int) -> Any:
    """Extend a dimension to a multiple of `count`. The new elements have no meaning: they repeat the first ones, so
    that no operation sees a number that the value does not have."""
    size = x.shape[dim]
    missing = -size % count
    if not missing:
        return x
    return truncate(concatenate(*[x] * -(-(size + missing) // size), dimension=dim), dim, size + missing)


def truncate(x: Any, dim: int, size: int) -> Any:
    """Truncate a dimension to `size` elements."""
    if x.shape[dim] <= size:
        return x
    limits = tuple(size if d == dim else n for d, n in enumerate(x.shape))
    return slice_(x, start_indices=(0,) * len(x.shape), limit_indices=limits, strides=None)


def slice_own_shard(x: Any, axis: Any, size: int, dim: int) -> Any:
    """Slice this device's shard of a dimension."""
    shape = list(x.shape)
    shape[dim] //= size
    start = mul(collectives.axis_index(axis_name=axis), np.int32(shape[dim]))
    starts = [start if d == dim else np.int32(0) for d in range(len(shape))]
    return dynamic_slice(x, *starts, slice_sizes=tuple(shape))
