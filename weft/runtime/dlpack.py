"""DLPack capsules of arrays, also for dtypes and devices that NumPy does not exchange.

NumPy makes and reads the capsules. For a dtype that it refuses, such as bfloat16, it gets unsigned integers of the same
size, and the dtype in the capsule is replaced. The device is replaced likewise: NumPy arrays at GPU addresses are
created and deleted, but their elements are never accessed.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.capsules import capsule_address, capsule_name

CODES = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
"""DLPack's codes of the dtypes that NumPy does not exchange."""

_UNSIGNED = 1
CPU_DEVICE = 1, 0
CUDA = 2  # the device type of NVIDIA GPUs


class _Tensor(ctypes.Structure):
    """The first fields of a `DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class _Versioned(ctypes.Structure):
    """The first fields of a `DLManagedTensorVersioned`; those without a version begin with their tensor."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


def is_exchanged(dtype: np.dtype) -> bool:
    """Return whether arrays of a dtype can be exchanged."""
    return dtype.name in CODES or (dtype.kind in "biufc" and dtype.isbuiltin == 1)


def to_capsule(value: np.ndarray, **options: Any) -> Any:
    """Return a capsule over the memory of a NumPy array; `options` are those of NumPy's `__dlpack__`."""
    code = CODES.get(value.dtype.name)
    if code is None:
        return value.__dlpack__(**options)
    capsule = value.view(f"u{value.dtype.itemsize}").__dlpack__(**options)
    _get_tensor(capsule).code = code
    return capsule


def to_device_capsule(
    address: int, shape: tuple[int, ...], dtype: np.dtype, device: tuple[int, int], holder: Any, **options: Any
) -> Any:
    """Return a capsule over contiguous memory of a device, which lives as long as `holder`.

    `options` are those of NumPy's `__dlpack__`: only a versioned capsule can carry the read-only flag.
    """
    size = math.prod(shape) * dtype.itemsize
    memory = np.asarray(_Memory(address, size, bool(options), holder))
    capsule = to_capsule(memory.view(dtype).reshape(shape), **options)
    tensor = _get_tensor(capsule)
    tensor.device_type, tensor.device_id = device
    return capsule


class _Memory:
    """Bytes at an address, as NumPy's array interface, with a reference that keeps them alive."""

    def __init__(self, address: int, size: int, read_only: bool, holder: Any) -> None:
        self._holder = holder
        self.__array_interface__ = {
            "data": (address, read_only),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


def from_capsule(external: Any, stream: int | None = None) -> np.ndarray:
    """Return a NumPy array over the memory of another library's array, which has `__dlpack__`.

    With a `stream`, the memory is of a GPU, and work on that stream waits for what the other library has submitted.
    """
    source = _Integers(external) if stream is None else _AtAddresses(external, stream)
    value = np.from_dlpack(source)
    return value if source.dtype is None else value.view(source.dtype)


class _Integers:
    """Adapter that presents another library's array as unsigned integers if NumPy does not exchange its dtype."""

    def __init__(self, external: Any) -> None:
        self._external = external
        self.dtype: np.dtype | None = None

    def __dlpack_device__(self) -> tuple[int, int]:
        result: tuple[int, int] = self._external.__dlpack_device__()
        return result

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._external.__dlpack__(**options)
        tensor = _get_tensor(capsule)
        for name, code in CODES.items():
            if tensor.code == code and tensor.lanes == 1:
                self.dtype = dtypes.storage(dtypes.as_dtype(name))
                tensor.code = _UNSIGNED
        return capsule


class _AtAddresses(_Integers):
    """Adapter that presents another library's GPU array as one of the host."""

    def __init__(self, external: Any, stream: int) -> None:
        super().__init__(external)
        self._stream = stream

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_DEVICE

    def __dlpack__(self, max_version: Any = None, **options: Any) -> Any:
        try:
            capsule = super().__dlpack__(stream=self._stream, max_version=max_version)
        except TypeError:  # a library without versioned capsules
            capsule = super().__dlpack__(stream=self._stream)
        tensor = _get_tensor(capsule)
        tensor.device_type, tensor.device_id = CPU_DEVICE
        return capsule


def _get_tensor(capsule: Any) -> _Tensor:
    """Return the tensor of a capsule, as a mutable structure."""
    address = capsule_address(capsule)
    if capsule_name(capsule) == b"dltensor_versioned":
        result: _Tensor = _Versioned.from_address(address).tensor
        return result
    return _Tensor.from_address(address)
