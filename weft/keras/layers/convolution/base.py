"""What all convolutional layers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core.config import standardize_data_format
from weft.keras.core.spec import InputSpec
from weft.keras.layers.arguments import ConfiguredLayer, fixed_size
from weft.keras.numerics.convolution import Sizes
from weft.keras.numerics.shapes import channel_axis, padding_name, sizes


class Convolution(ConfiguredLayer):
    """Windows over `rank` spatial dimensions, a bias and an activation; subclasses say what is done with a window."""

    rank: int
    allow_strided_dilation = False

    def _set_windows(
        self, kernel_size: Sizes, strides: Sizes, padding: str, data_format: str | None, dilation_rate: Sizes
    ) -> None:
        rank = self.rank
        self.set_arguments(
            kernel_size=sizes(kernel_size, rank, "kernel_size"),
            strides=sizes(strides, rank, "strides"),
            padding=padding_name(padding, allow_causal=self._allows_causal()),
            data_format=standardize_data_format(data_format),
            dilation_rate=sizes(dilation_rate, rank, "dilation_rate"),
        )
        if not self.allow_strided_dilation and max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ArgumentError(
                "`strides > 1` does not go together with `dilation_rate > 1`. "
                f"Received: strides={self.strides} and dilation_rate={self.dilation_rate}"
            )
        self.input_spec = InputSpec(min_ndim=rank + 2)

    def _allows_causal(self) -> bool:
        return False

    def _input_channels(self, input_shape: Any) -> int:
        """Return the number of input channels and require it of later inputs."""
        axis = channel_axis(self.data_format)
        channels = fixed_size(input_shape, axis, self)
        self.input_spec = InputSpec(min_ndim=self.rank + 2, axes={axis: channels})
        return channels

    def _add_kernel(self, name: str, shape: tuple[int, ...]) -> Any:
        """Add a weight with the initializer, regularizer and constraint of the same name."""
        prefix = name.removesuffix("_kernel")
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=getattr(self, f"{prefix}_initializer"),
            regularizer=getattr(self, f"{prefix}_regularizer"),
            constraint=getattr(self, f"{prefix}_constraint"),
            trainable=True,
            dtype=self.dtype,
        )

    def _add_bias(self, size: int) -> None:
        self.bias = self._add_kernel("bias", (size,)) if self.use_bias else None

    def _finish(self, outputs: Array) -> Array:
        """Add the bias and apply the activation."""
        if self.bias is not None:
            shape = [1] * outputs.ndim
            shape[channel_axis(self.data_format)] = self.bias.shape[0]
            outputs = outputs + wnp.reshape(self.bias.value, shape)
        return outputs if self.activation is None else self.activation(outputs)

    # What `set_arguments` stores.
    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str
    data_format: str
    dilation_rate: tuple[int, ...]
    use_bias: bool
    activation: Callable[[Any], Any] | None


def positive(name: str, value: Any) -> Any:
    """Return an argument; raise an error unless it is a positive number."""
    if value is None or value <= 0:
        raise ArgumentError(f"`{name}` must be a positive integer. Received: {name}={value}")
    return value
