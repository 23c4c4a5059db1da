"""Signals: convolutions, trends, spectra."""

from weft.base.publish import publish as _publish
from weft.scipy.signal.convolution import (
    convolve as convolve,
    convolve2d as convolve2d,
    correlate as correlate,
    correlate2d as correlate2d,
    fftconvolve as fftconvolve,
)
from weft.scipy.signal.spectral import csd as csd, istft as istft, stft as stft, welch as welch
from weft.scipy.signal.trends import detrend as detrend

_publish(__name__)
