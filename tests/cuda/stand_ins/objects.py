"""What all libraries have in common: functions that take what ctypes passes, and handles of what they made."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes


class Function:
    """A function of a library, of which ctypes asks for types of its arguments."""

    argtypes: Any = None
    restype: Any = None

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> int:
        assert self.argtypes is None or len(arguments) == len(self.argtypes), self._function.__name__
        found = self._function(*arguments)
        return 0 if found is None else int(found)


class StandIn:
    """A library in the memory of a simulated GPU. Functions are methods; `calls` has what they computed."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.calls: list[Any] = []
        self._objects: dict[int, Any] = {}
        self._handles = itertools.count(0x1000, 16)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith(("cublas", "cudnn", "cusolver", "cufft")):
            return found
        functions = self.__dict__.setdefault("_functions", {})
        return functions.setdefault(name, Function(found))

    def new(self, reference: Any, value: Any) -> None:
        """Write the handle of a new object to where a reference points."""
        handle = next(self._handles)
        self._objects[handle] = value
        reference._obj.value = handle

    def object(self, handle: Any) -> Any:
        """What a handle is of."""
        return self._objects[handle if isinstance(handle, int) else handle.value]

    def array(self, address: int, dtype: Any, shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
        """An array in the memory of the GPU, with strides in elements; all of it must be of one block."""
        storage = dtypes.storage(dtype)
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if min(shape, default=1) else 0
        flat = self.driver.view(address, extent * storage.itemsize).view(storage)
        return np.lib.stride_tricks.as_strided(flat, shape, [s * storage.itemsize for s in strides])
