"""Initializers that draw. An initializer that is called twice returns the same values, unless its seed is a
`SeedGenerator`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.keras.core import registry
from weft.keras.core.config import standardize_dtype
from weft.keras.core.seeds import SeedGenerator, make_default_seed
from weft.keras.initializers.base import Initializer
from weft.keras.random import draws

# The standard deviation of a normal distribution whose ends beyond two deviations are cut off.
_TRUNCATED_DEVIATION = 0.87962566103423978
_MODES = ("fan_in", "fan_out", "fan_avg")
_DISTRIBUTIONS = ("truncated_normal", "untruncated_normal", "uniform")


class RandomInitializer(Initializer):
    """What initializers that draw have in common.

    Args:
        seed: an integer, a `SeedGenerator`, or None: an integer is drawn when the initializer is constructed.
    """

    def __init__(self, seed: int | SeedGenerator | None = None) -> None:
        self._initial_seed = seed
        if seed is None:
            seed = make_default_seed()
        elif isinstance(seed, dict):
            seed = registry.deserialize_keras_object(seed)
        if not isinstance(seed, (int, np.integer, SeedGenerator)):
            raise ArgumentError("A seed must be an integer, a SeedGenerator, or None.", received=f"seed={seed!r}")
        self.seed = seed

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"seed": registry.serialize_keras_object(self._initial_seed)}


class RandomNormal(RandomInitializer):
    """Draws of the normal distribution.

    Args:
        mean: the mean.
        stddev: the standard deviation.
        seed: an integer, a `SeedGenerator`, or None for one of its own.

    Example:
        >>> from weft import keras
        >>> keras.initializers.RandomNormal(seed=1)((2, 3)).shape
        (2, 3)
    """

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: Any = None) -> None:
        super().__init__(seed)
        self.mean = mean
        self.stddev = stddev

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Draw an array."""
        return draws.normal(shape, self.mean, self.stddev, dtype, self.seed)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {**super().get_config(), "mean": self.mean, "stddev": self.stddev}


class TruncatedNormal(RandomNormal):
    """Draws of the normal distribution that are at most two standard deviations from the mean.

    Args:
        mean: the mean.
        stddev: the standard deviation before the ends are cut off.
        seed: an integer, a `SeedGenerator`, or None for one of its own.

    Example:
        >>> from weft import keras
        >>> keras.initializers.TruncatedNormal(seed=1)((2, 3)).shape
        (2, 3)
    """

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Draw an array."""
        return draws.truncated_normal(shape, self.mean, self.stddev, dtype, self.seed)


class RandomUniform(RandomInitializer):
    """Draws of the uniform distribution.

    Args:
        minval: the least value.
        maxval: the end, which is not drawn.
        seed: an integer, a `SeedGenerator`, or None for one of its own.

    Example:
        >>> from weft import keras
        >>> keras.initializers.RandomUniform(seed=1)((2, 3)).shape
        (2, 3)
    """

    def __init__(self, minval: float = -0.05, maxval: float = 0.05, seed: Any = None) -> None:
        super().__init__(seed)
        self.minval = minval
        self.maxval = maxval

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Draw an array."""
        return draws.uniform(shape, self.minval, self.maxval, dtype, self.seed)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {**super().get_config(), "minval": self.minval, "maxval": self.maxval}


class VarianceScaling(RandomInitializer):
    """Draws whose variance is `scale / n`, where `n` is a count of connections.

    Args:
        scale: the factor.
        mode: what `n` is: "fan_in" (inputs of a unit), "fan_out" (units that an input goes to) or "fan_avg" (the mean).
        distribution: "truncated_normal", "untruncated_normal" or "uniform".
        seed: an integer, a `SeedGenerator`, or None for one of its own.
        input_axes: the axes of inputs, if `output_axes` is given too; all but the last by default.
        output_axes: the axes of units, if `input_axes` is given too; all but the last but one by default.

    Example:
        >>> from weft import keras
        >>> keras.initializers.VarianceScaling(2.0, seed=1)((2, 3)).shape
        (2, 3)
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: Any = None,
        input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ) -> None:
        if scale <= 0.0:
            raise ArgumentError("`scale` must be positive.", received=f"scale={scale}")
        if mode not in _MODES:
            raise ArgumentError(f"`mode` must be one of {', '.join(_MODES)}.", received=f"mode={mode!r}")
        distribution = "truncated_normal" if distribution.lower() == "normal" else distribution.lower()
        if distribution not in _DISTRIBUTIONS:
            raise ArgumentError(
                f"`distribution` must be one of {', '.join(_DISTRIBUTIONS)}.", received=f"distribution={distribution!r}"
            )
        super().__init__(seed)
        self.scale = scale
        self.mode = mode
        self.distribution = distribution
        self.input_axes = input_axes
        self.output_axes = output_axes

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Draw an array."""
        fan_in, fan_out = fans(shape, self.input_axes, self.output_axes)
        count = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        scale = self.scale / max(1.0, count)
        if self.distribution == "uniform":
            limit = math.sqrt(3.0 * scale)
            return draws.uniform(shape, -limit, limit, dtype, self.seed)
        if self.distribution == "untruncated_normal":
            return draws.normal(shape, 0.0, math.sqrt(scale), dtype, self.seed)
        return draws.truncated_normal(shape, 0.0, math.sqrt(scale) / _TRUNCATED_DEVIATION, dtype, self.seed)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {
            **super().get_config(),
            "scale": self.scale,
            "mode": self.mode,
            "distribution": self.distribution,
            "input_axes": self.input_axes,
            "output_axes": self.output_axes,
        }


