"""`Array`: the one public array class, of which concrete arrays and tracers are the two kinds.

Operators and methods are filled in from above (`weft/__init__.py`), since they are written with `weft.numpy`.
"""

from __future__ import annotations

import math
from typing import Any

from weft.ir.types import ArrayType


class Array:
    """An immutable array of one dtype. Make one with `weft.numpy`; `isinstance(x, weft.Array)` holds for traced values too."""

    __slots__ = ("__weakref__",)
    __array_priority__ = 1000  # NumPy defers its binary operators to ours
    __hash__ = None  # type: ignore[assignment]

    aval: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        return math.prod(self.aval.shape)

    @property
    def weak_type(self) -> bool:
        aval = self.aval
        return isinstance(aval, ArrayType) and aval.weak_type
