"""Dropout and its relatives: elements are dropped at random in training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import Array
from weft.errors import ArgumentError
from weft.keras import random, regularizers
from weft.keras.core.config import standardize_data_format
from weft.keras.core.seeds import SeedGenerator
from weft.keras.core.spec import InputSpec
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.numerics.shapes import Shape, spatial_axes


class RandomLayer(ConfiguredLayer):
    """A layer that changes its inputs at random in training and returns them as they are otherwise.

    The state of its generator advances only when it draws, so nothing is written outside of training.
    """

    seed_generator: SeedGenerator | None = None

    def _set_amount(self, name: str, value: float, seed: int | None) -> None:
        """Set the amount, and create the seed generator if the amount is positive."""
        self.set_arguments(**{name: value}, seed=seed)
        if value > 0:
            self.seed_generator = SeedGenerator(seed)
        self._amount = value
        self.supports_masking = True
        self._build_at_init()

    def _perturb(self, inputs: Array) -> Array:
        raise NotImplementedError

    def call(self, inputs: Array, training: bool | None = False) -> Array:
        """Change the inputs in training; else return them unchanged."""
        return self._perturb(inputs) if training and self._amount > 0 else inputs

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the input shape unchanged."""
        return tuple(input_shape)


def _check_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise ArgumentError(f"`rate` must be between 0 and 1. Received: rate={rate}")


def _noise_shape(value: Sequence[int | None] | None) -> tuple[int | None, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not all(size is None or (isinstance(size, int) and size > 0) for size in value):
        raise ArgumentError(f"`noise_shape` must be positive integers or None. Received: noise_shape={value!r}")
    return tuple(value)


def _fill_sizes(noise_shape: Sequence[int | None] | None, shape: Sequence[int]) -> tuple[int, ...]:
    """Replace None in a noise shape with the sizes of the input."""
    if noise_shape is None:
        return tuple(shape)
    return tuple(size if wanted is None else wanted for wanted, size in zip(noise_shape, shape, strict=True))


class Dropout(RandomLayer):
    """In training, each element is 0 with probability `rate`, and the others are divided by 1 - rate.

    Args:
      rate: the share of elements that is dropped, from 0 to 1.
      noise_shape: the shape of the random decisions, which are broadcast to the input; None is the input's size.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.

    Returns:
      A layer; its call takes `training`, and without it the inputs are returned as they are.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> layer = keras.layers.Dropout(0.5, seed=7)
      >>> layer(weft.numpy.ones((1, 4)))
      Array([[1., 1., 1., 1.]], dtype=float32)
      >>> sorted(set(layer(weft.numpy.ones((1, 100)), training=True).ravel().tolist()))
      [0.0, 2.0]
    """

    def __init__(
        self, rate: float, noise_shape: Sequence[int | None] | None = None, seed: int | None = None, **kwargs: Any
    ):
        super().__init__(**kwargs)
        _check_rate(rate)
        self._set_amount("rate", rate, seed)
        self.set_arguments(noise_shape=_noise_shape(noise_shape))

    def _perturb(self, inputs: Array) -> Array:
        shape = _fill_sizes(self.noise_shape, inputs.shape)
        return random.dropout(inputs, self.rate, noise_shape=shape, seed=self.seed_generator)


class SpatialDropout(RandomLayer):
    """Channels are dropped as a whole."""

    rank: int

    def __init__(
        self,
        rate: float,
        data_format: str | None = None,
        seed: int | None = None,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        _check_rate(rate)
        self._set_amount("rate", rate, seed)
        self.set_arguments(data_format=standardize_data_format(data_format))
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def _perturb(self, inputs: Array) -> Array:
        axes = spatial_axes(self.rank, self.data_format)
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(inputs.shape))
        return random.dropout(inputs, self.rate, noise_shape=shape, seed=self.seed_generator)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments; Keras' layer of this name does not take `trainable`."""
        config = super().get_config()
        del config["trainable"]
        return config


class SpatialDropout1D(SpatialDropout):
    """In training, whole channels of (batch, steps, channels) are 0 with probability `rate`.

    Args:
      rate: the share of channels that is dropped, from 0 to 1.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    rank = 1

    def __init__(self, rate: float, seed: int | None = None, name: str | None = None, dtype: Any = None, **kwargs: Any):
        super().__init__(rate, "channels_last", seed, name, dtype, **kwargs)


class SpatialDropout2D(SpatialDropout):
    """In training, whole channels of an image are 0 with probability `rate`; `data_format` says where they are."""

    rank = 2


class SpatialDropout3D(SpatialDropout):
    """In training, whole channels of a volume are 0 with probability `rate`; `data_format` says where they are."""

    rank = 3


class AlphaDropout(RandomLayer):
    """In training, elements are set to the lower limit of SELU, and all are scaled so that mean and variance stay.

    Args:
      rate: the share of elements that is dropped, from 0 to 1.
      noise_shape: the shape of the random decisions, which are broadcast to the input; None is the input's size.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    def __init__(
        self, rate: float, noise_shape: Sequence[int | None] | None = None, seed: int | None = None, **kwargs: Any
    ):
        super().__init__(**kwargs)
        _check_rate(rate)
        self._set_amount("rate", rate, seed)
        self.set_arguments(noise_shape=_noise_shape(noise_shape))

    def _perturb(self, inputs: Array) -> Array:
        lowest = -1.6732632423543772848170429916717 * 1.0507009873554804934193349852946  # SELU at minus infinity
        uniform = random.uniform(_fill_sizes(self.noise_shape, inputs.shape), seed=self.seed_generator)
        keep = (uniform >= self.rate).astype(inputs.dtype)
        scale = ((1 - self.rate) * (1 + self.rate * lowest**2)) ** -0.5 if self.rate < 1 else 0.0
        return scale * (inputs * keep + lowest * (1 - keep)) - scale * lowest * self.rate


