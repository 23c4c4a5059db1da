"""Recurrent cores, and unrolling over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import weft
from weft import numpy as wnp
from weft.errors import ArgumentError, NotSupportedError
from weft.haiku.frames import frames
from weft.haiku.initializers import VarianceScaling
from weft.haiku.layers.convolution import ConvND, Sizes
from weft.haiku.layers.linear import Linear
from weft.haiku.module import Module, transparent
from weft.haiku.parameters import get_parameter
from weft.haiku.stateful import scan
from weft.haiku.typing import Initializer


class RNNCore(Module):
    """One step of a recurrent network: (inputs, state) -> (outputs, state).

    >>> from weft import haiku
    >>> issubclass(haiku.LSTM, haiku.RNNCore)
    True
    """

    def __call__(self, inputs: Any, prev_state: Any) -> tuple[Any, Any]:
        """Compute one step: return outputs and the next state."""
        raise NotSupportedError(f"{type(self).__name__} has no __call__(inputs, prev_state).")

    def initial_state(self, batch_size: int | None) -> Any:
        """Return the state before the first step; with `batch_size` None, for one sequence without a batch."""
        raise NotSupportedError(f"{type(self).__name__} has no initial_state(batch_size).")


def _zeros(shape: Sequence[int], batch_size: int | None) -> Any:
    return wnp.zeros(tuple(shape) if batch_size is None else (batch_size, *shape))


def _check_rank(core: Module, inputs: Any) -> None:
    if inputs.ndim not in (1, 2):
        raise ArgumentError(
            f"{type(core).__name__} {core.module_name!r} needs inputs (size) or (batch, size), got shape "
            f"{inputs.shape}. Use hk.dynamic_unroll for sequences."
        )


class VanillaRNN(RNNCore):
    """h = relu(x w + b + h w' + b'); without `double_bias` there is no b'."""

    def __init__(self, hidden_size: int, double_bias: bool = True, name: str | None = None):
        super().__init__(name=name)
        self.hidden_size = hidden_size
        self.double_bias = double_bias

    def __call__(self, inputs: Any, prev_state: Any) -> tuple[Any, Any]:
        from_input = Linear(self.hidden_size)
        from_state = Linear(self.hidden_size, with_bias=self.double_bias)
        out = weft.nn.relu(from_input(inputs) + from_state(prev_state))
        return out, out

    def initial_state(self, batch_size: int | None) -> Any:
        return _zeros([self.hidden_size], batch_size)


class LSTMState(NamedTuple):
    """The state of an LSTM between steps.

    Args:
        hidden: the output of the last step.
        cell: the memory.

    >>> import weft.numpy as wnp
    >>> from weft import haiku
    >>> haiku.LSTMState(wnp.zeros(2), wnp.zeros(2)).hidden
    Array([0., 0.], dtype=float32)
    """

    hidden: Any
    cell: Any


def _lstm_step(gates: Any, cell: Any) -> tuple[Any, LSTMState]:
    """Compute c = σ(f + 1) c + σ(i) tanh(g), h = σ(o) tanh(c), where i, g, f, o are the parts of `gates`."""
    i, g, f, o = wnp.split(gates, 4, axis=-1)
    hidden, cell = weft.nn.lstm_step(i, f + 1, g, o, cell)
    return hidden, LSTMState(hidden, cell)


class LSTM(RNNCore):
    """Long short-term memory: gates [x, h] w + b, with 1 added to the forget gate (Zaremba et al. 2014).

    Args:
        hidden_size: the size of the state.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> def f(x):
    ...     core = haiku.LSTM(4)
    ...     return core(x, core.initial_state(x.shape[0]))[0]
    >>> model = haiku.transform(f)
    >>> model.apply(model.init(random.key(0), wnp.ones((1, 3))), None, wnp.ones((1, 3))).shape
    (1, 4)
    """

    def __init__(self, hidden_size: int, name: str | None = None):
        super().__init__(name=name)
        self.hidden_size = hidden_size

    def __call__(self, inputs: Any, prev_state: LSTMState) -> tuple[Any, LSTMState]:
        _check_rank(self, inputs)
        hidden, cell = prev_state
        gates = Linear(4 * self.hidden_size)(wnp.concatenate([inputs, hidden], axis=-1))
        return _lstm_step(gates, cell)

    def initial_state(self, batch_size: int | None) -> LSTMState:
        return LSTMState(_zeros([self.hidden_size], batch_size), _zeros([self.hidden_size], batch_size))


