"""Recurrent cells, which map a carry and an input to the next carry and an output, and loops over sequences."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import weft
import weft.numpy as wnp
from weft import nn
from weft.errors import ArgumentError
from weft.linen import initializers, transforms
from weft.linen.convolution import Conv, Padding
from weft.linen.dtypes import promote_dtype
from weft.linen.linear import Dense, default_kernel_init
from weft.linen.methods import compact, nowrap
from weft.linen.module import Module
from weft.modules.filters import Filter
from weft.modules.frozen import FrozenDict


class RNNCellBase(Module):
    """Base class of cells: `cell(carry, inputs) -> (carry, outputs)`, with an initial carry.

    >>> from weft import linen
    >>> issubclass(linen.LSTMCell, linen.RNNCellBase)
    True
    """

    @nowrap
    @abc.abstractmethod
    def initialize_carry(self, rng: Any, input_shape: tuple[int, ...]) -> Any:
        """Return the initial carry for inputs of a shape."""

    @property
    @abc.abstractmethod
    def num_feature_axes(self) -> int:
        """Number of trailing axes of an input that are features; the axes before are batches."""


def _first_carries(cell: Any, rng: Any, shape: tuple[int, ...], count: int) -> Any:
    """Return `count` arrays of an initial carry, all of one shape."""
    if count == 1:
        return cell.carry_init(rng, shape, cell.param_dtype)
    return tuple(cell.carry_init(key, shape, cell.param_dtype) for key in weft.random.split(rng, count))


class LSTMCell(RNNCellBase):
    """i, f, o = σ(...), g = tanh(...), c' = f·c + i·g, h' = o·tanh(c'); the carry is (c, h).

    Args:
        features: the size of the state.
        gate_fn: the function of the gates.
        activation_fn: the function of the state.
        kernel_init: the initializer of the kernel.
        recurrent_kernel_init: the initializer of the kernel of the state.
        bias_init: the initializer of the bias.
        dtype: the dtype to compute in; promoted from inputs and parameters by default.
        param_dtype: the dtype of the parameters.
        carry_init: the initializer of the first carry.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> cell = linen.LSTMCell(4)
    >>> carry = cell.initialize_carry(random.key(0), (1, 3))
    >>> (carry, y), variables = cell.init_with_output(random.key(1), carry, wnp.ones((1, 3)))
    >>> y.shape
    (1, 4)
    """

    features: int
    gate_fn: Callable[..., Any] = nn.sigmoid
    activation_fn: Callable[..., Any] = nn.tanh
    kernel_init: Callable[..., Any] = default_kernel_init
    recurrent_kernel_init: Callable[..., Any] = initializers.orthogonal()
    bias_init: Callable[..., Any] = initializers.zeros
    dtype: Any = None
    param_dtype: Any = wnp.float32
    carry_init: Callable[..., Any] = initializers.zeros

    @compact
    def __call__(self, carry: Any, inputs: Any) -> tuple[Any, Any]:
        c, h = carry
        width = h.shape[-1]
        of_input = functools.partial(self._dense, use_bias=False, kernel_init=self.kernel_init, features=width)
        of_state = functools.partial(self._dense, kernel_init=self.recurrent_kernel_init, features=width)
        gates = {gate: of_input(name=f"i{gate}")(inputs) + of_state(name=f"h{gate}")(h) for gate in "ifgo"}
        return self._step(c, gates)

    def _dense(self, **options: Any) -> Dense:
        return Dense(**options, bias_init=self.bias_init, dtype=self.dtype, param_dtype=self.param_dtype)

    def _step(self, c: Any, gates: Mapping[str, Any]) -> tuple[Any, Any]:
        i, f, g, o = (gates[gate] for gate in "ifgo")
        new_h, new_c = nn.lstm_step(i, f, g, o, c, self.gate_fn, self.activation_fn)
        return (new_c, new_h), new_h

    @nowrap
    def initialize_carry(self, rng: Any, input_shape: tuple[int, ...]) -> Any:
        return _first_carries(self, rng, (*input_shape[:-1], self.features), 2)

    @property
    def num_feature_axes(self) -> int:
        return 1


class _DenseParams(Module):
    """The parameters of a `Dense` layer, without the layer."""

    features: int
    use_bias: bool
    param_dtype: Any
    kernel_init: Callable[..., Any]
    bias_init: Callable[..., Any]

    @compact
    def __call__(self, inputs: Any) -> tuple[Any, Any]:
        kernel = self.param("kernel", self.kernel_init, (inputs.shape[-1], self.features), self.param_dtype)
        bias = self.param("bias", self.bias_init, (self.features,), self.param_dtype) if self.use_bias else None
        return kernel, bias


class OptimizedLSTMCell(LSTMCell):
    """`LSTMCell` with the same parameters, in two matrix products instead of eight."""

    @compact
    def __call__(self, carry: Any, inputs: Any) -> tuple[Any, Any]:
        c, h = carry
        width = h.shape[-1]

        def product(x: Any, letter: str, kernel_init: Any, use_bias: bool) -> list[Any]:
            found = [
                _DenseParams(width, use_bias, self.param_dtype, kernel_init, self.bias_init, name=f"{letter}{gate}")(x)
                for gate in "ifgo"
            ]
            kernel = wnp.concatenate([kernel for kernel, _ in found], axis=-1)
            bias = wnp.concatenate([bias for _, bias in found], axis=-1) if use_bias else None
            x, kernel, bias = promote_dtype(x, kernel, bias, dtype=self.dtype)
            out = wnp.dot(x, kernel)
            return wnp.split(out if bias is None else out + bias, 4, axis=-1)

        of_input = product(inputs, "i", self.kernel_init, False)
        of_state = product(h, "h", self.recurrent_kernel_init, True)
        return self._step(c, {gate: x + s for gate, x, s in zip("ifgo", of_input, of_state, strict=True)})


class SimpleCell(RNNCellBase):
    """h' = tanh(input · W + h · U + bias); with `residual`, plus h."""

    features: int
    activation_fn: Callable[..., Any] = nn.tanh
    kernel_init: Callable[..., Any] = default_kernel_init
    recurrent_kernel_init: Callable[..., Any] = initializers.orthogonal()
    bias_init: Callable[..., Any] = initializers.zeros
    dtype: Any = None
    param_dtype: Any = wnp.float32
    carry_init: Callable[..., Any] = initializers.zeros
    residual: bool = False

    @compact
    def __call__(self, carry: Any, inputs: Any) -> tuple[Any, Any]:
        width = carry.shape[-1]
        dense = functools.partial(Dense, features=width, dtype=self.dtype, param_dtype=self.param_dtype)
        of_input = dense(name="i", kernel_init=self.kernel_init, bias_init=self.bias_init)(inputs)
        of_state = dense(name="h", kernel_init=self.recurrent_kernel_init, use_bias=False)(carry)
        total = of_input + of_state
        new = self.activation_fn(total + carry) if self.residual else self.activation_fn(total)
        return new, new

    @nowrap
    def initialize_carry(self, rng: Any, input_shape: tuple[int, ...]) -> Any:
        return _first_carries(self, rng, (*input_shape[:-1], self.features), 1)

    @property
    def num_feature_axes(self) -> int:
        return 1


class GRUCell(RNNCellBase):
    """r, z = σ(...), n = tanh(input part + r · state part), h' = (1 - z)·n + z·h.

    Args:
        features: the size of the state.
        gate_fn: the function of the gates.
        activation_fn: the function of the state.
        kernel_init: the initializer of the kernel.
        recurrent_kernel_init: the initializer of the kernel of the state.
        bias_init: the initializer of the bias.
        dtype: the dtype to compute in; promoted from inputs and parameters by default.
        param_dtype: the dtype of the parameters.
        carry_init: the initializer of the first carry.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> cell = linen.GRUCell(4)
    >>> carry = cell.initialize_carry(random.key(0), (1, 3))
    >>> (carry, y), variables = cell.init_with_output(random.key(1), carry, wnp.ones((1, 3)))
    >>> y.shape
    (1, 4)
    """

    features: int
    gate_fn: Callable[..., Any] = nn.sigmoid
    activation_fn: Callable[..., Any] = nn.tanh
    kernel_init: Callable[..., Any] = default_kernel_init
    recurrent_kernel_init: Callable[..., Any] = initializers.orthogonal()
    bias_init: Callable[..., Any] = initializers.zeros
    dtype: Any = None
    param_dtype: Any = wnp.float32
    carry_init: Callable[..., Any] = initializers.zeros

    @compact
    def __call__(self, carry: Any, inputs: Any) -> tuple[Any, Any]:
        h, width = carry, carry.shape[-1]
        dense = functools.partial(
            Dense, features=width, dtype=self.dtype, param_dtype=self.param_dtype, bias_init=self.bias_init
        )
        of_input = functools.partial(dense, kernel_init=self.kernel_init)
        of_state = functools.partial(dense, kernel_init=self.recurrent_kernel_init)
        r = self.gate_fn(of_input(name="ir")(inputs) + of_state(name="hr", use_bias=False)(h))
        z = self.gate_fn(of_input(name="iz")(inputs) + of_state(name="hz", use_bias=False)(h))
        n = self.activation_fn(of_input(name="in")(inputs) + r * of_state(name="hn")(h))
        new = nn.gru_step(z, n, h)
        return new, new

    @nowrap
    def initialize_carry(self, rng: Any, input_shape: tuple[int, ...]) -> Any:
        return _first_carries(self, rng, (*input_shape[:-1], self.features), 1)

    @property
    def num_feature_axes(self) -> int:
        return 1


class MGUCell(RNNCellBase):
    """f = σ(...), n = tanh(input part + f · state part), h' = (1 - f)·n + f·h; without `reset_gate` n takes no f."""

    features: int
    gate_fn: Callable[..., Any] = nn.sigmoid
    activation_fn: Callable[..., Any] = nn.tanh
    kernel_init: Callable[..., Any] = default_kernel_init
    recurrent_kernel_init: Callable[..., Any] = initializers.orthogonal()
    forget_bias_init: Callable[..., Any] = initializers.ones
    activation_bias_init: Callable[..., Any] = initializers.zeros
    dtype: Any = None
    param_dtype: Any = wnp.float32
    carry_init: Callable[..., Any] = initializers.zeros
    reset_gate: bool = True

    @compact
    def __call__(self, carry: Any, inputs: Any) -> tuple[Any, Any]:
        h, width = carry, carry.shape[-1]
        dense = functools.partial(Dense, features=width, dtype=self.dtype, param_dtype=self.param_dtype)
        of_input = functools.partial(dense, kernel_init=self.kernel_init)
        of_state = functools.partial(dense, kernel_init=self.recurrent_kernel_init)
        forget = of_input(name="if", bias_init=self.forget_bias_init)(inputs)
        f = self.gate_fn(forget + of_state(name="hf", use_bias=False)(h))
        state = of_state(name="hn", use_bias=self.reset_gate, bias_init=self.activation_bias_init)(h)
        n = of_input(name="in", bias_init=self.activation_bias_init)(inputs)
        n = self.activation_fn(n + f * state if self.reset_gate else n + state)
        new = nn.gru_step(f, n, h)
        return new, new

    @nowrap
    def initialize_carry(self, rng: Any, input_shape: tuple[int, ...]) -> Any:
        return _first_carries(self, rng, (*input_shape[:-1], self.features), 1)

    @property
    def num_feature_axes(self) -> int:
        return 1


class ConvLSTMCell(RNNCellBase):
    """An LSTM with convolutions in place of matrix products; its carry has the spatial dimensions of the input."""

    features: int
    kernel_size: Sequence[int]
    strides: Sequence[int] | None = None
    padding: Padding = "SAME"
    use_bias: bool = True
    dtype: Any = None
    param_dtype: Any = wnp.float32
    carry_init: Callable[..., Any] = initializers.zeros

    @compact
    def __call__(self, carry: Any, inputs: Any) -> tuple[Any, Any]:
        c, h = carry
        conv = functools.partial(
            Conv,
            features=4 * self.features,
            kernel_size=self.kernel_size,
            padding=self.padding,
            use_bias=self.use_bias,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
        )
        gates = conv(name="ih", strides=self.strides)(inputs) + conv(name="hh", strides=self.strides)(h)
        i, g, f, o = wnp.split(gates, 4, axis=-1)
        new_h, new_c = nn.lstm_step(i, f + 1, g, o, c)  # an initial forget gate near 1 speeds up learning
        return (new_c, new_h), new_h

    @nowrap
    def initialize_carry(self, rng: Any, input_shape: tuple[int, ...]) -> Any:
        return _first_carries(self, rng, (*input_shape[:-1], self.features), 2)

    @property
    def num_feature_axes(self) -> int:
        return len(self.kernel_size) + 1


# --------------------------------------------------------------------------------------------------------- sequences


class RNN(Module):
    """A loop of a cell over the time axis of its input, which returns the outputs.

    With `return_carry` it returns (carry, outputs), where the carry is that at the end of each sequence according to
    `seq_lengths`. With `reverse` sequences are read backward; `keep_order` returns outputs in the order of the inputs.
    """

    cell: RNNCellBase
    time_major: bool = False
    return_carry: bool = False
    reverse: bool = False
    keep_order: bool = False
    unroll: int = 1
    variable_axes: Mapping[Any, Any] = FrozenDict()
    variable_broadcast: Filter = "params"
    variable_carry: Filter = False
    split_rngs: Mapping[Any, bool] = FrozenDict({"params": False})

    def __call__(
        self,
        inputs: Any,
        *,
        initial_carry: Any = None,
        init_key: Any = None,
        seq_lengths: Any = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
    ) -> Any:
        return_carry = self.return_carry if return_carry is None else return_carry
        time_major = self.time_major if time_major is None else time_major
        reverse = self.reverse if reverse is None else reverse
        keep_order = self.keep_order if keep_order is None else keep_order

        batches = inputs.ndim - self.cell.num_feature_axes - 1
        time_axis = 0 if time_major else batches
        if time_major:
            batch_shape = inputs.shape[1 : batches + 1]
        else:
            batch_shape = inputs.shape[:batches]
        flip = lambda x: flip_sequences(x, seq_lengths, batches, time_major)
        if reverse:
            inputs = weft.tree.map(flip, inputs)
        if initial_carry is None:
            shape = (*inputs.shape[:time_axis], *inputs.shape[time_axis + 1 :])
            key = weft.random.key(0) if init_key is None else init_key
            initial_carry = self.cell.initialize_carry(key, shape)

        ends = seq_lengths is not None and return_carry

        def step(cell: Any, carry: Any, x: Any) -> Any:
            carry, y = cell(carry, x)
            return (carry, (carry, y)) if ends else (carry, y)

        loop = transforms.scan(
            step,
            in_axes=time_axis,
            out_axes=(0, time_axis) if ends else time_axis,
            unroll=self.unroll,
            variable_axes=self.variable_axes,
            variable_broadcast=self.variable_broadcast,
            variable_carry=self.variable_carry,
            split_rngs=self.split_rngs,
        )
        carry, outputs = loop(self.cell, initial_carry, inputs)
        if ends:
            carries, outputs = outputs
            lengths = wnp.broadcast_to(wnp.asarray(seq_lengths), batch_shape)
            carry = weft.tree.map(lambda x: _at_end(x, lengths), carries)
        if reverse and keep_order:
            outputs = weft.tree.map(flip, outputs)
        return (carry, outputs) if return_carry else outputs


def _at_end(carries: Any, lengths: Any) -> Any:
    """Select from carries (time, batch..., features...) the one at the end of each sequence."""
    index = wnp.reshape(lengths - 1, (1, *lengths.shape, *(1,) * (carries.ndim - lengths.ndim - 1)))
    return wnp.take_along_axis(carries, wnp.broadcast_to(index, (1, *carries.shape[1:])), axis=0)[0]


def flip_sequences(inputs: Any, seq_lengths: Any, num_batch_dims: int, time_major: bool) -> Any:
    """Reverse sequences; with lengths, reverse only the part before the padding."""
    axis = 0 if time_major else num_batch_dims
    if seq_lengths is None:
        return wnp.flip(inputs, axis=axis)
    size = inputs.shape[axis]
    lengths = wnp.asarray(seq_lengths)
    # Element t of the result is element length - 1 - t, modulo the padded length.
    steps = wnp.arange(size - 1, -1, -1, dtype=wnp.int32)
    if time_major:
        index = (wnp.reshape(steps, (size, *(1,) * num_batch_dims)) + lengths) % size
    else:
        index = (steps + lengths[..., None]) % size
    index = wnp.reshape(index, (*index.shape, *(1,) * (inputs.ndim - index.ndim)))
    return wnp.take_along_axis(inputs, wnp.broadcast_to(index, inputs.shape), axis=axis)


def _concatenate(forward: Any, backward: Any) -> Any:
    return weft.tree.map(lambda a, b: wnp.concatenate([a, b], axis=-1), forward, backward)


class Bidirectional(Module):
    """Two RNNs, one forward and one backward, with merged outputs."""

    forward_rnn: RNN
    backward_rnn: RNN
    merge_fn: Callable[..., Any] = _concatenate
    time_major: bool = False
    return_carry: bool = False

    def __call__(
        self,
        inputs: Any,
        *,
        initial_carry: Any = None,
        init_key: Any = None,
        seq_lengths: Any = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
    ) -> Any:
        return_carry = self.return_carry if return_carry is None else return_carry
        time_major = self.time_major if time_major is None else time_major
        if self.forward_rnn is self.backward_rnn:
            raise ArgumentError(f"{self._where()} needs two RNNs, got the same one for both directions.")
        keys = (None, None) if init_key is None else tuple(weft.random.split(init_key))
        carries = (None, None) if initial_carry is None else initial_carry

        def run(rnn: RNN, carry: Any, key: Any, **options: Any) -> Any:
            return rnn(
                inputs,
                initial_carry=carry,
                init_key=key,
                seq_lengths=seq_lengths,
                return_carry=True,
                time_major=time_major,
                **options,
            )

        forward_carry, forward = run(self.forward_rnn, carries[0], keys[0], reverse=False)
        backward_carry, backward = run(self.backward_rnn, carries[1], keys[1], reverse=True, keep_order=True)
        merged = self.merge_fn(forward, backward)
        return ((forward_carry, backward_carry), merged) if return_carry else merged
