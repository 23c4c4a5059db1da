"""STFTSpectrogram and MelSpectrogram: how strong frequencies are over time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras import initializers, ops
from weft.keras.core import config
from weft.keras.core.config import standardize_data_format
from weft.keras.core.spec import InputSpec
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.numerics.convolution import conv
from weft.keras.numerics.shapes import Shape, padding_name, window_count

_MODES = ("log", "magnitude", "psd", "real", "imag", "angle", "stft")


class STFTSpectrogram(ConfiguredLayer):
    """The short-time Fourier transform of (batch, time, channels), by convolutions whose kernels may be trained.

    Args:
      mode: "log", "magnitude", "psd" (power), "real", "imag", "angle" or "stft" (real and imaginary parts).
      frame_length: the length of a window.
      frame_step: from window to window; half of the length by default.
      fft_length: the size of the Fourier transform; the next power of two by default.
      window: "hann", "hamming", another window of SciPy by its name, an array, or None.
      periodic: whether the window is that of a period.
      scaling: "density", "spectrum" or None.
      padding: "valid" or "same".
      expand_dims: whether frequencies are a dimension of their own, and not in the channels.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
    """

    def __init__(
        self,
        mode: str = "log",
        frame_length: int = 256,
        frame_step: int | None = None,
        fft_length: int | None = None,
        window: Any = "hann",
        periodic: bool = False,
        scaling: str | None = "density",
        padding: str = "valid",
        expand_dims: bool = False,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        if mode not in _MODES:
            raise ArgumentError(f"`mode` must be one of {_MODES}. Received: mode={mode!r}")
        if frame_step is not None and not 1 <= frame_step <= frame_length:
            raise ArgumentError(
                f"`frame_step` must be from 1 to `frame_length`. Received: frame_step={frame_step}, "
                f"frame_length={frame_length}"
            )
        if fft_length is not None and fft_length < frame_length:
            raise ArgumentError(
                f"`fft_length` must be at least `frame_length`. Received: fft_length={fft_length}, "
                f"frame_length={frame_length}"
            )
        super().__init__(**kwargs)
        self.set_arguments(
            mode=mode,
            frame_length=frame_length,
            frame_step=frame_step,
            fft_length=fft_length,
            window=window,
            periodic=periodic,
            scaling=scaling,
            padding=padding_name(padding),
            expand_dims=expand_dims,
            data_format=standardize_data_format(data_format),
        )
        self._step = frame_step or frame_length // 2
        self._frequencies = (fft_length or 2 ** math.ceil(math.log2(frame_length))) // 2 + 1
        self.input_spec = InputSpec(ndim=3)

    def build(self, input_shape: Any) -> None:
        """Make the waves."""
        for side, other in (("real", "imag"), ("imag", "real")):
            if self.mode != other:
                kernel = self.add_weight(
                    name=f"{side}_kernel",
                    shape=(self.frame_length, 1, self._frequencies),
                    initializer=initializers.STFT(side, self.window, self.scaling, self.periodic),
                )
                setattr(self, f"{side}_kernel", kernel)
        self.built = True

    def _part(self, signal: Array, side: str) -> Array:
        """Compute (batch, channels, frequencies, time) from a signal (batch, channels, time)."""
        batch, channels, time = signal.shape
        kernel = getattr(self, f"{side}_kernel").value.astype(signal.dtype)
        out = conv(wnp.reshape(signal, (batch * channels, time, 1)), kernel, self._step, self.padding)
        return wnp.reshape(wnp.swapaxes(out, 1, 2), (batch, channels, self._frequencies, out.shape[1]))

    def call(self, inputs: Array) -> Array:
        """Compute the spectrogram."""
        last = self.data_format == "channels_last"
        out = self._spectrum(wnp.swapaxes(inputs, 1, 2) if last else inputs)
        if self.expand_dims:
            return wnp.transpose(out, (0, 3, 2, 1) if last else (0, 1, 3, 2))
        merged = wnp.reshape(out, (out.shape[0], out.shape[1] * out.shape[2], out.shape[3]))
        return wnp.swapaxes(merged, 1, 2) if last else merged

    def _spectrum(self, signal: Array) -> Array:
        if self.mode in ("real", "imag"):
            return self._part(signal, self.mode)
        real, imaginary = self._part(signal, "real"), self._part(signal, "imag")
        if self.mode == "angle":
            return wnp.arctan2(imaginary, real)
        if self.mode == "stft":
            return wnp.concatenate([real, imaginary], axis=2)
        power = wnp.square(real) + wnp.square(imaginary)
        if self.mode == "psd":
            # Frequencies between the ends are there twice.
            return power + wnp.pad(power[:, :, 1:-1], ((0, 0), (0, 0), (1, 1), (0, 0)))
        magnitude = wnp.sqrt(wnp.maximum(power, config.epsilon()))
        return magnitude if self.mode == "magnitude" else wnp.log(wnp.maximum(magnitude, config.epsilon()))

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        last = self.data_format == "channels_last"
        batch, time, channels = input_shape if last else (input_shape[0], input_shape[2], input_shape[1])
        steps = window_count(time, self.frame_length, self._step, self.padding)
        frequencies = self._frequencies * (2 if self.mode == "stft" else 1)
        if self.expand_dims:
            return (batch, steps, frequencies, channels) if last else (batch, channels, steps, frequencies)
        features = None if channels is None else channels * frequencies
        return (batch, steps, features) if last else (batch, features, steps)


class MelSpectrogram(ConfiguredLayer):
    """The strength of frequencies of (batch, time) or (time), in bands as the ear tells them apart.

    Args:
      fft_length: how many samples a Fourier transform has.
      sequence_stride: from window to window.
      sequence_length: the length of a window; `fft_length` by default.
      window: "hann", "hamming", an array, or None.
      sampling_rate: samples a second.
      num_mel_bins: how many bands there are.
      min_freq, max_freq: between which frequencies they lie; up to half of the sampling rate by default.
      power_to_db: whether results are in decibels.
      top_db: how far below the largest result others may be.
      mag_exp: the exponent of magnitudes: 2 for power.
      min_power: the least power.
      ref_power: the power that is 0 decibels.
    """

    def __init__(
        self,
        fft_length: int = 2048,
        sequence_stride: int = 512,
        sequence_length: int | None = None,
        window: Any = "hann",
        sampling_rate: int = 16000,
        num_mel_bins: int = 128,
        min_freq: float = 20.0,
        max_freq: float | None = None,
        power_to_db: bool = True,
        top_db: float = 80.0,
        mag_exp: float = 2.0,
        min_power: float = 1e-10,
        ref_power: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if sequence_length is not None and fft_length < sequence_length:
            raise ArgumentError(
                f"`fft_length` must be at least `sequence_length`. Received: fft_length={fft_length}, "
                f"sequence_length={sequence_length}"
            )
        self.set_arguments(
            fft_length=fft_length,
            sequence_stride=sequence_stride,
            sequence_length=sequence_length or fft_length,
            window=window,
            sampling_rate=sampling_rate,
            num_mel_bins=num_mel_bins,
            min_freq=min_freq,
            max_freq=max_freq or int(sampling_rate / 2),
            power_to_db=power_to_db,
            top_db=top_db,
            mag_exp=mag_exp,
            min_power=min_power,
            ref_power=ref_power,
        )

    def call(self, inputs: Array) -> Array:
        """Compute the spectrogram (batch, bands, windows)."""
        signal = inputs.astype(wnp.promote_types(inputs.dtype, wnp.float32))
        real, imaginary = ops.stft(
            signal, self.sequence_length, self.sequence_stride, self.fft_length, window=self.window, center=True
        )
        magnitude = wnp.sqrt(wnp.square(real) + wnp.square(imaginary)) ** self.mag_exp
        bands = wnp.matmul(magnitude, wnp.asarray(self._bands(magnitude.shape[-1]), magnitude.dtype))
        if self.power_to_db:
            reference = np.maximum(np.abs(self.ref_power), self.min_power)
            bands = 10.0 * wnp.log10(wnp.maximum(bands, self.min_power)) - 10.0 * float(np.log10(reference))
            bands = wnp.maximum(bands, wnp.max(bands) - self.top_db)
        return wnp.swapaxes(bands, -1, -2).astype(self.compute_dtype)

    def _bands(self, frequencies: int) -> np.ndarray:
        """Return the weight of each frequency in each band: triangles on the mel scale."""
        mel = lambda hertz: 1127.0 * np.log1p(hertz / 700.0)
        each = mel(np.linspace(0.0, self.sampling_rate / 2, frequencies)[1:])[:, None]
        edges = np.linspace(mel(self.min_freq), mel(self.max_freq), self.num_mel_bins + 2)
        lower, center, upper = edges[:-2], edges[1:-1], edges[2:]
        weights = np.minimum((each - lower) / (center - lower), (upper - each) / (upper - center))
        return np.pad(np.maximum(weights, 0), ((1, 0), (0, 0)))

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        time = input_shape[-1]
        padded = None if time is None else time + 2 * (self.fft_length // 2)
        steps = window_count(padded, self.fft_length, self.sequence_stride, "valid")
        return (*input_shape[:-1], self.num_mel_bins, steps)
