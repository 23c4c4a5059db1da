"""Reductions in pieces: every process reduces one piece of all operands (reduce-scatter), then all gather the pieces.

Each element is reduced by the same equations as in one process, so the results have the same bits.
"""

from __future__ import annotations

import math
from typing import Any

from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.types import array_type
from weft.primitives.collectives import AllReduce
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.shape import reshape
from weft.primitives.movement.slicing import slice as slice_primitive
from weft.trace.closed import stage_subjaxpr

# Least bytes and processes for reductions in pieces: of n bytes over P processes each sends 2 n (P - 1) / P instead of
# n (P - 1), in two exchanges instead of one.
FROM_BYTES, FROM_PROCESSES = 1 << 16, 3


def is_in_pieces(equation: Equation, processes: int) -> bool:
    """Return whether a collective over this many processes is done in pieces."""
    if not isinstance(equation.primitive, AllReduce) or equation.params.get("axis_index_groups") is not None:
        return False
    aval: Any = equation.invars[0].aval
    return processes >= FROM_PROCESSES and math.prod(aval.shape) * aval.dtype.itemsize >= FROM_BYTES


def stage_piece_reduction(equation: Equation, members: int, pieces: int) -> Jaxpr:
    """Stage the reduction of the operands of all members to the pieces of their common result."""
    primitive: Any = equation.primitive
    aval: Any = equation.invars[0].aval
    count = math.prod(aval.shape)

    def function(*args: Any) -> list[Any]:
        flat = [reshape(x, new_sizes=(count,), dimensions=None) for x in args]
        results, start = [], 0
        for size in _sizes(count, pieces):
            at = {"start_indices": (start,), "limit_indices": (start + size,), "strides": None}
            cut = [slice_primitive(x, **at) for x in flat]
            results.append(primitive.group_results([cut], **equation.params)[0][0])
            start += size
        return results

    return stage_subjaxpr(function, [aval] * members, name=f"pieces of {primitive.name} of {members}")


def stage_piece_gather(aval: Any, members: int, pieces: int) -> Jaxpr:
    """Stage the concatenation of the pieces of a value, with a result for each member."""
    types = [array_type((size,), aval.dtype) for size in _sizes(math.prod(aval.shape), pieces)]

    def function(*args: Any) -> list[Any]:
        return [reshape(concatenate(*args, dimension=0), new_sizes=aval.shape, dimensions=None)] * members

    return stage_subjaxpr(function, types, name=f"gathered pieces for {members}")


def _sizes(count: int, pieces: int) -> list[int]:
    """Return the number of elements of each piece: equal, except for the last ones."""
    size = -(-count // pieces)
    return [max(0, min(size, count - i * size)) for i in range(pieces)]
