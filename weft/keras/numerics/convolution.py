"""Convolutions with Keras' arguments: kernels are (spatial..., in, out), data formats and paddings are words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError
from weft.keras.numerics.shapes import (
    channel_axis,
    padding_name,
    sizes,
    spatial_sizes,
    window_count,
    with_spatial,
)

Sizes = int | Sequence[int]


def dimension_numbers(rank: int, data_format: str) -> tuple[str, str, str]:
    """Return the letters of an input, a kernel and a result with `rank` spatial dimensions."""
    spatial = "DHW"[-rank:] if rank <= 3 else "".join(chr(ord("a") + i) for i in range(rank))
    data = f"NC{spatial}" if data_format == "channels_first" else f"N{spatial}C"
    return data, f"{spatial}IO", data


def conv(
    inputs: Array,
    kernel: Array,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sizes = 1,
) -> Array:
    """Convolve; if the kernel takes fewer channels than the input has, the channels are divided into groups.

    Args:
      inputs: (batch, spatial..., channels), or channels after the batch.
      kernel: (spatial..., channels of a group, filters).
      strides: from window to window.
      padding: "valid", "same", or "causal" (one spatial dimension: all padding is before).
      data_format: "channels_last" or "channels_first".
      dilation_rate: from element to element of a window.
    """
    rank = inputs.ndim - 2
    padding = padding_name(padding, allow_causal=rank == 1)
    dilation = sizes(dilation_rate, rank, "dilation_rate")
    axis = channel_axis(data_format)
    channels, each = inputs.shape[axis], kernel.shape[-2]
    if channels % each:
        raise ArgumentError(
            f"The {channels} channels of the input must be a multiple of the {each} that the kernel takes; "
            f"shapes {inputs.shape} and {kernel.shape}."
        )
    for size, window, wide in zip(spatial_sizes(inputs.shape, data_format), kernel.shape, dilation, strict=False):
        if isinstance(size, int):
            window_count(size, window, 1, padding, wide)  # an error where none fits
    pads: Any = padding.upper()
    if padding == "causal":
        pads = [((kernel.shape[0] - 1) * dilation[0], 0)]
    return lax.conv_general_dilated(
        inputs,
        kernel,
        sizes(strides, rank, "strides"),
        pads,
        rhs_dilation=dilation,
        dimension_numbers=dimension_numbers(rank, data_format),
        feature_group_count=channels // each,
    )


def depthwise_conv(
    inputs: Array,
    kernel: Array,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sizes = 1,
) -> Array:
    """Convolve each channel separately; the kernel is (spatial..., channels, multiplier)."""
    *window, channels, multiplier = kernel.shape
    if inputs.shape[channel_axis(data_format)] != channels:
        raise ArgumentError(
            f"A depthwise kernel of shape {kernel.shape} takes {channels} channels. Received: inputs of shape "
            f"{inputs.shape} with data_format={data_format!r}"
        )
    grouped = wnp.reshape(kernel, (*window, 1, channels * multiplier))
    return conv(inputs, grouped, strides, padding, data_format, dilation_rate)


def separable_conv(
    inputs: Array,
    depthwise_kernel: Array,
    pointwise_kernel: Array,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sizes = 1,
) -> Array:
    """Apply a depthwise convolution, then one with windows of one element, which mixes channels."""
    out = depthwise_conv(inputs, depthwise_kernel, strides, padding, data_format, dilation_rate)
    return conv(out, pointwise_kernel, 1, "valid", data_format)


def conv_transpose(
    inputs: Array,
    kernel: Array,
    strides: Sizes = 1,
    padding: str = "valid",
    output_padding: Sizes | None = None,
    data_format: str = "channels_last",
    dilation_rate: Sizes = 1,
) -> Array:
    """Apply the transpose of a convolution, which enlarges images by the strides.

    The kernel is (spatial..., filters, channels), that of the convolution from the result to the input.
    `output_padding` chooses among the sizes that the convolution would reduce to this input's.
    """
    rank = inputs.ndim - 2
    steps, dilation = sizes(strides, rank, "strides"), sizes(dilation_rate, rank, "dilation_rate")
    extra = output_paddings(output_padding, rank)
    padding = padding_name(padding)
    pads = [
        _transpose_pads((window - 1) * wide + 1, step, padding, more)
        for window, wide, step, more in zip(kernel.shape[:rank], dilation, steps, extra, strict=True)
    ]
    return lax.conv_transpose(
        inputs,
        kernel,
        steps,
        pads,
        rhs_dilation=dilation,
        dimension_numbers=dimension_numbers(rank, data_format),
        transpose_kernel=True,
    )


def output_paddings(value: Sizes | None, rank: int) -> tuple[int | None, ...]:
    """Return `output_padding` for each dimension; None if it is chosen by default."""
    return (None,) * rank if value is None else sizes(value, rank, "output_padding", allow_zero=True)


def _transpose_pads(reach: int, stride: int, padding: str, extra: int | None) -> tuple[int, int]:
    """Return the padding of an input that is dilated by the stride, on both sides, for windows of `reach` elements."""
    if padding == "valid":
        return reach - 1, reach - 1 + (max(stride - reach, 0) if extra is None else extra)
    total = stride + reach - 2 if extra is None else reach + reach % 2 - 2 + extra
    before = min((total + 1) // 2, reach - 1)
    return before, total - before


def conv_transpose_shape(
    shape: Sequence[int | None],
    filters: int,
    window: Sequence[int],
    strides: Sequence[int],
    padding: str,
    output_padding: Sizes | None,
    data_format: str,
    dilation: Sequence[int],
) -> tuple[int | None, ...]:
    """Return the shape of the result of `conv_transpose`."""
    rank = len(window)

    def size(before: int | None, window: int, stride: int, wide: int, extra: int | None) -> int | None:
        reach = (window - 1) * wide + 1
        # Strides go between the elements; a window of reach then makes the size smaller by reach - 1.
        return (
            None
            if before is None
            else (before - 1) * stride + sum(_transpose_pads(reach, stride, padding, extra)) - reach + 2
        )

    spatial = tuple(shape[2:]) if data_format == "channels_first" else tuple(shape[1:-1])
    out = [
        size(*values)
        for values in zip(spatial, window, strides, dilation, output_paddings(output_padding, rank), strict=True)
    ]
    return with_spatial((shape[0], filters, *(None,) * (rank - 1), filters), out, data_format)
