"""Capsules of Python's C API: pointers with a name."""

from __future__ import annotations

import ctypes
from typing import Any

_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_python.PyCapsule_GetName.restype = ctypes.c_char_p
_python.PyCapsule_GetName.argtypes = [ctypes.py_object]
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def new_capsule(address: int, name: bytes) -> Any:
    """Create a capsule around an address; `name` must outlive it."""
    return _python.PyCapsule_New(address, name, None)


def is_capsule(value: Any) -> bool:
    return type(value).__name__ == "PyCapsule"


def capsule_name(capsule: Any) -> bytes | None:
    result: bytes | None = _python.PyCapsule_GetName(capsule)
    return result


def capsule_address(capsule: Any) -> int:
    """Return the address in a capsule of any name."""
    result: int = _python.PyCapsule_GetPointer(capsule, _python.PyCapsule_GetName(capsule))
    return result
