"""Normal numbers and distributions derived from them."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.api.jit import jit
from weft.api.shardings import takes_out_sharding
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError
from weft.numpy.util import as_shape, broadcast_shape, get_shape
from weft.random.argument_docs import document
from weft.random.discrete import draw_rademacher
from weft.random.keys import one_key, split_keys
from weft.random.uniform import between, draw_shape, draw_uniform, parameters, real_dtype, sampler
from weft.trace.annotations import ArrayLike, DTypeLike, Shape
from weft.trace.array import Array


def inexact_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Return the dtype of a draw of real or complex numbers; the default float for None."""
    found = dtypes.requested_dtype(float if dtype is None else dtype, name)
    if dtypes.kind(found) not in "fc":
        raise ArgumentError(f"The dtype of {name} must be a float or complex type, got dtype={dtypes.name(found)}.")
    assert isinstance(found, np.dtype)
    return found


@takes_out_sharding
@document(
    "An array of floats.",
    "random.normal(random.key(0), (2, 3)).shape -> (2, 3)",
    dtype="a floating-point or complex dtype; float32 by default.",
)
def normal(key: ArrayLike, shape: Shape = (), dtype: DTypeLike | None = None) -> Array:
    """Draw standard normal numbers; complex ones have independent parts and mean square 1."""
    typed, _ = one_key("normal", key)
    return _normal(typed, shape=as_shape(shape), dtype=inexact_dtype("normal", dtype))


