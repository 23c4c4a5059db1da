"""Counts of events: Poisson, binomial and multinomial numbers, by inversion if they are small, else by rejection."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.api.shardings import takes_out_sharding
from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.ir.nans import allow_nans
from weft.numpy.util import as_shape, broadcast_shape, get_shape
from weft.primitives.random.bits import random_clone, random_split
from weft.random.keys import one_key, split_keys
from weft.random.uniform import draw_shape, draw_uniform, integer_dtype, parameters, real_dtype, sampler
from weft.trace.annotations import ArrayLike, DTypeLike, Shape
from weft.trace.array import Array

# ------------------------------------------------------------------------------------------------------------- poisson


@takes_out_sharding
def poisson(key: ArrayLike, lam: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None) -> Array:
    """Draw Poisson numbers of mean lam.

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        lam: the mean, an array or a number.
        shape: the shape of the result, to which `lam` broadcasts; its own shape by default.
        dtype: an integer dtype.

    Returns:
        Integers.

    >>> from weft import random
    >>> random.poisson(random.key(0), 4.0, (1000,)).mean().round() == 4
    Array(True, dtype=bool)
    """
    typed, _ = one_key("poisson", key)
    found = integer_dtype("poisson", dtype)
    (lam,) = parameters("poisson", dtypes.float32, lam)
    return _poisson(typed, lam, shape=draw_shape("poisson", shape, get_shape(lam)), dtype=found)


@sampler
def _poisson(key: Array, lam: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    lam = wnp.broadcast_to(lam, shape)
    small = wnp.isnan(lam) | (lam < 10)
    # Both algorithms run for all elements, from the same key since only one result is used; each gets a harmless mean
    # for elements of the other.
    few = _poisson_product(key, wnp.where(small, lam, np.float32(0)), dtype)
    many = _poisson_rejection(random_clone(key), wnp.where(small, np.float32(1e5), lam), dtype)
    return wnp.where(lam == 0, np.array(0, dtype), wnp.where(small, few, many))


def _poisson_product(key: Array, lam: Array, dtype: np.dtype[Any]) -> Array:
    """Count the uniform numbers that can be multiplied before the product falls below exp(-lam) (Knuth)."""
    most = int(dtypes.iinfo(dtype).max)

    def step(state: Any) -> Any:
        i, count, key, log_product = state
        key, subkey = split_keys(key, 2)
        count = wnp.where(log_product > -lam, count + np.array(1, dtype), count)
        u = draw_uniform(subkey, lam.shape, dtypes.float32)
        return i + 1, count, key, log_product + wnp.log(u)

    def more(state: Any) -> Any:
        return wnp.any(state[3] > -lam) & (state[0] < min(most, 2**31 - 1))

    start = (wnp.int32(0), wnp.zeros(lam.shape, dtype), key, wnp.zeros_like(lam))
    return lax.while_loop(more, step, start)[1] - np.array(1, dtype)


def _poisson_rejection(key: Array, lam: Array, dtype: np.dtype[Any]) -> Array:
    """Draw by transformed rejection (Hörmann 1993, algorithm PTRS)."""
    most = int(dtypes.iinfo(dtype).max)
    log_lam = wnp.log(lam)
    b = 0.931 + 2.53 * wnp.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def step(state: Any) -> Any:
        i, drawn, accepted, key = state
        key, first, second = split_keys(key, 3)
        u = draw_uniform(first, lam.shape, dtypes.float32) - 0.5
        v = draw_uniform(second, lam.shape, dtypes.float32)
        u_shifted = 0.5 - wnp.abs(u)
        k = wnp.floor((2 * a / u_shifted + b) * u + lam + 0.43)
        s = wnp.log(v * inverse_alpha / (a / (u_shifted * u_shifted) + b))
        t = -lam + k * log_lam - lax.lgamma(k + 1)
        accept = (u_shifted >= 0.07) & (v <= v_r)
        reject = (k < 0) | ((u_shifted < 0.013) & (v > u_shifted))
        accept = accept | (~reject & (s <= t))
        return i + 1, wnp.where(accept, k, drawn), accepted | accept, key

    def more(state: Any) -> Any:
        return wnp.any(~state[2]) & (state[0] < min(most, 2**31 - 1))

    start = (wnp.int32(0), wnp.full_like(lam, -1), wnp.zeros(lam.shape, bool), key)
    return lax.convert_element_type(lax.while_loop(more, step, start)[1], dtype)


# ------------------------------------------------------------------------------------------------------------ binomial

TAILS = tuple(
    math.lgamma(k + 1) - ((k + 0.5) * math.log(k + 1) - (k + 1) + 0.5 * math.log(2 * math.pi)) for k in range(10)
)
"""log k! less its Stirling approximation, for k = 0 .. 9."""


def binomial(
    key: ArrayLike, n: ArrayLike, p: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Draw binomial numbers: successes among n trials of probability p, as floats."""
    typed, _ = one_key("binomial", key)
    found = real_dtype("binomial", dtype)
    n, p = parameters("binomial", found, n, p)
    return _binomial(typed, n, p, shape=draw_shape("binomial", shape, get_shape(n), get_shape(p)), dtype=found)


