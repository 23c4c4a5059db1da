"""Where arrays are made and operations run."""

from __future__ import annotations

import contextlib
from typing import Any

import weft
from weft.errors import ArgumentError, ArgumentTypeError


def device(device_name: str | weft.Device) -> contextlib.AbstractContextManager[Any]:
    """Choose the device that a block makes arrays and runs operations on.

    Args:
        device_name: a name such as "cpu:0" or "gpu:1" ("cuda" is the same as "gpu"; without an index the first), or a
            device of `weft.devices()`.

    Returns:
        A context manager.

    Example:
        >>> from weft import keras
        >>> with keras.device("cpu:0"):
        ...     x = keras.ops.ones((2, 2))
    """
    if isinstance(device_name, weft.Device):
        return weft.default_device(device_name)
    if not isinstance(device_name, str):
        raise ArgumentTypeError(
            "`device_name` must be a name such as 'cpu:0', or a device.", received=type(device_name).__name__
        )
    kind, _, index = device_name.lower().partition(":")
    kind = "gpu" if kind == "cuda" else kind
    try:
        found = weft.devices(kind)
        return weft.default_device(found[int(index or 0)])
    except (RuntimeError, ValueError, IndexError) as error:
        names = [f"{each.platform}:{i}" for i, each in enumerate(weft.devices())]
        raise ArgumentError(
            "`device_name` must be one of the devices of this process.", received=repr(device_name), fix=names
        ) from error
