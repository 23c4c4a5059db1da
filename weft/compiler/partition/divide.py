"""Reshapes that divide a split dimension into fewer parts than devices, as a batch into microbatches.

A shard is then a piece of one part, and is to be a piece of every part: devices exchange as many pieces as there are
parts, instead of gathering the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.partition.rules import Dims, ShardingRule
from weft.ir.jaxpr import Equation
from weft.ir.parts import byte_count
from weft.primitives import collectives
from weft.primitives.elementwise.arithmetic import div, rem, sub
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.shape import group_dimensions, reshape
from weft.primitives.movement.slicing import dynamic_slice, slice as slice_

# Most parts for which pieces are exchanged, each in a message.
MOST_PARTS = 32


class Division(NamedTuple):
    """Division of dimension `dim` into `parts` and more dimensions, over an axis of `devices`. Dimension `first`
    of the result are the parts, the one after it is split."""

    axis: Any
    devices: int
    dim: int
    first: int
    parts: int


def find_division(
    equation: Equation, rule: ShardingRule, at: Dims, wanted: Dims, sizes: Mapping[Any, int]
) -> Division | None:
    """Return how a reshape divides a split dimension, if its result is to be split along the second part of it, and in
    all other dimensions as the operand is; else None."""
    (a,), (v,) = equation.invars, equation.outvars
    old, new = a.aval.shape, v.aval.shape  # type: ignore[attr-defined]
    found: list[Division] = []
    for before, after in group_dimensions(old, new):
        own, goal = [at[d] for d in before], [wanted[d] for d in after]
        if len(before) == 1 and len(after) > 1 and own[0] and goal[1] == own[0] and not any((goal[0], *goal[2:])):
            if len(own[0]) > 1:
                return None
            (axis,) = own[0]
            count, parts = sizes[axis], new[after[0]]
            if count % parts or parts > MOST_PARTS or new[after[1]] % count or after[1] != after[0] + 1:
                return None
            found.append(Division(axis, count, before[0], after[0], parts))
        elif any(own) or any(goal):
            same = len(before) == len(after) == 1 and own == goal and old[before[0]] % shards(own[0], sizes) == 0
            if not same or rule.names[0][before[0]] is None:
                return None
    return found[0] if len(found) == 1 else None


def shards(axes: tuple[Any, ...], sizes: Mapping[Any, int]) -> int:
    """Return the number of shards along axes."""
    return int(np.prod([sizes[a] for a in axes], dtype=int))


def exchange_pieces(x: Any, division: Division, shape: tuple[int, ...], report: Callable[[float], None]) -> Any:
    """Return this device's piece of every part, in an array of the local `shape` of the result.

    Device i = m q + r, for q devices a part, has piece r of part m; of it device r p + c gets slice c, for p parts. In
    round k each sends slice (m + k) mod p, so that no device receives two.
    """
    parts, first = division.parts, division.first
    each = division.devices // parts
    x = reshape(x, new_sizes=shape, dimensions=None)  # the slices of a shard are in the place of the parts
    here = collectives.axis_index(axis_name=division.axis)
    slices = rotate(x, first, div(here, np.int32(each)))
    received = []
    for k in range(parts):
        pairs = [(m * each + r, r * parts + (m + k) % parts) for m in range(parts) for r in range(each)]
        piece = take(slices, first, k)
        report(float(byte_count(piece)))
        received.append(collectives.ppermute(piece, axis_name=division.axis, perm=tuple(sorted(pairs))))
    backwards = concatenate(*[received[-t % parts] for t in range(parts)], dimension=first)
    # In round k device c mod p has received its slice of part (c - k) mod p.
    own = rem(here, np.int32(parts))
    return rotate(backwards, first, rem(sub(np.int32(parts), own), np.int32(parts)))


def rotate(x: Any, dim: int, start: Any) -> Any:
    """Return the elements of a dimension from `start` on, followed by those before it."""
    starts = [start if d == dim else np.int32(0) for d in range(len(x.shape))]
    return dynamic_slice(concatenate(x, x, dimension=dim), *starts, slice_sizes=x.shape)


def take(x: Any, dim: int, index: int) -> Any:
    """Return one element of a dimension, as a dimension of size 1."""
    starts = tuple(index if d == dim else 0 for d in range(len(x.shape)))
    limits = tuple(index + 1 if d == dim else n for d, n in enumerate(x.shape))
    return slice_(x, start_indices=starts, limit_indices=limits, strides=None)
