"""Networks for examples.

A layer is a pair of functions:

init_fun(rng, input_shape) -> (output_shape, params)
apply_fun(params, inputs, **kwargs) -> outputs       # rng=key for layers that draw random numbers
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import weft.numpy as wnp
from weft import lax, random
from weft.base.errors import ArgumentError
from weft.base.publish import publish as _publish
from weft.nn import elu, gelu, leaky_relu, log_softmax, relu, selu, sigmoid, softmax, softplus, standardize
from weft.nn.initializers import glorot_normal, normal, ones, zeros

__all__ = [
    "AvgPool",
    "BatchNorm",
    "Conv",
    "Conv1DTranspose",
    "ConvTranspose",
    "Dense",
    "Dropout",
    "Elu",
    "Exp",
    "FanInConcat",
    "FanInSum",
    "FanOut",
    "Flatten",
    "Gelu",
    "GeneralConv",
    "GeneralConvTranspose",
    "Identity",
    "LeakyRelu",
    "LogSoftmax",
    "MaxPool",
    "Relu",
    "Selu",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "SumPool",
    "Tanh",
    "elementwise",
    "elu",
    "gelu",
    "glorot",
    "glorot_normal",
    "leaky_relu",
    "log_softmax",
    "logsoftmax",
    "normal",
    "ones",
    "parallel",
    "randn",
    "relu",
    "selu",
    "serial",
    "shape_dependent",
    "sigmoid",
    "softmax",
    "softplus",
    "standardize",
    "zeros",
]

# Older names.
logsoftmax = log_softmax
randn = normal
glorot = glorot_normal

Layer = tuple[Callable[..., Any], Callable[..., Any]]


def Dense(out_dim: int, W_init: Any = glorot_normal(), b_init: Any = normal()) -> Layer:  # noqa: B008
    """Make a layer with a matrix and a bias."""

    def init_fun(rng: Any, input_shape: Any) -> Any:
        first, second = random.split(rng)
        W, b = W_init(first, (input_shape[-1], out_dim)), b_init(second, (out_dim,))
        return (*input_shape[:-1], out_dim), (W, b)

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        return wnp.dot(inputs, W) + b

    return init_fun, apply_fun


def GeneralConv(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Any = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = normal(1e-6),  # noqa: B008
) -> Layer:
    """Make a convolution; `dimension_numbers` name the axes of inputs, filters and outputs: ("NHWC", "HWIO",
    "NHWC")."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    strides = strides or (1,) * len(filter_shape)
    W_init = W_init or glorot_normal(rhs_spec.index("I"), rhs_spec.index("O"))

    def init_fun(rng: Any, input_shape: Any) -> Any:
        kernel_shape = _kernel_shape(rhs_spec, filter_shape, out_chan, input_shape[lhs_spec.index("C")])
        output_shape = lax.conv_general_shape_tuple(input_shape, kernel_shape, strides, padding, dimension_numbers)
        first, second = random.split(rng)
        return output_shape, (W_init(first, kernel_shape), b_init(second, _bias_shape(out_spec, out_chan)))

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        ones = (1,) * len(filter_shape)
        return lax.conv_general_dilated(inputs, W, strides, padding, ones, ones, dimension_numbers) + b

    return init_fun, apply_fun


