"""Gamma numbers, drawn by rejection and differentiable in their parameter, and distributions derived from them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.api.custom import custom_jvp
from weft.api.jit import jit
from weft.api.shardings import takes_out_sharding
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError
from weft.numpy.util import as_shape, get_shape
from weft.primitives.random.bits import random_split
from weft.random.argument_docs import document
from weft.random.discrete import draw_rademacher
from weft.random.keys import one_key, split_keys
from weft.random.normal import draw_normal
from weft.random.uniform import draw_shape, draw_uniform, exponential, parameters, real_dtype, sampler
from weft.trace.annotations import ArrayLike, DTypeLike, Shape
from weft.trace.array import Array


@takes_out_sharding
@document(
    "Floats, with derivatives with respect to `a`.",
    "random.gamma(random.key(0), 2.0, (1000,)).mean().round() == 2 -> Array(True, dtype=bool)",
    a="the shape parameter, positive.",
    shape="the shape of the result, to which parameters broadcast; their own shape by default.",
)
def gamma(key: ArrayLike, a: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None) -> Array:
    """Draw gamma numbers, of density x^(a - 1) exp(-x) / Γ(a); for small `a` many underflow to 0, see `loggamma`."""
    return _draw("gamma", key, a, shape, dtype, log_space=False)


@takes_out_sharding
def loggamma(key: ArrayLike, a: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None) -> Array:
    """Draw logarithms of gamma numbers, which do not underflow for small parameters."""
    return _draw("loggamma", key, a, shape, dtype, log_space=True)


def _draw(name: str, key: Any, a: Any, shape: Any, dtype: Any, log_space: bool) -> Array:
    typed, _ = one_key(name, key)
    found = real_dtype(name, dtype)
    (a,) = parameters(name, found, a)
    return _gamma(typed, a, shape=draw_shape(name, shape, get_shape(a)), log_space=log_space)


@functools.partial(jit, static_argnames=("shape", "log_space"))
def _gamma(key: Array, a: Any, *, shape: tuple[Any, ...], log_space: bool) -> Array:
    return _random_gamma(log_space, key, wnp.broadcast_to(a, shape))


@functools.partial(custom_jvp, nondiff_argnums=(0,))
def _random_gamma(log_space: bool, key: Array, alpha: Array) -> Array:
    """Draw one number for each alpha, each from a separate key, by the method of Marsaglia and Tsang (2000)."""
    dtype = alpha.dtype
    const = functools.partial(np.array, dtype=dtype)
    # The method needs alpha >= 1; a smaller one is drawn at alpha + 1 and scaled by a uniform number's power 1 / alpha.
    large = alpha >= const(1)
    d = wnp.where(large, alpha, alpha + const(1)) - const(1 / 3)
    c = const(1 / 3) / wnp.sqrt(d)
    keys, scale_keys = split_keys(random_split(key, shape=alpha.shape), 2)

    def rejected(square: Array, cube: Array, u: Array) -> Array:
        squeeze = u >= const(1) - const(0.0331) * (square * square)
        return squeeze & (wnp.log(u) >= square * const(0.5) + d * ((const(1) - cube) + wnp.log(cube)))

    def positive(state: Any) -> Any:
        keys, x, v = state
        keys, subkeys = split_keys(keys, 2)
        todo = v <= 0
        drawn = draw_normal(subkeys, (), dtype)
        return keys, wnp.where(todo, drawn, x), wnp.where(todo, const(1) + drawn * c, v)

    def attempt(state: Any) -> Any:
        keys, square, cube, u = state
        todo = rejected(square, cube, u)
        keys, normal_keys, uniform_keys = split_keys(keys, 3)
        start = (normal_keys, wnp.zeros_like(alpha), wnp.full_like(alpha, -1))
        _, x, v = lax.while_loop(lambda state: wnp.any(state[2] <= 0), positive, start)
        drawn = draw_uniform(uniform_keys, (), dtype)
        return keys, wnp.where(todo, x * x, square), wnp.where(todo, v * v * v, cube), wnp.where(todo, drawn, u)

    start = (keys, wnp.zeros_like(alpha), wnp.ones_like(alpha), wnp.full_like(alpha, 2))
    _, _, cube, _ = lax.while_loop(lambda state: wnp.any(rejected(*state[1:])), attempt, start)
    if log_space:
        power = wnp.log1p(-draw_uniform(scale_keys, (), dtype))
        boost = wnp.where(large | (power == 0), const(0), power * (const(1) / alpha))
        return wnp.log(d) + wnp.log(cube) + boost
    power = wnp.power(const(1) - draw_uniform(scale_keys, (), dtype), const(1) / alpha)
    return d * cube * wnp.where(large, const(1), power)


@_random_gamma.defjvp
def _random_gamma_jvp(log_space: bool, primals: Any, tangents: Any) -> tuple[Array, Array]:
    """Differentiate implicitly: the draw changes with alpha so that its distribution function is constant."""
    key, alpha = primals
    drawn = _random_gamma(log_space, key, alpha)
    if not log_space:
        return drawn, tangents[1] * lax.random_gamma_grad(alpha, drawn)
    sample = wnp.exp(drawn)
    sample = wnp.where(sample == 0, np.array(dtypes.finfo(alpha.dtype).tiny, alpha.dtype), sample)
    return drawn, tangents[1] * (lax.random_gamma_grad(alpha, sample) / sample)


# -------------------------------------------------------------------------------------------------- derived from gamma


@takes_out_sharding
def beta(
    key: ArrayLike, a: ArrayLike, b: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Draw beta numbers in [0, 1], of density proportional to x^(a - 1) (1 - x)^(b - 1).

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        a, b: the shape parameters, positive.
        shape: the shape of the result, to which parameters broadcast; their own shape by default.
        dtype: a floating-point dtype; float32 by default.

    Returns:
        Floats.

    >>> from weft import random
    >>> random.beta(random.key(0), 2.0, 3.0, (2,)).shape
    (2,)
    """
    typed, _ = one_key("beta", key)
    found = real_dtype("beta", dtype)
    a, b = parameters("beta", found, a, b)
    return _beta(typed, a, b, shape=draw_shape("beta", shape, get_shape(a), get_shape(b)))


