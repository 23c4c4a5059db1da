"""Classes as vectors, blocks of pixels as channels, and small measures."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import lax, nn
from weft.errors import ArgumentError, ShapeMismatchError
from weft.keras.core.config import standardize_data_format, standardize_dtype
from weft.keras.core.spec import check_positive
from weft.keras.numerics.shapes import sizes
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import inexact, operation, same_dtype, tensor


@operation
def one_hot(x: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False) -> Any:
    """Encode integers as vectors with a 1 at their index; all zeros for an integer that is no class.

    Args:
        x: integers.
        num_classes: how many classes.
        axis: where the new axis is.
        dtype: of the result, `floatx()` by default.
        sparse: must be False: Weft has no sparse tensors of Keras.

    Returns:
        An array with one axis more.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.one_hot([1, 0], 3))
        [[0. 1. 0.]
         [1. 0. 0.]]
    """
    _dense(sparse, "one_hot")
    return nn.one_hot(tensor(x).astype("int32"), num_classes, axis=axis, dtype=standardize_dtype(dtype))


@operation
def multi_hot(
    inputs: Any, num_classes: int | None = None, axis: int = -1, dtype: Any = None, sparse: bool = False, **kwargs: Any
) -> Any:
    """Encode sets of integers as vectors with a 1 at each of their indices.

    Args:
        inputs: integers; the first axis is a batch where there are several, the next one is the elements of a set.
        num_classes: how many classes.
        axis: where the axis of classes is.
        dtype: of the result, `floatx()` by default.
        sparse: must be False: Weft has no sparse tensors of Keras.
        **kwargs: `num_tokens`, an older name of `num_classes`.

    Returns:
        An array with an axis of classes instead of that of elements.
    """
    classes = kwargs.pop("num_tokens", num_classes)
    if kwargs:
        raise TypeError(f"multi_hot() got an unexpected keyword argument {next(iter(kwargs))!r}")
    if classes is None:
        raise ArgumentError("multi_hot needs `num_classes`.")
    _dense(sparse, "multi_hot")
    inputs = tensor(inputs).astype("int32")
    elements = 1 if inputs.ndim > 1 else 0
    return wnp.max(nn.one_hot(inputs, classes, axis=axis, dtype=standardize_dtype(dtype)), axis=elements)


def _dense(sparse: bool, name: str) -> None:
    if sparse:
        raise ArgumentError(f"{name} makes dense arrays only.", received="sparse=True")


@operation
def depth_to_space(x: Any, block_size: int, data_format: str = "channels_last") -> Any:
    """Rearrange channels as blocks of pixels.

    Args:
        x: images, an array of shape (batch, rows, columns, channels), or (batch, channels, rows, columns).
        block_size: the rows and columns of a block; channels are a multiple of its square.
        data_format: "channels_last" or "channels_first".

    Returns:
        Images with `block_size` times as many rows and columns.
    """
    check_positive(2, block_size=block_size)
    x = tensor(x)
    last = standardize_data_format(data_format) == "channels_last"
    x = x if last else wnp.transpose(x, (0, 2, 3, 1))
    batch, rows, columns, channels = x.shape
    if channels % block_size**2:
        raise ShapeMismatchError(
            f"The number of channels must be a multiple of {block_size**2}, the squared block size.",
            received=f"shape {x.shape}",
        )
    # With channels first a channel of the result has its block side by side, with channels last a pixel has.
    rest = channels // block_size**2
    if last:
        x = wnp.transpose(x.reshape(batch, rows, columns, block_size, block_size, rest), (0, 1, 3, 2, 4, 5))
    else:
        x = wnp.transpose(x.reshape(batch, rows, columns, rest, block_size, block_size), (0, 1, 4, 2, 5, 3))
    x = x.reshape(batch, rows * block_size, columns * block_size, rest)
    return x if last else wnp.transpose(x, (0, 3, 1, 2))


@operation
def space_to_depth(x: Any, block_size: int, data_format: str = "channels_last") -> Any:
    """Rearrange blocks of pixels as channels: the inverse of `depth_to_space`.

    Args:
        x: images, an array of shape (batch, rows, columns, channels), or (batch, channels, rows, columns).
        block_size: the rows and columns of a block.
        data_format: "channels_last" or "channels_first".

    Returns:
        Images with the square of `block_size` times as many channels.
    """
    check_positive(2, block_size=block_size)
    x = tensor(x)
    last = standardize_data_format(data_format) == "channels_last"
    x = x if last else wnp.transpose(x, (0, 2, 3, 1))
    batch, rows, columns, channels = x.shape
    if rows % block_size or columns % block_size:
        raise ShapeMismatchError(f"Rows and columns must be multiples of {block_size}.", received=f"shape {x.shape}")
    x = x.reshape(batch, rows // block_size, block_size, columns // block_size, block_size, channels)
    x = wnp.transpose(x, (0, 1, 3, 2, 4, 5) if last else (0, 1, 3, 5, 2, 4))
    x = x.reshape(batch, rows // block_size, columns // block_size, channels * block_size**2)
    return x if last else wnp.transpose(x, (0, 3, 1, 2))


def _grid(size: int, kernel: int, dilation: int, padding: int, stride: int) -> np.ndarray:
    """Return the indices, in a padded axis, of the elements (first axis) of each window (second axis)."""
    count = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    return np.arange(kernel)[:, None] * dilation + np.arange(count) * stride


@operation
def unfold(x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Return the windows of images as columns.

    Args:
        x: images, an array of shape (batch, channels, rows, columns).
        kernel_size: the rows and columns of a window.
        dilation: the distance of its elements.
        padding: how many zeros are added at each border.
        stride: the distance of windows.

    Returns:
        An array of shape (batch, channels * elements of a window, windows).
    """
    x = tensor(x)
    kernel, dilations = sizes(kernel_size, 2, "kernel_size"), sizes(dilation, 2, "dilation")
    pads, strides = sizes(padding, 2, "padding", allow_zero=True), sizes(stride, 2, "stride")
    rows, columns = (_grid(*args) for args in zip(x.shape[2:], kernel, dilations, pads, strides, strict=True))
    x = wnp.pad(x, ((0, 0), (0, 0), (pads[0], pads[0]), (pads[1], pads[1])))
    windows = x[:, :, rows[:, None, :, None], columns[None, :, None, :]]
    return windows.reshape(x.shape[0], x.shape[1] * kernel[0] * kernel[1], -1)


