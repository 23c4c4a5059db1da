"""Convolutions over one, two or three spatial axes."""

from __future__ import annotations

from typing import Any

from weft.errors import ShapeMismatchError
from weft.keras.core.config import standardize_data_format
from weft.keras.numerics import convolution
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import operation, same_dtype


def _operands(inputs: Any, kernel: Any, name: str) -> tuple[Any, Any]:
    """Convert inputs and kernel to one dtype and check their ranks."""
    inputs, kernel = same_dtype(inputs, kernel)
    if inputs.ndim - 2 not in (1, 2, 3) or kernel.ndim != inputs.ndim:
        raise ShapeMismatchError(
            f"{name}: inputs must have a batch, 1 to 3 spatial axes and channels, and the kernel the same rank.",
            received=f"inputs {inputs.shape}, kernel {kernel.shape}",
        )
    return inputs, kernel


@operation
@document(
    "An array of shape (batch, *spatial, filters), or (batch, filters, *spatial).",
    kernel="an array of shape (*spatial, channels / groups, filters).",
    padding='"valid" (none) or "same" (zeros, so that strides of 1 leave the sizes as they are).',
)
def conv(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Convolve inputs with a kernel over 1, 2 or 3 spatial axes."""
    inputs, kernel = _operands(inputs, kernel, "conv")
    return convolution.conv(inputs, kernel, strides, padding, standardize_data_format(data_format), dilation_rate)


@operation
@document(
    "An array with `channels * multiplier` channels.",
    kernel="an array of shape (*spatial, channels, multiplier).",
    padding='"valid" (none) or "same" (zeros).',
)
def depthwise_conv(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Convolve each channel with its own kernels."""
    inputs, kernel = _operands(inputs, kernel, "depthwise_conv")
    return convolution.depthwise_conv(
        inputs, kernel, strides, padding, standardize_data_format(data_format), dilation_rate
    )


@operation
def separable_conv(
    inputs: Any,
    depthwise_kernel: Any,
    pointwise_kernel: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Compute a depthwise convolution, then a pointwise one that mixes channels.

    Args:
        inputs: an array of shape (batch, *spatial, channels), or (batch, channels, *spatial).
        depthwise_kernel: an array of shape (*spatial, channels, multiplier).
        pointwise_kernel: an array of shape (1, ..., 1, channels * multiplier, filters).
        strides: the distance of windows, one integer or one for each spatial axis.
        padding: "valid" (none) or "same" (zeros).
        data_format: "channels_last" or "channels_first"; None is the setting.
        dilation_rate: the distance of elements of the kernel, one integer or one for each spatial axis.

    Returns:
        An array with `filters` channels.
    """
    separate = depthwise_conv(inputs, depthwise_kernel, strides, padding, data_format, dilation_rate)
    return conv(separate, pointwise_kernel, 1, "valid", data_format, 1)


@operation
def conv_transpose(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: str = "valid",
    output_padding: Any = None,
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Compute the transposed convolution, which maps the result of a convolution back to the shape of its inputs.

    Args:
        inputs: an array of shape (batch, *spatial, channels), or (batch, channels, *spatial).
        kernel: an array of shape (*spatial, filters, channels).
        strides: how much larger the result is, one integer or one for each spatial axis.
        padding: "valid" (all windows) or "same" (the sizes times the strides).
        output_padding: what is added to one side of the result, smaller than the strides; None for the sizes that
            `padding` says.
        data_format: "channels_last" or "channels_first"; None is the setting.
        dilation_rate: the distance of elements of the kernel, one integer or one for each spatial axis.

    Returns:
        An array of shape (batch, *spatial, filters), or (batch, filters, *spatial).
    """
    inputs, kernel = _operands(inputs, kernel, "conv_transpose")
    return convolution.conv_transpose(
        inputs, kernel, strides, padding, output_padding, standardize_data_format(data_format), dilation_rate
    )