def GeneralConvTranspose(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Any = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = normal(1e-6),  # noqa: B008
) -> Layer:
    """Make a transposed convolution, with the arguments of `GeneralConv`."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    strides = strides or (1,) * len(filter_shape)
    W_init = W_init or glorot_normal(rhs_spec.index("O"), rhs_spec.index("I"))

    def init_fun(rng: Any, input_shape: Any) -> Any:
        kernel_shape = _kernel_shape(rhs_spec, filter_shape, out_chan, input_shape[lhs_spec.index("C")])
        output_shape = lax.conv_transpose_shape_tuple(input_shape, kernel_shape, strides, padding, dimension_numbers)
        first, second = random.split(rng)
        return output_shape, (W_init(first, kernel_shape), b_init(second, _bias_shape(out_spec, out_chan)))

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        return lax.conv_transpose(inputs, W, strides, padding, dimension_numbers=dimension_numbers) + b

    return init_fun, apply_fun


def _kernel_shape(rhs_spec: str, filter_shape: Sequence[int], out_chan: int, in_chan: int) -> tuple[int, ...]:
    sizes = iter(filter_shape)
    return tuple(out_chan if c == "O" else in_chan if c == "I" else next(sizes) for c in rhs_spec)


def _bias_shape(out_spec: str, out_chan: int) -> tuple[int, ...]:
    """Return the shape of a bias: one element for each channel, which broadcasts over the other axes."""
    return tuple(out_chan if c == "C" else 1 for c in out_spec)


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(
    axis: Any = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Any = zeros,
    gamma_init: Any = ones,
) -> Layer:
    """Make a layer that normalises over axes by the mean and variance of the batch, with learned shift and scale."""
    axes = (axis,) if wnp.isscalar(axis) else tuple(axis)

    def init_fun(rng: Any, input_shape: Any) -> Any:
        shape = tuple(d for i, d in enumerate(input_shape) if i not in axes)
        first, second = random.split(rng)
        beta = beta_init(first, shape) if center else ()
        gamma = gamma_init(second, shape) if scale else ()
        return input_shape, (beta, gamma)

    def apply_fun(params: Any, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        expanded = tuple(None if i in axes else slice(None) for i in range(wnp.ndim(x)))
        out = standardize(x, axes, epsilon=epsilon)
        out = gamma[expanded] * out if scale else out
        return out + beta[expanded] if center else out

    return init_fun, apply_fun


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """Make a layer without parameters that applies a function to all inputs."""

    def init_fun(rng: Any, input_shape: Any) -> Any:
        return input_shape, ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return fun(inputs, **fun_kwargs)

    return init_fun, apply_fun


Tanh = elementwise(wnp.tanh)
Relu = elementwise(relu)
Exp = elementwise(wnp.exp)
LogSoftmax = elementwise(log_softmax, axis=-1)
Softmax = elementwise(softmax, axis=-1)
Softplus = elementwise(softplus)
Sigmoid = elementwise(sigmoid)
Elu = elementwise(elu)
LeakyRelu = elementwise(leaky_relu)
Selu = elementwise(selu)
Gelu = elementwise(gelu)


def _pooling_layer(
    window_shape: Sequence[int],
    strides: Any,
    padding: Any,
    spec: str | None,
    reducer: Callable[..., Any],
    initial: float,
    average: bool = False,
) -> Layer:
    window = tuple(window_shape)
    strides = tuple(strides or (1,) * len(window))
    # The axes of the batch and of channels, which are not pooled: the first and the last, or as the spec says.
    whole_axes = (0, len(window) + 1) if spec is None else (spec.index("N"), spec.index("C"))
    for axis in sorted(whole_axes):
        window, strides = (t[:axis] + (1,) + t[axis:] for t in (window, strides))
    ones = (1,) * len(window)

    def init_fun(rng: Any, input_shape: Any) -> Any:
        pads = lax.padtype_to_pads(input_shape, window, strides, padding) if isinstance(padding, str) else padding
        return lax.reduce_window_shape_tuple(input_shape, window, strides, pads, ones, ones), ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        out = lax.reduce_window(inputs, initial, reducer, window, strides, padding)
        if average:  # of the elements that there are: at the edges fewer
            counts = lax.reduce_window(wnp.ones_like(inputs), 0.0, lax.add, window, strides, padding)
            out = out / counts
        return out

    return init_fun, apply_fun


def MaxPool(window_shape: Sequence[int], strides: Any = None, padding: Any = "VALID", spec: str | None = None) -> Layer:
    """Make a layer of the largest element of each window; `spec` names the axes if they are not NHWC."""
    return _pooling_layer(window_shape, strides, padding, spec, lax.max, -wnp.inf)


def SumPool(window_shape: Sequence[int], strides: Any = None, padding: Any = "VALID", spec: str | None = None) -> Layer:
    """Make a layer of the sum of each window."""
    return _pooling_layer(window_shape, strides, padding, spec, lax.add, 0.0)


def AvgPool(window_shape: Sequence[int], strides: Any = None, padding: Any = "VALID", spec: str | None = None) -> Layer:
    """Make a layer of the mean of each window."""
    return _pooling_layer(window_shape, strides, padding, spec, lax.add, 0.0, average=True)


def _flatten() -> Layer:
    def init_fun(rng: Any, input_shape: Any) -> Any:
        return (input_shape[0], functools.reduce(operator.mul, input_shape[1:], 1)), ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return wnp.reshape(inputs, (inputs.shape[0], -1))

    return init_fun, apply_fun


def _identity() -> Layer:
    return elementwise(lambda x: x)


def _fan_in_sum() -> Layer:
    return (lambda rng, input_shape: (input_shape[0], ())), (lambda params, inputs, **kwargs: sum(inputs))


Flatten = _flatten()
Identity = _identity()
FanInSum = _fan_in_sum()


def FanOut(num: int) -> Layer:
    """Make a layer that copies its input `num` times, to a list."""

    def init_fun(rng: Any, input_shape: Any) -> Any:
        return [input_shape] * num, ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return [inputs] * num

    return init_fun, apply_fun


def FanInConcat(axis: int = -1) -> Layer:
    """Make a layer that concatenates a list of inputs along an axis."""

    def init_fun(rng: Any, input_shape: Any) -> Any:
        first = input_shape[0]
        where = axis % len(first)
        return (*first[:where], sum(shape[where] for shape in input_shape), *first[where + 1 :]), ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return wnp.concatenate(inputs, axis)

    return init_fun, apply_fun


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Make a layer that sets inputs to zero; `rate` is the probability that one stays, and the mode "test" keeps
    all."""

    def init_fun(rng: Any, input_shape: Any) -> Any:
        return input_shape, ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rng = kwargs.get("rng")
        if rng is None:
            raise ArgumentError(
                "Dropout layer requires apply_fun to be called with a PRNG key argument.",
                fix="apply_fun(params, inputs, rng=key) instead of apply_fun(params, inputs)",
            )
        if mode != "train":
            return inputs
        stays = random.bernoulli(rng, rate, inputs.shape)
        return wnp.where(stays, inputs / rate, 0)

    return init_fun, apply_fun


