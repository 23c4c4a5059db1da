"""What recurrent cells share: kernels, dropout that is drawn once a sequence, and states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras import random
from weft.keras.core.seeds import SeedGenerator
from weft.keras.layers.arguments import ConfiguredLayer, fixed_size


class Masks(NamedTuple):
    """Dropout masks of inputs and states, one for each gate or one for all; None where nothing is dropped."""

    inputs: list[Array] | None = None
    states: list[Array] | None = None


NO_MASKS = Masks()


class Steps:
    """A cell whose contraction with the inputs may be done for all steps at once, before the loop."""

    def has_steps(self) -> bool:
        """Return whether the methods below are implemented; else the cell is called for each step."""
        return True

    def draw(self, inputs: Array, states: Any) -> Any:
        """Draw the dropout masks for a sequence; `inputs` is one step of it."""
        raise NotImplementedError

    def no_dropout(self) -> Any:
        """Return masks that drop nothing."""
        raise NotImplementedError

    def project(self, inputs: Array, masks: Any) -> Array:
        """Compute the part of a step that depends on the inputs only; (batch, features), or with time first."""
        raise NotImplementedError

    def step(self, projected: Array, states: Any, masks: Any) -> Any:
        """Return the states after one step."""
        raise NotImplementedError

    def read_output(self, states: Any) -> Array:
        """Return the output, which is part of the states after a step."""
        raise NotImplementedError


class RecurrentCell(ConfiguredLayer, Steps):
    """A cell with `gates` contractions, whose first state is its output.

    A call is one step: `cell(inputs, states, training=False) -> (output, states)`.
    """

    gates: int
    bias: Any = None

    def _set_cell(self, arguments: dict[str, Any], state_count: int, separate: bool) -> None:
        """Store the arguments of the constructor; units, rates of dropout and the seed are among them."""
        units, seed = arguments["units"], arguments["seed"]
        if not isinstance(units, int) or units <= 0:
            raise ArgumentError(f"`units` must be a positive integer. Received: units={units!r}")
        self.set_arguments(**with_rates(arguments))
        if not hasattr(self, "seed_generator"):
            self.seed_generator = SeedGenerator(seed)
        self.state_size = units if state_count == 1 else [units] * state_count
        self.output_size = units
        self._separate = separate

    def build(self, input_shape: Any) -> None:
        """Make the kernels and the bias."""
        width = self.gates * self.units
        self.kernel = self._add("kernel", (fixed_size(input_shape, -1, self), width))
        self.recurrent_kernel = self._add("recurrent_kernel", (self.units, width))
        self.bias = self._add("bias", self._bias_shape(), self._bias_start()) if self.use_bias else None
        self.built = True

    def _add(self, name: str, shape: tuple[int, ...], initializer: Any = None) -> Any:
        prefix = "recurrent" if name == "recurrent_kernel" else name
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer or getattr(self, f"{prefix}_initializer"),
            regularizer=getattr(self, f"{prefix}_regularizer"),
            constraint=getattr(self, f"{prefix}_constraint"),
        )

    def _bias_shape(self) -> tuple[int, ...]:
        return (self.gates * self.units,)

    def _bias_start(self) -> Any:
        return self.bias_initializer

    def _input_bias(self) -> Any:
        """Return the bias of the contraction with the inputs, or None."""
        return None if self.bias is None else self.bias.value

    # ---------------------------------------------------------------------------------------------------------- a step

    def call(self, inputs: Array, states: Any, training: bool | None = False) -> tuple[Array, Any]:
        """Run one step. In training each call draws its own dropout masks; `RNN` draws them once a sequence."""
        nested = isinstance(states, (list, tuple))
        old = list(states) if nested else [states]
        masks = self.draw(inputs, old) if training else NO_MASKS
        new = self.step(self.project(inputs, masks), old, masks)
        return new[0], new if nested else new[0]

    def draw(self, inputs: Array, states: Sequence[Array]) -> Masks:
        """Draw masks for one step of inputs and for the first state."""
        return Masks(self._drawn(self.dropout, inputs), self._drawn(self.recurrent_dropout, states[0]))

    def _drawn(self, rate: float, like: Array) -> list[Array] | None:
        if not 0 < rate < 1:
            return None
        ones = wnp.ones_like(like)
        count = self.gates if self._separate else 1
        return [random.dropout(ones, rate, seed=self.seed_generator) for _ in range(count)]

    def no_dropout(self) -> Masks:
        """Return masks that drop nothing."""
        return NO_MASKS

    def project(self, inputs: Array, masks: Masks) -> Array:
        """Compute inputs · kernel + bias, (..., gates · units)."""
        out = self._contract(inputs, self.kernel.value, masks.inputs)
        bias = self._input_bias()
        return out if bias is None else out + bias

    def _contract(self, x: Array, kernel: Array, masks: list[Array] | None) -> Array:
        """Compute x · kernel; if each gate has a mask, x is masked separately for each."""
        if masks is None:
            return wnp.matmul(x, kernel)
        if len(masks) == 1:
            return wnp.matmul(x * masks[0], kernel)
        parts = wnp.split(kernel, len(masks), axis=-1)
        return wnp.concatenate([wnp.matmul(x * mask, part) for mask, part in zip(masks, parts, strict=True)], axis=-1)

    def read_output(self, states: Sequence[Array]) -> Array:
        """Return the first state, which is the output."""
        return states[0]

    def get_initial_state(self, batch_size: Any = None) -> list[Array]:
        """Return states of zeros for a batch."""
        sizes = [self.state_size] if isinstance(self.state_size, int) else self.state_size
        return [wnp.zeros((batch_size, size), self.compute_dtype) for size in sizes]


def with_rates(arguments: dict[str, Any]) -> dict[str, Any]:
    """Clip the dropout rates in a cell's arguments to [0, 1]."""
    rates = {name: min(1.0, max(0.0, arguments[name])) for name in ("dropout", "recurrent_dropout")}
    return {**arguments, **rates}


def pop_implementation(kwargs: dict[str, Any], recurrent_dropout: float) -> bool:
    """Pop `implementation` and return whether each gate has its own masks: with 1, or with recurrent dropout."""
    implementation = kwargs.pop("implementation", 2)
    return implementation == 1 or recurrent_dropout > 0
