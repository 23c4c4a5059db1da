"""The dtype in which a layer computes: the given one, else the promoted dtype of its inputs and parameters."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft.errors import ArgumentError, suggest as _suggest


def canonicalize_dtype(*args: Any, dtype: Any = None, inexact: bool = True) -> Any:
    """Return the dtype to compute in; with `inexact`, a real or complex floating dtype. None arguments are ignored."""
    if dtype is None:
        dtype = wnp.result_type(*(wnp.asarray(arg) for arg in args if arg is not None))
        if inexact and not wnp.issubdtype(dtype, wnp.inexact):
            dtype = wnp.promote_types(wnp.float32, dtype)
    if inexact and not wnp.issubdtype(dtype, wnp.inexact):
        raise ArgumentError(f"dtype must be a float or complex one, got {dtype}.")
    return dtype


def promote_dtype(*args: Any, dtype: Any = None, inexact: bool = True) -> list[Any]:
    """Convert arguments to the dtype to compute in; None arguments are returned as None.

    Args:
        *args: arrays and None.
        dtype: the dtype; promoted from the arguments by default.
        inexact: whether integers become floats.

    Returns:
        A list.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft.linen.dtypes import promote_dtype
    >>> [x.dtype for x in promote_dtype(wnp.ones(1, wnp.float16), wnp.ones(1))]
    [dtype('float32'), dtype('float32')]
    """
    found = canonicalize_dtype(*args, dtype=dtype, inexact=inexact)
    return [wnp.asarray(arg, found) if arg is not None else None for arg in args]


_suggest(__name__)
