"""SimpleRNNCell and SimpleRNN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import Array
from weft.keras.core.seeds import SeedGenerator
from weft.keras.layers.arguments import constructor_arguments
from weft.keras.layers.recurrent.cell import Masks, RecurrentCell
from weft.keras.layers.recurrent.rnn import CellLayer


class SimpleRNNCell(RecurrentCell):
    """One step of h = activation(inputs · kernel + h · recurrent_kernel + bias).

    Args:
      units: the size of the state and of the output.
      activation: a name or a function.
      use_bias: whether there is a bias.
      kernel_initializer, recurrent_initializer, bias_initializer, and the regularizers and constraints of these: names,
        configurations or objects.
      dropout: the share of the inputs that is dropped in training.
      recurrent_dropout: the share of the state that is dropped in training.
      seed: of the dropout.
    """

    gates = 1

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
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
        seed: int | None = None,
        **kwargs: Any,
    ):
        arguments = constructor_arguments(locals())
        super().__init__(**kwargs)
        # Before the initializers, as in Keras: what has no seed draws one when it is made, in this order.
        self.seed_generator = SeedGenerator(seed)
        self._set_cell(arguments, state_count=1, separate=False)

    def step(self, projected: Array, states: Sequence[Array], masks: Masks) -> list[Array]:
        """Return the state after one step."""
        total = projected + self._contract(states[0], self.recurrent_kernel.value, masks.states)
        return [total if self.activation is None else self.activation(total)]


class SimpleRNN(CellLayer):
    """A `SimpleRNNCell` over the steps of (batch, steps, features); arguments are those of `LSTM`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.SimpleRNN(4)(weft.numpy.ones((2, 5, 3))).shape
      (2, 4)
    """

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
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
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(SimpleRNNCell, constructor_arguments(locals()), **kwargs)
