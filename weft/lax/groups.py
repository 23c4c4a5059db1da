"""Collectives in groups of positions along several named axes, in row-major order.

Where groups are those that differ in the positions along some of the axes only, the collective goes over these axes.
Otherwise each element gathers what all have, and takes what its group has.
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
from weft.primitives.collectives import merge_dims, rows_of, split_dim
from weft.primitives.movement.shape import move_axis, reshape
from weft.primitives.reduction.reduce import reduce_sum
from weft.primitives.reduction.reduce_extrema import reduce_max, reduce_min

Names = tuple[Any, ...]
Groups = Sequence[Sequence[int]]

REDUCTIONS = {"psum": reduce_sum, "pmax": reduce_max, "pmin": reduce_min}


def axes_of(names: Names, groups: Groups) -> Names | None:
    """The axes that all groups go over, from one position along the others; None where they are no such groups."""
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


def reduced(card: Any, x: Any, names: Names, groups: Groups) -> Any:
    """The combination of the operands of a group."""
    axes = axes_of(names, groups)
    if axes is not None:
        return varying(card(varying(x, names), axes=axes), names)
    summed = card is collectives.psum  # where groups are of different sizes, zeros change no sum, nor own values others
    return REDUCTIONS[card.name](members(x, names, groups, repeated=not summed), axes=(0,))


def gathered(x: Any, names: Names, groups: Groups, dim: int, tiled: bool) -> Any:
    """The operands of a group, along a new dimension or, `tiled`, along one that they have."""
    found = move_axis(members(x, names, groups), 0, dim)
    return merge_dims(found, dim) if tiled else found


def scattered(x: Any, names: Names, groups: Groups, dim: int, tiled: bool) -> Any:
    """The sum of the operands of a group, of which each member has its slice."""
    total = reduced(collectives.psum, x, names, groups)
    count = len(groups[0])
    rows = move_axis(split_dim(total, dim, count) if tiled else total, dim, 0)
    own = own_row(rows, names, groups)
    return move_axis(own, 0, dim) if tiled and dim else own


def exchanged(x: Any, names: Names, groups: Groups, split: int, concat: int, tiled: bool) -> Any:
    """Each member's slices along `split` for the members of its group, which put them together along `concat`."""
    count = len(groups[0])
    if tiled:
        x = split_dim(x, split, count)
    found = own_row(move_axis(members(x, names, groups), split + 1, 0), names, groups)
    found = move_axis(found, 0, concat)
    return merge_dims(found, concat) if tiled else found


def members(x: Any, names: Names, groups: Groups, repeated: bool = False) -> Any:
    """The operands of all members of an element's group, along a new first dimension. Groups that are smaller than
    others have zeros at the end, or their first operand, `repeated`."""
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
    return rows_of(every, reshape(rows_of(table, own), new_sizes=(width,), dimensions=None))


def own_row(x: Any, names: Names, groups: Groups) -> Any:
    """The row of an element's index in its group."""
    table = [0] * axis_size(names)
    for group in groups:
        for i, position in enumerate(group):
            table[position] = i
    index = reshape(by_position(names, table), new_sizes=(1,), dimensions=None)
    return reshape(rows_of(x, index), new_sizes=x.shape[1:], dimensions=None)
