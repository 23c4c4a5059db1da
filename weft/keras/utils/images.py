"""Images as arrays, and files of images (with Pillow, where it is installed)."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, NotSupportedError, ShapeMismatchError
from weft.keras import ops
from weft.keras.core.config import floatx, standardize_data_format
from weft.keras.numerics.shapes import sizes
from weft.keras.ops.image.geometry import METHODS, cropped_sizes, padded_sizes

_COLOR_MODES = {"grayscale": "L", "rgb": "RGB", "rgba": "RGBA"}
# How Pillow names methods of resizing.
_PILLOW_METHODS = ("nearest", "bilinear", "bicubic", "hamming", "box", "lanczos")


def _pillow(what: str) -> Any:
    """Import Pillow's module of images; raise an error if it is not installed."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise NotSupportedError(f"{what} needs Pillow.", fix="pip install pillow") from error


def array_to_img(x: Any, data_format: str | None = None, scale: bool = True, dtype: Any = None) -> Any:
    """Convert an array to an image of Pillow.

    Args:
        x: an array of rank 3 with 1, 3 or 4 channels.
        data_format: "channels_last" or "channels_first"; None is the setting.
        scale: whether to bring values to the range from 0 to 255.
        dtype: in which to compute, `floatx()` by default.

    Returns:
        An image.
    """
    image = _pillow("array_to_img")
    array = np.asarray(x, floatx() if dtype is None else dtype)
    if array.ndim != 3:
        raise ShapeMismatchError("An image must be an array of rank 3.", received=f"shape {array.shape}")
    if standardize_data_format(data_format) == "channels_first":
        array = array.transpose(1, 2, 0)
    if scale:
        array = array - array.min()
        if (top := array.max()) != 0:
            array = array / top
        array = array * 255
    channels = array.shape[-1]
    if channels not in (1, 3, 4):
        raise ShapeMismatchError("An image must have 1, 3 or 4 channels.", received=f"shape {array.shape}")
    if channels == 1:
        deep = array.max() > 255
        return image.fromarray(array[:, :, 0].astype("int32" if deep else "uint8"), "I" if deep else "L")
    return image.fromarray(array.astype("uint8"), "RGB" if channels == 3 else "RGBA")


def img_to_array(img: Any, data_format: str | None = None, dtype: Any = None) -> np.ndarray:
    """Convert an image to an array.

    Args:
        img: an image of Pillow, or an array.
        data_format: "channels_last" or "channels_first"; None is the setting.
        dtype: of the result, `floatx()` by default.

    Returns:
        A NumPy array of rank 3.
    """
    array = np.asarray(img, floatx() if dtype is None else dtype)
    first = standardize_data_format(data_format) == "channels_first"
    if array.ndim == 2:
        return array[None] if first else array[:, :, None]
    if array.ndim != 3:
        raise ShapeMismatchError("An image must have rank 2 or 3.", received=f"shape {array.shape}")
    return array.transpose(2, 0, 1) if first else array


def load_img(
    path: Any,
    color_mode: str = "rgb",
    target_size: Any = None,
    interpolation: str = "nearest",
    keep_aspect_ratio: bool = False,
) -> Any:
    """Load an image from a file.

    Args:
        path: a path, or an open file.
        color_mode: "grayscale", "rgb" or "rgba".
        target_size: the rows and columns; those of the file by default.
        interpolation: "nearest", "bilinear", "bicubic", "hamming", "box" or "lanczos".
        keep_aspect_ratio: whether to cut the largest centred part of the right proportions first.

    Returns:
        An image of Pillow.
    """
    image = _pillow("load_img")
    if color_mode not in _COLOR_MODES:
        raise ArgumentError(f"`color_mode` must be one of {', '.join(_COLOR_MODES)}.", received=f"{color_mode=}")
    opened = image.open(path if hasattr(path, "read") else os.fspath(path))
    if color_mode != "grayscale" or opened.mode not in ("L", "I;16", "I"):
        opened = opened.convert(_COLOR_MODES[color_mode])
    if target_size is None:
        return opened
    if interpolation not in _PILLOW_METHODS:
        raise ArgumentError(
            f"`interpolation` must be one of {', '.join(_PILLOW_METHODS)}.", received=f"{interpolation=}"
        )
    method = getattr(image.Resampling, interpolation.upper())
    rows, columns = sizes(target_size, 2, "target_size")
    if (opened.height, opened.width) == (rows, columns):
        return opened
    if keep_aspect_ratio:
        height, width = cropped_sizes((opened.height, opened.width), (rows, columns))
        top, left = (opened.height - height) // 2, (opened.width - width) // 2
        return opened.resize((columns, rows), method, box=[left, top, left + width, top + height])
    return opened.resize((columns, rows), method)


