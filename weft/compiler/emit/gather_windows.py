"""Start indices of the windows of gather and scatter, as `Windows` of the primitive."""

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
    """Convert the components of an index vector to the start of its window; also return the condition that it is in
    bounds.

    With `clip` (and where a start may be anything) starts are clamped to the range, without a condition. A
    limit is the greatest start; it is negative if no start is in bounds.
    """
    starts: list[Index] = []
    inside: Value | None = None
    for component, limit in zip(components, limits, strict=True):
        start = as_index(k, component, limit)
        low, high = k.constant(0, start.dtype), k.constant(max(limit, 0), start.dtype)
        if limit < 0:
            inside = k.constant(False, np.bool_)
        elif not clip:
            inside = both(k, inside, _fits(k, start, limit))
        if clip or limit < 0:
            start = k.compute("clamp", low, start, high)
            k.ranges[start] = (0, max(limit, 0))
        starts.append(Index.of(start))
    return starts, inside


def as_index(k: KernelBuilder, component: Value, limit: int) -> Value:
    """Convert a component of an index to int32 if that holds the component and its limit, else to int64."""
    narrow = component.dtype == INT32 or component.dtype.itemsize < 4
    return k.scalars.convert(component, INT32 if narrow and limit < 1 << 31 else INT64)


def _fits(k: KernelBuilder, start: Value, limit: int) -> Value:
    """Return whether 0 <= start <= limit by one unsigned comparison, in which a negative start is large."""
    unsigned = dtypes.uint32 if start.dtype == INT32 else dtypes.uint64
    return k.compute("le", k.scalars.convert(start, unsigned), k.constant(limit, unsigned))
