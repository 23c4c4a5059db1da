"""Elementwise activation functions."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.api.custom import custom_jvp
from weft.api.jit import jit
from weft.base.errors import ArgumentError
from weft.nn.argument_docs import document
from weft.numpy.util import canonicalize_axis, check_arraylike, ensure_array, promote_args_inexact
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def inexact(name: str, x: Any) -> Array:
    """Convert the argument of the function `name` to an array of floats or complex numbers."""
    check_arraylike(name, x)
    return ensure_array(promote_args_inexact(name, x)[0])


@document("An array.", "nn.identity(wnp.array([1.0])) -> Array([1.], dtype=float32)", x="an array or a number.")
def identity(x: ArrayLike) -> Array:
    """Return x unchanged, as an array."""
    check_arraylike("identity", x)
    return ensure_array(x)


# ---------------------------------------------------------------------------------------------------------- rectifiers


@custom_jvp
@jit
@document("An array of the shape of `x`.", "nn.relu(wnp.array([-1.0, 0.0, 2.0])) -> Array([0., 0., 2.], dtype=float32)")
def relu(x: Any) -> Array:
    """Compute max(x, 0) element-wise, with derivative 0 at 0."""
    return wnp.maximum(x, 0)


relu.defjvps(lambda tangent, out, x: wnp.where(x > 0, tangent, wnp.zeros_like(tangent)))


@custom_jvp
@jit
@document(
    "An array of the shape of `x`.", "nn.relu6(wnp.array([-1.0, 3.0, 9.0])) -> Array([0., 3., 6.], dtype=float32)"
)
def relu6(x: Any) -> Array:
    """Compute min(max(x, 0), 6) element-wise, with derivative 0 at 0 and 6."""
    return wnp.minimum(wnp.maximum(x, 0), 6.0)


relu6.defjvps(lambda tangent, out, x: wnp.where((x > 0) & (x < 6), tangent, wnp.zeros_like(tangent)))


@jit
@document(
    "An array of the shape of `x`.",
    "nn.leaky_relu(wnp.array([-1.0, 2.0])) -> Array([-0.01,  2.  ], dtype=float32)",
    negative_slope="the factor for negative numbers.",
)
def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Array:
    """Compute x where x >= 0, and negative_slope * x elsewhere."""
    check_arraylike("leaky_relu", x)
    return wnp.where(wnp.greater_equal(x, 0), x, negative_slope * x)


@jit
@document(
    "An array of the shape of `x`. It does not overflow, and neither does its derivative.",
    "nn.elu(wnp.array([-1.0, 2.0])).round(3) -> Array([-0.632,  2.   ], dtype=float32)",
    alpha="minus the limit for very negative numbers.",
)
def elu(x: Any, alpha: Any = 1.0) -> Array:
    """Compute x where x > 0, and alpha * (exp(x) - 1) elsewhere."""
    check_arraylike("elu", x)
    # Positive numbers are masked before the exponential: an overflow would make the derivative NaN.
    positive = wnp.greater(x, 0)
    return wnp.where(positive, x, alpha * wnp.expm1(wnp.where(positive, 0.0, x)))


@jit
@document(
    "An array of the shape of `x`.",
    "nn.selu(wnp.array([-1.0, 2.0])).round(3) -> Array([-1.111,  2.101], dtype=float32)",
)
def selu(x: Any) -> Array:
    """Compute the self-normalizing unit: elu with the alpha and scale that preserve mean 0 and variance 1."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


@jit
@document(
    "An array of the shape of `x`.",
    "nn.celu(wnp.array([-1.0, 2.0])).round(3) -> Array([-0.632,  2.   ], dtype=float32)",
    alpha="minus the limit for very negative numbers.",
)
def celu(x: Any, alpha: Any = 1.0) -> Array:
    """Compute max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1), which is smooth for every alpha."""
    return wnp.maximum(x, 0.0) + alpha * wnp.expm1(wnp.minimum(x, 0.0) / alpha)


# ---------------------------------------------------------------------------------------------------- smooth and gated


@jit
@document(
    "An array of the shape of `x`, without overflow.",
    "nn.softplus(wnp.array([0.0, 100.0])).round(3) -> Array([  0.693, 100.   ], dtype=float32)",
)
def softplus(x: Any) -> Array:
    """Compute log(1 + exp(x)) element-wise."""
    return wnp.logaddexp(x, 0)


@jit
def sparse_plus(x: Any) -> Array:
    """Compute 0 below -1, x above 1, and (x + 1)² / 4 in between."""
    check_arraylike("sparse_plus", x)
    x = ensure_array(x)
    return wnp.where(x <= -1.0, 0.0, wnp.where(x >= 1.0, x, (x + 1.0) ** 2 / 4))


@jit
def squareplus(x: Any, b: Any = 4) -> Array:
    """Compute (x + sqrt(x² + b)) / 2, a softplus without exponentials."""
    check_arraylike("squareplus", x, b)
    x = ensure_array(x)
    return (x + wnp.sqrt(wnp.square(x) + b)) / 2


@jit
@document(
    "An array of the shape of `x`.",
    "nn.mish(wnp.array([-1.0, 2.0])).round(3) -> Array([-0.303,  1.944], dtype=float32)",
    x="an array or a number.",
)
def mish(x: Any) -> Array:
    """Compute x tanh(softplus(x)) element-wise."""
    check_arraylike("mish", x)
    x = ensure_array(x)
    return x * wnp.tanh(softplus(x))


