"""How arrays of every dtype are stored in safetensors files, which know fewer of them.

A dtype that the format has is stored as it is. The others keep their bits: complex128 as pairs of F64 and random keys
as words of U32, both along one more dimension; all that remain have elements of one byte and are stored as U8.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.dtypes import Dtype, ExtendedDtype
from weft.base.errors import ArgumentError
from weft.base.promotion import DTYPES
from weft.checkpointing import tensor_file


class Stored(NamedTuple):
    """What a file has for a dtype: elements of another one, and so many of them along one more dimension."""

    dtype: np.dtype[Any]
    extra: tuple[int, ...] = ()


_OTHERS = {
    dtypes.complex128: Stored(dtypes.float64, (2,)),
    dtypes.float0: Stored(np.dtype(np.uint8), (0,)),
}


def stored_form(dtype: Dtype) -> Stored:
    """How elements of a dtype are stored."""
    if isinstance(dtype, ExtendedDtype):
        return Stored(dtypes.uint32, (dtype.storage.itemsize // 4,))
    if dtype in tensor_file.NAMES:
        return Stored(dtype)
    return _OTHERS.get(dtype) or Stored(np.dtype(np.uint8))


def to_stored(value: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Elements of a dtype, in the NumPy array that holds them, as what is stored."""
    stored = stored_form(dtype)
    if not stored.extra:
        return value if value.dtype == stored.dtype else value.view(stored.dtype)
    if stored.extra == (0,):
        return np.empty((*value.shape, 0), stored.dtype)
    return np.ascontiguousarray(value).reshape((*value.shape, 1)).view(stored.dtype)


def from_stored(value: np.ndarray, dtype: Dtype) -> np.ndarray:
    """What was stored as elements of a dtype."""
    stored, storage = stored_form(dtype), dtypes.storage(dtype)
    if not stored.extra:
        return value if value.dtype == storage else value.view(storage)
    if stored.extra == (0,):
        return np.zeros(value.shape[:-1], storage)
    return np.ascontiguousarray(value).view(storage)[..., 0]


_NAMED: dict[str, Dtype] = {**DTYPES, "float0": dtypes.float0}


def dtype_named(name: Any) -> Dtype | None:
    """The dtype of a name, as `weft.base.dtypes.name` writes it; None if there is none."""
    if not isinstance(name, str):
        return None
    if name.startswith("key<"):
        try:
            return dtypes.from_short_name(name)
        except ArgumentError:
            return None
    return _NAMED.get(name)