class ConvNDLSTM(RNNCore):
    """An LSTM whose gates are convolutions of input and hidden state (Shi et al. 2015)."""

    def __init__(
        self,
        num_spatial_dims: int,
        input_shape: Sequence[int],
        output_channels: int,
        kernel_shape: Sizes,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.num_spatial_dims = num_spatial_dims
        self.input_shape = tuple(input_shape)
        self.output_channels = output_channels
        self.kernel_shape = kernel_shape

    def __call__(self, inputs: Any, state: LSTMState) -> tuple[Any, LSTMState]:
        hidden, cell = state
        channels = 4 * self.output_channels
        from_input = ConvND(self.num_spatial_dims, channels, self.kernel_shape, name="input_to_hidden")
        from_hidden = ConvND(self.num_spatial_dims, channels, self.kernel_shape, name="hidden_to_hidden")
        return _lstm_step(from_input(inputs) + from_hidden(hidden), cell)

    def initial_state(self, batch_size: int | None) -> LSTMState:
        shape = [*self.input_shape, self.output_channels]
        return LSTMState(_zeros(shape, batch_size), _zeros(shape, batch_size))


class Conv1DLSTM(ConvNDLSTM):
    """A convolutional LSTM over one dimension."""

    def __init__(self, input_shape: Sequence[int], output_channels: int, kernel_shape: Sizes, name: str | None = None):
        super().__init__(1, input_shape, output_channels, kernel_shape, name)


class Conv2DLSTM(ConvNDLSTM):
    """A convolutional LSTM over two dimensions."""

    def __init__(self, input_shape: Sequence[int], output_channels: int, kernel_shape: Sizes, name: str | None = None):
        super().__init__(2, input_shape, output_channels, kernel_shape, name)


class Conv3DLSTM(ConvNDLSTM):
    """A convolutional LSTM over three dimensions."""

    def __init__(self, input_shape: Sequence[int], output_channels: int, kernel_shape: Sizes, name: str | None = None):
        super().__init__(3, input_shape, output_channels, kernel_shape, name)


class GRU(RNNCore):
    """z, r = σ(x w + h w' + b), a = tanh(x w + (r h) w' + b), h = (1 - z) h + z a (Chung et al. 2014).

    Args:
        hidden_size: the size of the state.
        w_i_init: the initializer of the weights of the input.
        w_h_init: the initializer of the weights of the state.
        b_init: the initializer of the bias.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> def f(x):
    ...     core = haiku.GRU(4)
    ...     return core(x, core.initial_state(x.shape[0]))[0]
    >>> model = haiku.transform(f)
    >>> model.apply(model.init(random.key(0), wnp.ones((1, 3))), None, wnp.ones((1, 3))).shape
    (1, 4)
    """

    def __init__(
        self,
        hidden_size: int,
        w_i_init: Initializer | None = None,
        w_h_init: Initializer | None = None,
        b_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.hidden_size = hidden_size
        self.w_i_init = w_i_init or VarianceScaling()
        self.w_h_init = w_h_init or VarianceScaling()
        self.b_init = b_init or wnp.zeros

    def __call__(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        _check_rank(self, inputs)
        size = self.hidden_size
        w_i = get_parameter("w_i", [inputs.shape[-1], 3 * size], inputs.dtype, init=self.w_i_init)
        w_h = get_parameter("w_h", [size, 3 * size], inputs.dtype, init=self.w_h_init)
        b = get_parameter("b", [3 * size], inputs.dtype, init=self.b_init)
        b = wnp.broadcast_to(b, (*state.shape[:-1], 3 * size))
        from_input = wnp.matmul(inputs, w_i)
        gates = from_input[..., : 2 * size] + wnp.matmul(state, w_h[:, : 2 * size]) + b[..., : 2 * size]
        z, r = wnp.split(weft.nn.sigmoid(gates), 2, axis=-1)
        a = wnp.tanh(from_input[..., 2 * size :] + wnp.matmul(r * state, w_h[:, 2 * size :]) + b[..., 2 * size :])
        out = (1 - z) * state + z * a
        return out, out

    def initial_state(self, batch_size: int | None) -> Any:
        return _zeros([self.hidden_size], batch_size)


class IdentityCore(RNNCore):
    """A core that returns inputs and state unchanged."""

    def __call__(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        return inputs, state

    def initial_state(self, batch_size: int | None) -> Any:
        del batch_size
        return ()


class ResetCore(RNNCore):
    """A core that takes (inputs, should_reset), and resets its state where the latter is true."""

    def __init__(self, core: RNNCore, name: str | None = None):
        super().__init__(name=name)
        self.core = core

    def __call__(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        values, should_reset = inputs
        if weft.tree.structure(should_reset) == weft.tree.structure(state):
            resets = should_reset
        else:
            resets = weft.tree.map(lambda _: should_reset, state)
        sizes = {one.shape[0] if one.ndim else None for one in map(wnp.asarray, weft.tree.leaves(resets))}
        begin = self.initial_state(sizes.pop() if len(sizes) == 1 else None)
        state = weft.tree.map(
            lambda reset, first, now: wnp.where(_expand_flag(self, wnp.asarray(reset), now), first, now),
            resets,
            begin,
            state,
        )
        return self.core(values, state)

    def initial_state(self, batch_size: int | None) -> Any:
        return self.core.initial_state(batch_size)


def _expand_flag(core: Module, reset: Any, value: Any) -> Any:
    """Broadcast a flag per element of the batch to the shape of its state."""
    if reset.shape != value.shape[: reset.ndim]:
        raise ArgumentError(
            f"ResetCore {core.module_name!r} needs should_reset of shape {value.shape[:1]}, one flag an element of the "
            f"batch, got {reset.shape}."
        )
    return wnp.reshape(reset, reset.shape + (1,) * (value.ndim - reset.ndim)).astype(bool)


class _DeepRNN(RNNCore):
    """Layers applied one after another, with a state for each that is a core."""

    def __init__(self, layers: Sequence[Any], skip_connections: bool, name: str | None = None):
        super().__init__(name=name)
        self.layers = tuple(layers)
        self.skip_connections = skip_connections
        if skip_connections:
            for layer in self.layers:
                if not isinstance(layer, RNNCore):
                    raise ArgumentError(
                        f"deep_rnn_with_skip_connections {self.module_name!r} takes cores only, got {layer!r}."
                    )

    def __call__(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        cores = sum(isinstance(layer, RNNCore) for layer in self.layers)
        if len(state) != cores:
            raise ArgumentError(
                f"DeepRNN {self.module_name!r} needs a state for each of its {cores} cores, got {len(state)}."
            )
        states, outputs = [], []
        remaining = iter(state)
        out = inputs
        for i, layer in enumerate(self.layers):
            if self.skip_connections and i > 0:
                out = self._concatenate([inputs, out])
            if isinstance(layer, RNNCore):
                out, after = layer(out, next(remaining))
                states.append(after)
            else:
                out = layer(out)
            outputs.append(out)
        return (self._concatenate(outputs) if self.skip_connections else out), tuple(states)

    @transparent
    def _concatenate(self, parts: list[Any]) -> Any:
        return weft.tree.map(lambda *leaves: wnp.concatenate(leaves, axis=-1), *parts)

    def initial_state(self, batch_size: int | None) -> Any:
        return tuple(layer.initial_state(batch_size) for layer in self.layers if isinstance(layer, RNNCore))


class DeepRNN(_DeepRNN):
    """Cores and functions applied one after another, as one core; its state is the tuple of their states.

    Args:
        layers: cores and functions.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> from weft import random
    >>> from weft import haiku
    >>> def f(x):
    ...     core = haiku.DeepRNN([haiku.LSTM(4), nn.relu, haiku.GRU(2)])
    ...     return core(x, core.initial_state(x.shape[0]))[0]
    >>> model = haiku.transform(f)
    >>> model.apply(model.init(random.key(0), wnp.ones((1, 3))), None, wnp.ones((1, 3))).shape
    (1, 2)
    """

    def __init__(self, layers: Sequence[Any], name: str | None = None):
        super().__init__(layers, False, name)


def deep_rnn_with_skip_connections(layers: Sequence[RNNCore], name: str | None = None) -> RNNCore:
    """Return a core that applies cores one after another and passes the inputs to each of them.

    Its output is the concatenation of all outputs.
    """
    return _DeepRNN(layers, True, name or "deep_rnn_with_skip_connections")


def _time_first(tree: Any) -> Any:
    return weft.tree.map(lambda x: wnp.swapaxes(x, 0, 1), tree)


def static_unroll(core: Any, input_sequence: Any, initial_state: Any, time_major: bool = True) -> tuple[Any, Any]:
    """Unroll `core` over a sequence; return the outputs of all steps, and the last state.

    Args:
        core: a core: a function of inputs and a state.
        input_sequence: a tree of arrays (time, batch, ...).
        initial_state: the first state.
        time_major: whether the time is the first axis; otherwise the second.

    Returns:
        A pair of outputs and the last state.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.static_unroll(core := haiku.GRU(4), x, core.initial_state(1))[0])
    >>> model.apply(model.init(random.key(0), wnp.ones((2, 1, 3))), None, wnp.ones((2, 1, 3))).shape
    (2, 1, 4)
    """
    inputs = input_sequence if time_major else _time_first(input_sequence)
    length = _length(inputs)
    outputs, state = [], initial_state
    for time in range(length):
        out, state = core(weft.tree.map(lambda x, time=time: x[time], inputs), state)
        outputs.append(out)
    stacked = weft.tree.map(lambda *steps: wnp.stack(steps), *outputs)
    return (stacked if time_major else _time_first(stacked)), state


def _length(inputs: Any) -> int:
    lengths = {leaf.shape[0] for leaf in weft.tree.leaves(inputs)}
    if len(lengths) != 1 or 0 in lengths:
        raise ArgumentError(f"An unroll needs sequences of one length of 1 or more, got {sorted(lengths)}.")
    return int(lengths.pop())


def dynamic_unroll(
    core: Any,
    input_sequence: Any,
    initial_state: Any,
    time_major: bool = True,
    reverse: bool = False,
    return_all_states: bool = False,
    unroll: int = 1,
) -> tuple[Any, Any]:
    """Loop `core` over a sequence; return the outputs of all steps, and the last state or all states.

    Args:
        core: a core: a function of inputs and a state.
        input_sequence: a tree of arrays (time, batch, ...).
        initial_state: the first state.
        time_major: whether the time is the first axis; otherwise the second.
        reverse: whether to go from the last step to the first.
        return_all_states: whether to return the states of all steps.
        unroll: the number of steps to unroll.

    Returns:
        A pair of outputs and the last state, or those of all steps.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.dynamic_unroll(core := haiku.GRU(4), x, core.initial_state(1))[0])
    >>> model.apply(model.init(random.key(0), wnp.ones((5, 1, 3))), None, wnp.ones((5, 1, 3))).shape
    (5, 1, 4)
    """
    inputs = input_sequence if time_major else _time_first(input_sequence)

    def step(state: Any, x: Any) -> Any:
        out, state = core(x, state)
        return state, ((out, state) if return_all_states else out)

    # Outside of transformed functions a core is any function.
    loop = scan if frames.items else weft.lax.scan
    state, outputs = loop(step, initial_state, inputs, reverse=reverse, unroll=unroll)
    if not return_all_states:
        return (outputs if time_major else _time_first(outputs)), state
    outputs, states = outputs
    return (outputs, states) if time_major else (_time_first(outputs), _time_first(states))
