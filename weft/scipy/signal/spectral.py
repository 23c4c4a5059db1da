"""Spectra of signals from Fourier transforms of short, overlapping segments."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.arguments import described, index
from weft.base.errors import ArgumentError, ShapeMismatchError
from weft.base.lazy import lazy
from weft.base.source import user_stacklevel
from weft.numpy import fft
from weft.numpy.complex_parts import conjugate
from weft.numpy.manipulation import broadcast_to, flip, moveaxis
from weft.numpy.reductions import mean, sum as sum_
from weft.numpy.selection import take_in_bounds, where
from weft.numpy.statistics import median
from weft.numpy.util import (
    broadcast_shape,
    canonicalize_axis,
    cast,
    combining_ranks,
    ensure_array,
    ensure_arrays,
    expand_to,
    promote_dtypes_inexact,
)
from weft.scipy.signal.trends import detrend as detrended
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array

signal = lazy("scipy.signal")


class Segments(NamedTuple):
    """Segmentation of a signal: the window each segment is multiplied with, the distance between starts of segments,
    and the length of the Fourier transforms.
    """

    window: Any
    step: int
    length: int

    @property
    def size(self) -> int:
        return self.window.shape[0]


def csd(
    x: ArrayLike,
    y: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """Estimate the cross power spectral density of two signals by Welch's method.

    Args:
        x: a signal.
        y: another one; None means x.
        fs: how many samples there are in a unit of time.
        window: what segments are multiplied with: the name of a window of SciPy (or a tuple of name and parameters), or
            an array.
        nperseg: the size of a segment, 256 (or that of the signal, or of a window that is an array) by default.
        noverlap: how many elements of a segment are in the next one too, half of them by default.
        nfft: the length of the Fourier transforms, which segments are padded to with zeros.
        detrend: the type of `detrend` for segments, a function, or False.
        return_onesided: whether negative frequencies of real signals are left out, and their power counted with the
            positive ones.
        scaling: "density" for a density in frequency, "spectrum" for power.
        axis: that of time.
        average: of the segments, "mean" or "median".

    Returns:
        (frequencies, density).
    """
    if average not in ("mean", "median"):
        raise ArgumentError(f'csd: average must be "median" or "mean", got {average!r}.')
    frequencies, _, density = _spectra(
        "csd", x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, "psd", None, False
    )
    if density.ndim >= 2 and density.size:
        if density.shape[-1] > 1 and average == "median":
            count = density.shape[-1]
            steps = 2 * np.arange(1, (count - 1) // 2 + 1)
            bias = float(1 + np.sum(1 / (steps + 1) - 1 / steps))  # of the median of exponentially distributed values
            if dtypes.kind(density.dtype) == "c":
                density = lax.complex(median(lax.real(density), axis=-1), median(lax.imag(density), axis=-1))
            else:
                density = median(density, axis=-1)
            density = density / bias
        else:
            density = mean(density, axis=-1)
    return frequencies, density


def welch(
    x: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """Estimate the power spectral density of a signal by Welch's method: averaged over segments. Arguments and results
    are those of `csd`; the density is real.
    """
    options = window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average
    frequencies, density = csd(x, None, fs, *options)
    return frequencies, lax.real(density) if dtypes.kind(density.dtype) == "c" else density


def stft(
    x: ArrayLike,
    fs: Any = 1.0,
    window: str = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Array, Array, Array]:
    """Compute the short-time Fourier transform of a signal, which `istft` inverts.

    Args:
        x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, axis: as in `csd`.
        boundary: how the signal is continued by half a segment at both ends, so that its first element is in the middle
            of one: "zeros", "constant", "even", "odd", or None for not at all.
        padded: whether zeros are appended such that all elements are in segments.

    Returns:
        (frequencies, times, transforms): the frequencies are along the axis of time, the times along a new last one.

    >>> import weft.numpy as np
    >>> from weft.scipy.signal import istft, stft
    >>> frequencies, times, transforms = stft(np.arange(8.0), nperseg=4)
    >>> transforms.shape
    (3, 5)
    >>> istft(transforms, nperseg=4)[1].round(4)
    Array([0., 1., 2., 3., 4., 5., 6., 7.], dtype=float32)
    """
    return _spectra(
        "stft",
        x,
        None,
        fs,
        window,
        nperseg,
        noverlap,
        nfft,
        detrend,
        return_onesided,
        "spectrum",
        axis,
        "stft",
        boundary,
        padded,
    )


@combining_ranks
def istft(
    Zxx: Any,
    fs: Any = 1.0,
    window: str = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Array, Array]:
    """Invert the short-time Fourier transform of `stft`, by least squares.

    Args:
        Zxx: the transforms.
        fs, window, nperseg, noverlap, nfft: those of `stft`.
        input_onesided: whether negative frequencies were left out.
        boundary: whether the signal was continued at its ends, which then are cut off.
        time_axis: the axis of segments.
        freq_axis: the axis of frequencies.

    Returns:
        (times, signal).
    """
    (z,) = (ensure_array(a) for a in promote_dtypes_inexact(*ensure_arrays("istft", Zxx)))
    z = cast(z, dtypes.to_complex_dtype(z.dtype))
    if z.ndim < 2:
        raise ShapeMismatchError("istft: Input stft must be at least 2d!", received=z.aval.short())
    freq_axis, time_axis = (canonicalize_axis(a, z.ndim, "istft") for a in (freq_axis, time_axis))
    if freq_axis == time_axis:
        raise ArgumentError("istft: Must specify differing time and frequency axes!", received=f"both are {time_axis}")
    default = 2 * (z.shape[freq_axis] - 1) if input_onesided else z.shape[freq_axis]
    size = default if nperseg is None else index(nperseg)
    if size < 1:
        raise ArgumentError("istft: nperseg must be a positive integer.", received=f"nperseg={nperseg}")
    if nfft is None:
        length = size if input_onesided and size == default + 1 else default
    else:
        length = index(nfft)
    if length < size:
        raise ArgumentError(f"istft: FFT length ({length}) must be longer than nperseg ({size}).")
    overlap = size // 2 if noverlap is None else index(noverlap)
    if overlap >= size:
        raise ArgumentError("istft: noverlap must be less than nperseg.", received=f"noverlap={overlap}, {size=}")
    real = dtypes.to_real_dtype(z.dtype)
    shape = _window("istft", window, size, real)
    step = size - overlap
    z = moveaxis(z, (time_axis, freq_axis), (-2, -1))
    pieces = fft.irfft(z, length) if input_onesided else fft.ifft(z, length)
    pieces = pieces[..., :size] * (shape * sum_(shape))
    count = pieces.shape[-2]
    positions = np.arange(count)[:, None] * step + np.arange(size)
    total = size + (count - 1) * step
    out = lax.full((*pieces.shape[:-2], total), 0, pieces.dtype).at[..., positions].add(pieces)
    squares = broadcast_to(shape * shape, (count, size))
    weight = lax.full((total,), 0, real).at[positions].add(squares)
    if boundary:
        out, weight = out[..., size // 2 : total - size // 2], weight[size // 2 : total - size // 2]
    out = out / where(weight > 1e-10, weight, 1).astype(out.dtype)
    axis = time_axis - (freq_axis < time_axis)
    times = lax.iota(real, out.shape[-1]) / cast(ensure_array(fs), real)
    return times, moveaxis(out, -1, axis)


# ------------------------------------------------------------------------------------------------------- how it is done


def _window(name: str, window: Any, size: int, dtype: Any) -> Array:
    """Return a window as an array, from its name in SciPy or its elements."""
    if isinstance(window, (str, tuple)):
        return ensure_array(signal.get_window(window, size).astype(dtype))
    (array,) = ensure_arrays(name, np.asarray(window) if isinstance(window, list) else window)
    if array.shape != (size,):
        raise ShapeMismatchError(
            f"{name}: the window must be a vector with an element for each of a segment.",
            received=f"a window {array.aval.short()}, nperseg={size}",
        )
    return cast(array, dtype)


def _segments(name: str, window: Any, nperseg: Any, noverlap: Any, nfft: Any, count: int, dtype: Any) -> Segments:
    named = isinstance(window, (str, tuple))
    if nperseg is None:
        size = min(256, count) if named else math.prod(np.shape(window))
    else:
        size = index(nperseg)
        if size < 1:
            raise ArgumentError(f"{name}: nperseg must be a positive integer.", received=f"nperseg={nperseg}")
        if size > count and named:
            warnings.warn(
                f"{name}: nperseg={size} is greater than the length of the signal, {count}; using nperseg={count}.",
                stacklevel=user_stacklevel(),
            )
            size = count
    if size > count:
        raise ArgumentError(
            f"{name}: the window must not be longer than the signal.", received=f"{size} and {count} elements"
        )
    length = size if nfft is None else index(nfft)
    if length < size:
        raise ArgumentError(f"{name}: nfft must be greater than or equal to nperseg.", received=f"{length} and {size}")
    overlap = size // 2 if noverlap is None else index(noverlap)
    if overlap >= size:
        raise ArgumentError(f"{name}: noverlap must be less than nperseg.", received=f"{overlap} and {size}")
    return Segments(_window(name, window, size, dtype), size - overlap, length)


def _extend(x: Array, boundary: str | None, reach: int) -> Array:
    """Extend a signal by `reach` elements at both ends of the last axis."""
    if boundary is None:
        return x
    if boundary not in ("even", "odd", "constant", "zeros"):
        raise ArgumentError(
            f"Unknown boundary option {boundary!r}, must be one of: ['even', 'odd', 'constant', 'zeros', None]."
        )
    if not reach:
        return x
    if boundary in ("even", "odd") and reach >= x.shape[-1]:
        raise ArgumentError(
            f"The signal is too short to be continued by {reach} elements.", received=f"{x.shape[-1]} elements"
        )
    first, last = x[..., :1], x[..., -1:]
    if boundary == "zeros":
        before = after = lax.full((*x.shape[:-1], reach), 0, x.dtype)
    elif boundary == "constant":
        before, after = (broadcast_to(end, (*x.shape[:-1], reach)) for end in (first, last))
    else:
        before, after = flip(x[..., 1 : reach + 1], -1), flip(x[..., -reach - 1 : -1], -1)
        if boundary == "odd":
            before, after = 2 * first - before, 2 * last - after
    return lax.concatenate([before, x, after], x.ndim - 1)


def _trend(name: str, trend: Any) -> Callable[[Any], Any]:
    if not trend:
        return lambda x: x
    if callable(trend):
        return trend
    if isinstance(trend, str):
        return lambda x: detrended(x, type=trend)
    raise ArgumentError(f"{name}: detrend must be a type of trend, a function or False.", received=described(trend))


def _spectra(
    name: str,
    x: Any,
    y: Any,
    fs: Any,
    window: Any,
    nperseg: Any,
    noverlap: Any,
    nfft: Any,
    trend: Any,
    onesided: bool,
    scaling: str,
    axis: int,
    mode: str,
    boundary: str | None,
    padded: bool,
) -> tuple[Array, Array, Array]:
    """Return frequencies, times and spectra of segments: cross powers ("psd") or Fourier transforms ("stft")."""
    if scaling not in ("density", "spectrum"):
        raise ArgumentError(f"{name}: Unknown scaling: {scaling!r}.", fix="'density' or 'spectrum'")
    signals = [ensure_array(a) for a in promote_dtypes_inexact(*ensure_arrays(name, *((x,) if y is None else (x, y))))]
    signals = [moveaxis(s, canonicalize_axis(axis, s.ndim, name), -1) for s in signals]
    rank = signals[0].ndim
    count = max(s.shape[-1] for s in signals)
    real = dtypes.to_real_dtype(signals[0].dtype)
    if 0 in (*(size for s in signals for size in s.shape),):
        outer = broadcast_shape(name, *(s.shape[:-1] for s in signals))
        empty = lax.full((*outer, min(count, min(s.shape[-1] for s in signals))), 0, real)
        empty = moveaxis(empty, -1, axis)
        return empty, empty, empty
    segments = _segments(name, window, nperseg, noverlap, nfft, count, real)
    size, step = segments.size, segments.step

    def prepare(signal: Array) -> Array:
        if signal.shape[-1] < count:
            signal = _zeros_after(signal, count - signal.shape[-1])
        signal = _extend(signal, boundary, size // 2)
        if padded:
            signal = _zeros_after(signal, (-(signal.shape[-1] - size) % step) % size)
        return signal

    signals = [prepare(s) for s in signals]
    length = signals[0].shape[-1]
    is_complex = any(dtypes.kind(s.dtype) == "c" for s in signals)
    if is_complex and onesided:
        warnings.warn(
            f"{name}: Input data is complex, switching to return_onesided=False.", stacklevel=user_stacklevel()
        )
        onesided = False
    without_trend = _trend(name, trend)
    starts = np.arange((length - size) // step + 1) * step

    def transforms(signal: Array) -> Array:
        positions: Any = starts[:, None] + np.arange(size)
        pieces = take_in_bounds(signal, positions, signal.ndim - 1)
        pieces = ensure_array(without_trend(pieces))
        pieces = pieces * expand_to(segments.window.astype(pieces.dtype), pieces.shape)
        return fft.rfft(pieces, segments.length) if onesided else fft.fft(pieces, segments.length)

    spectra = [transforms(s) for s in signals]
    rate = cast(ensure_array(fs), real)
    window_sum = sum_(segments.window)
    if scaling == "density":
        scale = 1 / (rate * sum_(segments.window * segments.window))
    else:
        scale = 1 / (window_sum * window_sum)
    if mode == "stft":
        out = spectra[0] * lax.sqrt(scale).astype(spectra[0].dtype)
    elif len(spectra) == 1:
        out = lax.square(lax.real(spectra[0])) + lax.square(lax.imag(spectra[0]))
        out = out * scale
    else:
        out = conjugate(spectra[0]) * spectra[1] * scale.astype(spectra[0].dtype)
    if mode == "psd" and onesided:
        # Frequencies that have a negative partner count twice.
        twice = np.full(out.shape[-1], 2, real)
        twice[0] = 1
        if segments.length % 2 == 0:
            twice[-1] = 1
        out = out * expand_to(twice.astype(out.dtype), out.shape)
    points = fft.rfftfreq(segments.length) if onesided else fft.fftfreq(segments.length)
    frequencies = cast(points, real) * rate
    middle = 0 if boundary is not None else size / 2  # the first segment is half before the signal if that is continued
    times = ensure_array((starts + middle).astype(real)) / rate
    # The frequencies go to the axis of time, the segments are last.
    return frequencies, times, moveaxis(out, -1, canonicalize_axis(axis, rank, name))


def _zeros_after(x: Array, count: int) -> Array:
    return lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0)] * (x.ndim - 1) + [(0, count, 0)]) if count else x