def save_img(
    path: Any, x: Any, data_format: str | None = None, file_format: str | None = None, scale: bool = True, **kwargs: Any
) -> None:
    """Write an array to a file of an image.

    Args:
        path: a path, or an open file.
        x: an array of rank 3.
        data_format: "channels_last" or "channels_first"; None is the setting.
        file_format: the format; that of the end of the path by default.
        scale: whether to bring values to the range from 0 to 255.
        **kwargs: options of Pillow's `Image.save`.
    """
    img = array_to_img(x, data_format, scale)
    written = file_format
    if written is None and isinstance(path, (str, os.PathLike)):
        written = os.path.splitext(os.fspath(path))[1].removeprefix(".")
    if img.mode == "RGBA" and str(written).lower() in ("jpg", "jpeg"):
        img = img.convert("RGB")  # JPEG has no transparency
    img.save(path, format="jpeg" if file_format == "jpg" else file_format, **kwargs)


def smart_resize(
    x: Any, size: Any, interpolation: str = "bilinear", data_format: str = "channels_last", **kwargs: Any
) -> Any:
    """Resize images without distortion: the largest centred part of the target's proportions is cropped first.

    Args:
        x: an image or a batch of images.
        size: the rows and columns.
        interpolation: "nearest", "bilinear", "bicubic", "lanczos3" or "lanczos5".
        data_format: "channels_last" or "channels_first".
        **kwargs: none.

    Returns:
        A NumPy array, or an array of Weft for one of Weft.
    """
    if kwargs:
        raise TypeError(f"smart_resize() got an unexpected keyword argument {next(iter(kwargs))!r}")
    resized = ops.image.resize(x, size, interpolation, crop_to_aspect_ratio=True, data_format=data_format)
    return resized if isinstance(x, weft.Array) else np.asarray(resized)


# ------------------------------------------------------------------------------------- resizing without a compiler


@functools.lru_cache(maxsize=512)
def _weights(size: int, target: int, interpolation: str) -> np.ndarray:
    """Return the matrix that resizes a row of pixels, as `ops.image.resize` does."""
    positions = (np.arange(target) + 0.5) * size / target - 0.5
    if interpolation == "nearest":
        return np.eye(size, dtype="float32")[np.floor(positions + 0.5).astype(int).clip(0, size - 1)]
    distances = np.abs(positions[:, None] - np.arange(size))
    if interpolation == "bilinear":
        weights = np.maximum(1 - distances, 0)
    elif interpolation == "bicubic":
        near = (1.5 * distances - 2.5) * distances**2 + 1
        far = ((-0.5 * distances + 2.5) * distances - 4) * distances + 2
        weights = np.where(distances < 1, near, np.where(distances < 2, far, 0))
    else:
        radius = 3 if interpolation == "lanczos3" else 5
        weights = np.where(distances < radius, np.sinc(distances) * np.sinc(distances / radius), 0)
    return (weights / weights.sum(1, keepdims=True)).astype("float32")


def read_image(
    path: str,
    color_mode: str,
    size: tuple[int, int],
    interpolation: str,
    crop_to_aspect_ratio: bool,
    pad_to_aspect_ratio: bool,
    data_format: str,
) -> np.ndarray:
    """Read an image file of a size, as floats from 0 to 255."""
    array = img_to_array(load_img(path, color_mode), "channels_last", "float32")
    if interpolation not in METHODS:
        raise ArgumentError(f"`interpolation` must be one of {', '.join(METHODS)}.", received=f"{interpolation=}")
    own = array.shape[0], array.shape[1]
    if crop_to_aspect_ratio:
        rows, columns = cropped_sizes(own, size)
        top, left = (own[0] - rows) // 2, (own[1] - columns) // 2
        array = array[top : top + rows, left : left + columns]
    elif pad_to_aspect_ratio:
        rows, columns = padded_sizes(own, size)
        top, left = (rows - own[0]) // 2, (columns - own[1]) // 2
        array = np.pad(array, ((top, top), (left, left), (0, 0)))
    by_rows = np.tensordot(_weights(array.shape[0], size[0], interpolation), array, 1)
    resized = np.einsum("ij,rjc->ric", _weights(array.shape[1], size[1], interpolation), by_rows)
    return resized.transpose(2, 0, 1) if data_format == "channels_first" else resized
