"""Normalization by the mean and variance of data seen before, and rescaling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError, ArgumentTypeError
from weft.keras.core import config
from weft.keras.layers.arguments import ConfiguredLayer, check_axes, fixed_size
from weft.keras.layers.preprocessing.categories import is_array
from weft.keras.numerics.shapes import Shape


class Normalization(ConfiguredLayer):
    """(inputs - mean) / √variance, with mean and variance from `adapt` or from arguments.

    Args:
      axis: the axis or axes along which there is a mean and a variance for each element; None for one mean in all.
      mean, variance: their values; then `adapt` is not needed.
      invert: whether the inverse is computed, inputs · √variance + mean.

    Returns:
      A layer whose result has the shape of its input.

    Example:
      >>> import numpy as np
      >>> from weft import keras
      >>> layer = keras.layers.Normalization()
      >>> layer.adapt(np.array([[1.0], [3.0]], "float32"))
      >>> layer(np.array([[5.0]], "float32"))
      Array([[3.]], dtype=float32)
    """

    def __init__(
        self,
        axis: int | Sequence[int] | None = -1,
        mean: Any = None,
        variance: Any = None,
        invert: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if (mean is None) != (variance is None):
            raise ArgumentError(f"`mean` and `variance` are given together. Received: mean={mean}, variance={variance}")
        if mean is not None and np.shape(mean) != np.shape(variance):
            raise ArgumentError(
                f"`mean` and `variance` must have one shape. Received: {np.shape(mean)} and {np.shape(variance)}"
            )
        self.axis = () if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        self.invert = invert
        self.input_mean = mean
        self.input_variance = variance
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        """Make the variables, of the shape of the axes."""
        check_axes(self.axis, input_shape, self)
        self._retained = tuple(sorted(axis % len(input_shape) for axis in self.axis))
        self._sizes = [1] * len(input_shape)
        for axis in self._retained:
            self._sizes[axis] = fixed_size(input_shape, axis, self)
        if self.input_mean is None:
            shape = tuple(self._sizes[axis] for axis in self._retained)
            self.adapt_mean = self.add_weight(name="mean", shape=shape, initializer="zeros", trainable=False)
            self.adapt_variance = self.add_weight(name="variance", shape=shape, initializer="ones", trainable=False)
            # Files of weights have a count, which nothing uses.
            self.count = self.add_weight(name="count", shape=(), initializer="zeros", dtype="int32", trainable=False)
        self.built = True

    @property
    def mean(self) -> Any:
        """The mean, of a shape that broadcasts to the inputs."""
        return self._statistic(self.input_mean, "adapt_mean")

    @property
    def variance(self) -> Any:
        """The variance, of a shape that broadcasts to the inputs."""
        return self._statistic(self.input_variance, "adapt_variance")

    def _statistic(self, value: Any, name: str) -> Any:
        if not self.built:
            return None
        if value is None:
            return wnp.reshape(getattr(self, name).value, self._sizes).astype(self.compute_dtype)
        found = np.asarray(value)
        if found.ndim > len(self._retained):
            raise ArgumentError(
                f"`mean` has {found.ndim} dimensions, more than there are axes. Received: axis={self.axis}"
            )
        sizes = [1] * len(self._sizes)
        for size, axis in zip(found.shape[::-1], self._retained[::-1], strict=False):
            sizes[axis] = size
        return wnp.broadcast_to(wnp.asarray(found.reshape(sizes), self.compute_dtype), self._sizes)

    def adapt(self, data: Any) -> None:
        """Compute and set mean and variance of an array, or of all batches of an iterable of arrays or of tuples that
        begin with one."""
        batches = [np.asarray(data)] if is_array(data) else _batches(data)
        iterator = iter(batches)
        first = next(iterator, None)
        if first is None:
            raise ArgumentError("adapt got no batch at all.")
        if not self.built:
            self.build(tuple(first.shape))
        if self.input_mean is not None:
            raise ArgumentError(f"{self.name!r} was made with a mean and a variance, so there is nothing to adapt.")
        count, mean, variance = 0, np.float64(0), np.float64(0)
        for batch in itertools.chain([first], iterator):
            values = np.asarray(batch, np.float64)
            sizes = [values.shape[axis] for axis in self._retained]
            if values.ndim != len(self._sizes) or sizes != [self._sizes[axis] for axis in self._retained]:
                raise ArgumentError(
                    f"{self.name!r} was built for other sizes along axes {self.axis}. Received: shape {values.shape}"
                )
            reduced = tuple(axis for axis in range(values.ndim) if axis not in self._retained)
            new = math.prod(values.shape[axis] for axis in reduced)
            count += new
            weight = new / count
            own = values.mean(axis=reduced)
            variance = _merge_variance(variance, values.var(axis=reduced), mean - own, weight)
            mean = own * weight + mean * (1 - weight)
        self.adapt_mean.assign(np.asarray(mean, np.float32))
        self.adapt_variance.assign(np.asarray(variance, np.float32))

    def call(self, inputs: Array) -> Array:
        """Normalize the inputs."""
        values = wnp.asarray(inputs).astype(self.compute_dtype)
        deviation = wnp.maximum(wnp.sqrt(self.variance), config.epsilon())
        return self.mean + values * deviation if self.invert else (values - self.mean) / deviation

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the input shape unchanged."""
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments, with mean and variance as lists."""
        listed = lambda value: None if value is None else np.asarray(value).tolist()
        return {
            **super().get_config(),
            "axis": self.axis,
            "invert": self.invert,
            "mean": listed(self.input_mean),
            "variance": listed(self.input_variance),
        }


def _merge_variance(old: Any, new: Any, difference: Any, weight: float) -> Any:
    """Merge the variances of two sets, given the difference of their means and the share `weight` of the second."""
    return old * (1 - weight) + new * weight + difference**2 * weight * (1 - weight)


def _batches(data: Any) -> Iterable[Any]:
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise ArgumentTypeError(f"adapt takes an array or an iterable of batches. Received: {type(data).__name__}")
    indexed = (data[i] for i in range(len(data))) if not hasattr(data, "__iter__") else data
    for batch in indexed:
        first = batch[0] if isinstance(batch, tuple) else batch
        if not hasattr(first, "shape"):
            raise ArgumentTypeError(f"adapt takes batches that are arrays. Received: {type(first).__name__}")
        yield first


class Rescaling(ConfiguredLayer):
    """inputs · scale + offset.

    Args:
      scale: the factor, such as 1 / 255; or one for each channel.
      offset: what is added.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Rescaling(1 / 127.5, offset=-1)(weft.numpy.array([0.0, 255.0]))
      Array([-1.,  1.], dtype=float32)
    """

    def __init__(self, scale: Any, offset: Any = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.set_arguments(scale=scale, offset=offset)
        self.supports_masking = True

    def call(self, inputs: Array) -> Array:
        """Scale the inputs and add the offset."""
        scale, offset = (wnp.asarray(value, self.compute_dtype) for value in (self.scale, self.offset))
        if scale.ndim and config.image_data_format() == "channels_first":
            scale = wnp.reshape(scale, (*scale.shape, *(1,) * (3 - scale.ndim)))
        return inputs.astype(self.compute_dtype) * scale + offset

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the input shape unchanged."""
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments, with arrays as lists."""
        plain = {name: np.asarray(getattr(self, name)).tolist() for name in ("scale", "offset")}
        return {**super().get_config(), **plain}
