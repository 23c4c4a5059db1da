"""Triangular systems by cuBLAS, and multiplication by a number."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_float, c_int, c_size_t, c_void_p
from typing import Any

from weft.base import dtypes
from weft.base.errors import JaxRuntimeError
from weft.base.forks import held
from weft.compiler.target.cuda.library.calls import DTYPES, TriangularCall
from weft.runtime.cuda.libraries.calls import LibraryCalls

# Letters of dtypes in the names of LAPACK and BLAS.
LETTERS = {"float32": "S", "float64": "D", "complex64": "C", "complex128": "Z"}
WORKSPACE = 4 << 20
LEFT, RIGHT, LOWER, UPPER = 0, 1, 0, 1

_TRSM = (c_void_p, *[c_int] * 6, c_void_p, c_void_p, c_int, c_void_p, c_int)
_SCAL = (c_void_p, c_int, c_void_p, c_void_p, c_int)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (POINTER(c_void_p),),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    **{f"cublas{letter}trsm_v2": _TRSM for letter in "SDCZ"},
    **{f"cublas{letter}scal_v2": _SCAL for letter in "SD"},
}


def make_scalar(dtype: Any, value: float) -> Any:
    """Return a scalar of the host in a dtype, for the library."""
    part = c_double if dtypes.name(dtype) in ("float64", "complex128") else c_float
    return (part * 2)(value, 0) if dtypes.kind(dtype) == "c" else part(value)


class Cublas:
    """Library opened for a GPU. Callers hold the lock, since the handle has the stream."""

    def __init__(self, library: Any) -> None:
        self._functions = {name: getattr(library, name) for name in _FUNCTIONS}
        for name, arguments in _FUNCTIONS.items():
            self._functions[name].argtypes, self._functions[name].restype = arguments, c_int
        self.lock = held(threading.RLock())
        self.process = os.getpid()
        self.handle = c_void_p()
        self("cublasCreate_v2", byref(self.handle))

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function; raise if it reports an error."""
        status = self._functions[name](*arguments)
        if status:
            raise JaxRuntimeError(f"cuBLAS reports an error in {name}: status {status}.")

    def enter(self, stream: Any, workspace: int) -> None:
        """Set the stream and the temporary memory of later calls."""
        self("cublasSetStream_v2", self.handle, stream)
        self("cublasSetWorkspace_v2", self.handle, workspace, WORKSPACE)


class Triangular:
    """Batch of triangular systems."""

    workspace = WORKSPACE

    def __init__(self, calls: LibraryCalls, integers: Sequence[int], alignments: Sequence[int]) -> None:
        self.call = TriangularCall.of(integers)
        self._lib: Cublas = calls.library("cublas", Cublas)
        self._driver = calls.driver
        self._one = make_scalar(DTYPES[self.call.dtype], 1)

    def __call__(self, stream: Any, addresses: Sequence[int], workspace: int) -> None:
        """Start the solves: b is copied to the result, and solved there."""
        call, (a, b, out) = self.call, addresses
        dtype = DTYPES[call.dtype]
        matrix, sides = call.size * call.size * dtype.itemsize, call.size * call.others * dtype.itemsize
        if out != b:
            self._driver.copy_in_stream(stream, out, b, call.batch * sides)
        sizes = (call.size, call.others) if call.right else (call.others, call.size)
        name = f"cublas{LETTERS[dtypes.name(dtype)]}trsm_v2"
        with self._lib.lock:
            self._lib.enter(stream, workspace)
            for n in range(call.batch):
                self._lib(
                    name, self._lib.handle, LEFT if call.right else RIGHT, UPPER if call.lower else LOWER,
                    call.operation, call.unit, *sizes, ctypes.byref(self._one), a + n * matrix, call.size,
                    out + n * sides, sizes[0],
                )  # fmt: skip
