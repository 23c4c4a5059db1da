"""Fourier transforms by cuFFT."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int, c_size_t, c_void_p
from typing import Any

from weft.base import dtypes
from weft.base.errors import JaxRuntimeError
from weft.base.forks import held
from weft.compiler.target.cuda.library.calls import TransformCall
from weft.primitives.linalg.fft import FftType
from weft.runtime.cuda.libraries import cublas
from weft.runtime.cuda.libraries.calls import LibraryCalls
from weft.runtime.cuda.libraries.cublas import Cublas, make_scalar

# cufftType: complex to complex, real to complex, and complex to real; in float32 and float64.
TYPES = {"C2C": 0x29, "R2C": 0x2A, "C2R": 0x2C, "Z2Z": 0x69, "D2Z": 0x6A, "Z2D": 0x6C}
FORWARD, INVERSE = -1, 1

_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cufftCreate": (POINTER(c_int),),
    "cufftSetAutoAllocation": (c_int, c_int),
    "cufftMakePlanMany": (c_int, c_int, POINTER(c_int), *[c_void_p, c_int, c_int] * 2, c_int, c_int, POINTER(c_size_t)),
    "cufftSetStream": (c_int, c_void_p),
    "cufftSetWorkArea": (c_int, c_void_p),
    **{f"cufftExec{name}": (c_int, c_void_p, c_void_p) for name in ("R2C", "C2R", "D2Z", "Z2D")},
    **{f"cufftExec{name}": (c_int, c_void_p, c_void_p, c_int) for name in ("C2C", "Z2Z")},
}


class Cufft:
    """Bindings to the library."""

    def __init__(self, library: Any) -> None:
        self._functions = {name: getattr(library, name) for name in _FUNCTIONS}
        for name, arguments in _FUNCTIONS.items():
            self._functions[name].argtypes, self._functions[name].restype = arguments, c_int

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function; raise if it reports an error."""
        status = self._functions[name](*arguments)
        if status:
            raise JaxRuntimeError(f"cuFFT reports an error in {name}: status {status}.")


class Transform:
    """Transform with its plan. The library does not normalize, so cuBLAS does."""

    def __init__(self, calls: LibraryCalls, integers: Sequence[int], alignments: Sequence[int]) -> None:
        self.call = call = TransformCall.of(integers)
        self._lib: Cufft = calls.library("cufft", Cufft)
        self._driver, self._lock = calls.driver, held(threading.Lock())
        self._kind = kind = FftType(call.kind)
        self._inverse = kind in (FftType.IFFT, FftType.IRFFT)
        self._blas: Cublas | None = calls.library("cublas", Cublas) if self._inverse else None
        several = {FftType.RFFT: ("R2C", "D2Z"), FftType.IRFFT: ("C2R", "Z2D")}.get(kind, ("C2C", "Z2Z"))
        self._name = several[call.double]
        self._plan = c_int()
        size = c_size_t()
        self._lib("cufftCreate", byref(self._plan))
        self._lib("cufftSetAutoAllocation", self._plan, 0)
        lengths = (c_int * len(call.lengths))(*call.lengths)
        self._lib(
            "cufftMakePlanMany", self._plan, len(call.lengths), lengths, None, 1, 0, None, 1, 0, TYPES[self._name],
            call.batch, byref(size),
        )  # fmt: skip
        self._work = -(-int(size.value) // 256) * 256
        self.workspace = self._work + (cublas.WORKSPACE if self._inverse else 0)

    def __call__(self, stream: Any, addresses: Sequence[int], workspace: int) -> None:
        """Start the transform."""
        call = self.call
        source, target, *copied = addresses
        real = dtypes.float64 if call.double else dtypes.float32
        elements = call.batch * math.prod(call.lengths)
        with self._lock:
            if copied:
                half = call.lengths[-1] // 2 + 1
                size = elements // call.lengths[-1] * half * 2 * real.itemsize
                self._driver.copy_in_stream(stream, copied[0], source, size)
                source = copied[0]
            self._lib("cufftSetStream", self._plan, stream)
            self._lib("cufftSetWorkArea", self._plan, workspace)
            direction = (INVERSE if self._inverse else FORWARD,) if self._name in ("C2C", "Z2Z") else ()
            self._lib(f"cufftExec{self._name}", self._plan, source, target, *direction)
        if self._blas is not None:
            reals = elements * (2 if self._kind is FftType.IFFT else 1)
            factor = make_scalar(real, 1 / math.prod(call.lengths))
            with self._blas.lock:
                self._blas.enter(stream, workspace + self._work)
                name = f"cublas{cublas.LETTERS[dtypes.name(real)]}scal_v2"
                self._blas(name, self._blas.handle, reals, byref(factor), target, 1)
