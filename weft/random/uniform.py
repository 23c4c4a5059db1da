"""Uniform numbers, and distributions that are one formula away from them.

All formulas follow the order of operations of JAX, so that draws agree with its own up to rounding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.api.jit import jit
from weft.api.shardings import takes_out_sharding
from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.numpy.util import as_shape, broadcast_shape, cast, check_arraylike, combining_ranks, get_shape
from weft.random.argument_docs import document
from weft.random.keys import draw_bits, one_key
from weft.trace.annotations import ArrayLike, DTypeLike, Shape
from weft.trace.array import Array


def sampler(function: Callable[..., Any], static: tuple[str, ...] = ("shape", "dtype")) -> Callable[..., Any]:
    """Stage a drawing function once for each shape and dtype, so that a draw is one equation of its jaxpr.

    Its parameters may broadcast to the shape of the draws, whatever the setting `numpy_rank_promotion` says.
    """
    return jit(combining_ranks(function), static_argnames=static)


def real_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Return the dtype of a draw of real numbers; the default float for None."""
    found = dtypes.requested_dtype(float if dtype is None else dtype, name)
    if dtypes.kind(found) != "f":
        raise ArgumentError(f"The dtype of {name} must be a float type, got dtype={dtypes.name(found)}.")
    assert isinstance(found, np.dtype)
    return found


