"""RNN: a cell over the steps of sequences."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import weft
import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError, NotSupportedError
from weft.keras.core import context
from weft.keras.core.names import name_scope, to_snake_case
from weft.keras.core.scope import stateless
from weft.keras.core.spec import InputSpec
from weft.keras.core.variable import Variable
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.layers.layer import Layer
from weft.keras.layers.recurrent.cell import Steps
from weft.keras.layers.recurrent.stacked import StackedRNNCells
from weft.keras.layers.signature import call_signature
from weft.keras.numerics.recurrent import run_steps, time_first


class RNN(ConfiguredLayer):
    """A cell over the steps of (batch, steps, features).

    A cell is a layer, or another object, with `call(inputs, states) -> (output, new states)` and `state_size`, an
    integer or one for each state; it may have `output_size` and `get_initial_state(batch_size)`.

    Args:
      cell: the cell, or a list of cells, each of which gets the outputs of the one before.
      return_sequences: whether the outputs of all steps are returned, and not only the last.
      return_state: whether the last states come too.
      go_backwards: whether steps are read from the last to the first; outputs are in that order.
      stateful: whether a call goes on with the states of the call before; needs a fixed batch size.
      unroll: whether the program has the steps one by one, without a loop.
      zero_output_for_mask: whether the output of a masked step is 0, and not that of the step before.

    Returns:
      A layer; its call takes `initial_state`, a `mask` (batch, steps) and `training`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> layer = keras.layers.RNN([keras.layers.LSTMCell(4), keras.layers.GRUCell(2)], return_sequences=True)
      >>> layer(weft.numpy.ones((2, 5, 3))).shape
      (2, 5, 2)
    """

    def __init__(
        self,
        cell: Any,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs: Any,
    ):
        if isinstance(cell, (list, tuple)):
            cell = StackedRNNCells(cell)
        if not hasattr(cell, "call") or not isinstance(getattr(cell, "state_size", None), (int, list, tuple)):
            raise ArgumentError(
                "A cell has a method `call(inputs, states)` and a `state_size`, an integer or one for each state. "
                f"Received: cell={cell!r}"
            )
        super().__init__(**kwargs)
        self.cell = cell
        self.set_arguments(
            return_sequences=return_sequences,
            return_state=return_state,
            go_backwards=go_backwards,
            stateful=stateful,
            unroll=unroll,
            zero_output_for_mask=zero_output_for_mask,
        )
        self.supports_masking = True
        self.states: list[Any] | None = None
        self.state_size = [cell.state_size] if isinstance(cell.state_size, int) else list(cell.state_size)

    # ----------------------------------------------------------------------------------------------------------- states

    def build(
        self, sequences_shape: Any, initial_state_shape: Any = None
    ) -> None:  # Keras's names override those of Layer
        """Build the cell, and make the states of a stateful layer."""
        step_shape = (sequences_shape[0], *sequences_shape[2:])
        if isinstance(self.cell, Layer) and not self.cell.built:
            self.cell.build(step_shape)
        if self.stateful and self.states is None:
            if sequences_shape[0] is None:
                raise ArgumentError(
                    f"{self.name!r} is stateful, so it needs a fixed batch size: give the model an "
                    f"Input(batch_shape=...). Received: sequences of shape {tuple(sequences_shape)}"
                )
            with name_scope(self.name, caller=self):
                self.states = weft.tree.map(
                    lambda value: Variable(value, trainable=False, dtype=self.variable_dtype, name="rnn_state"),
                    self.get_initial_state(sequences_shape[0]),
                )
        self.built = True

    def _own_variables(self) -> list[Any]:
        # States go on between calls and are no weights: a file of weights has none.
        states = {id(state) for state in weft.tree.leaves(self.states)}
        return [variable for variable in super()._own_variables() if id(variable) not in states]

    def _own_state(self) -> list[Any]:
        return [*super()._own_state(), *weft.tree.leaves(self.states)]

    def get_initial_state(self, batch_size: int) -> list[Any]:
        """Return the states before the first step."""
        start = getattr(self.cell, "get_initial_state", None)
        if start is None:
            dtype = getattr(self.cell, "compute_dtype", self.compute_dtype)
            return [wnp.zeros((batch_size, size), dtype) for size in self.state_size]
        states = start(batch_size=batch_size)
        return list(states) if isinstance(states, (list, tuple)) else [states]

    def reset_state(self) -> None:
        """Set the states of a stateful layer to zeros."""
        for state in weft.tree.leaves(self.states):
            state.assign(wnp.zeros_like(state.value))

    def reset_states(self) -> None:
        """Reset the states; an alias of `reset_state`."""
        self.reset_state()

    # ------------------------------------------------------------------------------------------------------------- call

    def call(self, sequences: Array, initial_state: Any = None, mask: Any = None, training: bool | None = False) -> Any:
        """Return the last output, or all outputs; with `return_state` the last states too."""
        if initial_state is None:
            states = self.states if self.states is not None else self.get_initial_state(sequences.shape[0])
        else:
            states = initial_state
        states = list(states) if isinstance(states, (list, tuple)) else [states]
        dtype = getattr(self.cell, "compute_dtype", self.compute_dtype)
        states = weft.tree.map(lambda state: wnp.asarray(state, dtype), states)
        self._check_batch(sequences, states)
        if isinstance(mask, (list, tuple)):
            mask = mask[0]
        with context.autocast(dtype):
            last, outputs, states = self.inner_loop(sequences, states, mask, bool(training))
        if self.states is not None:
            for variable, state in zip(weft.tree.leaves(self.states), weft.tree.leaves(states), strict=True):
                variable.assign(state)
        out = (outputs if self.return_sequences else last).astype(self.compute_dtype)
        if not self.return_state:
            return out
        return (out, *weft.tree.map(lambda state: state.astype(self.compute_dtype), list(states)))

    def _check_batch(self, sequences: Array, states: Any) -> None:
        sizes = {state.shape[0] for state in weft.tree.leaves(states)}
        if sizes != {sequences.shape[0]}:
            known = "a stateful layer has a fixed batch size" if self.stateful else "they must be equal"
            raise ArgumentError(
                f"{self.name!r} got a batch of {sequences.shape[0]} with states for {sorted(sizes)}: {known}."
            )

    def inner_loop(self, sequences: Array, initial_state: Any, mask: Any, training: bool = False) -> Any:
        """Run the loop over the steps and return (last output, outputs of all steps or None, last states)."""
        if mask is not None:
            mask = wnp.asarray(mask).astype(bool)
            mask = time_first(wnp.any(mask, axis=-1) if mask.ndim == 3 else mask)
        run = functools.partial(
            run_steps,
            mask=mask,
            backwards=self.go_backwards,
            unroll=self.unroll,
            zero_output_for_mask=self.zero_output_for_mask,
            all_outputs=self.return_sequences,
        )
        if isinstance(self.cell, Steps) and self.cell.has_steps():
            last, outputs, states = self._run_apart(run, time_first(sequences), initial_state, training)
        else:
            last, outputs, states = self._run_calls(run, time_first(sequences), initial_state, training)
        return last, None if outputs is None else time_first(outputs), states

    def _run_apart(self, run: Any, sequences: Array, states: Any, training: bool) -> Any:
        """Contract the inputs of all steps at once, then run the steps."""
        cell = self.cell
        sequences = sequences.astype(cell.compute_dtype)
        masks = cell.draw(sequences[0], states) if training else cell.no_dropout()
        projected = cell.project(sequences, masks)
        step = lambda x, states, rest: (cell.step(x, states, masks), rest)
        last, outputs, states, _ = run(step, cell.read_output, projected, states)
        return last, outputs, states

    def _run_calls(self, run: Any, sequences: Array, states: Any, training: bool) -> Any:
        """Run steps that call the cell, which may write variables of its own."""
        cell = self.cell
        options = {"training": training} if "training" in call_signature(type(cell).call) else {}
        variables = cell.non_trainable_variables if isinstance(cell, Layer) else []
        written: set[int] = set()

        def call(x: Array, states: Any) -> tuple[Array, Any]:
            out, new = (cell if callable(cell) else cell.call)(x, states, **options)
            return out, _like(new, states)

        def step(x: Array, carry: Any, values: Any) -> Any:
            (out, new), after = stateless(call, variables)(values, x, carry[0])
            written.update(i for i, (old, value) in enumerate(zip(values, after, strict=True)) if value is not old)
            return (new, out), after

        values = [variable.value for variable in variables]
        kind = weft.eval_shape(
            lambda x, states, values: step(x, (states, None), values)[0][1], sequences[0], states, values
        )
        first = weft.tree.leaves(states)[0]
        previous = first if first.shape == kind.shape else wnp.zeros(kind.shape, kind.dtype)
        last, outputs, (states, _), values = run(
            step, lambda carry: carry[1], sequences, (states, previous.astype(kind.dtype)), rest=values
        )
        for i in sorted(written):
            variables[i].assign(values[i])
        return last, outputs, states

    # ----------------------------------------------------------------------------------------------------------- shapes

    def compute_output_shape(self, sequences_shape: Any, initial_state_shape: Any = None) -> Any:
        """Return the shape of the output and, with `return_state`, the shapes of the states."""
        batch = sequences_shape[0]
        size = getattr(self.cell, "output_size", None)
        size = self.state_size[0] if size is None else size
        out = (batch, sequences_shape[1], size) if self.return_sequences else (batch, size)
        if not self.return_state:
            return out
        return (out, *weft.tree.map(lambda one: (batch, one), self.state_size))

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:  # Keras's names override those of Layer
        """Return the mask of the steps if there is an output for each step, else None."""
        first = mask[0] if isinstance(mask, (list, tuple)) else mask
        out = first if self.return_sequences else None
        return [out, *(None for _ in weft.tree.leaves(self.state_size))] if self.return_state else out


def _like(new: Any, old: Any) -> Any:
    """Restore the structure of the old states: a cell may return one state for a list of one."""
    if not isinstance(new, (list, tuple)):
        new = [new]
    return weft.tree.unflatten(weft.tree.structure(old), weft.tree.leaves(list(new)))


class CellLayer(RNN):
    """A layer that is an `RNN` with a cell of its own, whose arguments are the layer's."""

    def __init__(self, cell_class: type[Layer], arguments: dict[str, Any], **kwargs: Any):
        """Construct the layer and its cell from the arguments of both.

        Args:
          cell_class: the class of the cell.
          arguments: those of the layer: what the constructor of the cell takes, and those of `RNN`.
          **kwargs: of every layer; `implementation` is the cell's.
        """
        check_cudnn(arguments.pop("use_cudnn", "auto"))
        taken = inspect.signature(cell_class).parameters
        own = {name: value for name, value in arguments.items() if name not in taken}
        of_cell = {name: value for name, value in arguments.items() if name in taken}
        if "implementation" in kwargs:
            of_cell["implementation"] = kwargs.pop("implementation")
        cell = cell_class(
            **of_cell,
            dtype=kwargs.get("dtype"),
            trainable=kwargs.get("trainable", True),
            name=to_snake_case(cell_class.__name__),
        )
        super().__init__(cell, **own, **kwargs)
        self.input_spec = InputSpec(ndim=3)

    def __getattr__(self, name: str) -> Any:
        # Arguments of the cell are attributes of the layer too.
        cell = self.__dict__.get("cell")
        if cell is None or name not in cell.argument_names:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(cell, name)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the layer and its cell."""
        config, inner = super().get_config(), self.cell.get_config()
        arguments = {name: inner[name] for name in self.cell.argument_names}
        return {**config, **arguments, "unroll": self.unroll, "zero_output_for_mask": self.zero_output_for_mask}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Construct a layer from a config of `get_config`; the cell deserializes nested objects, in its order."""
        return cls(**config)


def check_cudnn(value: str | bool) -> None:
    """Check `use_cudnn`: True is not supported, since the compiler chooses how the loop is computed."""
    if value not in ("auto", False, True):
        raise ArgumentError(f"`use_cudnn` must be 'auto', True or False. Received: use_cudnn={value!r}")
    if value is True:
        raise NotSupportedError("use_cudnn=True asks for cuDNN's kernels, which are not used here; leave it out.")
