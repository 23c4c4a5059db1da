"""Collectives in groups of indices along several named axes, counted in row-major order.

If the members of each group differ only in their indices along some of the axes, the collective runs over those axes.
Otherwise each element gathers the operands of all, and selects those of its group.

"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.context import context
from weft.lax.named_axes import axis_size, by_position, varying
from weft.primitives import collectives
from weft.primitives.collectives import gather_rows, merge_dims, split_dim
from weft.primitives.movement.shape import move_axis, reshape
from weft.primitives.reduction.reduce import reduce_sum
from weft.primitives.reduction.reduce_extrema import reduce_max, reduce_min

Names = tuple[Any, ...]
Groups = Sequence[Sequence[int]]

REDUCTIONS = {"psum": reduce_sum, "pmax": reduce_max, "pmin": reduce_min}


def spanned_axes(names: Names, groups: Groups) -> Names | None:
    """Return the axes that every group spans at a fixed index along the others; None if groups have another form."""
    sizes = [context.axes[n] for n in names]
    positions = np.arange(axis_size(names)).reshape(sizes)
    wanted = set(map(tuple, groups))
    for count in range(1, len(names) + 1):
        for chosen in itertools.combinations(range(len(names)), count):
            width = math.prod(sizes[i] for i in chosen)
            rows = np.moveaxis(positions, chosen, range(-count, 0)).reshape(-1, width)
            if set(map(tuple, rows.tolist())) == wanted:
                return tuple(names[i] for i in chosen)
    return None


def reduce_groups(primitive: Any, x: Any, names: Names, groups: Groups) -> Any:
    """Reduce the operands of each group by the reduction `primitive`."""
    axes = spanned_axes(names, groups)
    if axes is not None:
        return varying(primitive(varying(x, names), axes=axes), names)
    summed = primitive is collectives.psum  # pads uneven groups: zeros change no sum, repeated operands no extremum
    return REDUCTIONS[primitive.name](gather_members(x, names, groups, repeated=not summed), axes=(0,))


def gather_groups(x: Any, names: Names, groups: Groups, dim: int, tiled: bool) -> Any:
    """Gather the operands of a group along a new dimension `dim`, or, if `tiled`, concatenate them along `dim`."""
    found = move_axis(gather_members(x, names, groups), 0, dim)
    return merge_dims(found, dim) if tiled else found


def scatter_groups(x: Any, names: Names, groups: Groups, dim: int, tiled: bool) -> Any:
    """Sum the operands of each group, and return each member's slice of the sum along `dim`."""
    total = reduce_groups(collectives.psum, x, names, groups)
    count = len(groups[0])
    rows = move_axis(split_dim(total, dim, count) if tiled else total, dim, 0)
    own = own_row(rows, names, groups)
    return move_axis(own, 0, dim) if tiled and dim else own


def exchange_groups(x: Any, names: Names, groups: Groups, split: int, concat: int, tiled: bool) -> Any:
    """Send slices along `split` to the members of the group, and stack the received ones along `concat`."""
    count = len(groups[0])
    if tiled:
        x = split_dim(x, split, count)
    found = own_row(move_axis(gather_members(x, names, groups), split + 1, 0), names, groups)
    found = move_axis(found, 0, concat)
    return merge_dims(found, concat) if tiled else found


def gather_members(x: Any, names: Names, groups: Groups, repeated: bool = False) -> Any:
    """Gather the operands of an element's group along a new first dimension.

    Groups smaller than the largest are padded with zeros, or, if `repeated`, with their first operand.
    """
    count = axis_size(names)
    width = max(map(len, groups))
    table = np.full((count, width), count, np.int32)  # out of bounds: zeros
    for group in groups:
        filled = [*group, *[group[0] if repeated else count] * (width - len(group))]
        table[list(group)] = filled
    every = varying(x, names)
    for name in reversed(names):
        size = context.axes[name]
        every = collectives.all_gather(every, axis_name=name, axis_size=size, all_gather_dimension=0, tiled=False)
    shape = every.shape[len(names) :]
    every = reshape(every, new_sizes=(count, *shape), dimensions=None)
    own = reshape(by_position(names, range(count)), new_sizes=(1,), dimensions=None)
    return gather_rows(every, reshape(gather_rows(table, own), new_sizes=(width,), dimensions=None))


def own_row(x: Any, names: Names, groups: Groups) -> Any:
    """Select the row of `x` at the element's index in its group."""
    table = [0] * axis_size(names)
    for group in groups:
        for i, position in enumerate(group):
            table[position] = i
    index = reshape(by_position(names, table), new_sizes=(1,), dimensions=None)
    return reshape(gather_rows(x, index), new_sizes=x.shape[1:], dimensions=None)