def integer_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Return the dtype of a draw of integers; the default integer for None."""
    found = dtypes.requested_dtype(int if dtype is None else dtype, name)
    if dtypes.kind(found) not in "iu":
        raise ArgumentError(f"The dtype of {name} must be an integer type, got dtype={dtypes.name(found)}.")
    assert isinstance(found, np.dtype)
    return found


def parameters(name: str, dtype: Any, *values: Any) -> list[Any]:
    """Convert the parameters of a distribution to the dtype of its draws."""
    check_arraylike(name, *values)
    return [cast(value, dtype) for value in values]


def draw_shape(name: str, shape: Any, *parameter_shapes: Sequence[Any]) -> tuple[Any, ...]:
    """Return the shape of a draw: `shape`, to which the parameters must broadcast, or what they broadcast to."""
    if shape is None:
        return broadcast_shape(name, *map(tuple, parameter_shapes))
    found = as_shape(shape)
    if broadcast_shape(name, found, *map(tuple, parameter_shapes)) != found:
        raise ArgumentError(
            f"{name} got shape={found}, to which its parameters of shape {', '.join(map(str, parameter_shapes))} do "
            f"not broadcast. Leave shape out, or include the parameters' dimensions in it."
        )
    return found


# ------------------------------------------------------------------------------------------------------------- uniform


@takes_out_sharding
def uniform(
    key: ArrayLike, shape: Shape = (), dtype: DTypeLike | None = None, minval: ArrayLike = 0.0, maxval: ArrayLike = 1.0
) -> Array:
    """Draw numbers uniformly distributed over minval <= x < maxval.

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        shape: the shape of the result.
        dtype: a floating-point dtype; float32 by default.
        minval, maxval: the limits, numbers or arrays that broadcast to the shape; `maxval` is not included.

    Returns:
        Floats.

    >>> from weft import random
    >>> random.uniform(random.key(0), (2,)).round(3)
    Array([0.948, 0.979], dtype=float32)
    """
    typed, _ = one_key("uniform", key)
    found = real_dtype("uniform", dtype)
    if type(minval) in (int, float) and type(maxval) in (int, float) and minval == 0 and maxval == 1:
        return _standard_uniform(typed, shape=as_shape(shape), dtype=found)
    low, high = parameters("uniform", found, minval, maxval)
    sizes = draw_shape("uniform", as_shape(shape), get_shape(low), get_shape(high))
    return _uniform(typed, low, high, shape=sizes, dtype=found)


@sampler
def _standard_uniform(key: Array, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    return draw_uniform(key, shape, dtype)


@sampler
def _uniform(key: Array, minval: Any, maxval: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    return between(draw_uniform(key, shape, dtype), minval, maxval)


def draw_uniform(keys: Array, shape: tuple[Any, ...], dtype: np.dtype[Any], minval: Any = None) -> Array:
    """Draw uniform numbers from 0, or from `minval` in [-1, 1), up to 1, of `shape` for each of the keys.

    They are random mantissas under the exponent of 1, less 1.
    """
    limits = dtypes.finfo(dtype)
    width = 8 if limits.nmant <= 8 else dtype.itemsize * 8  # no more random bits than the mantissa can take
    unsigned = np.dtype(f"uint{dtype.itemsize * 8}")
    bits = lax.convert_element_type(draw_bits(keys, shape, np.dtype(f"uint{width}")), unsigned)
    one = np.array(1, dtype)
    mantissas = lax.shift_right_logical(bits, np.array(width - limits.nmant, unsigned))
    floats = lax.bitcast_convert_type(lax.bitwise_or(mantissas, one.view(unsigned)), dtype) - one
    if minval is None:
        return floats
    low = np.array(minval, dtype)
    return wnp.maximum(low, floats * (one - low) + low)


def between(floats: Array, low: Any, high: Any) -> Array:
    """Scale numbers of [0, 1) to [low, high)."""
    span = wnp.subtract(high, low)
    if floats.dtype not in (dtypes.float32, dtypes.float64):
        return wnp.maximum(low, floats * span + low)
    return wnp.maximum(low, fused_multiply_add(floats, span, low))


def fused_multiply_add(x: Array, y: Any, z: Any) -> Array:
    """Compute x * y + z as if rounded once: the rounding errors are computed and added back (Dekker 1971)."""
    product = x * y
    total = product + z
    x_high, x_low = _halves(x)
    y_high, y_low = _halves(y)
    lost = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    back = total - product
    lost = lost + ((product - (total - back)) + (z - back))
    return wnp.where(wnp.isfinite(lost), total + lost, total)  # halving overflows for numbers near the largest


def _halves(x: Any) -> tuple[Any, Any]:
    """Split x into a sum of two numbers with half as many bits each."""
    factor = np.array(2**12 + 1 if x.dtype == dtypes.float32 else 2**27 + 1, x.dtype)
    scaled = wnp.multiply(x, factor)
    high = scaled - wnp.subtract(scaled, x)
    return high, wnp.subtract(x, high)


# -------------------------------------------------------------------------------------------- one formula from uniform


@takes_out_sharding
@document(
    "Floats from 0 up.", "random.exponential(random.key(0), (1000,)).mean().round() == 1 -> Array(True, dtype=bool)"
)
def exponential(key: ArrayLike, shape: Shape = (), dtype: DTypeLike | None = None) -> Array:
    """Draw standard exponential numbers, of density exp(-x)."""
    typed, _ = one_key("exponential", key)
    return _exponential(typed, shape=as_shape(shape), dtype=real_dtype("exponential", dtype))


@sampler
def _exponential(key: Array, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    # 1 - u is in (0, 1], so the logarithm is finite.
    return -lax.log1p(-draw_uniform(key, shape, dtype))


@takes_out_sharding
@document("Floats.", "random.gumbel(random.key(0), (2,)).shape -> (2,)", mode='"low", "high" or "highest".')
def gumbel(key: ArrayLike, shape: Shape = (), dtype: DTypeLike | None = None, mode: str | None = None) -> Array:
    """Draw standard Gumbel numbers, -log(-log u).

    Mode 'high' resolves the right tail with twice the bits of 'low', and 'highest' both tails; in other dtypes than
    float32 that is the same as 'high'."""
    typed, _ = one_key("gumbel", key)
    if mode not in (None, "low", "high", "highest"):
        raise ArgumentError(f"The mode of gumbel must be 'highest', 'high' or 'low', got mode={mode!r}.")
    return _gumbel(typed, shape=as_shape(shape), dtype=real_dtype("gumbel", dtype), mode=mode or "low")


@functools.partial(sampler, static=("shape", "dtype", "mode"))
def _gumbel(key: Array, *, shape: tuple[Any, ...], dtype: np.dtype[Any], mode: str) -> Array:
    limits = dtypes.finfo(dtype)
    if mode == "low":
        return -lax.log(-lax.log(draw_uniform(key, shape, dtype, minval=limits.tiny)))
    if mode == "highest" and dtype == np.float32:
        return _finest_gumbel(key, shape)
    pair = draw_uniform(key, (2, *shape), dtype)
    high, low = (lax.index_in_dim(pair, i, keepdims=False) for i in range(2))
    refined = high + np.array(limits.eps, dtype) * low + np.array(limits.tiny, dtype)
    # Below one half the spacing of floats is finer than the step of `high`: `low` fills it in.
    x = wnp.where(high >= np.array(0.5, dtype), high, refined)
    return -lax.log(-lax.log1p(-x))


def _finest_gumbel(key: Array, shape: tuple[Any, ...]) -> Array:
    """Draw Gumbel numbers from a fraction u of 64 bits; above a half, the distance from 1 is converted."""
    pair = draw_bits(key, (2, *shape), dtypes.uint32)
    high, low = (lax.index_in_dim(pair, i, keepdims=False) for i in range(2))
    one, half = np.uint32(1), np.uint32(2**31)
    small = high < half
    borrowed = lax.convert_element_type(low == np.uint32(0), dtypes.uint32)
    high = wnp.where(small, high, lax.add(lax.bitwise_not(high), borrowed))
    low = wnp.where(small, low, lax.add(lax.bitwise_not(low), one))
    x = _fraction(high, low)
    return wnp.where(small, -lax.log(-lax.log1p(-x)), -lax.log(-lax.log(x)))


def _fraction(high: Array, low: Array) -> Array:
    """Compute the fraction (high * 2**32 + low) / 2**64 as a float32, rounded towards zero; at least 2**-65."""
    zeros, more = lax.clz(high), lax.clz(low)
    empty = high == np.uint32(0)
    follow = lax.shift_right_logical(low, lax.sub(np.uint32(32), zeros))
    top = lax.bitwise_or(lax.shift_left(high, zeros), follow)
    top = wnp.where(empty, lax.shift_left(low, more), top)
    exponent = lax.sub(np.uint32(126), wnp.where(empty, lax.add(zeros, more), zeros))
    digits = lax.bitwise_and(lax.shift_right_logical(top, np.uint32(8)), np.uint32(2**23 - 1))
    bits = lax.bitwise_or(lax.shift_left(exponent, np.uint32(23)), digits)
    return lax.bitcast_convert_type(bits, dtypes.float32)


@takes_out_sharding
@document("Floats.", "random.laplace(random.key(0), (2,)).shape -> (2,)")
def laplace(key: ArrayLike, shape: Shape = (), dtype: DTypeLike | None = None) -> Array:
    """Draw standard Laplace numbers, of density exp(-|x|) / 2."""
    typed, _ = one_key("laplace", key)
    return _laplace(typed, shape=as_shape(shape), dtype=real_dtype("laplace", dtype))


@sampler
def _laplace(key: Array, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    u = draw_uniform(key, shape, dtype, minval=-1 + dtypes.finfo(dtype).epsneg)
    return lax.sign(u) * lax.log1p(-lax.abs(u))


@takes_out_sharding
@document("Floats.", "random.logistic(random.key(0), (2,)).shape -> (2,)")
def logistic(key: ArrayLike, shape: Shape = (), dtype: DTypeLike | None = None) -> Array:
    """Draw standard logistic numbers, the logit of a uniform one."""
    typed, _ = one_key("logistic", key)
    return _logistic(typed, shape=as_shape(shape), dtype=real_dtype("logistic", dtype))


@sampler
def _logistic(key: Array, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    u = draw_uniform(key, shape, dtype, minval=dtypes.finfo(dtype).tiny)
    return lax.log(u) - lax.log1p(-u)


@takes_out_sharding
@document("Floats.", "random.cauchy(random.key(0), (2,)).shape -> (2,)")
def cauchy(key: ArrayLike, shape: Shape = (), dtype: DTypeLike | None = None) -> Array:
    """Draw standard Cauchy numbers, of density 1 / (pi (1 + x²))."""
    typed, _ = one_key("cauchy", key)
    return _cauchy(typed, shape=as_shape(shape), dtype=real_dtype("cauchy", dtype))


@sampler
def _cauchy(key: Array, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    u = draw_uniform(key, shape, dtype, minval=dtypes.finfo(dtype).eps)
    return lax.tan(np.array(math.pi, dtype) * (u - np.array(0.5, dtype)))


@takes_out_sharding
def pareto(key: ArrayLike, b: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None) -> Array:
    """Draw Pareto numbers, of density b / x^(b + 1) for x >= 1."""
    typed, _ = one_key("pareto", key)
    found = real_dtype("pareto", dtype)
    (power,) = parameters("pareto", found, b)
    return _pareto(typed, power, shape=draw_shape("pareto", shape, get_shape(power)), dtype=found)


@sampler
def _pareto(key: Array, b: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    return wnp.exp(_exponential(key, shape=shape, dtype=dtype) / b)


@takes_out_sharding
def rayleigh(key: ArrayLike, scale: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None) -> Array:
    """Draw Rayleigh numbers, of density x / s² exp(-x² / 2s²) for x >= 0 with scale s."""
    typed, _ = one_key("rayleigh", key)
    found = real_dtype("rayleigh", dtype)
    (scale,) = parameters("rayleigh", found, scale)
    return _rayleigh(typed, scale, shape=draw_shape("rayleigh", shape, get_shape(scale)), dtype=found)


@sampler
def _rayleigh(key: Array, scale: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    return scale * wnp.sqrt(lax.log(draw_uniform(key, shape, dtype)) * np.array(-2, dtype))


def weibull_min(
    key: ArrayLike, scale: ArrayLike, concentration: Any, shape: Shape = (), dtype: DTypeLike | None = None
) -> Array:
    """Draw Weibull numbers: the power 1 / concentration of exponential ones, times scale.

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        scale, concentration: positive parameters.
        shape: the shape of the result.
        dtype: a floating-point dtype; float32 by default.

    Returns:
        Floats from 0 up.

    >>> from weft import random
    >>> random.weibull_min(random.key(0), 1.0, 2.0, (2,)).shape
    (2,)
    """
    typed, _ = one_key("weibull_min", key)
    found = real_dtype("weibull_min", dtype)
    scale, concentration = parameters("weibull_min", found, scale, concentration)
    return _weibull_min(typed, scale, concentration, shape=as_shape(shape), dtype=found)


@sampler
def _weibull_min(key: Array, scale: Any, concentration: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    power = wnp.divide(np.array(1, dtype), concentration)
    return wnp.power(-lax.log1p(-draw_uniform(key, shape, dtype)), power) * scale


@takes_out_sharding
def triangular(
    key: ArrayLike,
    left: ArrayLike,
    mode: Any,
    right: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Draw numbers between left and right whose density is a triangle with its peak at mode."""
    typed, _ = one_key("triangular", key)
    found = real_dtype("triangular", dtype)
    left, mode, right = parameters("triangular", found, left, mode, right)
    shape = draw_shape("triangular", shape, get_shape(left), get_shape(mode), get_shape(right))
    return _triangular(typed, left, mode, right, shape=shape, dtype=found)


@sampler
def _triangular(key: Array, left: Any, mode: Any, right: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    left, mode, right = (wnp.broadcast_to(x, shape) for x in (left, mode, right))
    peak = (mode - left) / (right - left)
    u = draw_uniform(key, shape, dtype)
    rising = left + wnp.sqrt(u * (right - left) * (mode - left))
    falling = right - wnp.sqrt((np.array(1, dtype) - u) * (right - left) * (right - mode))
    return wnp.where(u < peak, rising, falling)