@sampler
def _binomial(key: Array, n: Any, p: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    n, p = wnp.broadcast_to(n, shape), wnp.broadcast_to(p, shape)
    const = functools.partial(np.array, dtype=dtype)
    # The rarer outcome is counted; at the end the successes follow.
    rare = p < const(0.5)
    q = wnp.where(rare, p, const(1) - p)
    bad_count = wnp.isnan(n) | (n < const(0))
    bad_q = wnp.isnan(q) | (q < const(0))
    infinite = wnp.isinf(n)
    unknown = wnp.isnan(q)
    q = wnp.where(bad_q, const(0.01), q)
    small = bad_count | (n * q <= const(10))
    whole = wnp.floor(n)
    few = _binomial_inversion(key, wnp.where(small, whole, const(0)), q, dtype)
    many = _binomial_rejection(
        random_clone(key), wnp.where(small, const(1e4), whole), wnp.where(small, const(0.5), q), dtype
    )
    bad = bad_q | bad_count
    drawn = wnp.where(bad, const(np.nan), wnp.where(small, few, many))
    drawn = wnp.where(infinite & ~bad, const(np.inf), drawn)
    return wnp.where(rare | bad_count | unknown | infinite, drawn, whole - drawn)


def _binomial_inversion(key: Array, n: Array, p: Array, dtype: np.dtype[Any]) -> Array:
    """Count the geometric waiting times that fit into n trials."""
    log_miss = wnp.log1p(-p)

    def step(state: Any) -> Any:
        count, total, key = state
        subkey, key = split_keys(key, 2)
        count = wnp.where(total <= n, count + np.array(1, dtype), count)
        waits = wnp.ceil(wnp.log(draw_uniform(subkey, n.shape, dtype)) / log_miss)
        return count, total + waits, key

    start = (wnp.zeros_like(n), wnp.zeros_like(n), key)
    return lax.while_loop(lambda state: wnp.any(state[1] <= n), step, start)[0] - np.array(1, dtype)


def _stirling_tail(k: Array, dtype: np.dtype[Any]) -> Array:
    """Return the error of Stirling's approximation of log k!."""
    held = wnp.clip(k, np.array(0, dtype), np.array(9, dtype))
    next_ = held + np.array(1, dtype)
    square = next_ * next_
    one = functools.partial(np.array, dtype=dtype)
    series = (one(1 / 12) - (one(1 / 360) - one(1 / 1260) / square) / square) / next_
    table = wnp.asarray(np.array(TAILS, dtype))
    return wnp.where(k <= one(9), table[lax.convert_element_type(wnp.floor(held), dtypes.int32)], series)


def _binomial_rejection(key: Array, n: Array, p: Array, dtype: np.dtype[Any]) -> Array:
    """Draw by transformed rejection (Hörmann 1993, algorithm BTRS)."""
    const = functools.partial(np.array, dtype=dtype)
    half, one = const(0.5), const(1)
    deviation = wnp.sqrt(n * p * (one - p))
    b = const(1.15) + const(2.53) * deviation
    a = const(-0.0873) + const(0.0248) * b + const(0.01) * p
    c = n * p + half
    v_r = const(0.92) - const(4.2) / b
    odds = p / (one - p)
    alpha = (const(2.83) + const(5.1) / b) * deviation
    m = wnp.floor((n + one) * p)
    tail = functools.partial(_stirling_tail, dtype=dtype)
    fixed = (m + half) * wnp.log((m + one) / (odds * (n - m + one)))
    fixed_tails = tail(m), tail(n - m)

    def step(state: Any) -> Any:
        drawn, accepted, key = state
        key, first, second = split_keys(key, 3)
        u, v = draw_uniform(first, n.shape, dtype) - half, draw_uniform(second, n.shape, dtype)
        us = half - wnp.abs(u)
        accept = (us >= const(0.07)) & (v <= v_r)
        k = wnp.floor((const(2) * a / us + b) * u + c)
        reject = (k < const(0)) | (k > n)
        v = wnp.log(v * alpha / (a / (us * us) + b))
        with allow_nans():  # k may be out of range, and is rejected then
            bound = fixed + (n + one) * wnp.log((n - m + one) / (n - k + one))
            bound = bound + (k + half) * wnp.log(odds * (n - k + one) / (k + one))
            bound = bound + fixed_tails[0] + fixed_tails[1] - tail(k) - tail(n - k)
        accept = accept | (~reject & (v <= bound))
        return wnp.where(accept, k, drawn), accepted | accept, key

    start = (wnp.full_like(n, -1), wnp.zeros(n.shape, bool), key)
    return lax.while_loop(lambda state: wnp.any(~state[1]), step, start)[0]


def multinomial(
    key: ArrayLike,
    n: ArrayLike,
    p: ArrayLike,
    *,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    unroll: int | bool = 1,
) -> Array:
    """Draw the counts of n trials over the outcomes along the last axis of p, as floats; `unroll` is for the scan."""
    typed, _ = one_key("multinomial", key)
    found = real_dtype("multinomial", dtype)
    n, p = parameters("multinomial", found, n, p)
    if not get_shape(p):
        raise ArgumentError("multinomial needs a p of at least one dimension, got a scalar.")
    fitting = broadcast_shape("multinomial", get_shape(n), get_shape(p)[:-1])
    sizes = (*fitting, get_shape(p)[-1]) if shape is None else as_shape(shape)
    if sizes[-1:] != tuple(get_shape(p)[-1:]) or broadcast_shape("multinomial", sizes[:-1], fitting) != sizes[:-1]:
        raise ArgumentError(
            f"multinomial got shape={sizes}, which does not end in what n of shape {get_shape(n)} and p of shape "
            f"{get_shape(p)} broadcast to, {(*fitting, get_shape(p)[-1])}."
        )
    return _multinomial(typed, n, p, shape=sizes, dtype=found, unroll=unroll)


@functools.partial(sampler, static=("shape", "dtype", "unroll"))
def _multinomial(
    key: Array, n: Any, p: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any], unroll: int | bool
) -> Array:
    trials, p = wnp.broadcast_to(n, shape[:-1]), wnp.broadcast_to(p, shape)
    # Outcome by outcome: each count is binomial among the trials that remain after the earlier outcomes.
    rest = lax.cumsum(p, axis=p.ndim - 1, reverse=True)
    ratios = p / wnp.where(rest == 0, np.array(1, dtype), rest)

    def step(left: Array, xs: Any) -> tuple[Array, Array]:
        key, ratio = xs
        ratio = wnp.clip(ratio, np.array(0, dtype), np.array(1, dtype))
        count = _binomial(key, left, ratio, shape=shape[:-1], dtype=dtype)
        return left - count, count

    xs = (random_split(key, shape=(shape[-1],)), wnp.moveaxis(ratios, -1, 0))
    _, counts = lax.scan(step, trials, xs, unroll=unroll)
    return wnp.moveaxis(counts, 0, -1)
