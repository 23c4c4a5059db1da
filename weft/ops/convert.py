"""Conversions between dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.ir.primitive import Sample, primitive
from weft.ir.types import ArrayType, array_type
from weft.ops.elementwise import Elementwise
from weft.ops.shape import ramp


@primitive
class convert_element_type(Elementwise):
    """The same numbers in another dtype."""

    linear = (0,)

    def type(self, x: ArrayType, *, new_dtype: Any, weak_type: bool = False) -> ArrayType:
        return array_type(x.shape, new_dtype, weak_type)

    def eval(self, x: Any, *, new_dtype: Any, weak_type: bool = False) -> Any:
        x = np.asarray(x)
        if x.dtype.kind == "c" and dtypes.kind(new_dtype) != "c":
            x = x.real
        return x.astype(new_dtype)

    def transpose(self, cotangent: Any, x: Any, *, new_dtype: Any, weak_type: bool = False) -> Sequence[Any]:
        aval = x.aval
        return [convert_element_type(cotangent, new_dtype=aval.dtype, weak_type=aval.weak_type)]

    def emit(self, builder: Any, x: Any, *, new_dtype: Any, weak_type: bool = False) -> Any:
        return builder.convert(x, new_dtype)

    def samples(self) -> Any:
        yield Sample(ramp(3), new_dtype=np.dtype(np.float16), weak_type=False)
        yield Sample(ramp(3), new_dtype=np.dtype(np.int32), weak_type=False)
        yield Sample(ramp(3, dtype=np.int32), new_dtype=np.dtype(np.float32), weak_type=False)
