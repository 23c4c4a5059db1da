"""ConvLSTM1D, ConvLSTM2D, ConvLSTM3D: an LSTM whose contractions are convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array, nn
from weft.errors import ArgumentError
from weft.keras.core.config import standardize_data_format
from weft.keras.core.seeds import SeedGenerator
from weft.keras.core.spec import InputSpec
from weft.keras.layers.arguments import constructor_arguments, fixed_size
from weft.keras.layers.convolution.base import positive
from weft.keras.layers.recurrent.cell import Masks, RecurrentCell, with_rates
from weft.keras.layers.recurrent.lstm import forget_bias
from weft.keras.layers.recurrent.rnn import CellLayer
from weft.keras.numerics.convolution import Sizes, conv
from weft.keras.numerics.shapes import channel_axis, padding_name, sizes, spatial_sizes, window_shape


class ConvLSTMCell(RecurrentCell):
    """One step of an LSTM over images (Shi et al. 2015); its states have the shape of its output."""

    gates = 4

    def __init__(
        self,
        rank: int,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        arguments = constructor_arguments(locals())
        super().__init__(**kwargs)
        # Before the initializers, as in Keras: what has no seed draws one when it is made, in this order.
        self.seed_generator = SeedGenerator(seed)
        self.rank = arguments.pop("rank")
        converted = {
            "filters": positive("filters", filters),
            "kernel_size": sizes(kernel_size, rank, "kernel_size"),
            "strides": sizes(strides, rank, "strides"),
            "padding": padding_name(padding),
            "data_format": standardize_data_format(data_format),
            "dilation_rate": sizes(dilation_rate, rank, "dilation_rate"),
        }
        self.set_arguments(**with_rates({**arguments, **converted}))
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ArgumentError(
                "`strides > 1` does not go together with `dilation_rate > 1`. "
                f"Received: strides={self.strides} and dilation_rate={self.dilation_rate}"
            )
        self.state_size = [filters, filters]
        self.output_size = filters
        self._separate = True

    def build(self, inputs_shape: Any, states_shape: Any = None) -> None:  # Keras's names override those of Layer
        """Make the kernels and the bias."""
        channels = fixed_size(inputs_shape, channel_axis(self.data_format), self)
        if None in spatial_sizes(inputs_shape, self.data_format):
            raise ArgumentError(
                f"ConvLSTM needs images of a known size. Received: shape {tuple(inputs_shape)} of a step"
            )
        self._step_shape = tuple(inputs_shape[1:])
        width = 4 * self.filters
        self.kernel = self._add("kernel", (*self.kernel_size, channels, width))
        self.recurrent_kernel = self._add("recurrent_kernel", (*self.kernel_size, self.filters, width))
        start = forget_bias(self.bias_initializer, self.filters) if self.unit_forget_bias else self.bias_initializer
        self.bias = self._add("bias", (width,), start) if self.use_bias else None
        self.built = True

    def step_output_shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Return the shape of output and states for one step of inputs."""
        out = list(
            window_shape(shape, self.kernel_size, self.strides, self.padding, self.data_format, self.dilation_rate)
        )
        out[channel_axis(self.data_format)] = self.filters
        return tuple(out)

    def get_initial_state(self, batch_size: int | None = None) -> list[Array]:
        """Return states of zeros for a batch."""
        shape = self.step_output_shape((batch_size, *self._step_shape))
        return [wnp.zeros(shape, self.compute_dtype) for _ in range(2)]

    def project(self, inputs: Array, masks: Masks) -> Array:
        """Convolve the inputs into (..., 4 · filters) channels, all gates at once; time may precede the batch."""
        out = self._convolve(inputs, self.kernel.value, masks.inputs, self.strides, self.padding, self.dilation_rate)
        if self.bias is None:
            return out
        shape = [1] * (self.rank + 2)
        shape[channel_axis(self.data_format)] = 4 * self.filters
        return out + wnp.reshape(self.bias.value, shape)

    def _convolve(
        self, x: Array, kernel: Array, masks: list[Array] | None, strides: Sizes, padding: str, dilation: Sizes
    ) -> Array:
        """Convolve images; if there are masks, each gate has its own."""
        outer, each = x.shape[: x.ndim - self.rank - 1], x.shape[x.ndim - self.rank - 1 :]

        def run(x: Array, kernel: Array) -> Array:
            out = conv(wnp.reshape(x, (-1, *each)), kernel, strides, padding, self.data_format, dilation)
            return wnp.reshape(out, (*outer, *out.shape[1:]))

        if masks is None:
            return run(x, kernel)
        parts = wnp.split(kernel, 4, axis=-1)
        axis = channel_axis(self.data_format) if self.data_format == "channels_last" else -self.rank - 1
        return wnp.concatenate([run(x * mask, part) for mask, part in zip(masks, parts, strict=True)], axis=axis)

    def step(self, projected: Array, states: Sequence[Array], masks: Masks) -> list[Array]:
        """Return the states after one step."""
        h, c = states
        total = projected + self._convolve(h, self.recurrent_kernel.value, masks.states, 1, "same", 1)
        i, f, g, o = wnp.split(total, 4, axis=channel_axis(self.data_format))
        return list(nn.lstm_step(i, f, g, o, c, self.recurrent_activation, self.activation))


class ConvLSTM(CellLayer):
    """A `ConvLSTMCell` over the steps of (batch, steps, images)."""

    rank: int

    def __init__(
        self,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        **kwargs: Any,
    ):
        arguments = {"rank": self.rank, **constructor_arguments(locals())}
        super().__init__(ConvLSTMCell, arguments, **kwargs)
        self.input_spec = InputSpec(ndim=self.rank + 3)

    def compute_output_shape(self, sequences_shape: Any, initial_state_shape: Any = None) -> Any:
        """Return the shape of the output and, with `return_state`, the shapes of the states."""
        state = self.cell.step_output_shape((sequences_shape[0], *sequences_shape[2:]))
        out = (state[0], sequences_shape[1], *state[1:]) if self.return_sequences else state
        return (out, state, state) if self.return_state else out


class ConvLSTM1D(ConvLSTM):
    """An LSTM over sequences of sequences, (batch, steps, length, channels); arguments as in `ConvLSTM2D`."""

    rank = 1


class ConvLSTM2D(ConvLSTM):
    """An LSTM over sequences of images, (batch, steps, height, width, channels).

    Args:
      filters: how many channels output and states have.
      kernel_size, strides, padding, data_format, dilation_rate: of the convolution of the inputs, as in `Conv2D`; the
        convolution of the state has strides of 1 and padding "same".
      others: as in `LSTM`.
    """

    rank = 2


class ConvLSTM3D(ConvLSTM):
    """An LSTM over sequences of volumes; arguments as in `ConvLSTM2D`."""

    rank = 3
