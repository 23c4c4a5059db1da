"""Functions that layers apply to their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import weft.numpy as wnp
from weft import nn
from weft.errors import ArgumentError, publish as _publish
from weft.keras import ops
from weft.keras.core import registry
from weft.keras.ops import dispatch

hard_sigmoid = ops.hard_sigmoid
hard_silu = ops.hard_silu
hard_swish = ops.hard_silu
hard_tanh = ops.hard_tanh
log_sigmoid = ops.log_sigmoid
relu6 = ops.relu6
selu = ops.selu
sigmoid = ops.sigmoid
silu = ops.silu
swish = ops.silu
softplus = ops.softplus
softsign = ops.softsign
sparse_plus = ops.sparse_plus
sparse_sigmoid = ops.sparse_sigmoid
tanh = ops.tanh
tanh_shrink = ops.tanh_shrink
celu = ops.celu
elu = ops.elu
glu = ops.glu
hard_shrink = ops.hard_shrink
leaky_relu = ops.leaky_relu
log_softmax = ops.log_softmax
soft_shrink = ops.soft_shrink
softmax = ops.softmax
sparsemax = ops.sparsemax
squareplus = ops.squareplus
threshold = ops.threshold


def exponential(x: Any) -> Any:
    """Compute `exp(x)`.

    Args:
        x: an array.

    Returns:
        An array of floats of the same shape.
    """
    return ops.exp(x)


def mish(x: Any) -> Any:
    """Compute `x * tanh(softplus(x))`.

    Args:
        x: an array.

    Returns:
        An array of floats of the same shape.
    """
    return ops.multiply(x, ops.tanh(ops.softplus(x)))


def gelu(x: Any, approximate: bool = False) -> Any:
    """Multiply `x` by the normal distribution function of `x`.

    Args:
        x: an array.
        approximate: whether to use the approximation by `tanh`.

    Returns:
        An array of floats of the same shape.

    Example:
        >>> from weft import keras
        >>> print(keras.activations.gelu([0.0, 1.0]))
        [0.        0.8413447]
    """
    return ops.gelu(x, approximate=approximate)


def linear(x: Any) -> Any:
    """Return `x` unchanged.

    Args:
        x: an array.

    Returns:
        The array.
    """
    return x


@dispatch.operation
def relu(x: Any, negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Any:
    """Compute `max(x, 0)`, or a piecewise linear function of `x`.

    Args:
        x: an array.
        negative_slope: elements below the threshold become `negative_slope * (x - threshold)`.
        max_value: the largest value; None is no limit.
        threshold: elements above it stay as they are.

    Returns:
        An array of the same shape.

    Example:
        >>> from weft import keras
        >>> print(keras.activations.relu([-2.0, 3.0, 9.0], max_value=6.0))
        [0. 3. 6.]
    """
    x = dispatch.tensor(x)
    if negative_slope == 0.0 and threshold == 0.0:
        if max_value is None:
            return nn.relu(x)
        return nn.relu6(x) if max_value == 6.0 else wnp.clip(nn.relu(x), None, max_value)
    low = negative_slope * (x - threshold) if negative_slope else wnp.zeros_like(x)
    above = wnp.where(x > threshold, x, low)
    return above if max_value is None else wnp.clip(above, None, max_value)


def serialize(activation: Callable[..., Any]) -> Any:
    """Convert an activation to plain data.

    Args:
        activation: a function or layer.

    Returns:
        The name of one of Weft's functions, or the config of another function or of a layer.

    Example:
        >>> from weft import keras
        >>> keras.activations.serialize(keras.activations.relu)
        'relu'
    """
    public = registry.public_name(activation)
    if public is not None and registry.table("activations").find(public[1]) is activation:
        return public[1]
    return registry.serialize_keras_object(activation)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Construct an activation from the data of `serialize`.

    Args:
        config: a name or a config.
        custom_objects: further functions by name.

    Returns:
        A function or layer.

    Example:
        >>> from weft import keras
        >>> keras.activations.deserialize("relu") is keras.activations.relu
        True
    """
    return registry.deserialize_keras_object(config, custom_objects=custom_objects, kind="activations")


def get(identifier: Any) -> Any:
    """Return the activation for an argument `activation=`.

    Args:
        identifier: None (`linear`), a name, a config, a function or a layer.

    Returns:
        A function or layer.

    Example:
        >>> from weft import keras
        >>> keras.activations.get("relu") is keras.activations.relu
        True
    """
    if identifier is None:
        return linear
    if callable(identifier):
        return identifier
    if not isinstance(identifier, (str, dict)):
        raise ArgumentError("`activation` must be a name, a config, a function or a layer.", received=f"{identifier!r}")
    return registry.get("activations", identifier)


_publish(__name__)
dispatch.register_operations(
    "activations",
    *registry.functions_and_classes(__name__),
    swish=silu,
    hard_swish=hard_silu,
)
