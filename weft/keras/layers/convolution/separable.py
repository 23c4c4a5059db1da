"""SeparableConv1D, SeparableConv2D."""

from __future__ import annotations

from typing import Any

from weft import Array
from weft.keras.layers.convolution.base import Convolution, positive
from weft.keras.numerics import convolution
from weft.keras.numerics.convolution import Sizes
from weft.keras.numerics.shapes import Shape, channel_axis, window_shape


class BaseSeparableConv(Convolution):
    """A depthwise convolution and one with windows of one element: depthwise_kernel, pointwise_kernel, bias."""

    def __init__(
        self,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        depth_multiplier: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform",
        pointwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None,
        pointwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
        pointwise_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self.set_arguments(
            filters=positive("filters", filters), depth_multiplier=positive("depth_multiplier", depth_multiplier)
        )
        self._set_windows(kernel_size, strides, padding, data_format, dilation_rate)
        self.set_arguments(
            activation=activation,
            use_bias=use_bias,
            depthwise_initializer=depthwise_initializer,
            pointwise_initializer=pointwise_initializer,
            bias_initializer=bias_initializer,
            depthwise_regularizer=depthwise_regularizer,
            pointwise_regularizer=pointwise_regularizer,
            bias_regularizer=bias_regularizer,
            depthwise_constraint=depthwise_constraint,
            pointwise_constraint=pointwise_constraint,
            bias_constraint=bias_constraint,
        )

    def build(self, input_shape: Any) -> None:
        """Make the kernels and the bias."""
        channels = self._input_channels(input_shape)
        between = channels * self.depth_multiplier
        self.depthwise_kernel = self._add_kernel(
            "depthwise_kernel", (*self.kernel_size, channels, self.depth_multiplier)
        )
        self.pointwise_kernel = self._add_kernel("pointwise_kernel", (*(1,) * self.rank, between, self.filters))
        self._add_bias(self.filters)
        self.built = True

    def call(self, inputs: Array) -> Array:
        """Compute activation(separable convolution of the inputs + bias)."""
        return self._finish(
            convolution.separable_conv(
                inputs,
                self.depthwise_kernel.value,
                self.pointwise_kernel.value,
                self.strides,
                self.padding,
                self.data_format,
                self.dilation_rate,
            )
        )

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        shape = list(
            window_shape(
                input_shape, self.kernel_size, self.strides, self.padding, self.data_format, self.dilation_rate
            )
        )
        shape[channel_axis(self.data_format)] = self.filters
        return tuple(shape)


class SeparableConv1D(BaseSeparableConv):
    """A depthwise convolution over (batch, steps, channels), then one that mixes channels.

    Args:
      filters: how many channels the result has.
      kernel_size: the length of the window.
      strides, padding, data_format, dilation_rate: as in `Conv1D`.
      depth_multiplier: how many results of the depthwise convolution there are for each channel.
      activation, use_bias, initializers, regularizers and constraints: as in `Conv1D`, apart for both kernels.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.SeparableConv1D(4, 3)(weft.numpy.ones((2, 10, 3))).shape
      (2, 8, 4)
    """

    rank = 1


class SeparableConv2D(BaseSeparableConv):
    """A depthwise convolution over images, then one with windows of one pixel, which mixes channels.

    Args:
      filters: how many channels the result has.
      kernel_size: height and width of the window, or one integer for both.
      strides, padding, data_format, dilation_rate: as in `Conv2D`.
      depth_multiplier: how many results of the depthwise convolution there are for each channel.
      activation, use_bias, initializers, regularizers and constraints: as in `Conv2D`, apart for both kernels.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.SeparableConv2D(4, 3, padding="same")(weft.numpy.ones((2, 8, 8, 3))).shape
      (2, 8, 8, 4)
    """

    rank = 2
