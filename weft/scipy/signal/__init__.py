"""Signals: convolutions, trends, spectra."""

from weft.base.publish import publish as _publish
from weft.scipy.signal.convolution import convolve, convolve2d, correlate, correlate2d, fftconvolve
from weft.scipy.signal.spectral import csd, istft, stft, welch
from weft.scipy.signal.trends import detrend

__all__ = [
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "istft",
    "stft",
    "welch",
]

_publish(__name__)
