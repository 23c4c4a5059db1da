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
from weft.numpy.util import canonicalize_axis, check_arraylike, ensure_array, promote_args_inexact
from weft.trace.array import Array


def inexact(name: str, x: Any) -> Array:
    """Convert the argument of the function `name` to an array of floats or complex numbers."""
    check_arraylike(name, x)
    return ensure_array(promote_args_inexact(name, x)[0])


def identity(x: Any) -> Array:
    """Return x unchanged, as an array.

    Args:
        x: an array or a number.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.identity(wnp.array([1.0]))
    Array([1.], dtype=float32)
    """
    check_arraylike("identity", x)
    return ensure_array(x)


# ---------------------------------------------------------------------------------------------------------- rectifiers


@custom_jvp
@jit
def relu(x: Any) -> Array:
    """Compute max(x, 0) element-wise, with derivative 0 at 0.

    Args:
        x: an array or a number; integers are converted to floats.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.relu(wnp.array([-1.0, 0.0, 2.0]))
    Array([0., 0., 2.], dtype=float32)
    """
    return wnp.maximum(x, 0)


relu.defjvps(lambda tangent, out, x: wnp.where(x > 0, tangent, wnp.zeros_like(tangent)))


@custom_jvp
@jit
def relu6(x: Any) -> Array:
    """Compute min(max(x, 0), 6) element-wise, with derivative 0 at 0 and 6.

    Args:
        x: an array or a number; integers are converted to floats.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.relu6(wnp.array([-1.0, 3.0, 9.0]))
    Array([0., 3., 6.], dtype=float32)
    """
    return wnp.minimum(wnp.maximum(x, 0), 6.0)


relu6.defjvps(lambda tangent, out, x: wnp.where((x > 0) & (x < 6), tangent, wnp.zeros_like(tangent)))


@jit
def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Array:
    """Compute x where x >= 0, and negative_slope * x elsewhere.

    Args:
        x: an array or a number; integers are converted to floats.
        negative_slope: the factor for negative numbers.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.leaky_relu(wnp.array([-1.0, 2.0]))
    Array([-0.01,  2.  ], dtype=float32)
    """
    check_arraylike("leaky_relu", x)
    return wnp.where(wnp.greater_equal(x, 0), x, negative_slope * x)


@jit
def elu(x: Any, alpha: Any = 1.0) -> Array:
    """Compute x where x > 0, and alpha * (exp(x) - 1) elsewhere.

    Args:
        x: an array or a number; integers are converted to floats.
        alpha: minus the limit for very negative numbers.

    Returns:
        An array of the shape of `x`. It does not overflow, and neither does its derivative.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.elu(wnp.array([-1.0, 2.0])).round(3)
    Array([-0.632,  2.   ], dtype=float32)
    """
    check_arraylike("elu", x)
    # Positive numbers are masked before the exponential: an overflow would make the derivative NaN.
    positive = wnp.greater(x, 0)
    return wnp.where(positive, x, alpha * wnp.expm1(wnp.where(positive, 0.0, x)))


@jit
def selu(x: Any) -> Array:
    """Compute the self-normalizing unit: elu with the alpha and scale that preserve mean 0 and variance 1.

    Args:
        x: an array or a number; integers are converted to floats.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.selu(wnp.array([-1.0, 2.0])).round(3)
    Array([-1.111,  2.101], dtype=float32)
    """
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


@jit
def celu(x: Any, alpha: Any = 1.0) -> Array:
    """Compute max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1), which is smooth for every alpha.

    Args:
        x: an array or a number; integers are converted to floats.
        alpha: minus the limit for very negative numbers.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.celu(wnp.array([-1.0, 2.0])).round(3)
    Array([-0.632,  2.   ], dtype=float32)
    """
    return wnp.maximum(x, 0.0) + alpha * wnp.expm1(wnp.minimum(x, 0.0) / alpha)


# ---------------------------------------------------------------------------------------------------- smooth and gated


@jit
def softplus(x: Any) -> Array:
    """Compute log(1 + exp(x)) element-wise.

    Args:
        x: an array or a number; integers are converted to floats.

    Returns:
        An array of the shape of `x`, without overflow.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.softplus(wnp.array([0.0, 100.0])).round(3)
    Array([  0.693, 100.   ], dtype=float32)
    """
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
def mish(x: Any) -> Array:
    """Compute x tanh(softplus(x)) element-wise.

    Args:
        x: an array or a number.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.mish(wnp.array([-1.0, 2.0])).round(3)
    Array([-0.303,  1.944], dtype=float32)
    """
    check_arraylike("mish", x)
    x = ensure_array(x)
    return x * wnp.tanh(softplus(x))


