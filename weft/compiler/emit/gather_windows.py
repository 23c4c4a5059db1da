"""Where the windows of gather and scatter lie: the index arithmetic that both share, as `Windows` of the primitive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.indices import INT32, INT64, both
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, Value


def first_of_window(
    k: KernelBuilder,
    components: Sequence[Value],
    limits: Sequence[int],
    clip: bool,
) -> tuple[list[Index], Value | None]:
    """From the components of an index vector, where its window starts, and whether it lies inside.

    With `clip` (and where a start may be anything) starts are moved to the nearest place inside, and None is given for
    the condition. A limit is the greatest start; it is negative where there is no place at all.
    """
    places: list[Index] = []
    inside: Value | None = None
    for component, limit in zip(components, limits, strict=True):
        number = as_index(k, component, limit)
        low, high = k.constant(0, number.dtype), k.constant(max(limit, 0), number.dtype)
        if limit < 0:
            inside = k.constant(False, np.bool_)
        elif not clip:
            inside = both(k, inside, _fits(k, number, limit))
        if clip or limit < 0:
            number = k.compute("clamp", low, number, high)
            k.ranges[number] = (0, max(limit, 0))
        places.append(Index.of(number))
    return places, inside


def as_index(k: KernelBuilder, component: Value, limit: int) -> Value:
    """A component of an index as int32 where that holds it and its limit, else as int64."""
    narrow = component.dtype == INT32 or component.dtype.itemsize < 4
    return k.scalars.convert(component, INT32 if narrow and limit < 1 << 31 else INT64)


def _fits(k: KernelBuilder, number: Value, limit: int) -> Value:
    """Whether 0 <= number <= limit, by one comparison: as an unsigned number a negative one is a large one."""
    unsigned = dtypes.uint32 if number.dtype == INT32 else dtypes.uint64
    return k.compute("le", k.scalars.convert(number, unsigned), k.constant(limit, unsigned))
