"""LSTMCell and LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array, nn
from weft.keras.layers.arguments import constructor_arguments
from weft.keras.layers.recurrent.cell import Masks, RecurrentCell, pop_implementation
from weft.keras.layers.recurrent.rnn import CellLayer


class LSTMCell(RecurrentCell):
    """One step of a long short-term memory (Hochreiter and Schmidhuber 1997); its states are [h, c].

    Kernels have the gates input, forget, cell and output one after the other.

    Args:
      units: the size of the states and of the output.
      activation: of the cell; a name or a function.
      recurrent_activation: of the gates.
      use_bias: whether there is a bias.
      unit_forget_bias: whether the bias of the forget gate is 1 at first.
      kernel_initializer, recurrent_initializer, bias_initializer, and the regularizers and constraints of these: names,
        configurations or objects.
      dropout: the share of the inputs that is dropped in training.
      recurrent_dropout: the share of the state that is dropped in training.
      seed: of the dropout.
    """

    gates = 4

    def __init__(
        self,
        units: int,
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
        separate = pop_implementation(kwargs, recurrent_dropout)
        super().__init__(**kwargs)
        self._set_cell(arguments, state_count=2, separate=separate)

    def _bias_start(self) -> Any:
        return forget_bias(self.bias_initializer, self.units) if self.unit_forget_bias else self.bias_initializer

    def step(self, projected: Array, states: Sequence[Array], masks: Masks) -> list[Array]:
        """Return the states after one step."""
        h, c = states
        total = projected + self._contract(h, self.recurrent_kernel.value, masks.states)
        i, f, g, o = wnp.split(total, 4, axis=-1)
        return list(nn.lstm_step(i, f, g, o, c, self.recurrent_activation, self.activation))


def forget_bias(initializer: Any, units: int) -> Any:
    """Return an initializer of the bias of four gates, with ones for the forget gate, the second."""

    def start(shape: Any, dtype: Any = None) -> Array:
        rest = [initializer((size,), dtype=dtype) for size in (units, 2 * units)]
        return wnp.concatenate([rest[0], wnp.ones((units,), dtype), rest[1]])

    return start


class LSTM(CellLayer):
    """A long short-term memory over the steps of (batch, steps, features).

    Args:
      units: the size of the output.
      activation: of the cell; a name or a function.
      recurrent_activation: of the gates.
      use_bias: whether there is a bias.
      unit_forget_bias: whether the bias of the forget gate is 1 at first.
      kernel_initializer, recurrent_initializer, bias_initializer, and the regularizers and constraints of these: names,
        configurations or objects.
      activity_regularizer: of the result.
      dropout: the share of the inputs that is dropped in training, the same in all steps.
      recurrent_dropout: the share of the state that is dropped in training, the same in all steps.
      seed: of the dropout.
      return_sequences: whether the outputs of all steps are returned, and not only the last.
      return_state: whether the last states, [h, c], come too.
      go_backwards: whether steps are read from the last to the first.
      stateful: whether a call goes on with the states of the call before; needs a fixed batch size.
      unroll: whether the program has the steps one by one, without a loop.
      use_cudnn: taken for compatibility; "auto" or False.

    Returns:
      A layer; its call takes `initial_state`, a `mask` (batch, steps) and `training`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> x = weft.numpy.ones((2, 5, 3))
      >>> keras.layers.LSTM(4)(x).shape
      (2, 4)
      >>> y, h, c = keras.layers.LSTM(4, return_sequences=True, return_state=True)(x)
      >>> y.shape, h.shape, c.shape
      ((2, 5, 4), (2, 4), (2, 4))
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
        unroll: bool = False,
        use_cudnn: str | bool = "auto",
        **kwargs: Any,
    ):
        super().__init__(LSTMCell, constructor_arguments(locals()), **kwargs)