@functools.partial(jit, static_argnames=("shape",))
def _beta(key: Array, a: Any, b: Any, *, shape: tuple[Any, ...]) -> Array:
    first_key, second_key = split_keys(key, 2)
    first, second = (_gamma(k, x, shape=shape, log_space=True) for k, x in ((first_key, a), (second_key, b)))
    # The ratio of gamma numbers, scaled so that the larger is 1: small parameters would underflow both.
    largest = wnp.maximum(first, second)
    first, second = wnp.exp(first - largest), wnp.exp(second - largest)
    return first / (first + second)


@takes_out_sharding
@document(
    "Floats; the last axis sums to 1.",
    alpha="positive concentrations.",
    shape="the shape of the result, to which parameters broadcast; their own shape by default.",
)
def dirichlet(key: ArrayLike, alpha: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None) -> Array:
    """Draw Dirichlet vectors, nonnegative with sum 1, with concentrations along the last axis of alpha.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> random.dirichlet(random.key(0), wnp.ones(3)).sum().round(3)
    Array(1., dtype=float32)
    """
    typed, _ = one_key("dirichlet", key)
    found = real_dtype("dirichlet", dtype)
    (alpha,) = parameters("dirichlet", found, alpha)
    if not get_shape(alpha):
        raise ArgumentError("dirichlet needs an alpha of at least one dimension, got a scalar.")
    return _dirichlet(typed, alpha, shape=draw_shape("dirichlet", shape, get_shape(alpha)[:-1]))


@functools.partial(jit, static_argnames=("shape",))
def _dirichlet(key: Array, alpha: Any, *, shape: tuple[Any, ...]) -> Array:
    logs = _gamma(key, alpha, shape=(*shape, alpha.shape[-1]), log_space=True)
    parts = wnp.exp(logs - lax.stop_gradient(wnp.max(logs, axis=-1, keepdims=True)))
    return parts / wnp.sum(parts, axis=-1, keepdims=True)


