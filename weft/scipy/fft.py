"""Discrete cosine transforms, by Fourier transforms of the same length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.arguments import index, indices
from weft.base.errors import ArgumentError
from weft.base.publish import publish as _publish
from weft.numpy import fft as _fft
from weft.numpy.manipulation import moveaxis
from weft.numpy.util import (
    canonicalize_axes,
    canonicalize_axis,
    cast,
    combining_ranks,
    ensure_array,
    ensure_arrays,
    promote_dtypes_inexact,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array

_INVERSE_TYPE = {1: 1, 2: 3, 3: 2, 4: 4}
_NORMS = (None, "backward", "ortho", "forward")


def dct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Compute the discrete cosine transform along an axis.

    Args:
        x: an array, real or complex.
        type: of the transform, 1 to 4.
        n: its length: the axis is cut, or padded with zeros, to it.
        axis: along which to transform.
        norm: "backward" (or None: the inverse is scaled), "ortho" (both are, so that they are orthogonal) or "forward".

    >>> import weft.numpy as np
    >>> from weft.scipy.fft import dct
    >>> dct(np.array([1.0, 0.0, 2.0])).round(4)
    Array([ 6.    , -1.7321,  3.    ], dtype=float32)
    """
    return _along("dct", x, type, n, axis, norm, inverse=False)


