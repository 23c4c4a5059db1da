"""BLAS and LAPACK as SciPy offers them to other compiled code: addresses in capsules, and how many threads they use.

The functions take nothing but pointers, as Fortran does: to characters, 32-bit integers and floats. They need no GIL.
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

# Which of SciPy's modules has a function, by the beginning of the symbol under which our code calls it.
MODULES = {"weft_blas_": "cython_blas", "weft_lapack_": "cython_lapack"}
# How libraries call the functions that return and set the number of their threads.
THREAD_CONTROLS = (
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
)


@functools.cache
def _module(name: str) -> ModuleType:
    """A module of compiled code in `scipy.linalg`."""
    if "scipy.linalg" not in sys.modules:
        try:
            return _without_its_package(f"scipy.linalg.{name}")
        except ImportError:
            pass
    from scipy.linalg import cython_blas, cython_lapack

    return cython_blas if name == "cython_blas" else cython_lapack


def _without_its_package(whole: str) -> ModuleType:
    """A module of `scipy.linalg` alone: the package imports all of itself, which takes ten times longer.

    The module is not left among those imported. Who imports it later gets the same one, and as part of its package.
    """
    import scipy

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
    """The capsule of a function, and the signature that is its name."""
    for beginning, name in MODULES.items():
        if symbol.startswith(beginning):
            capsule = _module(name).__pyx_capi__[symbol.removeprefix(beginning)]
            ask = ctypes.pythonapi.PyCapsule_GetName
            ask.restype, ask.argtypes = ctypes.c_char_p, [ctypes.py_object]
            return capsule, ask(capsule)
    raise InternalError(f"There is no function {symbol} of BLAS or LAPACK.")


@functools.cache
def address(symbol: str) -> int:
    """Where a function is: `weft_blas_sgemm` is `sgemm` of BLAS."""
    capsule, signature = _capsule(symbol)
    if not signature.startswith(b"void (") or not (b"(int *" in signature or b", int *" in signature):
        raise InternalError(f"SciPy's {symbol} is {signature.decode()}: it does not take 32-bit integers.")
    ask = ctypes.pythonapi.PyCapsule_GetPointer
    ask.restype, ask.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ask(capsule, signature)


def is_capsule(symbol: str) -> bool:
    """Whether a name is that of a function of BLAS or LAPACK."""
    return symbol.startswith(tuple(MODULES))


@functools.cache
def thread_control() -> tuple[int, int] | None:
    """Addresses of `int get()` and `void set(int)` for the threads of the library that SciPy calls, where it has any.

    Symbols are looked for in SciPy's module and what it is linked with, so that of several libraries in the process it
    is the right one.
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
    """Call a function from Python: characters, integers and arrays become pointers, None one to nothing."""
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
    """How many elements of work space a query asks for. Large ones may have been rounded down to a short float."""
    asked = sizes.real[0] if sizes.dtype.kind in "fc" else sizes[0]
    if sizes.dtype.kind in "fc" and asked >= 1 << 23:
        asked = np.nextafter(asked, np.asarray(np.inf, asked.dtype))
    return max(1, int(asked))


def query(symbol: str, *arguments: Any, answers: Sequence[np.ndarray]) -> list[int]:
    """The best sizes of work space: what a call with sizes of -1 leaves in the first element of each."""
    call(symbol, *arguments)
    return [best_work(answer) for answer in answers]
