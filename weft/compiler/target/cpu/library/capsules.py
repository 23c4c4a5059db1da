"""BLAS and LAPACK as SciPy exports them to compiled code: addresses in capsules, and control over their threads.

As in Fortran, the functions take only pointers: to characters, 32-bit integers and floats. They do not need the GIL.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import importlib.util
import pathlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from weft.base.errors import InternalError
from weft.base.lazy import lazy, load

scipy = lazy("scipy")

# SciPy's module of a function, by the prefix of the symbol under which our code calls it.
MODULES = {"weft_blas_": "cython_blas", "weft_lapack_": "cython_lapack"}
# Names that libraries give to the functions that return and set their number of threads.
THREAD_CONTROLS = (
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
)


@functools.cache
def _module(name: str) -> ModuleType:
    """Return a compiled module of `scipy.linalg`."""
    if "scipy.linalg" not in sys.modules:
        try:
            return _without_its_package(f"scipy.linalg.{name}")
        except ImportError:
            pass
    result: ModuleType = load(f"scipy.linalg.{name}")
    return result


def _without_its_package(whole: str) -> ModuleType:
    """Import a module of `scipy.linalg` without its package, whose import takes ten times longer.

    The module is removed from `sys.modules` again. A later import returns the same module, as a part of its package.
    """
    folder = str(pathlib.Path(scipy.__file__).parent / "linalg")
    spec = importlib.machinery.PathFinder.find_spec(whole, [folder])
    if spec is None or spec.loader is None:
        raise ImportError(whole)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules.pop(whole, None)
    return module


def _capsule(symbol: str) -> tuple[Any, bytes]:
    """Return the capsule of a function, and the signature that is the capsule's name."""
    for beginning, name in MODULES.items():
        if symbol.startswith(beginning):
            capsule = _module(name).__pyx_capi__[symbol.removeprefix(beginning)]
            ask = ctypes.pythonapi.PyCapsule_GetName
            ask.restype, ask.argtypes = ctypes.c_char_p, [ctypes.py_object]
            return capsule, ask(capsule)
    raise InternalError(f"Unknown function of BLAS or LAPACK: {symbol}.")


@functools.cache
def address(symbol: str) -> int:
    """Return the address of a function: `weft_blas_sgemm` is `sgemm` of BLAS."""
    capsule, signature = _capsule(symbol)
    if not signature.startswith(b"void (") or not (b"(int *" in signature or b", int *" in signature):
        raise InternalError(f"SciPy's {symbol} must take 32-bit integers; got {signature.decode()}.")
    ask = ctypes.pythonapi.PyCapsule_GetPointer
    ask.restype, ask.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    result: int = ask(capsule, signature)
    return result


def is_capsule(symbol: str) -> bool:
    """Return whether a symbol names a function of BLAS or LAPACK."""
    return symbol.startswith(tuple(MODULES))


@functools.cache
def thread_control() -> tuple[int, int] | None:
    """Return the addresses of `int get()` and `void set(int)` for the threads of SciPy's BLAS, or None if it exports
    neither.

    Symbols are looked up in SciPy's module and the libraries it is linked with, so that of several BLAS libraries in
    the process this is the right one.
    """
    try:
        library = ctypes.CDLL(_module("cython_blas").__file__)
    except (OSError, TypeError):
        return None
    for get, set in THREAD_CONTROLS:
        try:
            found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in (get, set)]
        except AttributeError:
            continue
        return found[0] or 0, found[1] or 0
    return None


@functools.cache
def _function(symbol: str) -> Any:
    count = _capsule(symbol)[1].count(b"*")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)(address(symbol))


def call(symbol: str, *arguments: str | int | np.ndarray | None) -> None:
    """Call a function from Python: characters, integers and arrays are passed as pointers, None as a null pointer."""
    held: list[Any] = []
    for argument in arguments:
        if isinstance(argument, str):
            held.append(ctypes.c_char(argument.encode()))
        elif isinstance(argument, int):
            held.append(ctypes.c_int(argument))
        else:
            held.append(argument)
    _function(symbol)(*(h.ctypes.data if isinstance(h, np.ndarray) else None if h is None else _at(h) for h in held))


def _at(held: Any) -> int:
    return ctypes.addressof(held)


def best_work(sizes: np.ndarray) -> int:
    """Return the elements of work space that a query's answer asks for. Large answers may have been rounded down to a
    float."""
    asked = sizes.real[0] if sizes.dtype.kind in "fc" else sizes[0]
    if sizes.dtype.kind in "fc" and asked >= 1 << 23:
        asked = np.nextafter(asked, np.asarray(np.inf, asked.dtype))
    return max(1, int(asked))


def query(symbol: str, *arguments: Any, answers: Sequence[np.ndarray]) -> list[int]:
    """Call with work sizes of -1 and return the best sizes, which LAPACK stores in the first element of each answer."""
    call(symbol, *arguments)
    return [best_work(answer) for answer in answers]
