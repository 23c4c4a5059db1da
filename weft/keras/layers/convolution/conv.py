"""Conv1D, Conv2D, Conv3D."""

from __future__ import annotations

from typing import Any

from weft import Array
from weft.errors import ArgumentError
from weft.keras.layers.convolution.base import Convolution, positive
from weft.keras.layers.core.lora import LowRankLayer
from weft.keras.numerics import convolution
from weft.keras.numerics.convolution import Sizes
from weft.keras.numerics.shapes import Shape, window_shape


class BaseConv(Convolution, LowRankLayer):
    """A convolution over `rank` spatial dimensions; kernel (spatial..., in / groups, filters)."""

    def __init__(
        self,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        groups: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self.set_arguments(filters=positive("filters", filters))
        self._set_windows(kernel_size, strides, padding, data_format, dilation_rate)
        self.set_arguments(
            groups=positive("groups", groups),
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
        )
        if filters % groups:
            raise ArgumentError(
                f"`filters` must be a multiple of `groups`. Received: filters={filters}, groups={groups}"
            )
        self._set_low_rank(lora_rank, lora_alpha, None)

    def _allows_causal(self) -> bool:
        return self.rank == 1

    def build(self, input_shape: Any) -> None:
        """Make the kernel and the bias."""
        channels = self._input_channels(input_shape)
        if channels % self.groups:
            raise ArgumentError(
                f"The channels of the input must be a multiple of groups={self.groups}. Received: {channels} channels, "
                f"input_shape={tuple(input_shape)}"
            )
        self.compute_output_shape(input_shape)  # an error here comes before any variable
        self._kernel = self._add_kernel("kernel", (*self.kernel_size, channels // self.groups, self.filters))
        self._add_bias(self.filters)
        self._build_low_rank()

    @property
    def kernel(self) -> Any:
        """The kernel; with a low-rank update the sum of both, as an array."""
        return self._full_kernel() if self.lora_enabled else self._kernel

    def call(self, inputs: Array) -> Array:
        """Compute activation(inputs ∗ kernel + bias)."""
        return self._finish(
            convolution.conv(
                inputs,
                self._full_kernel().astype(self.compute_dtype),
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
        shape[1 if self.data_format == "channels_first" else -1] = self.filters
        return tuple(shape)


class Conv1D(BaseConv):
    """A convolution over sequences (batch, steps, channels).

    Args:
      filters: how many channels the result has.
      kernel_size: the length of the window.
      strides: from window to window.
      padding: "valid" (windows lie within the input), "same" (zeros around it, so that with strides of 1 the length
        stays) or "causal" (zeros before it only).
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      dilation_rate: from element to element of a window.
      groups: into how many groups channels and filters are divided, each convolved by itself.
      activation: a name or a function, applied to the result; none by default.
      use_bias: whether a number is added for each filter.
      kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer, activity_regularizer,
        kernel_constraint, bias_constraint: names, configurations or objects.

    Returns:
      A layer; called on (batch, steps, channels) it returns (batch, new steps, filters).

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Conv1D(4, 3)(weft.numpy.ones((2, 10, 3))).shape
      (2, 8, 4)
    """

    rank = 1


class Conv2D(BaseConv):
    """A convolution over images (batch, height, width, channels).

    Args:
      filters: how many channels the result has.
      kernel_size: height and width of the window, or one integer for both.
      strides: from window to window.
      padding: "valid" (windows lie within the image) or "same" (zeros around it, so that with strides of 1 sizes stay).
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      dilation_rate: from element to element of a window.
      groups: into how many groups channels and filters are divided, each convolved by itself.
      activation: a name or a function, applied to the result; none by default.
      use_bias: whether a number is added for each filter.
      kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer, activity_regularizer,
        kernel_constraint, bias_constraint: names, configurations or objects.

    Returns:
      A layer; called on (batch, height, width, channels) it returns (batch, new height, new width, filters).

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(weft.numpy.ones((2, 8, 8, 3))).shape
      (2, 4, 4, 4)
    """

    rank = 2


class Conv3D(BaseConv):
    """A convolution over volumes (batch, depth, height, width, channels); arguments are those of `Conv2D`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Conv3D(2, (1, 2, 3))(weft.numpy.ones((1, 4, 4, 4, 3))).shape
      (1, 4, 3, 2, 2)
    """

    rank = 3
