"""GRUCell and GRU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array, nn
from weft.keras.layers.arguments import constructor_arguments
from weft.keras.layers.recurrent.cell import Masks, RecurrentCell, pop_implementation
from weft.keras.layers.recurrent.rnn import CellLayer


class GRUCell(RecurrentCell):
    """One step of a gated recurrent unit (Cho et al. 2014): h' = z · h + (1 - z) · candidate.

    Kernels have the gates update, reset and the candidate one after the other.

    Args:
      units: the size of the state and of the output.
      activation: of the candidate; a name or a function.
      recurrent_activation: of the gates.
      use_bias: whether there is a bias.
      kernel_initializer, recurrent_initializer, bias_initializer, and the regularizers and constraints of these: names,
        configurations or objects.
      dropout: the share of the inputs that is dropped in training.
      recurrent_dropout: the share of the state that is dropped in training.
      reset_after: whether the reset gate is applied after the contraction with the state (which then has a bias of its
        own, so that the bias is (2, 3 · units)) or before.
      seed: of the dropout.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> output, states = keras.layers.GRUCell(4)(weft.numpy.ones((2, 3)), [weft.numpy.zeros((2, 4))])
      >>> output.shape, len(states)
      ((2, 4), 1)
    """

    gates = 3

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        reset_after: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ):
        arguments = constructor_arguments(locals())
        separate = pop_implementation(kwargs, recurrent_dropout)
        super().__init__(**kwargs)
        self._set_cell(arguments, state_count=1, separate=separate)

    def _bias_shape(self) -> tuple[int, ...]:
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    def _input_bias(self) -> Any:
        bias = super()._input_bias()
        return bias[0] if bias is not None and self.reset_after else bias

    def step(self, projected: Array, states: Sequence[Array], masks: Masks) -> list[Array]:
        """Return the state after one step."""
        (h,) = states
        kernel, units = self.recurrent_kernel.value, self.units
        x_gates, x_candidate = projected[..., : 2 * units], projected[..., 2 * units :]
        if self.reset_after:
            inner = self._contract(h, kernel, masks.states)
            if self.bias is not None:
                inner = inner + self.bias.value[1]
            h_gates = inner[..., : 2 * units]
        else:
            h_gates = self._contract(h, kernel[:, : 2 * units], None if masks.states is None else masks.states[:2])
        z, r = wnp.split(self.recurrent_activation(x_gates + h_gates), 2, axis=-1)
        if self.reset_after:
            h_candidate = r * inner[..., 2 * units :]
        else:
            masked = h if masks.states is None else h * masks.states[2]
            h_candidate = wnp.matmul(r * masked, kernel[:, 2 * units :])
        return [nn.gru_step(z, self.activation(x_candidate + h_candidate), h)]


class GRU(CellLayer):
    """A gated recurrent unit over the steps of (batch, steps, features).

    Args:
      units: the size of the output.
      reset_after: as in `GRUCell`.
      activation, recurrent_activation, use_bias, initializers, regularizers, constraints, dropout, recurrent_dropout,
        seed, return_sequences, return_state, go_backwards, stateful, unroll, use_cudnn: as in `LSTM`.

    Returns:
      A layer; its call takes `initial_state`, a `mask` (batch, steps) and `training`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.GRU(4, return_sequences=True)(weft.numpy.ones((2, 5, 3))).shape
      (2, 5, 4)
    """

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
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
        unroll: bool = False,
        reset_after: bool = True,
        use_cudnn: str | bool = "auto",
        **kwargs: Any,
    ):
        super().__init__(GRUCell, constructor_arguments(locals()), **kwargs)