# --------------------------------------------------------------------------------------------------------- composition


def _keys(rng: Any, count: int) -> Any:
    return (None,) * count if rng is None else random.split(rng, count)


def serial(*layers: Layer) -> Layer:
    """Compose layers one after the other; the parameters are a list of theirs.

    >>> import weft
    >>> from weft.example_libraries.stax import Dense, Relu, serial
    >>> init, apply = serial(Dense(8), Relu, Dense(2))
    >>> shape, params = init(weft.random.key(0), (-1, 3))
    >>> shape, apply(params, weft.numpy.ones((5, 3))).shape
    ((-1, 2), (5, 2))
    """
    init_funs, apply_funs = zip(*layers, strict=True) if layers else ((), ())

    def init_fun(rng: Any, input_shape: Any) -> Any:
        params = []
        for init in init_funs:
            rng, layer_rng = random.split(rng)
            input_shape, param = init(layer_rng, input_shape)
            params.append(param)
        return input_shape, params

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rngs = _keys(kwargs.pop("rng", None), len(apply_funs))
        for apply, param, rng in zip(apply_funs, params, rngs, strict=True):
            inputs = apply(param, inputs, rng=rng, **kwargs)
        return inputs

    return init_fun, apply_fun


def parallel(*layers: Layer) -> Layer:
    """Compose layers side by side: each takes one of a list of inputs, and the outputs are a list."""
    init_funs, apply_funs = zip(*layers, strict=True) if layers else ((), ())

    def init_fun(rng: Any, input_shape: Any) -> Any:
        rngs = _keys(rng, len(init_funs))
        found = [init(r, shape) for init, r, shape in zip(init_funs, rngs, input_shape, strict=True)]
        return [shape for shape, _ in found], [param for _, param in found]

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rngs = _keys(kwargs.pop("rng", None), len(apply_funs))
        return [
            apply(param, x, rng=rng, **kwargs)
            for apply, param, x, rng in zip(apply_funs, params, inputs, rngs, strict=True)
        ]

    return init_fun, apply_fun


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """Make a layer from a function of the shape of its inputs."""

    def init_fun(rng: Any, input_shape: Any) -> Any:
        return make_layer(input_shape)[0](rng, input_shape)

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return make_layer(inputs.shape)[1](params, inputs, **kwargs)

    return init_fun, apply_fun


_publish(__name__)
