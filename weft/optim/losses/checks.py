"""Checks of the arguments of losses, since mistakes would train silently."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import DtypeMismatchError, ShapeMismatchError


def floating(where: str, **arguments: Any) -> list[Array]:
    """Convert arguments to arrays; raise unless they are floating."""
    found = []
    for name, value in arguments.items():
        array = wnp.asarray(value)
        if not wnp.issubdtype(array.dtype, wnp.floating):
            raise DtypeMismatchError(
                f"{where} needs {name} in a floating dtype.",
                received=f"{name} of {array.dtype} and shape {array.shape}",
                fix=f"{name}.astype(weft.numpy.float32)",
            )
        found.append(array)
    return found


def integers(where: str, name: str, value: Any, instead: str | None = None) -> Array:
    """Convert an argument to an array; raise unless it is of integers."""
    array = wnp.asarray(value)
    if not wnp.issubdtype(array.dtype, wnp.integer):
        raise DtypeMismatchError(
            f"{where} needs {name} as integers, one for each example.",
            received=f"{name} of {array.dtype} and shape {array.shape}",
            fix=instead or f"{name}.astype(weft.numpy.int32)",
        )
    return array


def same_shape(where: str, **arguments: Any) -> None:
    """Raise unless both arrays have the same shape: [n] and [n, 1] would broadcast to [n, n]."""
    (first, x), (second, y) = arguments.items()
    if wnp.shape(x) != wnp.shape(y):
        raise ShapeMismatchError(
            f"{where} needs {first} and {second} of the same shape; it does not broadcast.",
            received=f"{first} of shape {wnp.shape(x)}, {second} of shape {wnp.shape(y)}",
            fix=f"{second}.reshape({first}.shape), or weft.numpy.broadcast_to({second}, {first}.shape)",
        )
