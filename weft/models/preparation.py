"""Inputs of models of images and of speech: pixels by the settings of a folder, and mel spectrograms."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import image as image_functions
from weft.errors import ArgumentError
from weft.models.families import read_json

# Values of `resample`, which are those of PIL.
_METHODS = {0: "nearest", 1: "lanczos3", 2: "bilinear", 3: "bicubic"}


def read_settings(folder: str | None) -> dict[str, Any]:
    """Return the fields of the `preprocessor_config.json` of a folder, or none."""
    path = os.path.join(folder or "", "preprocessor_config.json")
    return read_json(path) if folder and os.path.isfile(path) else {}


def prepare_images(images: Sequence[Any], settings: Mapping[str, Any]) -> Any:
    """Resize, cut and normalize images.

    Args:
        images: arrays (height, width, 3) of integers from 0 to 255, or of numbers from 0 to 1.
        settings: the fields of a `preprocessor_config.json`: size, crop_size, resample, image_mean, image_std.

    Returns:
        Numbers (batch, 3, height, width).

    >>> import numpy as np
    >>> from weft import models
    >>> settings = {"size": {"height": 8, "width": 8}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    >>> models.prepare_images([np.full((16, 16, 3), 255, np.uint8)], settings).shape
    (1, 3, 8, 8)
    """
    mean = np.array(settings.get("image_mean", [0.5] * 3), np.float32)
    deviation = np.array(settings.get("image_std", [0.5] * 3), np.float32)
    found = []
    for picture in images:
        pixels = np.asarray(picture)
        if pixels.ndim != 3 or pixels.shape[-1] != 3:
            raise ArgumentError("An image must be an array (height, width, 3).", received=f"shape {pixels.shape}")
        numbers = pixels.astype(np.float32) / 255 if pixels.dtype.kind in "iu" else pixels.astype(np.float32)
        found.append((_resize(numbers, settings) - mean) / deviation)
    return wnp.stack(found).transpose(0, 3, 1, 2)


def _resize(pixels: Any, settings: Mapping[str, Any]) -> Any:
    """Resize an image to the size of the settings, by its shorter side if they say so, and cut out the middle."""
    size = settings.get("size", 224)
    method = _METHODS.get(settings.get("resample", 2), "bilinear")
    height, width = pixels.shape[:2]
    if isinstance(size, int):
        size = {"height": size, "width": size}
    if "shortest_edge" in size:
        factor = size["shortest_edge"] / min(height, width)
        shape = (int(height * factor), int(width * factor))
    else:
        shape = (size["height"], size["width"])
    if settings.get("do_resize", True) and shape != (height, width):
        pixels = wnp.clip(image_functions.resize(wnp.asarray(pixels), (*shape, 3), method), 0, 1)
    crop = settings.get("crop_size") if settings.get("do_center_crop", "crop_size" in settings) else None
    if crop:
        high, wide = (crop, crop) if isinstance(crop, int) else (crop["height"], crop["width"])
        top, left = (pixels.shape[0] - high) // 2, (pixels.shape[1] - wide) // 2
        pixels = pixels[top : top + high, left : left + wide]
    return pixels


# --------------------------------------------------------------------------------------------------------------- speech


def _mel(frequency: Any) -> Any:
    """Convert hertz to the mel scale of Slaney: linear up to 1000 Hz, logarithmic above."""
    frequency = np.asarray(frequency, np.float64)
    return np.where(
        frequency < 1000, frequency * 3 / 200, 15 + np.log(np.maximum(frequency, 1) / 1000) * 27 / math.log(6.4)
    )


def _hertz(mel: Any) -> Any:
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * math.log(6.4) / 27))


def mel_filters(bins: int, window: int, rate: int) -> np.ndarray:
    """Return triangles of equal area over the frequencies of a window, evenly spaced on the mel scale.

    Args:
        bins: the number of triangles.
        window: the samples of a window.
        rate: the samples of a second.

    Returns:
        Numbers (bins, window // 2 + 1).
    """
    edges = _hertz(np.linspace(_mel(0), _mel(rate / 2), bins + 2))
    frequencies = np.linspace(0, rate / 2, window // 2 + 1)
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    return (triangles * (2 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)


def log_mel(samples: Any, bins: int = 80, *, rate: int = 16000, seconds: float | None = 30.0) -> Any:
    """Return the logarithmic mel spectrogram of sound, as Whisper reads it.

    Args:
        samples: numbers (samples), or (batch, samples), from -1 to 1.
        bins: the number of mel bins.
        rate: the samples of a second.
        seconds: the length that sound is padded or cut to; None to leave it.

    Returns:
        Numbers (batch, bins, frames), one frame for each hundredth of a second.

    >>> import numpy as np
    >>> from weft import models
    >>> models.log_mel(np.zeros(16000), seconds=1.0).shape
    (1, 80, 100)
    """
    x = np.atleast_2d(np.asarray(samples, np.float32))
    if seconds is not None:
        length = int(seconds * rate)
        x = np.pad(x[:, :length], ((0, 0), (0, max(0, length - x.shape[1]))))
    window, hop = rate // 40, rate // 100
    if x.shape[1] <= window // 2:
        raise ArgumentError(f"Sound must have more than {window // 2} samples.", received=str(x.shape[1]))
    x = np.pad(x, ((0, 0), (window // 2, window // 2)), mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(x, window, axis=1)[:, ::hop][:, :-1]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    power = wnp.abs(wnp.fft.rfft(wnp.asarray(frames * hann.astype(np.float32)))) ** 2
    mel = wnp.log10(wnp.maximum(power @ mel_filters(bins, window, rate).T, 1e-10)).transpose(0, 2, 1)
    mel = wnp.maximum(mel, mel.max((1, 2), keepdims=True) - 8.0)
    return (mel + 4.0) / 4.0
