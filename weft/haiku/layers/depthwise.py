"""Depthwise convolutions, which convolve each channel separately."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import lax
from weft.haiku.layers.convolution import Padding, Sizes, _Convolution, _padding, _sizes
from weft.haiku.module import Module
from weft.haiku.typing import Initializer


class DepthwiseConvND(_Convolution):
    """`channel_multiplier` convolutions of each channel, with weights (kernel..., 1, outputs)."""

    def __init__(
        self,
        channel_multiplier: int,
        kernel_shape: Sizes,
        num_spatial_dims: int,
        stride: Sizes = 1,
        rate: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "channels_last",
        name: str | None = None,
    ):
        super().__init__(num_spatial_dims, kernel_shape, stride, with_bias, w_init, b_init, data_format, None, name)
        self.channel_multiplier = channel_multiplier
        self.rate = _sizes(rate, num_spatial_dims, self, "rate")
        self.padding = _padding(padding, self.kernel_shape, self.rate, num_spatial_dims, self)

    def __call__(self, inputs: Any) -> Any:
        batched, was_batched = self._add_batch(inputs)
        channels = batched.shape[self.channel_index]
        outputs = self.channel_multiplier * channels
        shape = (*self.kernel_shape, 1, outputs)
        w = self._weights(shape, math.prod(shape[:-1]), inputs.dtype)
        out = lax.conv_general_dilated(
            batched,
            w,
            self.stride,
            self.padding,
            rhs_dilation=self.rate,
            dimension_numbers=self.dimension_numbers,
            feature_group_count=channels,
        )
        return self._finish(out, outputs, was_batched)


class DepthwiseConv1D(DepthwiseConvND):
    """A depthwise convolution over one dimension."""

    def __init__(
        self,
        channel_multiplier: int,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        rate: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "NWC",
        name: str | None = None,
    ):
        super().__init__(
            channel_multiplier, kernel_shape, 1, stride, rate, padding, with_bias, w_init, b_init, data_format, name
        )


class DepthwiseConv2D(DepthwiseConvND):
    """A depthwise convolution over two dimensions."""

    def __init__(
        self,
        channel_multiplier: int,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        rate: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "NHWC",
        name: str | None = None,
    ):
        super().__init__(
            channel_multiplier, kernel_shape, 2, stride, rate, padding, with_bias, w_init, b_init, data_format, name
        )


class DepthwiseConv3D(DepthwiseConvND):
    """A depthwise convolution over three dimensions."""

    def __init__(
        self,
        channel_multiplier: int,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        rate: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "NDHWC",
        name: str | None = None,
    ):
        super().__init__(
            channel_multiplier, kernel_shape, 3, stride, rate, padding, with_bias, w_init, b_init, data_format, name
        )


class SeparableDepthwiseConv2D(Module):
    """A depthwise convolution along the height and then one along the width."""

    def __init__(
        self,
        channel_multiplier: int,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        padding: str | Sequence[tuple[int, int]] = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "NHWC",
        name: str | None = None,
    ):
        super().__init__(name=name)
        height, width = _sizes(kernel_shape, 2, self, "kernel_shape")
        down, right = _sizes(stride, 2, self, "stride")
        both: Any = (padding, padding) if isinstance(padding, str) else ((padding[0], (0, 0)), ((0, 0), padding[-1]))
        self._first = DepthwiseConv2D(
            channel_multiplier, (height, 1), (down, 1), 1, both[0], False, w_init, b_init, data_format
        )
        self._second = DepthwiseConv2D(1, (1, width), (1, right), 1, both[1], with_bias, w_init, b_init, data_format)

    def __call__(self, inputs: Any) -> Any:
        return self._second(self._first(inputs))