@operation
def fold(x: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Add windows, given as columns, to images: the transpose of `unfold`.

    Args:
        x: an array of shape (batch, channels * elements of a window, windows).
        output_size: the rows and columns of the images.
        kernel_size: the rows and columns of a window.
        dilation: the distance of its elements.
        padding: how many pixels of each border are dropped.
        stride: the distance of windows.

    Returns:
        Images, an array of shape (batch, channels, rows, columns).
    """
    x = tensor(x)
    target, kernel = sizes(output_size, 2, "output_size"), sizes(kernel_size, 2, "kernel_size")
    dilations = sizes(dilation, 2, "dilation")
    pads, strides = sizes(padding, 2, "padding", allow_zero=True), sizes(stride, 2, "stride")
    rows, columns = (_grid(*args) for args in zip(target, kernel, dilations, pads, strides, strict=True))
    channels = x.shape[1] // (kernel[0] * kernel[1])
    windows = x.reshape(x.shape[0], channels, *kernel, rows.shape[1], columns.shape[1])
    total = wnp.zeros((x.shape[0], channels, target[0] + 2 * pads[0], target[1] + 2 * pads[1]), x.dtype)
    total = total.at[:, :, rows[:, None, :, None], columns[None, :, None, :]].add(windows)
    return total[:, :, pads[0] : pads[0] + target[0], pads[1] : pads[1] + target[1]]


@operation
@document("A scalar.", x2="an array of the same shape.", max_val="the largest value that there may be.")
def psnr(x1: Any, x2: Any, max_val: float) -> Any:
    """Compute the peak signal-to-noise ratio of two signals, in decibels."""
    x1, x2 = same_dtype(x1, x2)
    if x1.shape != x2.shape:
        raise ShapeMismatchError(
            "The arguments of psnr must have the same shape.", received=f"{x1.shape} and {x2.shape}"
        )
    error = wnp.mean(wnp.square(inexact(x1) - inexact(x2)))
    return 20 * wnp.log10(wnp.asarray(max_val, error.dtype)) - 10 * wnp.log10(error)


@operation
@document("An array of complex numbers.", abs_="the absolute values.", angle="the angles in radians.")
def polar(abs_: Any, angle: Any) -> Any:
    """Compute complex numbers from absolute values and angles."""
    size, angle = inexact(abs_), inexact(angle)
    return lax.complex(size * wnp.cos(angle), size * wnp.sin(angle))
