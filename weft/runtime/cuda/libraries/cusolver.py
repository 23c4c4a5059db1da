"""Factorizations of column-major matrices by cuSOLVER."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int, c_int8, c_void_p
from typing import Any

from weft.base import dtypes
from weft.base.errors import JaxRuntimeError
from weft.base.forks import held
from weft.compiler.target.cuda.library.calls import DTYPES, SOLVERS, SolverCall
from weft.compiler.target.cuda.library.solvers import FULL
from weft.runtime.cuda.libraries.calls import LibraryCalls
from weft.runtime.cuda.libraries.cublas import LETTERS, LOWER, UPPER

# Bytes of the status of a routine.
INFO = 4
WITH_VECTORS = 1

_I, _P, _SIZE = c_int, c_void_p, POINTER(c_int)
# Argument types of a routine's workspace query, and of the routine.
_SIZES: dict[str, tuple[Any, ...]] = {
    "potrf": (_P, _I, _I, _P, _I, _SIZE),
    "getrf": (_P, _I, _I, _P, _I, _SIZE),
    "geqrf": (_P, _I, _I, _P, _I, _SIZE),
    "orgqr": (_P, _I, _I, _I, _P, _I, _P, _SIZE),
    "syevd": (_P, _I, _I, _I, _P, _I, _P, _SIZE),
    "gesvd": (_P, _I, _I, _SIZE),
}
_ROUTINES: dict[str, tuple[Any, ...]] = {
    "potrf": (_P, _I, _I, _P, _I, _P, _I, _P),
    "getrf": (_P, _I, _I, _P, _I, _P, _P, _P),
    "geqrf": (_P, _I, _I, _P, _I, _P, _P, _I, _P),
    "orgqr": (_P, _I, _I, _I, _P, _I, _P, _P, _I, _P),
    "syevd": (_P, _I, _I, _I, _P, _I, _P, _P, _I, _P),
    "gesvd": (_P, c_int8, c_int8, _I, _I, _P, _I, _P, _P, _I, _P, _I, _P, _I, _P, _P),
}
# Names of some routines for complex numbers.
_COMPLEX = {"orgqr": "ungqr", "syevd": "heevd"}


class Cusolver:
    """Library opened for a GPU. Callers hold the lock, since the handle has the stream."""

    def __init__(self, library: Any) -> None:
        self._functions: dict[str, Any] = {}
        self._add(library, "cusolverDnCreate", (POINTER(c_void_p),))
        self._add(library, "cusolverDnSetStream", (c_void_p, c_void_p))
        for letter in "SDCZ":
            for routine in SOLVERS:
                name = function_name(routine, letter)
                self._add(library, f"{name}_bufferSize", _SIZES[routine])
                self._add(library, name, _ROUTINES[routine])
        self.lock = held(threading.RLock())
        self.handle = c_void_p()
        self("cusolverDnCreate", byref(self.handle))

    def _add(self, library: Any, name: str, arguments: tuple[Any, ...]) -> None:
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int
        self._functions[name] = function

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function; raise if it reports an error."""
        status = self._functions[name](*arguments)
        if status:
            raise JaxRuntimeError(f"cuSOLVER reports an error in {name}: status {status}.")


def function_name(routine: str, letter: str) -> str:
    """Return the name of the function for a routine and the letter of a dtype."""
    return f"cusolverDn{letter}{_COMPLEX.get(routine, routine) if letter in 'CZ' else routine}"


