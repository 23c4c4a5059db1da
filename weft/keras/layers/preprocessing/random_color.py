"""RandomContrast and RandomBrightness: colours changed at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras import random
from weft.keras.layers.preprocessing.random_geometry import Factor, RandomImageLayer, limits


def check_value_range(value_range: Any) -> tuple[float, float]:
    """Return the smallest and largest value of a pixel, in ascending order."""
    if not isinstance(value_range, (list, tuple)) or len(value_range) != 2:
        raise ArgumentError(f"`value_range` must be two numbers. Received: value_range={value_range!r}")
    smallest, largest = sorted(value_range)
    return smallest, largest


class ColorLayer(RandomImageLayer):
    """Images with other values, limited to a range; masks stay as they are."""

    def _set_range(self, value_range: Sequence[float], seed: int | None, data_format: str | None) -> None:
        self.value_range = check_value_range(value_range)
        self._set_data_format(data_format)
        self._set_seed(seed)

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """Return the masks unchanged."""
        return masks

    def transform_bounding_boxes(self, boxes: dict[str, Any], transformation: Any, training: bool | None = True) -> Any:
        """Return the boxes unchanged."""
        return boxes


class RandomContrast(ColorLayer):
    """In training, images with more or less contrast: (x - mean) · factor + mean for each channel.

    Args:
      factor: how much the factor differs from 1 at most: one number, or one for less and one for more.
      value_range: the smallest and largest value of a pixel.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.RandomContrast(0.2, seed=1)(weft.numpy.ones((2, 4, 4, 3)), training=True).shape
      (2, 4, 4, 3)
    """

    def __init__(self, factor: Factor, value_range: Sequence[float] = (0, 255), seed: int | None = None, **kwargs: Any):
        data_format = kwargs.pop("data_format", None)
        super().__init__(**kwargs)
        self.factor = limits(factor, "factor", 0.0, 1.0)
        self._set_range(value_range, seed, data_format)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        lower, upper = self.factor
        shape = (batch, 1, 1, 1)
        factor = random.uniform(shape, 1.0 - lower, 1.0 + upper, dtype=self.compute_dtype, seed=seed)
        return {"contrast_factor": factor}

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        mean = wnp.mean(images, axis=(self.height_axis, self.width_axis), keepdims=True)
        factor = transformation["contrast_factor"].astype(images.dtype)
        return wnp.clip((images - mean) * factor + mean, *self.value_range)


class RandomBrightness(ColorLayer):
    """In training, brighter or darker images: a number is added to all values of an image.

    Args:
      factor: how much at most, or at least and at most, as a part of the range of values; from -1 to 1.
      value_range: the smallest and largest value of a pixel.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    def __init__(self, factor: Factor, value_range: Sequence[float] = (0, 255), seed: int | None = None, **kwargs: Any):
        data_format = kwargs.pop("data_format", None)
        super().__init__(**kwargs)
        self.factor = limits(factor, "factor")
        self._set_range(value_range, seed, data_format)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        lowest, highest = self.value_range
        return {"rgb_delta": random.uniform((batch, 1, 1, 1), *self.factor, seed=seed) * (highest - lowest)}

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        delta = wnp.asarray(transformation["rgb_delta"]).astype(images.dtype)
        return wnp.clip(images + delta, *self.value_range)
