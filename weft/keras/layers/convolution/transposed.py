"""Conv1DTranspose, Conv2DTranspose, Conv3DTranspose."""

from __future__ import annotations

from typing import Any

from weft import Array
from weft.keras.layers.convolution.base import Convolution, positive
from weft.keras.numerics import convolution
from weft.keras.numerics.convolution import Sizes
from weft.keras.numerics.shapes import Shape, sizes


class BaseConvTranspose(Convolution):
    """The transpose of a convolution over `rank` spatial dimensions; kernel (spatial..., filters, in)."""

    def __init__(
        self,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        output_padding: Sizes | None = None,
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self.set_arguments(filters=positive("filters", filters))
        self._set_windows(kernel_size, strides, padding, data_format, dilation_rate)
        extra = output_padding
        self.set_arguments(
            output_padding=None if extra is None else sizes(extra, self.rank, "output_padding", allow_zero=True),
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
        )

    def build(self, input_shape: Any) -> None:
        """Make the kernel and the bias."""
        channels = self._input_channels(input_shape)
        self.kernel = self._add_kernel("kernel", (*self.kernel_size, self.filters, channels))
        self._add_bias(self.filters)
        self.built = True

    def call(self, inputs: Array) -> Array:
        """Compute activation(transposed convolution of the inputs + bias)."""
        return self._finish(
            convolution.conv_transpose(
                inputs,
                self.kernel.value,
                self.strides,
                self.padding,
                self.output_padding,
                self.data_format,
                self.dilation_rate,
            )
        )

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        return convolution.conv_transpose_shape(
            input_shape,
            self.filters,
            self.kernel_size,
            self.strides,
            self.padding,
            self.output_padding,
            self.data_format,
            self.dilation_rate,
        )


class Conv1DTranspose(BaseConvTranspose):
    """The transpose of `Conv1D`: from (batch, steps, channels) to (batch, about steps · strides, filters).

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Conv1DTranspose(4, 3, strides=2, padding="same")(weft.numpy.ones((2, 5, 3))).shape
      (2, 10, 4)
    """

    rank = 1


class Conv2DTranspose(BaseConvTranspose):
    """The transpose of `Conv2D`, which makes images larger by the strides.

    Args:
      filters: how many channels the result has.
      kernel_size, strides, dilation_rate: those of the convolution that this is the transpose of.
      padding: "valid" ((size - 1) · stride + kernel size) or "same" (size · stride).
      output_padding: chooses another size: one integer for each spatial dimension, less than the stride.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      activation, use_bias, initializers, regularizers and constraints: as in `Conv2D`.

    Returns:
      A layer; called on (batch, height, width, channels) it returns (batch, new height, new width, filters).

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Conv2DTranspose(4, 3, strides=2, padding="same")(weft.numpy.ones((1, 4, 4, 3))).shape
      (1, 8, 8, 4)
    """

    rank = 2


class Conv3DTranspose(BaseConvTranspose):
    """The transpose of `Conv3D`; arguments are those of `Conv2DTranspose`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Conv3DTranspose(2, 2, strides=2)(weft.numpy.ones((1, 2, 2, 2, 3))).shape
      (1, 4, 4, 4, 2)
    """

    rank = 3