@sampler
def _normal(key: Array, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    return draw_normal(key, shape, dtype)


def draw_normal(keys: Array, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    """Draw normal numbers, of `shape` for each key, by the inverse distribution function of uniform numbers."""
    if dtypes.kind(dtype) == "c":
        part = dtypes.to_real_dtype(dtype)
        real, imaginary = (draw_normal(half, shape, part) for half in split_keys(keys, 2))
        return lax.complex(real, imaginary) / np.array(math.sqrt(2), dtype)
    u = draw_uniform(keys, shape, dtype, minval=-1 + dtypes.finfo(dtype).epsneg)
    return np.array(math.sqrt(2), dtype) * lax.erf_inv(u)


@takes_out_sharding
def truncated_normal(
    key: ArrayLike, lower: ArrayLike, upper: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Draw standard normal numbers conditioned on lower < x < upper.

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        lower, upper: the limits, arrays or numbers.
        shape: the shape of the result, to which the limits broadcast.
        dtype: a floating-point or complex dtype; float32 by default.

    Returns:
        Floats between the limits.

    >>> from weft import random
    >>> bool((abs(random.truncated_normal(random.key(0), -2.0, 2.0, (100,))) < 2).all())
    True
    """
    typed, _ = one_key("truncated_normal", key)
    found = real_dtype("truncated_normal", dtype)
    lower, upper = parameters("truncated_normal", found, lower, upper)
    shape = draw_shape("truncated_normal", shape, get_shape(lower), get_shape(upper))
    return _truncated_normal(typed, lower, upper, shape=shape, dtype=found)


@sampler
def _truncated_normal(key: Array, lower: Any, upper: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    root = np.array(math.sqrt(2), dtype)
    low, high = lax.erf(lower / root), lax.erf(upper / root)
    x = root * lax.erf_inv(between(draw_uniform(key, shape, dtype), low, high))
    # Rounding may have reached or passed a bound.
    inside = wnp.nextafter(lax.stop_gradient(lower), np.array(np.inf, dtype))
    below = wnp.nextafter(lax.stop_gradient(upper), np.array(-np.inf, dtype))
    return wnp.minimum(below, wnp.maximum(inside, x))


@takes_out_sharding
def lognormal(key: ArrayLike, sigma: Any = 1.0, shape: Shape | None = None, dtype: DTypeLike | None = None) -> Array:
    """Draw numbers whose logarithm is normal with standard deviation sigma."""
    typed, _ = one_key("lognormal", key)
    found = real_dtype("lognormal", dtype)
    (sigma,) = parameters("lognormal", found, sigma)
    shape = draw_shape("lognormal", shape, get_shape(sigma))
    return wnp.exp(_normal(typed, shape=shape, dtype=found) * wnp.broadcast_to(sigma, shape))


@takes_out_sharding
def maxwell(key: ArrayLike, shape: Shape = (), dtype: DTypeLike | None = None) -> Array:
    """Draw lengths of vectors of three standard normal numbers."""
    typed, _ = one_key("maxwell", key)
    return _maxwell(typed, shape=as_shape(shape), dtype=real_dtype("maxwell", dtype))


@sampler
def _maxwell(key: Array, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    vectors = draw_normal(key, (*shape, 3), dtype)
    return wnp.sqrt(wnp.sum(vectors * vectors, axis=-1))


def double_sided_maxwell(
    key: ArrayLike, loc: ArrayLike, scale: ArrayLike, shape: Shape = (), dtype: DTypeLike | None = None
) -> Array:
    """Draw Maxwell numbers with a random sign, times scale, plus loc; `shape` precedes that of the parameters."""
    typed, _ = one_key("double_sided_maxwell", key)
    found = real_dtype("double_sided_maxwell", dtype)
    loc, scale = parameters("double_sided_maxwell", found, loc, scale)
    inner = broadcast_shape("double_sided_maxwell", get_shape(loc), get_shape(scale))
    return _double_sided_maxwell(typed, loc, scale, shape=(as_shape(shape) or inner) + inner, dtype=found)


@sampler
def _double_sided_maxwell(key: Array, loc: Any, scale: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    length_key, sign_key = split_keys(key, 2)
    lengths = _maxwell(length_key, shape=shape, dtype=dtype)
    return draw_rademacher(sign_key, shape, dtype) * lengths * scale + loc


@takes_out_sharding
def wald(key: ArrayLike, mean: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None) -> Array:
    """Draw Wald (inverse Gaussian) numbers with the given mean and shape parameter 1."""
    typed, _ = one_key("wald", key)
    found = real_dtype("wald", dtype)
    (mean,) = parameters("wald", found, mean)
    return _wald(typed, mean, shape=draw_shape("wald", shape, get_shape(mean)), dtype=found)


@sampler
def _wald(key: Array, mean: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    normal_key, uniform_key = split_keys(key, 2)
    mean = wnp.broadcast_to(mean, shape)
    v, u = draw_normal(normal_key, shape, dtype), draw_uniform(uniform_key, shape, dtype)
    two = np.array(2, dtype)
    y = v * v
    square = mean * mean
    root = wnp.sqrt(np.array(4, dtype) * mean * y + square * (y * y))
    x = mean + square * y / two - mean / two * root
    return wnp.where(u <= mean / (mean + x), x, square / x)


# ------------------------------------------------------------------------------------------------ vectors and matrices


@takes_out_sharding
def multivariate_normal(
    key: ArrayLike,
    mean: ArrayLike,
    cov: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    method: str = "cholesky",
) -> Array:
    """Draw normal vectors of given mean and covariance, factored by `method`: 'cholesky', 'eigh' or 'svd'.

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        mean: the mean, of shape (..., n).
        cov: the covariance, of shape (..., n, n), symmetric and positive semidefinite.
        shape: the shape of the batch, to which those of the parameters broadcast.
        dtype: a floating-point or complex dtype; float32 by default.
        method: "cholesky", which is fast and needs a positive definite matrix, "eigh" or "svd".

    Returns:
        Floats of shape (*shape, n).

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> random.multivariate_normal(random.key(0), wnp.zeros(2), wnp.eye(2), (3,)).shape
    (3, 2)
    """
    typed, _ = one_key("multivariate_normal", key)
    found = real_dtype("multivariate_normal", dtype)
    if method not in ("cholesky", "eigh", "svd"):
        raise ArgumentError(
            f"The method of multivariate_normal must be 'cholesky', 'eigh' or 'svd', got method={method!r}."
        )
    mean, cov = parameters("multivariate_normal", found, mean, cov)
    if not get_shape(mean):
        raise ArgumentError("multivariate_normal needs a mean of at least one dimension, got a scalar.")
    size = get_shape(mean)[-1]
    if get_shape(cov)[-2:] != (size, size):
        raise ArgumentError(
            f"multivariate_normal needs cov of shape (..., {size}, {size}) to go with mean of shape {get_shape(mean)}, "
            f"got cov of shape {get_shape(cov)}."
        )
    shape = draw_shape("multivariate_normal", shape, get_shape(mean)[:-1], get_shape(cov)[:-2])
    return _multivariate_normal(typed, mean, cov, shape=shape, dtype=found, method=method)


@functools.partial(sampler, static=("shape", "dtype", "method"))
def _multivariate_normal(
    key: Array, mean: Any, cov: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any], method: str
) -> Array:
    if dtype.itemsize < 4:  # LAPACK has no shorter floats
        cov = cov.astype(dtypes.float32)
    if method == "svd":
        vectors, values, _ = wnp.linalg.svd(cov)
        factor = vectors * wnp.sqrt(values[..., None, :])
    elif method == "eigh":
        values, vectors = wnp.linalg.eigh(cov)
        factor = vectors * wnp.sqrt(values[..., None, :])
    else:
        factor = wnp.linalg.cholesky(cov)
    draws = draw_normal(key, (*shape, mean.shape[-1]), dtype)
    return mean + wnp.einsum("...ij,...j->...i", factor.astype(dtype), draws)


@takes_out_sharding
def orthogonal(
    key: ArrayLike, n: int, shape: Shape = (), dtype: DTypeLike | None = None, m: int | None = None
) -> Array:
    """Draw matrices of n rows and m (by default n) columns, uniform among those with orthonormal rows or columns."""
    typed, _ = one_key("orthogonal", key)
    found = inexact_dtype("orthogonal", dtype)
    (rows,) = as_shape(index(n), "n")
    (columns,) = as_shape(rows if m is None else index(m), "m")
    return _orthogonal(typed, rows, columns, shape=as_shape(shape), dtype=found)


@functools.partial(jit, static_argnums=(1, 2), static_argnames=("shape", "dtype"))
def _orthogonal(key: Array, rows: int, columns: int, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    draws = draw_normal(key, (*shape, max(rows, columns), min(rows, columns)), dtype)
    q, r = wnp.linalg.qr(draws)
    # The signs of the diagonal of r make the decomposition unique, hence q uniform.
    q = q * lax.sign(wnp.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
    return wnp.swapaxes(q, -1, -2) if rows < columns else q
