"""Types for annotations: what functions take as an array, as a dtype and as a shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from weft.base.dtypes import ExtendedDtype
from weft.indexing.expression import Expression
from weft.trace.array import Array


@runtime_checkable
class SupportsDType(Protocol):
    """Something with a dtype, such as `weft.numpy.float32`."""

    @property
    def dtype(self) -> Any: ...


ArrayLike: TypeAlias = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
"""What functions take where an array is expected: arrays, NumPy arrays and scalars, and Python numbers."""

DTypeLike: TypeAlias = str | type[Any] | np.dtype[Any] | ExtendedDtype | SupportsDType
"""What functions take as a dtype: a name, a Python or NumPy scalar type, a dtype, or something that has one."""

Shape: TypeAlias = int | Expression | Sequence[int | Expression]
"""What functions take as a shape: sizes, of which some may be symbolic; one size for one axis."""
