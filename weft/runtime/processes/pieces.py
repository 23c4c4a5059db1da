"""Reductions in pieces: every process reduces one piece of all operands, and then all gather the pieces.

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

# Reductions of so many bytes over at least so many processes are done in pieces: of n bytes over P processes each sends
# 2 n (P - 1) / P instead of n (P - 1), in two exchanges instead of one.
FROM_BYTES, FROM_PROCESSES = 1 << 16, 3


def is_in_pieces(equation: Equation, processes: int) -> bool:
    """Whether a collective over so many processes is done in pieces."""
    if not isinstance(equation.primitive, AllReduce) or equation.params.get("axis_index_groups") is not None:
        return False
    aval: Any = equation.invars[0].aval
    return processes >= FROM_PROCESSES and math.prod(aval.shape) * aval.dtype.itemsize >= FROM_BYTES


def reduced_pieces(equation: Equation, members: int, pieces: int) -> Jaxpr:
    """From the operands of all members: each piece of what all of them get."""
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


def gathered_pieces(aval: Any, members: int, pieces: int) -> Jaxpr:
    """From the pieces of a value of some type: the value, for each member."""
    types = [array_type((size,), aval.dtype) for size in _sizes(math.prod(aval.shape), pieces)]

    def function(*args: Any) -> list[Any]:
        return [reshape(concatenate(*args, dimension=0), new_sizes=aval.shape, dimensions=None)] * members

    return stage_subjaxpr(function, types, name=f"gathered pieces for {members}")


def _sizes(count: int, pieces: int) -> list[int]:
    """How many of so many elements each piece has: as many, but for the last ones."""
    size = -(-count // pieces)
    return [max(0, min(size, count - i * size)) for i in range(pieces)]
