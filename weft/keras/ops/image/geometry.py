"""Images of other sizes: resizing, cropping, padding, patches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import image, lax
from weft.errors import ArgumentError, ShapeMismatchError
from weft.keras.core.config import standardize_data_format
from weft.keras.graph.tensor import KerasTensor
from weft.keras.numerics.shapes import padding_name, sizes
from weft.keras.ops.dispatch import inexact, operation, symbolic_as, tensor

# Keras' words for the methods of `weft.image`.
METHODS = {
    "bilinear": "linear",
    "nearest": "nearest",
    "lanczos3": "lanczos3",
    "lanczos5": "lanczos5",
    "bicubic": "cubic",
}


def spatial_axes(images: Any, data_format: str | None) -> tuple[int, int]:
    """Return the axes of rows and columns of an image or a batch of images."""
    if images.ndim not in (3, 4):
        raise ShapeMismatchError(
            "Images must have rank 3 (one image) or 4 (a batch).", received=f"shape {images.shape}"
        )
    return (-3, -2) if standardize_data_format(data_format) == "channels_last" else (-2, -1)


def cropped_sizes(own: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    """Return the rows and columns of the largest part of an image with the aspect ratio of a target."""
    rows, columns = int(own[1] * target[0] / target[1]), int(own[0] * target[1] / target[0])
    return max(min(own[0], rows), 1), max(min(own[1], columns), 1)


def padded_sizes(own: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    """Return the rows and columns of the smallest image around an image with the aspect ratio of a target."""
    return max(own[0], int(own[1] * target[0] / target[1])), max(own[1], int(own[0] * target[1] / target[0]))


@operation
def resize(
    images: Any,
    size: Any,
    interpolation: str = "bilinear",
    antialias: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
    data_format: str | None = None,
) -> Any:
    """Resize images.

    Args:
        images: an image or a batch of images.
        size: the rows and columns.
        interpolation: "nearest", "bilinear", "bicubic", "lanczos3" or "lanczos5".
        antialias: whether images are smoothed before they are made smaller.
        crop_to_aspect_ratio: whether to cut the largest centred part of the right proportions first.
        pad_to_aspect_ratio: whether to add borders first, so that the proportions are right.
        fill_mode: "constant": what borders are.
        fill_value: their value.
        data_format: "channels_last" or "channels_first"; None is the setting.

    Returns:
        Images of the same dtype; those of integers are rounded.

    Example:
        >>> from weft import keras
        >>> keras.ops.image.resize(keras.ops.ones((2, 8, 8, 3)), (4, 6)).shape
        (2, 4, 6, 3)
    """
    images = tensor(images)
    rows, columns = spatial_axes(images, data_format)
    if interpolation not in METHODS:
        raise ArgumentError(f"`interpolation` must be one of {', '.join(METHODS)}.", received=f"{interpolation=}")
    if fill_mode != "constant":
        raise ArgumentError("`fill_mode` must be 'constant'.", received=f"{fill_mode=}")
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ArgumentError("Images are cropped or padded to the right proportions, not both.")
    height, width = sizes(size, 2, "size")
    dtype = images.dtype
    own = images.shape[rows], images.shape[columns]
    if crop_to_aspect_ratio:
        for axis, whole, part in zip((rows, columns), own, cropped_sizes(own, (height, width)), strict=True):
            start = (whole - part) // 2
            images = lax.slice_in_dim(images, start, start + part, axis=axis % images.ndim)
    elif pad_to_aspect_ratio:
        pads = [(0, 0)] * images.ndim
        for axis, whole, part in zip((rows, columns), padded_sizes(own, (height, width)), own, strict=True):
            pads[axis] = ((whole - part) // 2,) * 2
        images = wnp.pad(images, pads, constant_values=fill_value)
    shape = list(images.shape)
    shape[rows], shape[columns] = height, width
    if not wnp.issubdtype(dtype, wnp.floating):
        # The whole range of the dtype stays: half way is rounded to even.
        resized = image.resize(images.astype("float32"), shape, METHODS[interpolation], antialias)
        info = wnp.iinfo(dtype)
        return wnp.clip(wnp.round(resized), float(info.min), float(info.max)).astype(dtype)
    return image.resize(images, shape, METHODS[interpolation], antialias).astype(dtype)


@operation
def scale_and_translate(
    images: Any, output_shape: Any, scale: Any, translation: Any, spatial_dims: Any, method: str, antialias: bool = True
) -> Any:
    """Scale and translate images by real numbers, to another size.

    Args:
        images: an array.
        output_shape: the shape of the result; None is the size that the images have.
        scale: a factor for each spatial axis.
        translation: by how much each spatial axis is moved, in pixels of the result.
        spatial_dims: the spatial axes.
        method: "linear", "cubic", "lanczos3", "lanczos5" (or "bilinear", ...).
        antialias: whether images are smoothed before they are made smaller.

    Returns:
        An array of that shape.
    """
    images = inexact(images)
    return image.scale_and_translate(
        images,
        tuple(own if size is None else size for size, own in zip(output_shape, images.shape, strict=True)),
        tuple(spatial_dims),
        inexact(scale),
        inexact(translation),
        METHODS.get(method, method),
        antialias,
    )


def _limits(before: Any, after: Any, target: Any, size: int, names: str, sign: int) -> tuple[int, int]:
    """Return the amounts that are cut off or added before and after an axis, given two of before, after and target."""
    if sum(part is None for part in (before, after, target)) != 1:
        raise ArgumentError(f"Exactly two of {names} must be given.", received=f"{before}, {after} and {target}")
    difference = None if target is None else (target - size) * sign
    if before is None:
        before = difference - after
    if after is None:
        after = difference - before
    if before < 0 or after < 0:
        raise ArgumentError(
            f"The target does not fit: {names} lead to a negative count.", received=f"{before} and {after}, size {size}"
        )
    return before, after


def _border_spec(images: Any, data_format: str | None, sign: int, names: str, *parts: tuple[Any, Any, Any]) -> Any:
    """Return the symbolic result of cropping (`sign` -1) or padding (1) images with unknown rows or columns: the
    target's sizes, if given.
    """
    axes = spatial_axes(images, data_format)
    if all(images.shape[axis] is not None for axis in axes):
        return None
    shape = list(images.shape)
    for axis, (before, after, target) in zip(axes, parts, strict=True):
        size, other = shape[axis], (before or 0) + (after or 0)
        # An unknown size is one that fits.
        assumed = size if size is not None else other if target is None else target - sign * other
        cut = sum(_limits(before, after, target, assumed, names, sign))
        shape[axis] = target if size is None else size + sign * cut
    return KerasTensor(shape, images.dtype)


def _crop_spec(
    images: Any,
    top_cropping: int | None = None,
    left_cropping: int | None = None,
    bottom_cropping: int | None = None,
    right_cropping: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> Any:
    rows, columns = (top_cropping, bottom_cropping, target_height), (left_cropping, right_cropping, target_width)
    return _border_spec(images, data_format, -1, "the croppings and the target", rows, columns)


def _pad_spec(
    images: Any,
    top_padding: int | None = None,
    left_padding: int | None = None,
    bottom_padding: int | None = None,
    right_padding: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> Any:
    rows, columns = (top_padding, bottom_padding, target_height), (left_padding, right_padding, target_width)
    return _border_spec(images, data_format, 1, "the paddings and the target", rows, columns)


@operation
@symbolic_as(_crop_spec)
def crop_images(
    images: Any,
    top_cropping: int | None = None,
    left_cropping: int | None = None,
    bottom_cropping: int | None = None,
    right_cropping: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> Any:
    """Crop rows and columns at the borders of images; two of three amounts are given for each direction.

    Args:
        images: an image or a batch of images.
        top_cropping: how many rows are cut off at the top.
        left_cropping: how many columns at the left.
        bottom_cropping: how many rows at the bottom.
        right_cropping: how many columns at the right.
        target_height: how many rows there are afterwards.
        target_width: how many columns there are afterwards.
        data_format: "channels_last" or "channels_first"; None is the setting.

    Returns:
        Images.
    """
    images = tensor(images)
    rows, columns = spatial_axes(images, data_format)
    names = "top_cropping, bottom_cropping and target_height"
    top, bottom = _limits(top_cropping, bottom_cropping, target_height, images.shape[rows], names, -1)
    names = "left_cropping, right_cropping and target_width"
    left, right = _limits(left_cropping, right_cropping, target_width, images.shape[columns], names, -1)
    images = lax.slice_in_dim(images, top, images.shape[rows] - bottom, axis=rows % images.ndim)
    return lax.slice_in_dim(images, left, images.shape[columns] - right, axis=columns % images.ndim)


@operation
@symbolic_as(_pad_spec)
def pad_images(
    images: Any,
    top_padding: int | None = None,
    left_padding: int | None = None,
    bottom_padding: int | None = None,
    right_padding: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> Any:
    """Pad images with zeros at their borders; two of three amounts are given for each direction.

    Args:
        images: an image or a batch of images.
        top_padding: how many rows are added at the top.
        left_padding: how many columns at the left.
        bottom_padding: how many rows at the bottom.
        right_padding: how many columns at the right.
        target_height: how many rows there are afterwards.
        target_width: how many columns there are afterwards.
        data_format: "channels_last" or "channels_first"; None is the setting.

    Returns:
        Images.
    """
    images = tensor(images)
    rows, columns = spatial_axes(images, data_format)
    pads = [(0, 0)] * images.ndim
    names = "top_padding, bottom_padding and target_height"
    pads[rows] = _limits(top_padding, bottom_padding, target_height, images.shape[rows], names, 1)
    names = "left_padding, right_padding and target_width"
    pads[columns] = _limits(left_padding, right_padding, target_width, images.shape[columns], names, 1)
    return wnp.pad(images, pads)


@operation
def extract_patches(
    images: Any,
    size: Any,
    strides: Any = None,
    dilation_rate: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> Any:
    """Extract windows of images as channels.

    Args:
        images: an image or a batch of images; a volume or a batch of volumes where `size` has three sizes.
        size: the rows and columns of a window.
        strides: the distance of windows; their size by default.
        dilation_rate: the distance of the pixels of a window.
        padding: "valid" (whole windows only) or "same" (zeros at the borders).
        data_format: "channels_last" or "channels_first"; None is the setting.

    Returns:
        An array whose channels are the pixels of a window, row by row.

    Example:
        >>> from weft import keras
        >>> keras.ops.image.extract_patches(keras.ops.ones((2, 8, 8, 3)), 4).shape
        (2, 2, 2, 48)
    """
    images = tensor(images)
    if isinstance(size, (tuple, list)) and len(size) == 3:
        return _patches(images, size, strides, dilation_rate, padding, data_format, 3)
    spatial_axes(images, data_format)
    return _patches(images, size, strides, dilation_rate, padding, data_format, 2)


@operation
def extract_patches_3d(
    volumes: Any,
    size: Any,
    strides: Any = None,
    dilation_rate: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> Any:
    """Extract windows of volumes as channels.

    Args:
        volumes: a volume (rank 4) or a batch of volumes (rank 5).
        size: the three sizes of a window.
        strides: the distance of windows; their size by default.
        dilation_rate: the distance of the elements of a window.
        padding: "valid" (whole windows only) or "same" (zeros at the borders).
        data_format: "channels_last" or "channels_first"; None is the setting.

    Returns:
        An array whose channels are the elements of a window.
    """
    return _patches(tensor(volumes), size, strides, dilation_rate, padding, data_format, 3)


def _patches(
    x: Any, size: Any, strides: Any, dilation_rate: Any, padding: str, data_format: str | None, rank: int
) -> Any:
    window = sizes(size, rank, "size")
    steps = window if strides is None else sizes(strides, rank, "strides")
    wide = sizes(dilation_rate, rank, "dilation_rate")
    last = standardize_data_format(data_format) == "channels_last"
    single = x.ndim == rank + 1
    x = x[None] if single else x
    x = x if last else wnp.moveaxis(x, 1, -1)
    reaches = [(w - 1) * d + 1 for w, d in zip(window, wide, strict=True)]
    if padding_name(padding) == "same":
        missing = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(x.shape[1:-1], steps, reaches, strict=True)]
        x = wnp.pad(x, ((0, 0), *((m // 2, m - m // 2) for m in missing), (0, 0)))
    for axis, (n, w, s, d, r) in enumerate(zip(x.shape[1:-1], window, steps, wide, reaches, strict=True)):
        # Windows of one axis after another: (windows, elements) instead of that axis.
        indices = np.arange((n - r) // s + 1)[:, None] * s + np.arange(w) * d
        x = wnp.take(x, indices, axis=1 + 2 * axis)
    # (batch, windows, elements, windows, elements, ..., channels)
    windows, elements = range(1, 2 * rank + 1, 2), range(2, 2 * rank + 2, 2)
    x = wnp.transpose(x, (0, *windows, *elements, 2 * rank + 1))
    x = wnp.reshape(x, (*x.shape[: rank + 1], math.prod(x.shape[rank + 1 :])))
    x = x if last else wnp.moveaxis(x, -1, 1)
    return x[0] if single else x