@takes_out_sharding
@document(
    "Floats.",
    "random.chisquare(random.key(0), 3.0, (2,)).shape -> (2,)",
    df="degrees of freedom, positive.",
    shape="the shape of the result, to which parameters broadcast; their own shape by default.",
)
def chisquare(key: ArrayLike, df: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None) -> Array:
    """Draw chi-square numbers with df degrees of freedom."""
    typed, _ = one_key("chisquare", key)
    found = real_dtype("chisquare", dtype)
    (df,) = parameters("chisquare", found, df)
    return _chisquare(typed, df, shape=draw_shape("chisquare", shape, get_shape(df)), dtype=found)


@sampler
def _chisquare(key: Array, df: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    two = np.array(2, dtype)
    return wnp.exp(_gamma(key, wnp.divide(df, two), shape=shape, log_space=True)) * two


@takes_out_sharding
def f(
    key: ArrayLike, dfnum: ArrayLike, dfden: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Draw F numbers: ratios of two chi-square numbers, each over its degrees of freedom."""
    typed, _ = one_key("f", key)
    found = real_dtype("f", dtype)
    dfnum, dfden = parameters("f", found, dfnum, dfden)
    return _f(typed, dfnum, dfden, shape=draw_shape("f", shape, get_shape(dfnum), get_shape(dfden)), dtype=found)


@sampler
def _f(key: Array, dfnum: Any, dfden: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    denominator_key, numerator_key = split_keys(key, 2)
    numerator = _chisquare(numerator_key, dfnum, shape=shape, dtype=dtype)
    denominator = _chisquare(denominator_key, dfden, shape=shape, dtype=dtype)
    return (numerator / dfnum) / (denominator / dfden)


@takes_out_sharding
@document(
    "Floats.",
    "random.t(random.key(0), 3.0, (2,)).shape -> (2,)",
    df="degrees of freedom, positive.",
    shape="the shape of the result, to which parameters broadcast; their own shape by default.",
)
def t(key: ArrayLike, df: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None) -> Array:
    """Draw Student's t numbers with df degrees of freedom."""
    typed, _ = one_key("t", key)
    found = real_dtype("t", dtype)
    (df,) = parameters("t", found, df)
    return _t(typed, df, shape=draw_shape("t", shape, get_shape(df)), dtype=found)


@sampler
def _t(key: Array, df: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    normal_key, gamma_key = split_keys(key, 2)
    half = wnp.divide(df, np.array(2, dtype))
    draws = draw_normal(normal_key, shape, dtype)
    return draws * wnp.sqrt(half / _gamma(gamma_key, half, shape=shape, log_space=False))


@takes_out_sharding
def generalized_normal(key: ArrayLike, p: ArrayLike, shape: Shape = (), dtype: DTypeLike | None = None) -> Array:
    """Draw numbers of density proportional to exp(-|x|^p)."""
    typed, _ = one_key("generalized_normal", key)
    found = real_dtype("generalized_normal", dtype)
    (p,) = parameters("generalized_normal", found, p)
    return _generalized_normal(typed, p, shape=as_shape(shape), dtype=found)


@sampler
def _generalized_normal(key: Array, p: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    gamma_key, sign_key = split_keys(key, 2)
    power = wnp.divide(np.array(1, dtype), p)
    lengths = _gamma(gamma_key, power, shape=shape, log_space=False)
    return draw_rademacher(sign_key, shape, dtype) * wnp.power(lengths, power)


@takes_out_sharding
def ball(key: ArrayLike, d: int, p: ArrayLike = 2, shape: Shape = (), dtype: DTypeLike | None = None) -> Array:
    """Draw vectors of d numbers, uniform in the unit ball of the p-norm."""
    typed, _ = one_key("ball", key)
    found = real_dtype("ball", dtype)
    (power,) = parameters("ball", found, p)
    (size,) = as_shape(index(d), "d")
    direction_key, length_key = split_keys(typed, 2)
    directions = _generalized_normal(direction_key, power, shape=(*as_shape(shape), size), dtype=found)
    excess = exponential(length_key, shape, found)
    total = wnp.sum(wnp.power(wnp.abs(directions), power), axis=-1) + excess
    return directions / wnp.power(total, wnp.divide(np.array(1, found), power))[..., None]
