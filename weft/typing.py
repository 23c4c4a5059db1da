"""Types for annotations: what functions take as an array, and as a dtype."""

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from weft.base.dtypes import ExtendedDtype
from weft.base.publish import suggest as _suggest
from weft.trace.array import Array

__all__ = ["ArrayLike", "DTypeLike"]


@runtime_checkable
class SupportsDType(Protocol):
    """Something with a dtype, such as `weft.numpy.float32`."""

    @property
    def dtype(self) -> Any: ...


ArrayLike: TypeAlias = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
"""What functions take where an array is expected: arrays, NumPy arrays and scalars, and Python numbers."""

DTypeLike: TypeAlias = str | type[Any] | np.dtype[Any] | ExtendedDtype | SupportsDType
"""What functions take as a dtype: a name, a Python or NumPy scalar type, a dtype, or something that has one."""

_suggest(__name__)
