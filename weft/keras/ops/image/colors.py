"""Colors, smoothing, edges, and how alike images are."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.errors import ArgumentError, ShapeMismatchError
from weft.keras.core.config import standardize_data_format
from weft.keras.numerics import convolution
from weft.keras.numerics.shapes import sizes
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import inexact, operation, tensor
from weft.keras.ops.image.geometry import spatial_axes

# The brightness of red, green and blue.
_BRIGHTNESS = (0.2989, 0.5870, 0.1140)


def _channels(images: Any, data_format: str | None, floats: bool = True) -> tuple[Any, int]:
    """Return images, checked to have three channels, and the axis of the channels."""
    images = tensor(images)
    spatial_axes(images, data_format)
    axis = -1 if standardize_data_format(data_format) == "channels_last" else -3
    if images.shape[axis] != 3:
        raise ShapeMismatchError(
            "Images must have three channels: red, green and blue, or hue, saturation and value.",
            received=f"shape {images.shape}",
        )
    if floats and not wnp.issubdtype(images.dtype, wnp.floating):
        raise ArgumentError("Images must be floats in [0, 1].", received=f"dtype {images.dtype}")
    return images, axis


@operation
@document("Images of one channel and the same dtype.")
def rgb_to_grayscale(images: Any, data_format: str | None = None) -> Any:
    """Convert images of red, green and blue to their brightness."""
    images, axis = _channels(images, data_format, floats=False)
    dtype = images.dtype
    wide = images.astype(wnp.result_type(dtype, 1.0))
    shape = [3 if i == axis % images.ndim else 1 for i in range(images.ndim)]
    factors = wnp.asarray(np.reshape(_BRIGHTNESS, shape), wide.dtype)
    return wnp.sum(wide * factors, axis, keepdims=True).astype(dtype)


@operation
@document("Images of the same shape.", images="an image or a batch of images, floats in [0, 1].")
def rgb_to_hsv(images: Any, data_format: str | None = None) -> Any:
    """Convert images of red, green and blue to hue, saturation and value."""
    images, axis = _channels(images, data_format)
    red, green, blue = wnp.split(images, 3, axis)
    value, least = wnp.max(images, axis, keepdims=True), wnp.min(images, axis, keepdims=True)
    extent = value - least
    saturation = wnp.where(value > 0, extent / wnp.where(value > 0, value, 1), 0)
    safe = wnp.where(extent > 0, extent, 1)
    hue = wnp.where(
        red == value,
        (green - blue) / safe,
        wnp.where(green == value, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = wnp.where(extent > 0, hue / 6, 0)
    return wnp.concatenate([wnp.where(hue < 0, hue + 1, hue), saturation, value], axis).astype(images.dtype)


@operation
@document("Images of the same shape.", images="an image or a batch of images, floats in [0, 1].")
def hsv_to_rgb(images: Any, data_format: str | None = None) -> Any:
    """Convert images of hue, saturation and value to red, green and blue."""
    images, axis = _channels(images, data_format)
    hue, saturation, value = wnp.split(images, 3, axis)
    # How far red, green and blue are from their full value, as functions of the hue on a circle of 6.
    distances = [wnp.abs(hue * 6 - 3) - 1, 2 - wnp.abs(hue * 6 - 2), 2 - wnp.abs(hue * 6 - 4)]
    parts = [(1 - saturation + saturation * wnp.clip(part, 0, 1)) * value for part in distances]
    return wnp.concatenate(parts, axis).astype(images.dtype)


def _filter_channels(images: Any, kernel: Any, data_format: str | None) -> Any:
    """Filter each channel of images with one kernel (rows, columns), zeros at the borders."""
    single = images.ndim == 3
    images = images[None] if single else images
    data_format = standardize_data_format(data_format)
    count = images.shape[-1 if data_format == "channels_last" else 1]
    kernel = wnp.broadcast_to(wnp.asarray(kernel, images.dtype)[:, :, None, None], (*kernel.shape, count, 1))
    filtered = convolution.depthwise_conv(images, kernel, 1, "same", data_format)
    return filtered[0] if single else filtered


def _gaussian(size: int, sigma: Any, dtype: Any) -> Any:
    """Return the factors of a normal distribution, which sum to 1."""
    positions = wnp.asarray(np.arange(size) - (size - 1) / 2, dtype)
    factors = wnp.exp(-0.5 * (positions / sigma) ** 2)
    return factors / wnp.sum(factors)


@operation
@document(
    "Images of the same shape.",
    kernel_size="how many pixels count along the width and along the height, in this order, as in Keras.",
    sigma="the standard deviations along the width and along the height, in pixels.",
)
def gaussian_blur(
    images: Any, kernel_size: Any = (3, 3), sigma: Any = (1.0, 1.0), data_format: str | None = None
) -> Any:
    """Smooth images with a normal distribution; zeros are at the borders."""
    images = inexact(images)
    spatial_axes(images, data_format)
    width, height = sizes(kernel_size, 2, "kernel_size")
    deviations = wnp.broadcast_to(wnp.asarray(sigma, images.dtype), (2,))
    kernel = wnp.outer(_gaussian(height, deviations[1], images.dtype), _gaussian(width, deviations[0], images.dtype))
    return _filter_channels(images, kernel, data_format)


@operation
def sobel_edges(images: Any, data_format: str | None = None) -> Any:
    """Compute derivatives of images along rows and columns with Sobel filters; zeros are at the borders.

    Args:
        images: a batch of images.
        data_format: "channels_last" or "channels_first"; None is the setting.

    Returns:
        An array with a last axis of size 2: the derivatives from row to row, and from column to column.
    """
    images = inexact(images)
    spatial_axes(images, data_format)
    kernel = np.array([[-1.0, -2.0, -1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 1.0]])
    return wnp.stack([_filter_channels(images, part, data_format) for part in (kernel, kernel.T)], axis=-1)


@operation
def ssim(
    image1: Any,
    image2: Any,
    max_val: float = 1.0,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    data_format: str | None = None,
) -> Any:
    """Compute the structural similarity of images, by brightness, contrast and structure: 1 for equal images.

    Args:
        image1: an image or a batch of images.
        image2: images of the same shape.
        max_val: the largest value that a pixel may have.
        filter_size: the rows and columns of a window.
        filter_sigma: the standard deviation of the weights in a window, in pixels.
        k1: keeps brightness stable.
        k2: keeps contrast stable.
        data_format: "channels_last" or "channels_first"; None is the setting.

    Returns:
        A scalar for each image.
    """
    one, two = inexact(image1), inexact(image2)
    if one.shape != two.shape:
        raise ShapeMismatchError(
            "The images of ssim must have the same shape.", received=f"{one.shape} and {two.shape}"
        )
    axes = spatial_axes(one, data_format)
    if min(one.shape[axis] for axis in axes) < filter_size:
        raise ShapeMismatchError(
            "Images must be at least as large as the filter.", received=f"{one.shape}, {filter_size=}"
        )
    single = one.ndim == 3
    one, two = (part[None] if single else part for part in (one, two))
    weights = _gaussian(filter_size, filter_sigma, one.dtype)
    layout = standardize_data_format(data_format)
    count = one.shape[-1 if layout == "channels_last" else 1]
    kernel = wnp.broadcast_to(wnp.outer(weights, weights)[:, :, None, None], (filter_size, filter_size, count, 1))
    mean = lambda x: convolution.depthwise_conv(x, kernel, 1, "valid", layout)
    mean_one, mean_two = mean(one), mean(two)
    first, second = (k1 * max_val) ** 2, (k2 * max_val) ** 2
    brightness = (2 * mean_one * mean_two + first) / (mean_one**2 + mean_two**2 + first)
    covariance = mean(one * two) - mean_one * mean_two
    variances = mean(one**2) + mean(two**2) - mean_one**2 - mean_two**2
    likeness = wnp.mean(brightness * (2 * covariance + second) / (variances + second), axis=(1, 2, 3))
    return likeness[0] if single else likeness
