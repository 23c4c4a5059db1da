"""Fourier transforms by SciPy's compiled code."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.lazy import lazy
from weft.compiler.target.cpu import pool
from weft.compiler.target.evaluation import plan_evaluation
from weft.compiler.target.library_call import HOST, LibraryCall, get_arrays
from weft.ir.jaxpr import Equation
from weft.primitives.linalg.fft import FftType

fft = lazy("scipy.fft")

# Least bytes of a transform that threads share.
SHARED = 1 << 18
# SciPy's compiled transforms: from version 1.18 on, and before.
_MODULES = ("scipy.fft._duccfft.pyduccfft", "scipy.fft._pocketfft.pypocketfft")
# SciPy's codes for scaling: none, and by one over the number of elements.
_NOT, _INVERSE = 0, 2


class PublicTransforms:
    """Interface of SciPy's compiled transforms, implemented by the public `scipy.fft`."""

    def c2c(self, x: Any, axes: Any, forward: bool, scale: int, out: np.ndarray, threads: int) -> None:
        out[...] = (fft.fftn if forward else fft.ifftn)(x, axes=axes, workers=threads)

    def r2c(self, x: Any, axes: Any, forward: bool, scale: int, out: np.ndarray, threads: int) -> None:
        out[...] = fft.rfftn(x, axes=axes, workers=threads)

    def c2r(self, x: Any, axes: Any, last: int, forward: bool, scale: int, out: np.ndarray, threads: int) -> None:
        lengths = (*(x.shape[axis] for axis in axes[:-1]), last)
        out[...] = fft.irfftn(x, s=lengths, axes=axes, workers=threads)


@functools.cache
def transforms() -> Any:
    """Return SciPy's compiled transforms with functions c2c, r2c and c2r. They are loaded without their package, whose
    import takes half a second; if they are not where the known versions have them, the public package is used."""
    (folder,) = importlib.util.find_spec("scipy").submodule_search_locations  # type: ignore[union-attr, misc]
    for name in _MODULES:
        stem = pathlib.Path(folder, *name.split(".")[1:])
        for path in (stem.with_name(stem.name + suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES):
            if path.exists():
                loader = importlib.machinery.ExtensionFileLoader(name, str(path))
                spec = importlib.util.spec_from_file_location(name, path, loader=loader)
                assert spec is not None
                module = importlib.util.module_from_spec(spec)
                loader.exec_module(module)
                return module
    return PublicTransforms()


def plan_fft(equation: Equation) -> LibraryCall:
    """Plan a transform that is written directly to its result."""
    kind, lengths = FftType(equation.params["fft_type"]), equation.params["fft_lengths"]
    axes = tuple(range(-len(lengths), 0))
    forward = kind in (FftType.FFT, FftType.RFFT)
    scale = _NOT if forward else _INVERSE
    module = transforms()
    # SciPy transforms the contiguous axis first, but not in place, and scales along the first axis. So that the bits do
    # not depend on aliasing, the order is fixed here: the last axis is first, none has length 1.
    order = tuple(a for a in reversed(axes) if lengths[a] != 1) or axes[-1:]

    def host(x: np.ndarray, *, out: Sequence[np.ndarray]) -> None:
        threads = pool.threads() if x.nbytes >= SHARED else 1
        if same:
            module.c2c(x, order, forward, scale, out[0], threads)
        elif forward:
            module.r2c(x, axes, True, scale, out[0], threads)
        else:
            module.c2r(x, axes, lengths[-1], False, scale, out[0], threads)

    (x,) = get_arrays(equation.invars)
    same = kind in (FftType.FFT, FftType.IFFT)
    if not x.size or 0 in lengths:
        return plan_evaluation(equation)
    return LibraryCall(routine=HOST, host=host, in_place=((0, 0),) if same else ())
