"""Reading HDF5 files of strangers: only arrays that the file itself stores, none before its size has been checked."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

from weft.base.lazy import is_importable, lazy
from weft.errors import FileFormatError, WeftError
from weft.keras.saving import limits

h5py = lazy("h5py")

# Deflate expands a byte to 1032 at most; the filters of HDF5 that expand more are of no use for weights.
_MOST_EXPANSION = 1100
_ERRORS = (OSError, RuntimeError, KeyError, TypeError, ValueError, OverflowError, MemoryError, AttributeError)


class StoredArray:
    """An array of a file: its shape and dtype are known, its elements are read when asked for.

    Args:
        data: the data set of h5py.
        where: its path, for errors.
        file: the name of the file, for errors.
    """

    def __init__(self, data: Any, where: str, file: str) -> None:
        self._data, self._where, self._file = data, where, file
        self.shape: tuple[int, ...] = tuple(data.shape)
        self.is_bfloat16 = data.dtype.itemsize == 2 and get_text(data, "dtype", file) == "bfloat16"
        self.dtype = np.dtype(ml_dtypes.bfloat16) if self.is_bfloat16 else data.dtype
        if not self.is_bfloat16 and self.dtype.kind not in "biufc":
            raise FileFormatError(f"{file}: {where} must have numbers.", received=str(self.dtype))
        declared, stored = math.prod(self.shape) * self.dtype.itemsize, data.id.get_storage_size()
        most = stored * (_MOST_EXPANSION if data.id.get_create_plist().get_nfilters() else 1)
        if declared > most:
            raise FileFormatError(
                f"{file}: {where} must not declare more bytes than the file stores.",
                received=f"shape {self.shape} of {self.dtype}, {declared:,} bytes; {stored:,} are stored",
                fix="obtain a new copy of the file",
            )

    def read(self) -> np.ndarray:
        """Return the elements."""
        try:
            value = np.asarray(self._data[()])
        except _ERRORS as error:
            raise FileFormatError(f"{self._file}: {self._where} cannot be read: {error}") from None
        return value.view(ml_dtypes.bfloat16) if self.is_bfloat16 else value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self.read()
        return value if dtype is None else value.astype(dtype)


def has_h5py() -> bool:
    """Return whether h5py is installed, so that HDF5 can be read and written."""
    return is_importable("h5py")


@contextmanager
def opened(data: bytes, file: str) -> Iterator[Any]:
    """Open the bytes of an HDF5 file; whatever h5py raises in the block becomes a FileFormatError.

    The file is closed when the last object of it is gone, so that arrays can be read after the block.
    """
    try:
        yield h5py.File(io.BytesIO(data), "r")
    except _ERRORS as error:
        if isinstance(error, WeftError):
            raise
        raise FileFormatError(f"{file}: expected an HDF5 file, got a damaged one or none: {error}") from None


def child(group: Any, name: str, where: str, file: str) -> Any:
    """Return a member of a group that is stored in this file: a group or a data set, no link to elsewhere."""
    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        kind = "missing" if link is None else f"a {type(link).__name__}, a link to elsewhere"
        raise FileFormatError(f"{file}: {where}/{name} must be stored in the file; it is {kind}.")
    return group[name]


def child_group(group: Any, name: str, where: str, file: str) -> Any:
    """Return a group in a group."""
    found = child(group, name, where, file)
    if not isinstance(found, h5py.Group):
        raise FileFormatError(f"{file}: {where}/{name} must be a group.", received=type(found).__name__)
    return found


def array_at(group: Any, path: str, where: str, file: str) -> StoredArray:
    """Return the array at a path below a group; every part of the path must be stored in this file."""
    parts = [part for part in path.split("/") if part]
    if not parts or len(parts) > limits.MOST_LEVELS or {".", ".."} & set(parts):
        raise FileFormatError(f"{file}: {where} cannot have an array at {path[:80]!r}.")
    for part in parts[:-1]:
        group, where = child_group(group, part, where, file), f"{where}/{part}"
    found = child(group, parts[-1], where, file)
    if not isinstance(found, h5py.Dataset) or found.external or found.is_virtual or found.shape is None:
        raise FileFormatError(f"{file}: {where}/{parts[-1]} must be an array that the file itself stores.")
    return StoredArray(found, f"{where}/{parts[-1]}", file)


def get_attribute(group: Any, name: str, file: str) -> Any:
    """Return an attribute of a group or data set, None if there is none; its size is checked first."""
    if name not in group.attrs:
        return None
    identifier = group.attrs.get_id(name)
    size = math.prod(identifier.shape or (1,)) * identifier.dtype.itemsize
    limits.check_size(size, f"{file}: the attribute {name}", limits.MOST_TEXT)
    if size and size > identifier.get_storage_size():
        raise FileFormatError(f"{file}: the attribute {name} must not declare more bytes than the file stores.")
    return group.attrs[name]


def get_text(group: Any, name: str, file: str) -> str | None:
    """Return an attribute that is a text, None if there is none."""
    value = get_attribute(group, name, file)
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return None if value is None else str(value)


def get_names(group: Any, name: str, file: str) -> list[str]:
    """Return an attribute that is a list of names; a long one is in several attributes, `name0`, `name1`, ..."""
    found = get_attribute(group, name, file)
    if found is None:
        chunks: list[Any] = []
        while (chunk := get_attribute(group, f"{name}{len(chunks)}", file)) is not None:
            chunks.append(np.ravel(chunk))
        found = [item for chunk in chunks for item in chunk]
    return [item.decode("utf-8") if isinstance(item, bytes) else str(item) for item in np.ravel(found).tolist()]


def set_names(group: Any, name: str, names: list[str]) -> None:
    """Write a list of names as an attribute, or as several if they are too long for one (64 kB)."""
    values = np.array([item.encode("utf-8") for item in names] or np.zeros(0, "S1"))
    count = 1
    while any(part.nbytes > 64_512 for part in np.array_split(values, count)):
        count += 1
    if count == 1:
        group.attrs[name] = values
    for i, part in enumerate(np.array_split(values, count) if count > 1 else ()):
        group.attrs[f"{name}{i}"] = part


def write_array(group: Any, name: str, array: np.ndarray) -> None:
    """Write an array to a group; HDF5 has no bfloat16, which is stored as Keras does, as two bytes and a note."""
    if array.dtype.name == "bfloat16":
        group.create_dataset(name, data=array.view("V2")).attrs["dtype"] = "bfloat16"
    else:
        group[name] = array
