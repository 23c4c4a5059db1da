"""Segments, the largest elements, error functions, and transforms of signals."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import lax, ops as segments
from weft.errors import ArgumentError
from weft.keras.core.spec import check_positive
from weft.keras.graph.shapes import compute_output_spec
from weft.keras.graph.tensor import KerasTensor
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import inexact, operation, symbolic_as, tensor, unary
from weft.scipy.special import erfinv as _erfinv, logsumexp as _logsumexp

erf = unary("erf", lambda x: lax.erf(x), "The error function of each element.", "[0.0, 1.0] -> [0. 0.84270084]", True)
erfc = unary("erfc", lambda x: lax.erfc(x), "1 minus the error function.", "[0.0] -> [1.]", True)
erfinv = unary("erfinv", _erfinv, "The inverse of the error function.", "[0.0, 0.5] -> [0. 0.47693628]", True)
rsqrt = unary("rsqrt", lambda x: lax.rsqrt(x), "1 divided by the square root of each element.", "[4.0] -> [0.5]", True)


def _segment(name: str, what: str) -> Any:
    """Create the reduction of this name over segments."""
    function = getattr(segments, name)

    def call(data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False) -> Any:
        return function(tensor(data), tensor(segment_ids), num_segments, indices_are_sorted=sorted)

    call.__doc__ = f"""The {what} of each segment of an array.

    Args:
        data: the values, whose first axis is divided into segments.
        segment_ids: to which segment each entry along the first axis belongs.
        num_segments: how many segments there are, `max(segment_ids) + 1` by default; needed under `jit`.
        sorted: a promise that `segment_ids` is sorted.

    Returns:
        An array whose first axis has one entry a segment.
    """
    call.__name__ = call.__qualname__ = name

    def spec(data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False) -> Any:
        """Return a symbolic result with unknown length: the values determine the number of segments."""
        if num_segments is not None:
            return None
        found = compute_output_spec(call, data, segment_ids, 1, sorted)
        return KerasTensor((None, *found.shape[1:]), found.dtype)

    return operation(symbolic_as(spec)(call))


segment_sum = _segment("segment_sum", "sum")
segment_max = _segment("segment_max", "largest element")
segment_min = _segment("segment_min", "least element")
segment_prod = _segment("segment_prod", "product")


@operation
def top_k(x: Any, k: int, sorted: bool = True) -> Any:
    """Return the largest elements along the last axis, and their indices.

    Args:
        x: an array.
        k: how many.
        sorted: whether they come in decreasing order (they always do here).

    Returns:
        A pair of values and indices.

    Example:
        >>> from weft import keras
        >>> values, indices = keras.ops.top_k([1.0, 3.0, 2.0], 2)
        >>> print(values, indices)
        [3. 2.] [1 2]
    """
    values, indices = lax.top_k(tensor(x), k)
    return values, indices


@operation
def in_top_k(targets: Any, predictions: Any, k: int) -> Any:
    """Return whether the prediction of the target class is among the `k` largest of its row.

    Args:
        targets: integers, one a row.
        predictions: a matrix of scores, one column a class.
        k: how many classes count.

    Returns:
        A vector of booleans. A class whose score equals that of the k-th counts.
    """
    targets, predictions = tensor(targets)[..., None], tensor(predictions)
    least = lax.top_k(predictions, k)[0][..., -1:]
    return wnp.squeeze(wnp.take_along_axis(predictions, targets, axis=-1) >= least, axis=-1)


@operation
@document("An array of floats without the reduced axes.")
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Compute the logarithm of the sum of exponentials, without overflow."""
    return _logsumexp(inexact(x), axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims)


@operation
@document("An array without these axes.", x="an array whose last two axes are matrices.")
def logdet(x: Any) -> Any:
    """Compute the logarithm of the determinant of positive definite matrices."""
    return wnp.linalg.slogdet(inexact(x))[1]


