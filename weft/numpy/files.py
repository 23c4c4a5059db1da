"""Arrays in files and as text, through NumPy."""

from __future__ import annotations

import math
import os
import struct
import zipfile
import zlib
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import FileFormatError
from weft.numpy.creation import asarray
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def load(file: Any, *args: Any, **kwargs: Any) -> Array:
    """Read what `save` or `savez` wrote: an array, or NumPy's archive of several.

    Args:
        file: a path or a file.
        *args, **kwargs: passed on to NumPy's `load`.

    Returns:
        An array, or an archive: a mapping from names to NumPy arrays.

    >>> import weft.numpy as wnp
    >>> import io
    >>> file = io.BytesIO()
    >>> wnp.save(file, wnp.arange(3))
    >>> _ = file.seek(0)
    >>> wnp.load(file)
    Array([0, 1, 2], dtype=int32)
    """
    _check_sizes(file)
    try:
        array = np.load(file, *args, **kwargs)
    except ValueError as error:
        raise FileFormatError(f"NumPy cannot read the file: {error}") from None
    if not isinstance(array, np.ndarray):
        return array
    if array.dtype == np.dtype(
        "V2"
    ):  # files store types unknown to NumPy as raw bytes; bfloat16 is the only one of two bytes
        array = array.view(dtypes.bfloat16)
    return asarray(array)


def save(file: Any, arr: ArrayLike, allow_pickle: bool = True) -> None:
    """Write an array to a file in NumPy's format."""
    np.save(file, np.asarray(arr), allow_pickle=allow_pickle)


def savez(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """Write several arrays to one file in NumPy's format. Arrays are never pickled, whatever `allow_pickle` says."""
    named: dict[str, Any] = {name: np.asarray(x) for name, x in kwds.items()}
    np.savez(file, *map(np.asarray, args), **named)


def array_repr(
    arr: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """Format an array as by `repr`, with its type."""
    return repr(arr) if isinstance(arr, Array) else np.array_repr(arr, max_line_width, precision, suppress_small)


def array_str(
    a: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """Format the values of an array."""
    return np.array_str(np.asarray(a), max_line_width, precision, suppress_small)


def _check_sizes(file: Any) -> None:
    """Raise if an array of a file declares more bytes than the file has, before NumPy allocates them."""
    if hasattr(file, "read"):
        if not (hasattr(file, "seekable") and file.seekable()):
            return
        start = file.tell()
        try:
            _check_file(file, str(getattr(file, "name", "the file")))
        finally:
            file.seek(start)
        return
    with open(file, "rb") as opened:
        _check_file(opened, os.fspath(file))


def _check_file(opened: Any, name: str) -> None:
    start = opened.tell()
    magic = opened.read(6)
    opened.seek(0, os.SEEK_END)
    end = opened.tell()
    opened.seek(start)
    if magic == np.lib.format.MAGIC_PREFIX:
        _check_array(opened, end - start, name)
    elif magic[:4] == b"PK\3\4":
        try:
            with zipfile.ZipFile(opened) as archive:
                for info in archive.infolist():
                    with archive.open(info) as member:
                        if info.filename.endswith(".npy"):
                            _check_array(member, info.file_size, f"{name}: {info.filename}")
        except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, ValueError, zlib.error, struct.error) as error:
            if isinstance(error, FileFormatError):
                raise
            raise FileFormatError(f"{name} must be an archive of NumPy; it is damaged: {error}.") from None


def _check_array(opened: Any, size: int, name: str) -> None:
    """Raise an error if the header of an array declares more bytes than are stored."""
    begin = opened.tell()
    try:
        version = np.lib.format.read_magic(opened)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"its version must be 1.0, 2.0 or 3.0, got {version}")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(opened)
    except Exception as error:  # NumPy parses the header as Python, which raises anything
        raise FileFormatError(f"{name} must have a header of NumPy: {error}.") from None
    declared, stored = math.prod(shape) * dtype.itemsize, size - (opened.tell() - begin)
    if not dtype.hasobject and (declared > stored or any(extent < 0 for extent in shape)):
        received = f"shape {shape} of {dtype}, {declared:,} bytes; {stored:,} are stored"
        raise FileFormatError(f"{name} must store the bytes that its header declares.", received=received)