def gelu(x: Any, approximate: bool = True) -> Array:
    """Compute x times the normal distribution function at x; with `approximate` by a formula with tanh.

    Args:
        x: an array or a number; integers are converted to floats.
        approximate: whether to use the formula with tanh, which is faster; otherwise the error function.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.gelu(wnp.array([-1.0, 2.0]), approximate=False).round(3)
    Array([-0.159,  1.954], dtype=float32)
    """
    x = inexact("gelu", x)
    if not approximate:
        return 0.5 * x * lax.erfc(-x * np.array(math.sqrt(0.5), x.dtype))
    inner = np.array(math.sqrt(2 / math.pi), x.dtype) * (x + 0.044715 * (x**3))
    return x * (0.5 * (1.0 + wnp.tanh(inner)))


@jit
def silu(x: Any) -> Array:
    """Compute x sigmoid(x) element-wise, also called swish.

    Args:
        x: an array or a number; integers are converted to floats.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.silu(wnp.array([-1.0, 2.0])).round(3)
    Array([-0.269,  1.762], dtype=float32)
    """
    check_arraylike("silu", x)
    x = ensure_array(x)
    return x * sigmoid(x)


swish = silu


@functools.partial(jit, static_argnames=("axis",))
def glu(x: Any, axis: int = -1) -> Array:
    """Gate the first half along an axis by the sigmoid of the second half.

    Args:
        x: an array or a number; integers are converted to floats.
        axis: the axis, of even size.

    Returns:
        An array of half the size along the axis.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.glu(wnp.array([1.0, 2.0, 0.0, 0.0]))
    Array([0.5, 1. ], dtype=float32)
    """
    check_arraylike("glu", x)
    x = ensure_array(x)
    size = x.shape[canonicalize_axis(axis, x.ndim, "glu")]
    if size % 2:
        raise ArgumentError(f"glu needs an axis of even size, but axis {axis} has the odd size {size}.")
    values, gates = wnp.split(x, 2, axis)
    return values * sigmoid(gates)


# ---------------------------------------------------------------------------------------------------------- saturating


def sigmoid(x: Any) -> Array:
    """Compute 1 / (1 + exp(-x)) element-wise.

    Args:
        x: an array or a number; integers are converted to floats.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.sigmoid(wnp.array([0.0, 2.0])).round(3)
    Array([0.5  , 0.881], dtype=float32)
    """
    return lax.logistic(x)


@jit
def log_sigmoid(x: Any) -> Array:
    """Compute log(sigmoid(x)) element-wise, without underflow for very negative x.

    Args:
        x: an array or a number; integers are converted to floats.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.log_sigmoid(wnp.array([0.0, -100.0])).round(3)
    Array([  -0.693, -100.   ], dtype=float32)
    """
    check_arraylike("log_sigmoid", x)
    return -softplus(wnp.negative(x))


@jit
def sparse_sigmoid(x: Any) -> Array:
    """Compute the derivative of sparse_plus: 0 below -1, 1 above 1, (x + 1) / 2 in between."""
    check_arraylike("sparse_sigmoid", x)
    return 0.5 * wnp.clip(ensure_array(x) + 1.0, 0.0, 2.0)


@jit
def soft_sign(x: Any) -> Array:
    """Compute x / (|x| + 1) element-wise.

    Args:
        x: an array or a number; integers are converted to floats.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.soft_sign(wnp.array([-1.0, 3.0]))
    Array([-0.5 ,  0.75], dtype=float32)
    """
    check_arraylike("soft_sign", x)
    x = ensure_array(x)
    return x / (wnp.abs(x) + 1)


@jit
def hard_tanh(x: Any) -> Array:
    """Clip x to between -1 and 1.

    Args:
        x: an array or a number.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.hard_tanh(wnp.array([-3.0, 0.5]))
    Array([-1. ,  0.5], dtype=float32)
    """
    check_arraylike("hard_tanh", x)
    x = ensure_array(x)
    raised = x if wnp.issubdtype(x.dtype, wnp.unsignedinteger) else wnp.where(x < -1, -1, x)
    return wnp.where(x > 1, 1, raised)


@jit
def hard_sigmoid(x: Any) -> Array:
    """Compute relu6(x + 3) / 6 element-wise.

    Args:
        x: an array or a number; integers are converted to floats.

    Returns:
        An array of the shape of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> nn.hard_sigmoid(wnp.array([-4.0, 0.0, 4.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
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
