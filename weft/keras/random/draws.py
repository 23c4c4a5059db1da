"""Random arrays. The bits are those of Keras on JAX for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import random
from weft.errors import ArgumentError
from weft.keras.core.config import is_float_dtype, is_int_dtype, standardize_dtype
from weft.keras.core.seeds import SeedGenerator, draw_seed
from weft.keras.ops.dispatch import operation, tensor

Seed = int | SeedGenerator | None


def _key(seed: Seed) -> Any:
    return random.wrap_key_data(draw_seed(seed))


def _float_dtype(dtype: Any) -> str:
    name = standardize_dtype(dtype)
    if not is_float_dtype(name):
        raise ArgumentError("`dtype` must be a floating-point dtype.", received=f"dtype={dtype!r}")
    return name


def normal(shape: Sequence[int], mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Seed = None) -> Any:
    """Draw from the normal distribution.

    Args:
        shape: of the result.
        mean: the mean.
        stddev: the standard deviation.
        dtype: a float one, `floatx()` by default.
        seed: an integer (the same draws each time), a `SeedGenerator` (others each time), or None for the global one.

    Returns:
        An array.

    Example:
        >>> from weft import keras
        >>> keras.random.normal((2, 3), seed=1).shape
        (2, 3)
    """
    dtype = _float_dtype(dtype)
    sample = random.normal(_key(seed), tuple(shape), dtype)
    return sample * wnp.asarray(stddev, dtype) + wnp.asarray(mean, dtype)


def uniform(shape: Sequence[int], minval: Any = 0.0, maxval: Any = 1.0, dtype: Any = None, seed: Seed = None) -> Any:
    """Draw from the uniform distribution on [minval, maxval).

    Args:
        shape: of the result.
        minval: the least value.
        maxval: the end, which is not drawn.
        dtype: a float one, `floatx()` by default.
        seed: an integer (the same draws each time), a `SeedGenerator` (others each time), or None for the global one.

    Returns:
        An array.

    Example:
        >>> from weft import keras
        >>> keras.random.uniform((2, 3), seed=1).shape
        (2, 3)
    """
    return random.uniform(_key(seed), tuple(shape), _float_dtype(dtype), minval, maxval)


def randint(shape: Sequence[int], minval: Any, maxval: Any, dtype: Any = "int32", seed: Seed = None) -> Any:
    """Draw integers in [minval, maxval), all equally likely.

    Args:
        shape: of the result.
        minval: the least integer.
        maxval: the end, which is not drawn.
        dtype: an integer one.
        seed: an integer (the same draws each time), a `SeedGenerator` (others each time), or None for the global one.

    Returns:
        An array.

    Example:
        >>> from weft import keras
        >>> keras.random.randint((2,), 0, 10, seed=1).dtype
        dtype('int32')
    """
    if not is_int_dtype(dtype):
        raise ArgumentError("`dtype` must be an integer dtype.", received=f"dtype={dtype!r}")
    return random.randint(_key(seed), tuple(shape), minval, maxval, standardize_dtype(dtype))


def truncated_normal(
    shape: Sequence[int], mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Seed = None
) -> Any:
    """Draw from the normal distribution, at most two standard deviations from the mean.

    Args:
        shape: of the result.
        mean: the mean.
        stddev: the standard deviation before the ends are cut off.
        dtype: a float one, `floatx()` by default.
        seed: an integer (the same draws each time), a `SeedGenerator` (others each time), or None for the global one.

    Returns:
        An array.
    """
    dtype = _float_dtype(dtype)
    sample = random.truncated_normal(_key(seed), -2.0, 2.0, tuple(shape), dtype)
    return sample * wnp.asarray(stddev, dtype) + wnp.asarray(mean, dtype)


def gamma(shape: Sequence[int], alpha: Any, dtype: Any = None, seed: Seed = None) -> Any:
    """Draw from the gamma distribution.

    Args:
        shape: of the result.
        alpha: its parameter, which broadcasts to `shape`.
        dtype: a float one, `floatx()` by default.
        seed: an integer (the same draws each time), a `SeedGenerator` (others each time), or None for the global one.

    Returns:
        An array.
    """
    return random.gamma(_key(seed), tensor(alpha), tuple(shape), _float_dtype(dtype))


def beta(shape: Sequence[int], alpha: Any, beta: Any, dtype: Any = None, seed: Seed = None) -> Any:
    """Draw from the beta distribution.

    Args:
        shape: of the result.
        alpha: its first parameter, which broadcasts to `shape`.
        beta: its second parameter.
        dtype: a float one, `floatx()` by default.
        seed: an integer (the same draws each time), a `SeedGenerator` (others each time), or None for the global one.

    Returns:
        An array.
    """
    return random.beta(_key(seed), tensor(alpha), tensor(beta), tuple(shape), _float_dtype(dtype))


def binomial(shape: Sequence[int], counts: Any, probabilities: Any, dtype: Any = None, seed: Seed = None) -> Any:
    """Draw from the binomial distribution: how many of `counts` trials succeed.

    Args:
        shape: of the result.
        counts: how many trials.
        probabilities: the probability of success of each.
        dtype: a float one, `floatx()` by default.
        seed: an integer (the same draws each time), a `SeedGenerator` (others each time), or None for the global one.

    Returns:
        An array.
    """
    dtype = _float_dtype(dtype)
    return random.binomial(_key(seed), tensor(counts), tensor(probabilities), tuple(shape), dtype)


@operation
def categorical(logits: Any, num_samples: int, dtype: Any = "int32", seed: Seed = None) -> Any:
    """Draw classes with given logits.

    Args:
        logits: a matrix with the logits of one distribution in each row.
        num_samples: how many draws of each.
        dtype: an integer one.
        seed: an integer (the same draws each time), a `SeedGenerator` (others each time), or None for the global one.

    Returns:
        A matrix with the draws of one distribution in each row.

    Example:
        >>> from weft import keras
        >>> print(keras.random.categorical([[0.0, -1e9], [-1e9, 0.0]], 3, seed=1))
        [[0 0 0]
         [1 1 1]]
    """
    logits = tensor(logits)
    if logits.ndim != 2:
        raise ArgumentError(
            "`logits` must be a matrix, one row for each distribution.", received=f"shape {logits.shape}"
        )
    draws = random.categorical(_key(seed), logits[:, :, None], axis=1, shape=(logits.shape[0], num_samples))
    return draws.astype(standardize_dtype(dtype))


@operation
def shuffle(x: Any, axis: int = 0, seed: Seed = None) -> Any:
    """Shuffle an array along an axis.

    Args:
        x: an array.
        axis: the axis.
        seed: an integer (the same order each time), a `SeedGenerator` (another each time), or None for the global one.

    Returns:
        An array of the same shape.

    Example:
        >>> from weft import keras
        >>> sorted(keras.random.shuffle([1, 2, 3], seed=1).tolist())
        [1, 2, 3]
    """
    return random.permutation(_key(seed), tensor(x), axis, independent=True)


@operation
def dropout(inputs: Any, rate: float, noise_shape: Any = None, seed: Seed = None) -> Any:
    """Set a random share of elements to 0 and scale the others up, so that the mean stays.

    Args:
        inputs: an array.
        rate: the probability that an element is 0; the others are divided by `1 - rate`.
        noise_shape: the shape of what is drawn, which broadcasts to that of `inputs`; None in it is the size there.
        seed: an integer (the same draws each time), a `SeedGenerator` (others each time), or None for the global one.

    Returns:
        An array of the same shape.
    """
    inputs = tensor(inputs)
    retained = 1.0 - rate
    shape = inputs.shape if noise_shape is None else _noise_shape(noise_shape, inputs.shape)
    mask = random.bernoulli(_key(seed), retained, shape)
    return wnp.where(wnp.broadcast_to(mask, inputs.shape), inputs / retained, 0).astype(inputs.dtype)


def _noise_shape(noise_shape: Sequence[int | None], shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(noise_shape) != len(shape):
        raise ArgumentError(
            "`noise_shape` must have as many axes as the inputs.", received=f"{tuple(noise_shape)} for {shape}"
        )
    return tuple(size if own is None else int(own) for own, size in zip(noise_shape, shape, strict=True))
