"""The encoding of arrays of every dtype in safetensors files, which have fewer dtypes.

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


class StorageFormat(NamedTuple):
    """The form in which a file stores a dtype: elements of another dtype, along additional trailing dimensions."""

    dtype: np.dtype[Any]
    extra: tuple[int, ...] = ()


_OTHERS = {
    dtypes.complex128: StorageFormat(dtypes.float64, (2,)),
    dtypes.float0: StorageFormat(np.dtype(np.uint8), (0,)),
}


def storage_format(dtype: Dtype) -> StorageFormat:
    """Return the form in which a file stores elements of a dtype."""
    if isinstance(dtype, ExtendedDtype):
        return StorageFormat(dtypes.uint32, (dtype.storage.itemsize // 4,))
    if dtype in tensor_file.NAMES:
        return StorageFormat(dtype)
    return _OTHERS.get(dtype) or StorageFormat(np.dtype(np.uint8))


def encode_array(value: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Encode the NumPy array that holds elements of a dtype as the array that a file stores."""
    stored = storage_format(dtype)
    if not stored.extra:
        return value if value.dtype == stored.dtype else value.view(stored.dtype)
    if stored.extra == (0,):
        return np.empty((*value.shape, 0), stored.dtype)
    return np.ascontiguousarray(value).reshape((*value.shape, 1)).view(stored.dtype)


def decode_array(value: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Decode the array that a file stores to the NumPy array that holds elements of a dtype."""
    stored, storage = storage_format(dtype), dtypes.storage(dtype)
    if not stored.extra:
        return value if value.dtype == storage else value.view(storage)
    if stored.extra == (0,):
        return np.zeros(value.shape[:-1], storage)
    return np.ascontiguousarray(value).view(storage)[..., 0]


_NAMED: dict[str, Dtype] = {**DTYPES, "float0": dtypes.float0}


def parse_dtype(name: Any) -> Dtype | None:
    """Parse the name of a dtype, as `weft.base.dtypes.name` writes it; return None for an unknown name."""
    if not isinstance(name, str):
        return None
    if name.startswith("key<"):
        try:
            return dtypes.from_short_name(name)
        except ArgumentError:
            return None
    return _NAMED.get(name)