class GaussianDropout(RandomLayer):
    """In training, each element is multiplied by a normal number of mean 1 and variance rate / (1 - rate).

    Args:
      rate: as that of `Dropout`, to which this is alike in mean and variance; less than 1.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ArgumentError(f"`rate` must be from 0 to less than 1. Received: rate={rate}")
        self._set_amount("rate", rate, seed)

    def _perturb(self, inputs: Array) -> Array:
        deviation = math.sqrt(self.rate / (1.0 - self.rate))
        return inputs * random.normal(inputs.shape, 1.0, deviation, dtype=self.compute_dtype, seed=self.seed_generator)


class GaussianNoise(RandomLayer):
    """In training, normal numbers of mean 0 are added.

    Args:
      stddev: the standard deviation of the noise.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    def __init__(self, stddev: float, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if stddev < 0:
            raise ArgumentError(f"`stddev` must not be negative. Received: stddev={stddev}")
        self._set_amount("stddev", stddev, seed)

    def _perturb(self, inputs: Array) -> Array:
        noise = random.normal(inputs.shape, 0.0, self.stddev, dtype=self.compute_dtype, seed=self.seed_generator)
        return inputs + noise


class ActivityRegularization(ConfiguredLayer):
    """The inputs as they are; a penalty on them is added to the losses.

    Args:
      l1: the factor of the sum of absolute values.
      l2: the factor of the sum of squares.
    """

    def __init__(self, l1: float = 0.0, l2: float = 0.0, **kwargs: Any):
        from_arguments = regularizers.L1L2(l1=l1, l2=l2)
        super().__init__(activity_regularizer=from_arguments, **kwargs)
        self.set_arguments(l1=l1, l2=l2)
        self.supports_masking = True
        self._build_at_init()

    def call(self, inputs: Array) -> Array:
        """Return the inputs unchanged."""
        return inputs

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the input shape unchanged."""
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments; the regularizer is omitted, since l1 and l2 determine it."""
        config = super().get_config()
        config.pop("activity_regularizer", None)
        return config
