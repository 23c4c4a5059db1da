"""Discrete Fourier transforms with NumPy's names, and their frequencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError
from weft.base.publish import publish as _publish
from weft.indexing.dimension import is_symbolic
from weft.lax.fft import FftType, fft as transform
from weft.numpy.argument_docs import document
from weft.numpy.complex_parts import conjugate
from weft.numpy.creation import put_array
from weft.numpy.elementwise import true_divide
from weft.numpy.util import (
    canonical_dtype,
    canonicalize_axis,
    cast,
    ensure_array,
    ensure_arrays,
    get_shape,
    promote_dtypes_inexact,
)
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array

# The factor of each normalization is the number of elements to this power, for transforms and for inverses.
_FORWARD = {"backward": 0.0, "ortho": -0.5, "forward": -1.0}
_INVERSE = {"backward": 0.0, "ortho": 0.5, "forward": 1.0}


def _factor(inverse: bool, norm: str | None, lengths: Sequence[int]) -> float:
    """Return the factor to apply to the plain transform; a plain inverse already divides by the number of elements."""
    table = _INVERSE if inverse else _FORWARD
    try:
        power = table[norm or "backward"]
    except KeyError:
        raise ArgumentError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".') from None
    return float(math.prod(lengths)) ** power


def _resize(x: Array, sizes: Sequence[int]) -> Array:
    """Crop the last dimensions, or pad them with zeros, to these sizes."""
    lead = x.ndim - len(sizes)
    if x.shape[lead:] == tuple(sizes):
        return x
    config = [(0, 0, 0)] * lead + [(0, n - have, 0) for n, have in zip(sizes, x.shape[lead:], strict=True)]
    return lax.pad(x, np.zeros((), x.dtype), config)


def _transform(name: str, kind: FftType, a: Any, s: Any, axes: Any, norm: str | None) -> Array:
    """Compute any transform: move the axes to the end, crop or pad, transform, scale, move back."""
    (x,) = promote_dtypes_inexact(*ensure_arrays(name, a))
    if kind is FftType.RFFT and dtypes.kind(x.dtype) == "c":
        raise ArgumentError(f"only real valued inputs supported for {name}; use {name.replace('r', '', 1)}.")
    if s is not None:
        s = tuple(index(n) for n in s)
        if any(n <= 0 for n in s):
            raise ArgumentError(f"Shape should be positive, got {s} for {name}.")
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    axes = [canonicalize_axis(axis, x.ndim, name) for axis in axes]
    if len(set(axes)) != len(axes):
        raise ArgumentError(f"{name} does not support repeated axes. Got axes {tuple(axes)}.")
    if s is not None and len(s) != len(axes):
        raise ArgumentError(f"{name} got {len(s)} sizes {s} for {len(axes)} axes {tuple(axes)}.")
    if not axes:
        return x if kind is FftType.RFFT else cast(x, dtypes.to_complex_dtype(x.dtype))
    batch_axes = [i for i in range(x.ndim) if i not in axes]
    order = [*batch_axes, *axes]
    moved = order != list(range(x.ndim))
    if moved:
        x = lax.transpose(x, order)
    if s is None:
        s = x.shape[len(batch_axes) :]
        if kind is FftType.IRFFT:
            s = (*s[:-1], max(2 * (s[-1] - 1), 0))
    x = _resize(x, (*s[:-1], s[-1] // 2 + 1) if kind is FftType.IRFFT else s)
    empty = any(type(n) is int and n == 0 for n in s)  # sums of nothing need no factor
    factor = 1.0 if empty else _factor(kind in (FftType.IFFT, FftType.IRFFT), norm, s)
    out = transform(x, kind, s)
    if factor != 1.0:
        out = lax.mul(out, np.asarray(factor, out.dtype))
    return lax.transpose(out, [order.index(i) for i in range(x.ndim)]) if moved else out


def _along(name: str, kind: FftType, a: Any, n: int | None, axis: int, norm: str | None) -> Array:
    if not isinstance(axis, (int, np.integer)):
        raise ArgumentError(f"{name} does not support multiple axes. Please use {name}n. Got axis = {axis!r}.")
    return _transform(name, kind, a, None if n is None else (n,), (axis,), norm)


@document(
    "Complex numbers, of the shape of `a` with size `n` along the axis.",
    a="an array of real or complex numbers.",
    axis="the axis.",
)
def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Compute the Fourier transform along an axis, cropped or padded with zeros to size `n`.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.fft(wnp.array([1.0, 0.0, 0.0, 0.0]))
    Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _along("fft", FftType.FFT, a, n, axis, norm)


@document(
    "Complex numbers, of the shape of `a` with size `n` along the axis.",
    a="an array of real or complex numbers.",
    axis="the axis.",
)
def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Compute the inverse Fourier transform along an axis.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.ifft(wnp.array([4.0, 0.0, 0.0, 0.0]))
    Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _along("ifft", FftType.IFFT, a, n, axis, norm)


@document("Complex numbers, `n // 2 + 1` of them along the axis.", a="an array of real numbers.", axis="the axis.")
def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Compute the transform of a real signal: the half of the spectrum that determines the rest.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.rfft(wnp.array([1.0, 0.0, 0.0, 0.0]))
    Array([1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _along("rfft", FftType.RFFT, a, n, axis, norm)


def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Compute the real signal of size `n` (by default even) from its half spectrum.

    Args:
        a: an array of real or complex numbers.
        n: the size of the result along the axis; twice the size of `a` minus 2 by default.
        axis: the axis.
        norm: "backward" (the default) scales the inverse by 1/n, "forward" the transform, "ortho" both by 1/sqrt(n).

    Returns:
        Real numbers.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.irfft(fft.rfft(wnp.array([1.0, 2.0, 3.0, 4.0]))).round(3)
    Array([1., 2., 3., 4.], dtype=float32)
    """
    return _along("irfft", FftType.IRFFT, a, n, axis, norm)


_SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _swap_norm(norm: str | None) -> str:
    """Swap the normalizations of transform and inverse: a transform to a real signal is an inverse one."""
    return _SWAPPED.get(norm, norm)  # type: ignore[return-value]


def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Compute the real spectrum of a signal from one half of it, the other being its mirrored conjugate."""
    (x,) = ensure_arrays("hfft", a)
    return _along("irfft", FftType.IRFFT, conjugate(x), n, axis, _swap_norm(norm))


def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Compute half of the signal from its real spectrum: the inverse of `hfft`."""
    return conjugate(_along("rfft", FftType.RFFT, a, n, axis, _swap_norm(norm)))


@document("Complex numbers.", a="an array of real or complex numbers.")
def fftn(a: ArrayLike, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """Compute the transform over several axes, all by default, cropped or padded to the sizes `s`.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.fftn(wnp.ones((2, 2)))
    Array([[4.+0.j, 0.+0.j],
           [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return _transform("fftn", FftType.FFT, a, s, axes, norm)


@document("Complex numbers.", a="an array of real or complex numbers.")
def ifftn(a: ArrayLike, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """Compute the inverse transform over several axes.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.ifftn(fft.fftn(wnp.ones((2, 2)))).real
    Array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    return _transform("ifftn", FftType.IFFT, a, s, axes, norm)


@document("Complex numbers; the last transformed axis has half of its spectrum.", a="an array of real numbers.")
def rfftn(a: ArrayLike, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """Compute the transform of real numbers over several axes; the last of them keeps half of its spectrum.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.rfftn(wnp.ones((2, 4))).shape
    (2, 3)
    """
    return _transform("rfftn", FftType.RFFT, a, s, axes, norm)


@document("Real numbers.", a="an array of real or complex numbers.")
def irfftn(a: ArrayLike, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """Compute the inverse of `rfftn`; `s` are the sizes of the result.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.irfftn(fft.rfftn(wnp.ones((2, 4)))).shape
    (2, 4)
    """
    return _transform("irfftn", FftType.IRFFT, a, s, axes, norm)


def _plane(name: str, kind: FftType, a: Any, s: Any, axes: Any, norm: str | None) -> Array:
    if len(axes) != 2:
        raise ArgumentError(f"{name} only supports 2 axes. Got axes = {axes!r}.")
    return _transform(name, kind, a, s, axes, norm)


@document("Complex numbers.", a="an array of real or complex numbers.", axes="the two axes.")
def fft2(a: ArrayLike, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """Compute the transform over two axes.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.fft2(wnp.ones((2, 2))).real
    Array([[4., 0.],
           [0., 0.]], dtype=float32)
    """
    return _plane("fft2", FftType.FFT, a, s, axes, norm)


@document("Complex numbers.", a="an array of real or complex numbers.", axes="the two axes.")
def ifft2(a: ArrayLike, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """Compute the inverse transform over two axes.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.ifft2(fft.fft2(wnp.ones((2, 2)))).real
    Array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    return _plane("ifft2", FftType.IFFT, a, s, axes, norm)


@document(
    "Complex numbers; the last axis has half of its spectrum.",
    a="an array of real or complex numbers.",
    axes="the two axes.",
)
def rfft2(a: ArrayLike, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """Compute the transform of real numbers over two axes.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.rfft2(wnp.ones((2, 4))).shape
    (2, 3)
    """
    return _plane("rfft2", FftType.RFFT, a, s, axes, norm)


@document("Real numbers.", a="an array of real or complex numbers.", axes="the two axes.")
def irfft2(a: ArrayLike, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """Compute the inverse of `rfft2`.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.irfft2(fft.rfft2(wnp.ones((2, 4)))).shape
    (2, 4)
    """
    return _plane("irfft2", FftType.IRFFT, a, s, axes, norm)


def _frequencies(name: str, n: Any, d: Any, dtype: Any, indices: np.ndarray) -> Array:
    out_dtype = dtypes.default_float_dtype() if dtype is None else canonical_dtype(dtype, name)
    if isinstance(d, (list, tuple)) or get_shape(d):
        raise ArgumentError(f"The d argument of {name} only takes a single value. Got d = {d!r}.")
    spacing = cast(ensure_array(d), out_dtype)
    return true_divide(ensure_array(indices.astype(out_dtype)), lax.mul(spacing, np.asarray(n, out_dtype)))


def _count(name: str, n: Any) -> int:
    try:
        return index(n)
    except TypeError:
        raise ArgumentError(f"The n argument of {name} only takes an int. Got n = {n!r}.") from None


def fftfreq(n: int, d: Any = 1.0, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """Compute the frequencies of the elements of a transform of size `n`, for samples spaced by `d`."""
    n = _count("fftfreq", n)
    return put_array(_frequencies("fftfreq", n, d, dtype, (np.arange(n) + n // 2) % max(n, 1) - n // 2), device)


def rfftfreq(n: int, d: Any = 1.0, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """Compute the frequencies of the elements of the half spectrum of a signal of size `n`."""
    n = _count("rfftfreq", n)
    return put_array(_frequencies("rfftfreq", n, d, dtype, np.arange(n // 2 + 1)), device)


def _shift(name: str, x: Any, axes: Any, forward: bool) -> Array:
    (x,) = ensure_arrays(name, x)
    chosen = range(x.ndim) if axes is None else (axes,) if isinstance(axes, (int, np.integer)) else axes
    for axis in chosen:
        axis = canonicalize_axis(axis, x.ndim, name)
        size = x.shape[axis]
        cut = (size + 1) // 2 if forward else size // 2
        if is_symbolic(size) or 0 < cut < size:  # halves of any size may be empty
            halves = [lax.slice_in_dim(x, cut, size, axis=axis), lax.slice_in_dim(x, 0, cut, axis=axis)]
            x = lax.concatenate(halves, axis)
    return x


@document("An array of the same shape.", x="an array.", axes="the axes; all by default.")
def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """Shift frequency zero, which is the first element, to the middle.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.fftshift(wnp.array([0, 1, -2, -1]))
    Array([-2, -1,  0,  1], dtype=int32)
    """
    return _shift("fftshift", x, axes, forward=True)


@document("An array of the same shape.", x="an array.", axes="the axes; all by default.")
def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """Undo `fftshift`.

    >>> import weft.numpy as wnp
    >>> import weft.numpy.fft as fft
    >>> fft.ifftshift(wnp.array([-2, -1, 0, 1]))
    Array([ 0,  1, -2, -1], dtype=int32)
    """
    return _shift("ifftshift", x, axes, forward=False)


_publish(__name__)
