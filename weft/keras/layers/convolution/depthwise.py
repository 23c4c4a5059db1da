"""DepthwiseConv1D, DepthwiseConv2D."""

from __future__ import annotations

from typing import Any

from weft import Array
from weft.keras.layers.convolution.base import Convolution, positive
from weft.keras.numerics import convolution
from weft.keras.numerics.convolution import Sizes
from weft.keras.numerics.shapes import Shape, channel_axis, window_shape


class BaseDepthwiseConv(Convolution):
    """Each channel convolved by itself with `depth_multiplier` windows; kernel (spatial..., in, multiplier)."""

    def __init__(
        self,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self._set_windows(kernel_size, strides, padding, data_format, dilation_rate)
        self.set_arguments(
            depth_multiplier=positive("depth_multiplier", depth_multiplier),
            activation=activation,
            use_bias=use_bias,
            depthwise_initializer=depthwise_initializer,
            bias_initializer=bias_initializer,
            depthwise_regularizer=depthwise_regularizer,
            bias_regularizer=bias_regularizer,
            depthwise_constraint=depthwise_constraint,
            bias_constraint=bias_constraint,
        )

    def build(self, input_shape: Any) -> None:
        """Make the kernel and the bias."""
        channels = self._input_channels(input_shape)
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*self.kernel_size, channels, self.depth_multiplier),
            initializer=self.depthwise_initializer,
            regularizer=self.depthwise_regularizer,
            constraint=self.depthwise_constraint,
            trainable=True,
            dtype=self.dtype,
        )
        self._add_bias(channels * self.depth_multiplier)
        self.built = True

    def call(self, inputs: Array) -> Array:
        """Compute activation(depthwise convolution of the inputs + bias)."""
        return self._finish(
            convolution.depthwise_conv(
                inputs, self.kernel.value, self.strides, self.padding, self.data_format, self.dilation_rate
            )
        )

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        shape = list(
            window_shape(
                input_shape, self.kernel_size, self.strides, self.padding, self.data_format, self.dilation_rate
            )
        )
        axis = channel_axis(self.data_format)
        channels = input_shape[axis]
        shape[axis] = None if channels is None else channels * self.depth_multiplier
        return tuple(shape)


class DepthwiseConv1D(BaseDepthwiseConv):
    """Each channel of (batch, steps, channels) convolved by itself; arguments are those of `DepthwiseConv2D`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.DepthwiseConv1D(3, depth_multiplier=2)(weft.numpy.ones((2, 10, 3))).shape
      (2, 8, 6)
    """

    rank = 1


class DepthwiseConv2D(BaseDepthwiseConv):
    """Each channel of an image convolved by itself.

    Args:
      kernel_size: height and width of the window, or one integer for both.
      strides, padding, data_format, dilation_rate: as in `Conv2D`.
      depth_multiplier: how many results there are for each channel.
      activation, use_bias: as in `Conv2D`.
      depthwise_initializer, depthwise_regularizer, depthwise_constraint: of the kernel.
      bias_initializer, bias_regularizer, activity_regularizer, bias_constraint: as in `Conv2D`.

    Returns:
      A layer; its result has channels · depth_multiplier channels.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.DepthwiseConv2D(3, padding="same")(weft.numpy.ones((2, 8, 8, 3))).shape
      (2, 8, 8, 3)
    """

    rank = 2