def fans(
    shape: Sequence[int], input_axes: Sequence[int] | None = None, output_axes: Sequence[int] | None = None
) -> tuple[float, float]:
    """Return how many inputs a unit has, and how many units an input feeds, for a kernel of this shape."""
    shape = tuple(shape)
    if input_axes is not None and output_axes is not None:
        return math.prod(shape[i] for i in input_axes), math.prod(shape[i] for i in output_axes)
    if len(shape) < 1:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    rest = math.prod(shape[:-2])
    return shape[-2] * rest, shape[-1] * rest


def _scaling_class(name: str, scale: float, mode: str, distribution: str, summary: str) -> type[VarianceScaling]:
    """Create the subclass of `VarianceScaling` with these options."""

    def __init__(self: Any, seed: Any = None, input_axes: Any = None, output_axes: Any = None) -> None:
        VarianceScaling.__init__(self, scale, mode, distribution, seed, input_axes, output_axes)

    def get_config(self: Any) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {
            **RandomInitializer.get_config(self),
            "input_axes": self.input_axes,
            "output_axes": self.output_axes,
        }

    doc = f"""{summary}

    Args:
        seed: an integer, a `SeedGenerator`, or None for one of its own.
        input_axes: the axes of inputs, if `output_axes` is given too; all but the last by default.
        output_axes: the axes of units, if `input_axes` is given too; all but the last but one by default.

    Example:
        >>> from weft import keras
        >>> keras.initializers.{name}(seed=1)((2, 3)).shape
        (2, 3)
    """
    members = {"__init__": __init__, "get_config": get_config, "__doc__": doc, "__module__": __name__}
    return type(name, (VarianceScaling,), members)


GlorotUniform = _scaling_class(
    "GlorotUniform", 1.0, "fan_avg", "uniform", "Draws of the uniform distribution on ±sqrt(6 / (inputs + units))."
)
GlorotNormal = _scaling_class(
    "GlorotNormal",
    1.0,
    "fan_avg",
    "truncated_normal",
    "Draws of a normal distribution, variance 2 / (inputs + units).",
)
LecunNormal = _scaling_class(
    "LecunNormal", 1.0, "fan_in", "truncated_normal", "Draws of a normal distribution of variance 1 / inputs."
)
LecunUniform = _scaling_class(
    "LecunUniform", 1.0, "fan_in", "uniform", "Draws of the uniform distribution on ±sqrt(3 / inputs)."
)
HeNormal = _scaling_class(
    "HeNormal", 2.0, "fan_in", "truncated_normal", "Draws of a normal distribution of variance 2 / inputs."
)
HeUniform = _scaling_class(
    "HeUniform", 2.0, "fan_in", "uniform", "Draws of the uniform distribution on ±sqrt(6 / inputs)."
)


class Orthogonal(RandomInitializer):
    """A random matrix with orthogonal rows or columns, whichever are fewer.

    Args:
        gain: the factor of the matrix.
        seed: an integer, a `SeedGenerator`, or None for one of its own.

    Example:
        >>> from weft import keras
        >>> keras.initializers.Orthogonal(seed=1)((2, 3)).shape
        (2, 3)
    """

    def __init__(self, gain: float = 1.0, seed: Any = None) -> None:
        super().__init__(seed)
        self.gain = gain

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Draw an orthogonal array; all axes except the last form the rows of the matrix."""
        if len(shape) < 2:
            raise ArgumentError("An orthogonal array must have at least two axes.", received=f"shape={tuple(shape)}")
        dtype = standardize_dtype(dtype)
        rows, columns = math.prod(shape[:-1]), shape[-1]
        # Matrices of 16 bit floats are factorized in 32.
        compute = wnp.promote_types(dtype, "float32")
        drawn = draws.normal((max(rows, columns), min(rows, columns)), dtype=dtype, seed=self.seed)
        orthogonal, triangular = wnp.linalg.qr(drawn.astype(compute))
        # With the signs of the diagonal all orthogonal matrices are equally likely.
        orthogonal = orthogonal * wnp.sign(wnp.diag(triangular))
        if rows < columns:
            orthogonal = wnp.transpose(orthogonal)
        return (self.gain * wnp.reshape(orthogonal, tuple(shape))).astype(dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {**super().get_config(), "gain": self.gain}
