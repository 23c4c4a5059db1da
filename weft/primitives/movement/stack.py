"""Arrays of one shape along a new dimension, and the slices of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.indexing.expression import Expression
from weft.ir.primitive import Sample, primitive
from weft.primitives.families import Composite, fail
from weft.primitives.movement.concatenate import concatenate, split
from weft.primitives.movement.shape import ramp, reshape


@primitive
class stack(Composite):
    """Operands along a new dimension at `axis`."""

    def decompose(self, *args: Any, axis: int) -> Any:
        if not args:
            raise fail("stack needs at least one operand.")
        shape = args[0].shape
        if not 0 <= axis <= len(shape):
            raise fail(f"stack got axis {axis} for operands of rank {len(shape)}.")
        if any(x.shape != shape for x in args):
            raise fail(
                "All operands of stack must have the same shape.",
                received=" and ".join(x.aval.short() for x in args),
                fix="broadcast or pad them; concatenate joins arrays along an axis that they have",
            )
        one = (*shape[:axis], 1, *shape[axis:])
        return concatenate(*(reshape(x, new_sizes=one, dimensions=None) for x in args), dimension=axis)

    def samples(self) -> Any:
        yield Sample(ramp(2, 3), ramp(2, 3) + 1, axis=1)
        yield Sample(ramp(3), axis=0)
        yield Sample(np.array(1, np.int32), np.array(2, np.int32), axis=0)


@primitive
class unstack(Composite):
    """Slices along `axis`, without it."""

    multiple_results = True

    def decompose(self, x: Any, *, axis: int) -> list[Any]:
        if not 0 <= axis < x.ndim:
            raise fail(f"unstack got axis {axis} for an operand of rank {x.ndim}.")
        size, shape = x.shape[axis], (*x.shape[:axis], *x.shape[axis + 1 :])
        if isinstance(size, Expression):
            raise fail(f"unstack needs to know how many slices there are; the size of axis {axis} is {size}.")
        if not size:
            return []
        return [reshape(y, new_sizes=shape, dimensions=None) for y in split(x, sizes=(1,) * size, axis=axis)]

    def samples(self) -> Any:
        yield Sample(ramp(2, 3), axis=1)
        yield Sample(ramp(2, 3), axis=0)
        yield Sample(np.arange(3, dtype=np.int32), axis=0)