class Solver:
    """Routine on a batch of matrices."""

    def __init__(self, calls: LibraryCalls, integers: Sequence[int], alignments: Sequence[int]) -> None:
        self.call = call = SolverCall.of(integers)
        self._lib: Cusolver = calls.library("cusolver", Cusolver)
        self._driver = calls.driver
        self._routine, self._dtype = SOLVERS[call.routine], DTYPES[call.dtype]
        self._name = function_name(self._routine, LETTERS[dtypes.name(self._dtype)])
        self._real = self._dtype.itemsize // (2 if dtypes.kind(self._dtype) == "c" else 1)
        rows, columns = call.rows, call.columns
        self._triangle = UPPER if self._routine == "potrf" or call.option else LOWER
        asked: dict[str, tuple[Any, ...]] = {
            "potrf": (self._triangle, rows, None, rows),
            "getrf": (rows, columns, None, rows),
            "geqrf": (rows, columns, None, rows),
            "orgqr": (rows, columns, call.option, None, rows, None),
            "syevd": (WITH_VECTORS, self._triangle, rows, None, rows, None),
            "gesvd": (rows, columns),
        }
        size = c_int()
        with self._lib.lock:
            self._lib(f"{self._name}_bufferSize", self._lib.handle, *asked[self._routine], byref(size))
        self._size = size.value
        self.workspace = max(self._size * self._dtype.itemsize, 1)

    def __call__(self, stream: Any, addresses: Sequence[int], workspace: int) -> None:
        """Start the routine, matrix after matrix."""
        call, item = self.call, self._dtype.itemsize
        matrix = call.rows * call.columns * item
        source, memory = addresses[0], self._memory(addresses)
        if memory != source:
            self._driver.copy_in_stream(stream, memory, source, call.batch * matrix)
        with self._lib.lock:
            self._lib("cusolverDnSetStream", self._lib.handle, stream)
            for n in range(call.batch):
                arguments = self._arguments(n, memory + n * matrix, addresses, workspace)
                self._lib(self._name, self._lib.handle, *arguments)

    def _memory(self, addresses: Sequence[int]) -> int:
        """Return the address of the matrices it works on: its first result, or a copy of the operand."""
        return addresses[{"orgqr": 2, "gesvd": -1}.get(self._routine, 1)]

    def _arguments(self, n: int, a: int, addresses: Sequence[int], work: int) -> tuple[Any, ...]:
        """Return the arguments for the matrix of the batch at address `a`."""
        call, item, size = self.call, self._dtype.itemsize, self._size
        rows, columns, smaller = call.rows, call.columns, min(call.rows, call.columns)
        match self._routine:
            case "potrf":
                return self._triangle, rows, a, rows, work, size, addresses[2] + n * INFO
            case "getrf":
                pivots, info = addresses[2] + n * smaller * 4, addresses[3] + n * INFO
                return rows, columns, a, rows, work, pivots, info
            case "geqrf":
                factors, info = addresses[2] + n * smaller * item, addresses[3] + n * INFO
                return rows, columns, a, rows, factors, work, size, info
            case "orgqr":
                factors, info = addresses[1] + n * call.option * item, addresses[3] + n * INFO
                return rows, columns, call.option, a, rows, factors, work, size, info
            case "syevd":
                values, info = addresses[2] + n * rows * self._real, addresses[3] + n * INFO
                return WITH_VECTORS, self._triangle, rows, a, rows, values, work, size, info
            case _:
                return self._singular(n, a, addresses, work)

    def _singular(self, n: int, a: int, addresses: Sequence[int], work: int) -> tuple[Any, ...]:
        """Return the arguments of gesvd: the transposed matrix has Vᴴ transposed as left vectors, and U as right
        ones.
        """
        call, item = self.call, self._dtype.itemsize
        rows, columns = call.rows, call.columns
        rest = (work, self._size, None)
        if not call.option:
            values, info = addresses[1] + n * columns * self._real, addresses[2] + n * INFO
            nothing = ord("N")
            return nothing, nothing, rows, columns, a, rows, values, None, rows, None, columns, *rest, info
        whole = rows if call.option == FULL else columns
        job = ord("A" if call.option == FULL else "S")
        left = addresses[1] + n * columns * columns * item
        values = addresses[2] + n * columns * self._real
        right = addresses[3] + n * rows * whole * item
        info = addresses[4] + n * INFO
        return job, job, rows, columns, a, rows, values, right, rows, left, columns, *rest, info
