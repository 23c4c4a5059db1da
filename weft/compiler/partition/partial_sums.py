"""Results of a program that stay unreduced: the partial sum of each device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.primitives import collectives
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.select import select_n
from weft.primitives.movement.shape import broadcast_in_dim, reshape


def partial_sum_on_first(x: Any, axes: Sequence[Any], count: int) -> Any:
    """Make a value a partial sum on the first device along some axes, and zeros on the others, with `count` further
    leading dimensions of size 1."""
    zeros = broadcast_in_dim(np.zeros((), dtypes.storage(x.dtype)), shape=x.shape, broadcast_dimensions=())
    for axis in axes:
        x = select_n(eq(collectives.axis_index(axis_name=axis), np.int32(0)), zeros, x)
    return reshape(x, new_sizes=((1,) * count + x.shape), dimensions=None)