@document(
    "An array of the shape of `x`.",
    "nn.gelu(wnp.array([-1.0, 2.0]), approximate=False).round(3) -> Array([-0.159,  1.954], dtype=float32)",
    approximate="whether to use the formula with tanh, which is faster; otherwise the error function.",
)
def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """Compute x times the normal distribution function at x; with `approximate` by a formula with tanh."""
    x = inexact("gelu", x)
    if not approximate:
        return 0.5 * x * lax.erfc(-x * np.array(math.sqrt(0.5), x.dtype))
    inner = np.array(math.sqrt(2 / math.pi), x.dtype) * (x + 0.044715 * (x**3))
    return x * (0.5 * (1.0 + wnp.tanh(inner)))


@jit
@document(
    "An array of the shape of `x`.",
    "nn.silu(wnp.array([-1.0, 2.0])).round(3) -> Array([-0.269,  1.762], dtype=float32)",
)
def silu(x: Any) -> Array:
    """Compute x sigmoid(x) element-wise, also called swish."""
    check_arraylike("silu", x)
    x = ensure_array(x)
    return x * sigmoid(x)


swish = silu


@functools.partial(jit, static_argnames=("axis",))
@document(
    "An array of half the size along the axis.",
    "nn.glu(wnp.array([1.0, 2.0, 0.0, 0.0])) -> Array([0.5, 1. ], dtype=float32)",
    axis="the axis, of even size.",
)
def glu(x: Any, axis: int = -1) -> Array:
    """Gate the first half along an axis by the sigmoid of the second half."""
    check_arraylike("glu", x)
    x = ensure_array(x)
    size = x.shape[canonicalize_axis(axis, x.ndim, "glu")]
    if size % 2:
        raise ArgumentError(f"glu needs an axis of even size, but axis {axis} has the odd size {size}.")
    values, gates = wnp.split(x, 2, axis)
    return values * sigmoid(gates)


# ---------------------------------------------------------------------------------------------------------- saturating


@document(
    "An array of the shape of `x`.",
    "nn.sigmoid(wnp.array([0.0, 2.0])).round(3) -> Array([0.5  , 0.881], dtype=float32)",
)
def sigmoid(x: ArrayLike) -> Array:
    """Compute 1 / (1 + exp(-x)) element-wise."""
    return lax.logistic(x)


@jit
@document(
    "An array of the shape of `x`.",
    "nn.log_sigmoid(wnp.array([0.0, -100.0])).round(3) -> Array([  -0.693, -100.   ], dtype=float32)",
)
def log_sigmoid(x: Any) -> Array:
    """Compute log(sigmoid(x)) element-wise, without underflow for very negative x."""
    check_arraylike("log_sigmoid", x)
    return -softplus(wnp.negative(x))


@jit
def sparse_sigmoid(x: Any) -> Array:
    """Compute the derivative of sparse_plus: 0 below -1, 1 above 1, (x + 1) / 2 in between."""
    check_arraylike("sparse_sigmoid", x)
    return 0.5 * wnp.clip(ensure_array(x) + 1.0, 0.0, 2.0)


@jit
@document(
    "An array of the shape of `x`.", "nn.soft_sign(wnp.array([-1.0, 3.0])) -> Array([-0.5 ,  0.75], dtype=float32)"
)
def soft_sign(x: Any) -> Array:
    """Compute x / (|x| + 1) element-wise."""
    check_arraylike("soft_sign", x)
    x = ensure_array(x)
    return x / (wnp.abs(x) + 1)


@jit
@document(
    "An array of the shape of `x`.",
    "nn.hard_tanh(wnp.array([-3.0, 0.5])) -> Array([-1. ,  0.5], dtype=float32)",
    x="an array or a number.",
)
def hard_tanh(x: Any) -> Array:
    """Clip x to between -1 and 1."""
    check_arraylike("hard_tanh", x)
    x = ensure_array(x)
    raised = x if wnp.issubdtype(x.dtype, wnp.unsignedinteger) else wnp.where(x < -1, -1, x)
    return wnp.where(x > 1, 1, raised)


@jit
@document(
    "An array of the shape of `x`.",
    "nn.hard_sigmoid(wnp.array([-4.0, 0.0, 4.0])) -> Array([0. , 0.5, 1. ], dtype=float32)",
)
def hard_sigmoid(x: Any) -> Array:
    """Compute relu6(x + 3) / 6 element-wise."""
    check_arraylike("hard_sigmoid", x)
    return relu6(ensure_array(x) + 3.0) / 6.0


@jit
def hard_silu(x: Any) -> Array:
    """Compute x hard_sigmoid(x) element-wise, also called hard swish."""
    check_arraylike("hard_silu", x)
    x = ensure_array(x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


@custom_jvp
@jit
def log1mexp(x: Any) -> Array:
    """Compute log(1 - exp(-x)) for x > 0, accurately for small and for large x."""
    x = inexact("log1mexp", x)
    return wnp.where(x < math.log(2), wnp.log(-wnp.expm1(-x)), wnp.log1p(-wnp.exp(-x)))


log1mexp.defjvps(lambda tangent, out, x: tangent / wnp.expm1(x))
