"""Arrays in files and as text, through NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.numpy.creation import asarray
from weft.trace.array import Array


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """What `save` or `savez` wrote: an array, or NumPy's archive of several.

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
    array = np.load(file, *args, **kwargs)
    if not isinstance(array, np.ndarray):
        return array
    if array.dtype == np.dtype(
        "V2"
    ):  # the file does not name types that NumPy does not know; of those with two bytes there is one
        array = array.view(dtypes.bfloat16)
    return asarray(array)


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """Write an array to a file in NumPy's format."""
    np.save(file, np.asarray(arr), allow_pickle=allow_pickle)


def savez(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """Write several arrays to one file in NumPy's format. Arrays are never pickled, whatever `allow_pickle` says."""
    named: dict[str, Any] = {name: np.asarray(x) for name, x in kwds.items()}
    np.savez(file, *map(np.asarray, args), **named)


def array_repr(
    arr: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The `repr` of an array, with its type."""
    return repr(arr) if isinstance(arr, Array) else np.array_repr(arr, max_line_width, precision, suppress_small)


def array_str(
    a: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The values of an array as text."""
    return np.array_str(np.asarray(a), max_line_width, precision, suppress_small)
