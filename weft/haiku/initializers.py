"""Initializers of parameters: functions of shape and dtype that draw keys from the sequence of the frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft import numpy as wnp
from weft.errors import ArgumentError, suggest as _suggest
from weft.haiku.parameters import next_rng_key
from weft.haiku.typing import Initializer as Initializer

_TRUNCATED = 0.87962566103423978  # the standard deviation of a normal number truncated to two standard deviations


class Constant:
    """One value, or an array that broadcasts to the shape.

    Args:
        constant: the value.

    >>> import weft.numpy as wnp
    >>> from weft import haiku
    >>> haiku.initializers.Constant(0.5)((2,), wnp.float32)
    Array([0.5, 0.5], dtype=float32)
    """

    def __init__(self, constant: Any):
        self.constant = constant

    def __call__(self, shape: Sequence[int], dtype: Any) -> Any:
        return wnp.broadcast_to(wnp.asarray(self.constant), tuple(shape)).astype(dtype)


class RandomNormal:
    """mean + stddev · N(0, 1).

    Args:
        stddev: the standard deviation.
        mean: the mean.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Linear(2, w_init=haiku.initializers.RandomNormal(0.1))(x))
    >>> x = wnp.ones((1, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 2)
    """

    def __init__(self, stddev: Any = 1.0, mean: Any = 0.0):
        self.stddev = stddev
        self.mean = mean

    def __call__(self, shape: Sequence[int], dtype: Any) -> Any:
        mean, stddev = (wnp.asarray(x).astype(dtype) for x in (self.mean, self.stddev))
        return mean + stddev * weft.random.normal(next_rng_key(), tuple(shape), dtype)


class TruncatedNormal:
    """mean + stddev · N(0, 1), the latter between `lower` and `upper`.

    Args:
        stddev: the standard deviation before the limits.
        mean: the mean.
        lower, upper: the limits, in standard deviations.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Linear(2, w_init=haiku.initializers.TruncatedNormal(0.1))(x))
    >>> x = wnp.ones((1, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 2)
    """

    def __init__(self, stddev: Any = 1.0, mean: Any = 0.0, lower: Any = -2.0, upper: Any = 2.0):
        self.stddev = stddev
        self.mean = mean
        self.lower = lower
        self.upper = upper

    def __call__(self, shape: Sequence[int], dtype: Any) -> Any:
        part = np.zeros((), dtype).real.dtype
        mean, stddev = wnp.asarray(self.mean).astype(dtype), wnp.asarray(self.stddev).astype(part)
        sizes = tuple(shape)
        key = next_rng_key()
        if part == np.dtype(dtype):
            return stddev * weft.random.truncated_normal(key, self.lower, self.upper, sizes, part) + mean
        keys = weft.random.split(key)
        real, imaginary = (weft.random.truncated_normal(k, self.lower, self.upper, sizes, part) for k in keys)
        return (real + 1j * imaginary).astype(dtype) * stddev + mean


class RandomUniform:
    """Uniform between `minval` and `maxval`."""

    def __init__(self, minval: Any = 0.0, maxval: Any = 1.0):
        self.minval = minval
        self.maxval = maxval

    def __call__(self, shape: Sequence[int], dtype: Any) -> Any:
        return weft.random.uniform(next_rng_key(), tuple(shape), dtype, self.minval, self.maxval)


def _fans(shape: Sequence[int], fan_in_axes: Sequence[int] | None) -> tuple[int, int]:
    """Return the fan-in and fan-out of a weight."""
    sizes = tuple(shape)
    if len(sizes) < 1:
        return 1, 1
    if len(sizes) == 1:
        return sizes[0], sizes[0]
    if fan_in_axes is not None:
        inputs = math.prod(sizes[axis] for axis in fan_in_axes)
        others = {axis % len(sizes) for axis in fan_in_axes}
        return inputs, math.prod(size for axis, size in enumerate(sizes) if axis not in others)
    field = math.prod(sizes[:-2])
    return sizes[-2] * field, sizes[-1] * field


class VarianceScaling:
    """Mean 0 and variance scale / fan, where `mode` says which fan.

    Args:
        scale: the factor of the variance.
        mode: "fan_in", "fan_out" or "fan_avg".
        distribution: "truncated_normal", "normal" or "uniform".
        fan_in_axes: the axes of the inputs.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Linear(2, w_init=haiku.initializers.VarianceScaling(2.0))(x))
    >>> x = wnp.ones((1, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 2)
    """

    def __init__(
        self,
        scale: Any = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        fan_in_axes: Sequence[int] | None = None,
    ):
        if isinstance(scale, (int, float)) and scale < 0:
            raise ArgumentError(f"VarianceScaling needs a scale of 0 or more, got {scale}.")
        if mode not in ("fan_in", "fan_out", "fan_avg"):
            raise ArgumentError(f"VarianceScaling got mode={mode!r}; 'fan_in', 'fan_out' or 'fan_avg' is expected.")
        if distribution not in ("normal", "truncated_normal", "uniform"):
            raise ArgumentError(
                f"VarianceScaling got distribution={distribution!r}; 'normal', 'truncated_normal' "
                "or 'uniform' is expected."
            )
        self.scale = scale
        self.mode = mode
        self.distribution = distribution
        self.fan_in_axes = fan_in_axes

    def __call__(self, shape: Sequence[int], dtype: Any) -> Any:
        inputs, outputs = _fans(shape, self.fan_in_axes)
        fan = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2}[self.mode]
        scale = self.scale / max(1.0, fan)
        if self.distribution == "truncated_normal":
            return TruncatedNormal(stddev=np.sqrt(scale) / _TRUNCATED)(shape, dtype)
        if self.distribution == "normal":
            return RandomNormal(stddev=np.sqrt(scale))(shape, dtype)
        limit = np.sqrt(3.0 * scale)
        return RandomUniform(minval=-limit, maxval=limit)(shape, dtype)


class UniformScaling:
    """Uniform within ± scale · √(3 / inputs), where inputs are all sizes but the last."""

    def __init__(self, scale: Any = 1.0):
        self.scale = scale

    def __call__(self, shape: Sequence[int], dtype: Any) -> Any:
        limit = np.sqrt(3 / max(1.0, math.prod(tuple(shape)[:-1]))) * self.scale
        return RandomUniform(-limit, limit)(shape, dtype)


class Orthogonal:
    """Orthonormal columns (or rows, whichever are fewer) along `axis`, times scale."""

    def __init__(self, scale: Any = 1.0, axis: int = -1):
        self.scale = scale
        self.axis = axis

    def __call__(self, shape: Sequence[int], dtype: Any) -> Any:
        if len(shape) < 2:
            raise ArgumentError(f"Orthogonal needs a shape of two or more dimensions, got {tuple(shape)}.")
        return weft.nn.initializers.orthogonal(self.scale, self.axis)(next_rng_key(), tuple(shape), dtype)


class Identity:
    """gain · the identity over the last two dimensions, the same along all others."""

    def __init__(self, gain: Any = 1.0):
        self.gain = gain

    def __call__(self, shape: Sequence[int], dtype: Any) -> Any:
        sizes = tuple(shape)
        if len(sizes) < 2:
            raise ArgumentError(f"Identity needs a shape of two or more dimensions, got {sizes}.")
        eye = wnp.eye(sizes[-2], sizes[-1], dtype=dtype)
        if len(sizes) > 2:
            eye = wnp.broadcast_to(eye, sizes)
        return wnp.asarray(self.gain).astype(dtype) * eye


_suggest(__name__)
