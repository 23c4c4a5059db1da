"""Convolutions and correlations of arrays of any rank, directly or by Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.errors import ArgumentError, ShapeMismatchError
from weft.numpy import fft
from weft.numpy.complex_parts import conjugate
from weft.numpy.manipulation import flip
from weft.numpy.padding import pad
from weft.numpy.util import canonicalize_axes, cast, ensure_array, ensure_arrays, promote_dtypes_inexact
from weft.trace.array import Array

_MODES = ("full", "same", "valid")
# How the input is continued, by the names of `weft.numpy.pad`.
_BOUNDARIES = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Array:
    """Convolve two arrays of equal rank.

    Args:
        in1: an array.
        in2: another one; integers are convolved as floats.
        mode: "full" for all positions in which they overlap; "same" for the middle of that, in the shape of in1;
            "valid" for those in which the smaller one is all inside of the other.
        method: "direct" (also "auto"), or "fft", which is faster for large arrays and less exact.
        precision: that of the contractions of the method "direct".

    >>> import weft.numpy as np
    >>> from weft.scipy.signal import convolve
    >>> convolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0]))
    Array([1., 3., 5., 3.], dtype=float32)
    """
    a, b = _operands("convolve", in1, in2, mode)
    return _convolve("convolve", a, b, mode, method, precision)


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Array:
    """Cross-correlate two arrays of equal rank: convolve with the second one reversed and conjugated. The arguments are
    those of `convolve`.

    >>> import weft.numpy as np
    >>> from weft.scipy.signal import correlate
    >>> correlate(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0]))
    Array([2., 5., 8., 3.], dtype=float32)
    """
    a, b = _operands("correlate", in1, in2, mode)
    return _convolve("correlate", a, flip(conjugate(b)), mode, method, precision)


def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0, precision: Any = None
) -> Array:
    """Convolve two matrices.

    Args:
        in1: a matrix.
        in2: another one.
        mode: as in `convolve`.
        boundary: what is outside of in1: "fill" (`fillvalue`), "wrap" (in1 again) or "symm" (in1 backwards).
        fillvalue: the value outside, with the boundary "fill".
        precision: that of the contractions.
    """
    a, b = _operands("convolve2d", in1, in2, mode, rank=2)
    return _convolve_with_boundary("convolve2d", a, b, mode, boundary, fillvalue, precision, late=False)


def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0, precision: Any = None
) -> Array:
    """Cross-correlate two matrices. The arguments are those of `convolve2d`."""
    a, b = _operands("correlate2d", in1, in2, mode, rank=2)
    return _convolve_with_boundary(
        "correlate2d", a, flip(conjugate(b)), mode, boundary, fillvalue, precision, late=True
    )


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Sequence[int] | int | None = None) -> Array:
    """Convolve two arrays by Fourier transforms.

    Args:
        in1: an array.
        in2: another one of the same rank.
        mode: as in `convolve`.
        axes: along which to convolve, all by default; the other axes broadcast.
    """
    a, b = _operands("fftconvolve", in1, in2, mode)
    return _by_fft("fftconvolve", a, b, mode, canonicalize_axes(axes, a.ndim, "fftconvolve"))


# ------------------------------------------------------------------------------------------------------- how it is done


def _operands(name: str, in1: Any, in2: Any, mode: str, rank: int | None = None) -> tuple[Array, Array]:
    a, b = (ensure_array(x) for x in promote_dtypes_inexact(*ensure_arrays(name, in1, in2)))
    received = f"{a.aval.short()} and {b.aval.short()}"
    if mode not in _MODES:
        raise ArgumentError(f"{name}: mode must be one of {list(_MODES)}.", received=f"mode={mode!r}")
    if rank is not None and (a.ndim, b.ndim) != (rank, rank):
        raise ShapeMismatchError(f"{name}() only supports {rank}-dimensional inputs.", received=received)
    if a.ndim != b.ndim:
        raise ShapeMismatchError(f"{name}: in1 and in2 must have the same number of dimensions.", received=received)
    if 0 in (*a.shape, *b.shape):
        raise ArgumentError(f"{name}: inputs cannot be empty.", received=received)
    return a, b


def _convolve(name: str, a: Array, b: Array, mode: str, method: str, precision: Any) -> Array:
    if method == "fft":
        return _by_fft(name, a, b, mode, tuple(range(a.ndim)))
    if method not in ("auto", "direct"):
        raise ArgumentError(f"{name}: got method={method!r}.", fix="'auto', 'direct' or 'fft'")
    if mode == "valid":
        a, b = _larger_first(name, a, b, range(a.ndim))
    return _direct(a, b, [_padding(m, mode) for m in b.shape], precision)


def _direct(a: Array, b: Array, padding: Sequence[tuple[int, int]], precision: Any) -> Array:
    if not a.ndim:
        return a * b
    out = lax.conv_general_dilated(a[None, None], flip(b)[None, None], (1,) * a.ndim, padding, precision=precision)
    return lax.squeeze(out, (0, 1))


def _padding(kernel: int, mode: str, late: bool = False) -> tuple[int, int]:
    """Return the padding before and after an axis; `late` chooses the later of two middles of the full result for
    "same".
    """
    if mode == "full":
        return kernel - 1, kernel - 1
    if mode == "same":
        start = kernel // 2 if late else (kernel - 1) // 2
        return kernel - 1 - start, start
    return 0, 0


def _larger_first(name: str, a: Array, b: Array, axes: Sequence[int]) -> tuple[Array, Array]:
    """Order the operands such that the first is at least as large as the second along all axes."""
    if all(a.shape[axis] >= b.shape[axis] for axis in axes):
        return a, b
    if all(b.shape[axis] >= a.shape[axis] for axis in axes):
        return b, a
    raise ShapeMismatchError(
        f"{name}: for 'valid' mode, one must be at least as large as the other in every dimension.",
        received=f"{a.aval.short()} and {b.aval.short()}",
        fix="mode='full' or 'same'",
    )


def _convolve_with_boundary(
    name: str, a: Array, b: Array, mode: str, boundary: str, fillvalue: Any, precision: Any, late: bool
) -> Array:
    """Convolve matrices with the values of `boundary` outside of the first."""
    if boundary not in _BOUNDARIES:
        raise ArgumentError(f"{name}: there is no boundary {boundary!r}.", fix=f"one of {', '.join(_BOUNDARIES)}")
    if mode == "valid":  # nothing outside counts
        return _convolve(name, a, b, mode, "direct", precision)
    reach = [_padding(m, mode, late) for m in b.shape]
    if boundary == "fill" and isinstance(fillvalue, (int, float, complex)) and fillvalue == 0:
        return _direct(a, b, reach, precision)
    options = {"constant_values": cast(ensure_array(fillvalue), a.dtype)} if boundary == "fill" else {}
    return _direct(pad(a, reach, _BOUNDARIES[boundary], **options), b, [(0, 0)] * 2, precision)


def _by_fft(name: str, a: Array, b: Array, mode: str, axes: tuple[int, ...]) -> Array:
    rest = [axis for axis in range(a.ndim) if axis not in axes]
    if any(a.shape[i] != b.shape[i] and 1 not in (a.shape[i], b.shape[i]) for i in rest):
        raise ShapeMismatchError(
            f"{name}: axes that are not convolved must have the same sizes, or sizes of 1.",
            received=f"{a.aval.short()} and {b.aval.short()}, axes={axes}",
        )
    if mode == "valid":
        a, b = _larger_first(name, a, b, axes)
    if not axes:
        return a * b
    full = [a.shape[axis] + b.shape[axis] - 1 for axis in axes]
    sizes = [fast_length(n) for n in full]
    dtype = a.dtype
    if dtype.itemsize < 4:
        a, b = (cast(x, np.dtype(np.float32)) for x in (a, b))
    if dtypes.kind(dtype) == "c":
        out = fft.ifftn(fft.fftn(a, sizes, axes) * fft.fftn(b, sizes, axes), sizes, axes)
    else:
        out = fft.irfftn(fft.rfftn(a, sizes, axes) * fft.rfftn(b, sizes, axes), sizes, axes)
    start, stop = [0] * a.ndim, list(out.shape)
    for axis, n in zip(axes, full, strict=True):
        size = {"full": n, "same": a.shape[axis], "valid": a.shape[axis] - b.shape[axis] + 1}[mode]
        start[axis] = (n - size) // 2
        stop[axis] = start[axis] + size
    return cast(lax.slice(out, start, stop), dtype)


def fast_length(length: int) -> int:
    """Return the least integer from `length` up without a prime factor above 5."""
    best = 1 << (length - 1).bit_length()
    fives = 1
    while fives < best:
        threes = fives
        while threes < best:
            twos = threes << max(math.ceil(length / threes) - 1, 0).bit_length()
            best = min(best, twos) if twos >= length else best
            threes *= 3
        fives *= 5
    return best
