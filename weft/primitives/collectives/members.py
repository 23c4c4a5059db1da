"""Operations on the operands of all members of a group, as separate arrays or as rows along a batch dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.ir.primitive import Params
from weft.primitives.elementwise.arithmetic import add, mul
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.gather import GatherDimensionNumbers, GatherScatterMode, gather
from weft.primitives.movement.shape import broadcast_in_dim, reshape
from weft.primitives.movement.slicing import slice as slice_primitive


def combine_tree(combine: Any, members: Sequence[Any]) -> Any:
    """Combine members in a balanced tree. The order depends only on their number, and each half of the tree has the
    order of a tree over that half."""
    if len(members) == 1:
        return members[0]
    half = 1 << ((len(members) - 1).bit_length() - 1)
    return combine(combine_tree(combine, members[:half]), combine_tree(combine, members[half:]))


def tree_sum(members: Sequence[Any]) -> Any:
    """Add arrays up, rounding once if their dtype has few bits."""
    dtype = members[0].dtype
    if dtypes.kind(dtype) != "f" or dtype.itemsize >= 4:
        return combine_tree(add, members)
    wide = [convert_element_type(x, new_dtype=np.dtype(np.float32), weak_type=False) for x in members]
    return convert_element_type(combine_tree(add, wide), new_dtype=dtype, weak_type=False)


def sum_copies(x: Any, size: int) -> Any:
    """Return the sum of `size` equal elements."""
    return mul(x, np.array(size).astype(dtypes.storage(x.dtype)))


def stack_members(members: Sequence[Any]) -> Any:
    """Stack arrays along a new first dimension."""
    return concatenate(*(with_unit(x, 0) for x in members), dimension=0)


def unstack_members(x: Any) -> list[Any]:
    """Split an array into the arrays along the first dimension."""
    return [without_unit(part, 0) for part in own_slices(x, 0, x.shape[0])]


def own_slices(x: Any, dim: int, count: int) -> list[Any]:
    """Split a dimension into `count` equal parts, one for each member."""
    size = x.shape[dim] // count
    slices = []
    for i in range(count):
        starts = tuple(i * size if d == dim else 0 for d in range(len(x.shape)))
        limits = tuple((i + 1) * size if d == dim else n for d, n in enumerate(x.shape))
        slices.append(slice_primitive(x, start_indices=starts, limit_indices=limits, strides=None))
    return slices


def with_unit(x: Any, dim: int) -> Any:
    """Insert a dimension of size 1."""
    return reshape(x, new_sizes=(*x.shape[:dim], 1, *x.shape[dim:]), dimensions=None)


def without_unit(x: Any, dim: int) -> Any:
    """Remove a dimension of size 1."""
    return reshape(x, new_sizes=(*x.shape[:dim], *x.shape[dim + 1 :]), dimensions=None)


def zeros_like(x: Any) -> Any:
    """Return zeros of an array's type."""
    return broadcast_in_dim(np.zeros((), dtypes.storage(x.dtype)), shape=x.shape, broadcast_dimensions=())


def merge_dims(x: Any, dim: int) -> Any:
    """Merge dimensions `dim` and `dim + 1` into one."""
    shape = x.shape
    return reshape(x, new_sizes=(*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]), dimensions=None)


def split_dim(x: Any, dim: int, count: int) -> Any:
    """Split dimension `dim` into two, the first of size `count`."""
    shape = x.shape
    return reshape(x, new_sizes=(*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :]), dimensions=None)


FILLED: Params = {"mode": GatherScatterMode.FILL_OR_DROP, "fill_value": 0}


def gather_rows(x: Any, positions: Any) -> Any:
    """Gather rows at positions (numbers or an integer array); zeros for positions out of bounds, except for keys, which
    must be within."""
    keys = isinstance(x.dtype, dtypes.ExtendedDtype)
    mode = {"mode": GatherScatterMode.CLIP, "fill_value": None} if keys else FILLED
    dnums = GatherDimensionNumbers(
        offset_dims=tuple(range(1, len(x.shape))), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    indices = np.array(positions, np.int32).reshape(-1, 1) if isinstance(positions, list) else positions
    if len(indices.shape) == 1:
        indices = reshape(indices, new_sizes=(indices.shape[0], 1), dimensions=None)
    return gather(
        x, indices,
        dimension_numbers=dnums, slice_sizes=(1, *x.shape[1:]), indices_are_sorted=False, unique_indices=False,
        **mode,
    )  # fmt: skip


def by_group(x: Any, groups: Sequence[Sequence[int]], function: Callable[[Any], Any]) -> Any:
    """Apply a function to the rows of each group and return its results, a row for each member, in the order of all
    rows."""
    results = concatenate(*(function(gather_rows(x, list(group))) for group in groups), dimension=0)
    return gather_rows(results, np.argsort([i for group in groups for i in group]).tolist())


def repeat_rows(x: Any, count: int) -> Any:
    """Repeat an array as `count` equal rows."""
    return broadcast_in_dim(x, shape=(count, *x.shape), broadcast_dimensions=tuple(range(1, len(x.shape) + 1)))
