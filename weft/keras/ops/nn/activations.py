"""Functions that layers apply to each element, and normalized exponentials."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import nn
from weft.errors import ArgumentError
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import inexact, operation, tensor, unary

hard_sigmoid = unary("hard_sigmoid", nn.hard_sigmoid, "`relu6(x + 3) / 6`.", "[-3.0, 0.0, 3.0] -> [0.  0.5 1. ]", True)
hard_silu = unary("hard_silu", nn.hard_silu, "`x * hard_sigmoid(x)`.", "[-3.0, 3.0] -> [-0.  3.]", True)
hard_swish = hard_silu
hard_tanh = unary("hard_tanh", nn.hard_tanh, "`x` limited to [-1, 1].", "[-3.0, 0.5] -> [-1.   0.5]")
log_sigmoid = unary("log_sigmoid", nn.log_sigmoid, "`log(sigmoid(x))`.", "[0.0] -> [-0.6931472]", True)
relu = unary("relu", nn.relu, "`max(x, 0)`.", "[-1.0, 2.0] -> [0. 2.]")
relu6 = unary("relu6", nn.relu6, "`min(max(x, 0), 6)`.", "[-1.0, 2.0, 9.0] -> [0. 2. 6.]", True)
selu = unary("selu", nn.selu, "The scaled exponential linear unit.", "[0.0, 1.0] -> [0.       1.050701]", True)
sigmoid = unary("sigmoid", nn.sigmoid, "`1 / (1 + exp(-x))`.", "[0.0] -> [0.5]", True)
silu = unary("silu", nn.silu, "`x * sigmoid(x)`.", "[0.0, 1.0] -> [0.        0.7310586]", True)
swish = silu
softplus = unary("softplus", nn.softplus, "`log(1 + exp(x))`.", "[0.0] -> [0.6931472]", True)
softsign = unary("softsign", nn.soft_sign, "`x / (1 + abs(x))`.", "[-1.0, 1.0] -> [-0.5  0.5]", True)
sparse_plus = unary(
    "sparse_plus",
    nn.sparse_plus,
    "0 below -1, `x` above 1, and a parabola.",
    "[-2.0, 0.0] -> [0.   0.25]",
    True,
)
sparse_sigmoid = unary(
    "sparse_sigmoid", nn.sparse_sigmoid, "0 below -1, 1 above 1, and a line.", "[-2.0, 0.0] -> [0.  0.5]", True
)
tanh_shrink = unary("tanh_shrink", lambda x: x - wnp.tanh(x), "`x - tanh(x)`.", "[0.0] -> [0.]", True)


@operation
@document("An array of floats of the same shape.", alpha="the limit for large negative elements is `-alpha`.")
def celu(x: Any, alpha: float = 1.0) -> Any:
    """Compute `max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))`."""
    return nn.celu(inexact(x), alpha)


@operation
@document("An array of floats of the same shape.", alpha="the limit for large negative elements is `-alpha`.")
def elu(x: Any, alpha: float = 1.0) -> Any:
    """Return `x` where it is positive, else `alpha * (exp(x) - 1)`."""
    return nn.elu(inexact(x), alpha)


@operation
@document(
    "An array of floats of the same shape.",
    "print(keras.ops.gelu([0.0, 1.0])) -> [0.       0.841192]",
    approximate="whether to use the approximation by `tanh`.",
)
def gelu(x: Any, approximate: bool = True) -> Any:
    """Multiply `x` by the normal distribution function of `x`."""
    return nn.gelu(inexact(x), approximate)


@operation
def glu(x: Any, axis: int = -1) -> Any:
    """Multiply one half of an array by the sigmoid of the other half.

    Args:
        x: an array whose axis has an even size.
        axis: the axis that is halved.

    Returns:
        An array of floats, half as long along the axis.
    """
    return nn.glu(inexact(x), axis)


@operation
@document("An array of floats of the same shape.")
def hard_shrink(x: Any, threshold: float = 0.5) -> Any:
    """Return `x` where it is further from 0 than a threshold, else 0."""
    x = inexact(x)
    return wnp.where(wnp.abs(x) > threshold, x, wnp.zeros_like(x))


@operation
@document("An array of floats of the same shape.", negative_slope="the derivative for negative elements.")
def leaky_relu(x: Any, negative_slope: float = 0.2) -> Any:
    """Return `x` where it is positive, else `negative_slope * x`."""
    return nn.leaky_relu(inexact(x), negative_slope)


@operation
@document("An array of floats of the same shape.")
def soft_shrink(x: Any, threshold: float = 0.5) -> Any:
    """Move `x` towards 0 by a threshold; values that are nearer become 0."""
    x = inexact(x)
    return wnp.where(x > threshold, x - threshold, wnp.where(x < -threshold, x + threshold, wnp.zeros_like(x)))


@operation
@document("An array of floats of the same shape.", b="how smooth; 0 is `relu`.")
def squareplus(x: Any, b: float = 4) -> Any:
    """Compute `(x + sqrt(x**2 + b)) / 2`, a smooth `relu`."""
    return nn.squareplus(inexact(x), b)


@operation
@document("An array of floats of the same shape.", default_value="the value of the others.")
def threshold(x: Any, threshold: float, default_value: float) -> Any:
    """Return `x` where it is above a threshold, else another value."""
    x = inexact(x)
    return wnp.where(x > threshold, x, wnp.asarray(default_value, x.dtype))


@operation
@document(
    "An array of floats of the same shape.",
    "print(keras.ops.softmax([0.0, 0.0])) -> [0.5 0.5]",
    axis="the axis or axes along which they sum to 1; all of them if None.",
)
def softmax(x: Any, axis: Any = -1) -> Any:
    """Divide exponentials by their sum, so that they are positive and sum to 1."""
    return _along(nn.softmax, x, axis)


@operation
@document(
    "An array of floats of the same shape.",
    "print(keras.ops.log_softmax([0.0, 0.0])) -> [-0.6931472 -0.6931472]",
    axis="the axis or axes along which the exponentials sum to 1; all of them if None.",
)
def log_softmax(x: Any, axis: Any = -1) -> Any:
    """Compute the logarithm of `softmax`, without overflow."""
    return _along(nn.log_softmax, x, axis)


def _along(function: Any, x: Any, axis: Any) -> Any:
    x = inexact(x)
    return function(x, axis=tuple(range(x.ndim)) if axis is None else tuple(axis) if isinstance(axis, list) else axis)


@operation
@document("An array of floats of the same shape; many elements are 0.", axis="the axis along which they sum to 1.")
def sparsemax(x: Any, axis: int = -1) -> Any:
    """Project `x` to the nearest point whose elements are not negative and sum to 1."""
    x = inexact(tensor(x))
    if not -x.ndim <= axis < x.ndim:
        raise ArgumentError(f"An array of rank {x.ndim} has no axis {axis}.", received=f"shape {x.shape}")
    axis = axis % x.ndim
    ordered = wnp.flip(wnp.sort(x, axis), axis)
    ranks = wnp.arange(1, x.shape[axis] + 1, dtype=x.dtype).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    sums = wnp.cumsum(ordered, axis)
    support = wnp.sum(1 + ranks * ordered > sums, axis, keepdims=True)
    total = wnp.sum(wnp.where(ranks <= support, ordered, 0), axis, keepdims=True)
    return wnp.maximum(x - (total - 1) / support.astype(x.dtype), 0)