@operation
def cdist(x: Any, y: Any) -> Any:
    """Compute the Euclidean distances between all pairs of points.

    Args:
        x: points, an array of shape (..., n, d).
        y: points, an array of shape (..., m, d).

    Returns:
        An array of shape (..., n, m).
    """
    x, y = inexact(x), inexact(y)
    square = wnp.sum((x[..., :, None, :] - y[..., None, :, :]) ** 2, axis=-1)
    # The square root has no derivative at 0, where the distance is flat in every direction that counts.
    return wnp.where(square > 0, wnp.sqrt(wnp.where(square > 0, square, 1)), 0)


@operation
@document("An array without that axis.", x="an array of floats whose last axis has size 2.")
def view_as_complex(x: Any) -> Any:
    """Combine pairs of real and imaginary parts into complex numbers."""
    x = tensor(x)
    if x.ndim == 0 or x.shape[-1] != 2:
        raise ArgumentError(
            "The last axis must have size 2: the real and the imaginary part.", received=f"shape {x.shape}"
        )
    return lax.complex(x[..., 0], x[..., 1])


@operation
@document("An array of floats.")
def view_as_real(x: Any) -> Any:
    """Stack the real and imaginary parts of complex numbers along a new last axis."""
    x = tensor(x)
    return wnp.stack([wnp.real(x), wnp.imag(x)], axis=-1)


# ------------------------------------------------------------------------------------------------------------ signals


def _complex(x: Any) -> Any:
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        raise ArgumentError("A complex array must be a pair of real and imaginary parts.", received=type(x).__name__)
    real, imaginary = (inexact(part) for part in x)
    if real.shape != imaginary.shape:
        raise ArgumentError(
            "The real and the imaginary part must have the same shape.", received=f"{real.shape} and {imaginary.shape}"
        )
    return lax.complex(real, imaginary)


def _parts(x: Any) -> tuple[Any, Any]:
    return wnp.real(x), wnp.imag(x)


@operation
def fft(x: Any) -> Any:
    """Compute the discrete Fourier transform along the last axis.

    Args:
        x: a pair of real and imaginary parts.

    Returns:
        A pair of real and imaginary parts of the same shape.

    Example:
        >>> from weft import keras
        >>> real, imaginary = keras.ops.fft(([1.0, 1.0], [0.0, 0.0]))
        >>> print(real)
        [2. 0.]
    """
    return _parts(wnp.fft.fft(_complex(x)))


@operation
def fft2(x: Any) -> Any:
    """Compute the discrete Fourier transform along the last two axes.

    Args:
        x: a pair of real and imaginary parts.

    Returns:
        A pair of real and imaginary parts of the same shape.

    Example:
        >>> from weft import keras
        >>> real, imaginary = keras.ops.fft2(([[1.0, 1.0]], [[0.0, 0.0]]))
        >>> print(real)
        [[2. 0.]]
    """
    return _parts(wnp.fft.fft2(_complex(x)))


@operation
@document("A pair of real and imaginary parts of the same shape.", x="a pair of real and imaginary parts.")
def ifft2(x: Any) -> Any:
    """Compute the inverse discrete Fourier transform along the last two axes."""
    return _parts(wnp.fft.ifft2(_complex(x)))


@operation
def rfft(x: Any, fft_length: int | None = None) -> Any:
    """Compute the Fourier transform of real values along the last axis.

    Args:
        x: an array of floats.
        fft_length: how many values count; more are cut off, fewer are padded with zeros.

    Returns:
        A pair of real and imaginary parts of the frequencies that are not negative.
    """
    return _parts(wnp.fft.rfft(inexact(x), fft_length))


@operation
def irfft(x: Any, fft_length: int | None = None) -> Any:
    """Compute the inverse of `rfft`.

    Args:
        x: a pair of real and imaginary parts.
        fft_length: how many values to return; twice the frequencies minus 2 by default.

    Returns:
        An array of floats.
    """
    return wnp.fft.irfft(_complex(x), fft_length)


