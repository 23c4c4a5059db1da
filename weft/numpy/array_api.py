"""The inspection API of the Python array API standard: version, devices and dtypes of `weft.numpy`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.api.devices import devices as all_devices
from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.base.settings import config

__array_api_version__ = "2024.12"

_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]
_WIDE = ("int64", "uint64", "float64", "complex128")  # these need `enable_x64`


class ArrayNamespaceInfo:
    """Capabilities, devices and dtypes of the namespace, and its defaults."""

    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities of the namespace.

        Boolean masks and shapes that depend on data work outside of `jit`.
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """Return the device on which arrays are created: the setting `default_device`, or None for the first device."""
        return config.default_device

    def devices(self) -> list[Any]:
        """Return the devices of this process, and None for the default one."""
        return [None, *all_devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """Return the dtypes that functions without a dtype argument produce; they are the same on all devices."""
        return {
            "real floating": dtypes.default_float_dtype(),
            "complex floating": dtypes.default_complex_dtype(),
            "integral": dtypes.default_int_dtype(),
            "indexing": dtypes.default_int_dtype(),
        }

    def dtypes(self, *, device: Any = None, kind: str | Sequence[str] | None = None) -> dict[str, Any]:
        """Return the dtypes of the standard by name; those of 64 bits need `enable_x64`.

        `kind` is one of "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating"
        and "numeric", or a tuple of these.
        """
        kinds = tuple(_KINDS) if kind is None else (kind,) if isinstance(kind, str) else tuple(kind)
        for name in kinds:
            if name not in _KINDS:
                raise ArgumentError("Unknown kind of dtypes.", received=repr(name), fix=", ".join(_KINDS))
        names = dict.fromkeys(name for k in kinds for name in _KINDS[k])
        return {name: np.dtype(name) for name in names if config.enable_x64 or name not in _WIDE}


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """Return the capabilities, devices and dtypes of the namespace, for the array API standard.

    >>> import weft.numpy as wnp
    >>> wnp.__array_namespace_info__().default_dtypes()["integral"]
    dtype('int32')
    """
    return ArrayNamespaceInfo()
