"""Convolutions, trends and spectra, against SciPy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.signal

import weft
from weft.scipy import signal
from weft.scipy.signal.convolution import fast_length
from weft.test_util import check_grads

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def close(got: Any, want: Any, tolerance: float = 2e-5) -> None:
    for a, b in zip(weft.tree.leaves(got), weft.tree.leaves(want), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_convolutions(name: str, mode: str) -> None:
    ours, theirs = getattr(signal, name), getattr(scipy.signal, name)
    operands = [(floats(7), floats(3)), (floats(3), floats(6)), (floats(5, 4), floats(2, 3)), (floats(2, 2, 3),) * 2]
    operands += [(floats(5) + 1j * floats(5), floats(2) + 1j * floats(2)), (np.arange(5), np.arange(3))]
    for a, b in operands:
        want = theirs(a, b, mode).astype(np.complex64 if np.iscomplexobj(a) else np.float32)
        for method in ("auto", "direct", "fft"):
            close(ours(a, b, mode, method), want)
    function = lambda a, b: ours(a, b, mode)
    close(weft.jit(function)(*operands[0]), theirs(*operands[0], mode))
    check_grads(function, operands[0], 1)
    check_grads(lambda a, b: ours(a, b, mode, "fft"), operands[4], 1)
    batched = weft.vmap(function, (0, None))(floats(2, 7), operands[0][1])
    assert batched.shape[0] == 2


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve2d", "correlate2d"])
def test_convolutions_of_matrices(name: str, mode: str) -> None:
    ours, theirs = getattr(signal, name), getattr(scipy.signal, name)
    for a, b in ((floats(5, 4), floats(2, 3)), (floats(5, 4), floats(4, 4)), (floats(5, 4) * 1j, floats(2, 2) + 1j)):
        for boundary in ("fill", "wrap", "symm"):
            close(ours(a, b, mode, boundary), theirs(a, b, mode, boundary))
        close(ours(a, b, mode, fillvalue=1.5), theirs(a, b, mode, fillvalue=1.5))
    small = floats(2, 1), floats(4, 3)
    close(ours(*small, mode), theirs(*small, mode))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolutions_by_fourier_transforms(mode: str) -> None:
    a, b = floats(6, 4), floats(3, 4)
    for axes in (None, 0, (0,), (0, 1)):
        close(signal.fftconvolve(a, b, mode, axes), scipy.signal.fftconvolve(a, b, mode, axes))
    close(signal.fftconvolve(a, b[:, :1], mode, 0), scipy.signal.fftconvolve(a, b[:, :1], mode, 0))
    check_grads(lambda a, b: signal.fftconvolve(a, b, mode, 0), (a, b), 1)


def test_fast_lengths() -> None:
    smooth = sorted(2**i * 3**j * 5**k for i in range(13) for j in range(8) for k in range(6))
    for n in range(1, 3000):
        assert fast_length(n) == next(s for s in smooth if s >= n)


def test_trends() -> None:
    x = floats(3, 8) + np.arange(8, dtype=np.float32)
    for options in ({}, {"type": "constant"}, {"bp": 3}, {"bp": [2, 3]}, {"axis": 0}):
        close(signal.detrend(x, **options), scipy.signal.detrend(x, **options))
    check_grads(lambda v: signal.detrend(v, bp=3), (x,), 1)


SPECTRA: list[dict[str, Any]] = [
    {"nperseg": 60},
    {"nperseg": 16},
    {"nperseg": 15, "noverlap": 4, "window": "hamming", "fs": 3.0},
    {"nperseg": 16, "nfft": 21, "window": ("kaiser", 4.0), "scaling": "spectrum"},
    {"nperseg": 16, "detrend": "linear", "average": "median"},
    {"nperseg": 16, "detrend": False, "return_onesided": False},
    {"window": np.hanning(12).astype(np.float32)},
]


@pytest.mark.parametrize("options", SPECTRA)
def test_power_spectra(options: dict[str, Any]) -> None:
    x, y = floats(2, 60), floats(2, 60)
    close(signal.welch(x, **options), scipy.signal.welch(x, **options), 1e-4)
    close(weft.jit(lambda a, b: signal.csd(a, b, **options))(x, y), scipy.signal.csd(x, y, **options), 1e-4)
    close(signal.csd(x.T, y.T[:40], axis=0, **options), scipy.signal.csd(x.T, y.T[:40], axis=0, **options), 1e-4)


def test_spectra_of_complex_signals() -> None:
    x = floats(60) + 1j * floats(60)
    options = {"nperseg": 16, "return_onesided": False}
    close(signal.welch(x, **options), scipy.signal.welch(x, **options), 1e-4)
    with pytest.warns(UserWarning, match="complex"):
        assert signal.welch(x, nperseg=16)[1].shape == (16,)
    with pytest.warns(UserWarning, match="greater than"):
        assert signal.welch(x.real, nperseg=100)[1].shape == (31,)
    check_grads(lambda v: signal.welch(v, nperseg=16)[1], (x.real.astype(np.float32),), 1)


@pytest.mark.parametrize(
    "options",
    [
        {"nperseg": 16},
        {"nperseg": 15, "noverlap": 10, "fs": 2.0, "detrend": "constant"},
        {"nperseg": 16, "boundary": None, "padded": False, "window": "boxcar"},
        {"nperseg": 16, "boundary": "even"},
        {"nperseg": 16, "boundary": "odd", "nfft": 20},
        {"nperseg": 16, "boundary": "constant", "return_onesided": False},
    ],
)
def test_short_time_transforms(options: dict[str, Any]) -> None:
    x = floats(3, 61)
    got, want = signal.stft(x, **options), scipy.signal.stft(x, **options)
    close(got, want, 1e-4)
    close(signal.stft(x.T, axis=0, **options)[2], scipy.signal.stft(x.T, axis=0, **options)[2], 1e-4)
    back = {k: v for k, v in options.items() if k in ("nperseg", "noverlap", "nfft", "fs", "window")}
    back |= {"boundary": options.get("boundary", "zeros") is not None}
    back |= {"input_onesided": options.get("return_onesided", True)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        times, found = signal.istft(want[2], **back)
        close(found, scipy.signal.istft(want[2], **back)[1], 1e-4)
        close(times, np.arange(found.shape[1]) / options.get("fs", 1))
        permuted = np.moveaxis(want[2], (1, 2), (2, 0))
        axes = {"time_axis": 0, "freq_axis": 2}
        close(signal.istft(permuted, **back, **axes)[1], scipy.signal.istft(permuted, **back, **axes)[1], 1e-4)


def test_derivatives_of_short_time_transforms() -> None:
    x = floats(20)
    function = weft.jit(lambda v: signal.istft(signal.stft(v, nperseg=8)[2] ** 2, nperseg=8)[1])
    check_grads(function, (x,), 1)
    np.testing.assert_allclose(
        weft.vmap(lambda v: signal.stft(v, nperseg=8)[2])(np.stack([x, 2 * x]))[1],
        signal.stft(2 * x, nperseg=8)[2],
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: signal.convolve(np.ones(3), np.ones((3, 1))), "same number of dimensions"),
        (lambda: signal.convolve(np.ones(3), np.ones(3), "most"), "mode must be"),
        (lambda: signal.convolve(np.ones(3), np.ones(3), method="slow"), "method='slow'"),
        (lambda: signal.convolve(np.ones((3, 1)), np.ones((1, 3)), "valid"), "at least as large"),
        (lambda: signal.convolve(np.ones(0), np.ones(1)), "empty"),
        (lambda: signal.convolve2d(np.ones(3), np.ones(3)), "2-dimensional"),
        (lambda: signal.convolve2d(np.ones((3, 3)), np.ones((3, 3)), boundary="wall"), "no boundary"),
        (lambda: signal.fftconvolve(np.ones((3, 2)), np.ones((3, 3)), axes=0), "not convolved"),
        (lambda: signal.detrend(np.ones(3), type="cubic"), "Trend type"),
        (lambda: signal.detrend(np.ones(3), bp=5), "Breakpoints"),
        (lambda: signal.detrend(np.ones(3), overwrite_data=True), "immutable"),
        (lambda: signal.welch(np.ones(9), scaling="loud"), "Unknown scaling"),
        (lambda: signal.welch(np.ones(9), average="mode"), "average"),
        (lambda: signal.welch(np.ones(9), nperseg=0), "positive"),
        (lambda: signal.welch(np.ones(9), nperseg=4, nfft=3), "nfft"),
        (lambda: signal.welch(np.ones(9), nperseg=4, noverlap=4), "noverlap"),
        (lambda: signal.welch(np.ones(9), nperseg=4, window=np.ones(3)), "for each of a segment"),
        (lambda: signal.stft(np.ones(9), nperseg=4, boundary="wall"), "boundary option"),
        (lambda: signal.istft(np.ones(9)), "at least 2d"),
        (lambda: signal.istft(np.ones((5, 3)), time_axis=0, freq_axis=0), "differing"),
        (lambda: signal.istft(np.ones((5, 3)), nperseg=64), "FFT length"),
    ],
)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError, NotImplementedError), match=text):
        call()