@operation
@document("An array with two axes instead of the last: windows, and the elements of each.")
def extract_sequences(x: Any, sequence_length: int, sequence_stride: int) -> Any:
    """Extract windows along the last axis."""
    check_positive(sequence_length=sequence_length, sequence_stride=sequence_stride)
    x = tensor(x)
    count = max(0, (x.shape[-1] - sequence_length) // sequence_stride + 1)
    indices = np.arange(count)[:, None] * sequence_stride + np.arange(sequence_length)
    return x[..., indices]


@operation
def stft(
    x: Any,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    window: Any = "hann",
    center: bool = True,
) -> Any:
    """Compute the short-time Fourier transform along the last axis.

    Args:
        x: an array of floats.
        sequence_length: the length of a window.
        sequence_stride: the distance of their starts.
        fft_length: the length of a transform, at least `sequence_length`.
        window: "hann", "hamming", an array of `sequence_length` factors, or None for all ones.
        center: whether windows are centred at multiples of the stride, the signal reflected at its ends.

    Returns:
        A pair of real and imaginary parts with two axes instead of the last: windows, and frequencies.
    """
    x = inexact(x)
    factors = _window(window, sequence_length, fft_length, x.dtype)
    if center:
        x = wnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(fft_length // 2, fft_length // 2)], mode="reflect")
    return _parts(wnp.fft.rfft(extract_sequences(x, fft_length, sequence_stride) * factors))


@operation
def istft(
    x: Any,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    length: int | None = None,
    window: Any = "hann",
    center: bool = True,
) -> Any:
    """Compute the inverse of `stft`: overlapping windows are added, and divided by the sum of squared factors.

    Args:
        x: a pair of real and imaginary parts, as `stft` returns them.
        sequence_length: the length of a window.
        sequence_stride: the distance of their starts.
        fft_length: the length of a transform.
        length: how many values to return; as many as there are by default.
        window: as for `stft`.
        center: as for `stft`.

    Returns:
        An array of floats.
    """
    check_positive(sequence_length=sequence_length, sequence_stride=sequence_stride, fft_length=fft_length)
    frames = wnp.fft.irfft(_complex(x), fft_length)
    factors = _window(window, sequence_length, fft_length, frames.dtype)
    signal = _overlap_add(frames * factors, sequence_stride)
    weight = _overlap_add(wnp.broadcast_to(factors**2, frames.shape[-2:]), sequence_stride)
    tiny = float(wnp.finfo(frames.dtype).tiny)
    signal = wnp.where(weight > tiny, signal / wnp.where(weight > tiny, weight, 1), signal)
    start = fft_length // 2 if center else 0
    end = start + length if length is not None else signal.shape[-1] - start
    return signal[..., start:end]


def _window(window: Any, sequence_length: int, fft_length: int, dtype: Any) -> Any:
    """Return the factors of a window, centred in a transform."""
    if sequence_length > fft_length:
        raise ArgumentError(
            "A window is at most as long as a transform.",
            received=f"sequence_length={sequence_length}, fft_length={fft_length}",
        )
    if window is None:
        return wnp.ones(fft_length, dtype)
    if isinstance(window, str):
        if window not in ("hann", "hamming"):
            raise ArgumentError("`window` must be 'hann', 'hamming', an array or None.", received=f"window={window!r}")
        # Periodic: the first of `sequence_length + 1` points.
        base, amplitude = (0.5, 0.5) if window == "hann" else (0.54, 0.46)
        window = base - amplitude * np.cos(2 * np.pi * np.arange(sequence_length) / sequence_length)
    factors = wnp.asarray(window, dtype)
    if factors.shape != (sequence_length,):
        raise ArgumentError(
            f"`window` must be a vector of {sequence_length} factors.", received=f"shape {factors.shape}"
        )
    before = (fft_length - sequence_length) // 2
    return wnp.pad(factors, (before, fft_length - sequence_length - before))


def _overlap_add(frames: Any, stride: int) -> Any:
    """Add windows that begin `stride` apart."""
    count, size = frames.shape[-2:]
    indices = (np.arange(count)[:, None] * stride + np.arange(size)).reshape(-1)
    total = wnp.zeros((*frames.shape[:-2], (count - 1) * stride + size), frames.dtype)
    return total.at[..., indices].add(frames.reshape(*frames.shape[:-2], -1))