def idct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Compute the inverse of `dct`. The arguments are the same.

    >>> import weft.numpy as np
    >>> from weft.scipy.fft import dct, idct
    >>> idct(dct(np.array([1.0, 2.0, 3.0]))).round(4)
    Array([1., 2., 3.], dtype=float32)
    """
    return _along("idct", x, type, n, axis, norm, inverse=True)


def dctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """Compute the discrete cosine transform along several axes: by default all, or the last `len(s)` if `s` is given.
    The other arguments are those of `dct`.
    """
    return _over("dctn", x, type, s, axes, norm, inverse=False)


def idctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """Compute the inverse of `dctn`. The arguments are the same."""
    return _over("idctn", x, type, s, axes, norm, inverse=True)


# ------------------------------------------------------------------------------------------------------- how it is done


def _over(name: str, x: Any, type: int, s: Any, axes: Any, norm: str | None, inverse: bool) -> Array:
    (x,) = ensure_arrays(name, x)
    if s is not None:
        s = (index(s),) if isinstance(s, (int, np.integer)) else indices(s, "s")
    if axes is None and s is not None:
        axes = range(x.ndim - len(s), x.ndim)
    axes = canonicalize_axes(axes, x.ndim, name)
    if s is not None and len(s) != len(axes):
        raise ArgumentError(f"{name}: there must be a size for each axis.", received=f"s={s}, axes={axes}")
    for i, axis in enumerate(axes):
        x = _along(name, x, type, None if s is None else s[i], axis, norm, inverse)
    return x


@combining_ranks
def _along(name: str, x: Any, type: int, n: int | None, axis: int, norm: str | None, inverse: bool) -> Array:
    (x,) = (ensure_array(a) for a in promote_dtypes_inexact(*ensure_arrays(name, x)))
    if type not in _INVERSE_TYPE:
        raise ArgumentError(f"{name}: there is no transform of type {type!r}.", fix="type=1, 2, 3 or 4")
    if norm not in _NORMS:
        raise ArgumentError(f"{name}: norm={norm!r} is not implemented.", fix='"backward", "ortho" or "forward"')
    if dtypes.kind(x.dtype) == "c":
        parts = (_along(name, part, type, n, axis, norm, inverse) for part in (lax.real(x), lax.imag(x)))
        return lax.complex(*parts)
    axis = canonicalize_axis(axis, x.ndim, name)
    size = x.shape[axis] if n is None else index(n)
    if size < (2 if type == 1 else 1):
        raise ArgumentError(f"{name}: a transform of type {type} cannot have the length {size}.")
    dtype = x.dtype
    x = moveaxis(x, axis, -1)
    if size != x.shape[-1]:
        x = lax.pad(x, np.zeros((), dtype), [(0, 0, 0)] * (x.ndim - 1) + [(0, size - x.shape[-1], 0)])
    wide = cast(x, np.dtype(np.float32)) if dtype.itemsize < 4 else x
    out = _scale_transform(wide, _INVERSE_TYPE[type] if inverse else type, norm, inverse)
    return moveaxis(cast(out, dtype), -1, axis)


def _scale_transform(x: Array, type: int, norm: str | None, inverse: bool) -> Array:
    """Apply an unnormalised transform along the last axis, with the scale factors of `norm`."""
    count = x.shape[-1]
    length = 2 * (count - 1) if type == 1 else 2 * count
    if norm == "ortho":
        factor = length**-0.5
    else:
        factor = 1 / length if inverse == (norm != "forward") else 1.0
    before, after = np.ones(count), np.full(count, factor)
    if norm == "ortho":  # the first element, and with type 1 the last, count once where the others count twice
        ends = [0, -1] if type == 1 else [0]
        if type in (1, 3):
            before[ends] *= math.sqrt(2)
        if type in (1, 2):
            after[ends] /= math.sqrt(2)
    if (before != 1).any():
        x = x * before.astype(x.dtype)
    x = _TRANSFORMS[type](x)
    return x * after.astype(x.dtype) if (after != 1).any() else x


def _rotation(angles: np.ndarray, dtype: Any) -> np.ndarray:
    """Compute exp(i angle) in double precision."""
    return np.exp(1j * angles).astype(dtypes.to_complex_dtype(dtype))


def _first(x: Array) -> Array:
    """Compute the type-1 transform, as the Fourier transform of the signal mirrored at both ends."""
    both = lax.concatenate([x, lax.rev(x[..., 1:-1], (x.ndim - 1,))], x.ndim - 1)
    return lax.real(_fft.rfft(both))


def _second(x: Array) -> Array:
    """Compute the type-2 transform, as the Fourier transform of the even elements followed by the odd ones in reverse
    order (Makhoul's permutation).
    """
    count, last = x.shape[-1], x.ndim - 1
    shuffled = lax.concatenate([x[..., ::2], lax.rev(x[..., 1::2], (last,))], last)
    spectrum = _fft.rfft(shuffled)
    angles = -np.pi * np.arange(spectrum.shape[-1]) / (2 * count)
    rotated = 2 * spectrum * _rotation(angles, x.dtype)
    rest = -lax.imag(rotated[..., 1 : count - spectrum.shape[-1] + 1])
    return lax.concatenate([lax.real(rotated), lax.rev(rest, (last,))], last)


def _third(x: Array) -> Array:
    """Compute the type-3 transform: the inverse of `_second`, times twice the length."""
    count, last = x.shape[-1], x.ndim - 1
    half = count // 2 + 1
    padded = lax.concatenate([x, lax.full_like(x[..., :1], 0)], last)
    mirrored = lax.rev(padded, (last,))[..., :half]
    angles = np.pi * np.arange(half) / (2 * count)
    spectrum = lax.complex(padded[..., :half], -mirrored) * _rotation(angles, x.dtype)
    shuffled = _fft.irfft(spectrum, count) * count
    even, odd = shuffled[..., : (count + 1) // 2], lax.rev(shuffled[..., (count + 1) // 2 :], (last,))
    if count == 1:
        return even
    pairs = lax.concatenate([even[..., : count // 2, None], odd[..., None]], last + 1)
    merged = lax.reshape(pairs, (*x.shape[:-1], 2 * (count // 2)))
    return lax.concatenate([merged, even[..., count // 2 :]], last) if count % 2 else merged


def _fourth(x: Array) -> Array:
    count = x.shape[-1]
    steps = np.arange(count)
    rotated = x * _rotation(-np.pi * steps / (2 * count), x.dtype)
    spectrum = _fft.fft(rotated, 2 * count)[..., :count]
    return 2 * lax.real(spectrum * _rotation(-np.pi * (steps + 0.5) / (2 * count), x.dtype))


_TRANSFORMS = {1: _first, 2: _second, 3: _third, 4: _fourth}

_publish(__name__)
