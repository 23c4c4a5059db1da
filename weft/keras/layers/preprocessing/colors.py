"""Further layers that change colours: grey, inverted, saturation, hue, levels, sharpness, contrast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras import ops, random
from weft.keras.core import config
from weft.keras.layers.preprocessing.image import ImageLayer
from weft.keras.layers.preprocessing.random_color import ColorLayer, check_value_range
from weft.keras.layers.preprocessing.random_geometry import Factor, limits
from weft.keras.numerics.convolution import depthwise_conv

Range = Sequence[float]
_BYTES = (0, 255)


def rescale(images: Array, source: Range, target: Range) -> Array:
    """Map values from one range to another."""
    if tuple(source) == tuple(target):
        return images
    return (images - source[0]) / (source[1] - source[0]) * (target[1] - target[0]) + target[0]


def _each(values: Array) -> Array:
    """Reshape one value per image for broadcasting to images."""
    return wnp.reshape(values, (-1, 1, 1, 1))


class FactorColorLayer(ColorLayer):
    """A colour layer with a factor drawn for each image."""

    bounds: tuple[float, float] = (0.0, 1.0)

    def __init__(
        self,
        factor: Factor,
        value_range: Range = _BYTES,
        data_format: str | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.factor = limits(factor, "factor", *self.bounds)
        self._set_range(value_range, seed, data_format)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        return {"factor": random.uniform((batch,), *self.factor, seed=seed)}


class RandomGrayscale(ColorLayer):
    """In training, images without colours at random.

    Args:
      factor: the share of images.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    def __init__(self, factor: float = 0.5, data_format: str | None = None, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if not 0 <= factor <= 1:
            raise ArgumentError(f"`factor` must be between 0 and 1. Received: factor={factor}")
        self.factor = factor
        self._set_range(_BYTES, seed, data_format)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> Array:
        return random.uniform((batch,), 0, 1, seed=seed) < self.factor

    def _transform(self, images: Array, transformation: Array) -> Array:
        grey = ops.image.rgb_to_grayscale(images, data_format=self.data_format)
        return wnp.where(_each(transformation), grey, images)


class RandomInvert(ColorLayer):
    """In training, images with inverted colours at random: the largest value minus the pixel.

    Args:
      factor: the probability, or between which it is drawn.
      value_range: the smallest and largest value of a pixel.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
    """

    def __init__(
        self,
        factor: Factor = 1.0,
        value_range: Range = _BYTES,
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.factor = limits(factor, "factor", 0.0, 1.0)
        self._set_range(value_range, seed, data_format)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        probability = random.uniform((batch,), *self.factor, seed=seed)
        return {"apply_inversion": random.uniform((batch,), 0, 1, seed=seed) < probability}

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        return wnp.where(_each(transformation["apply_inversion"]), self.value_range[1] - images, images)


class RandomSaturation(FactorColorLayer):
    """In training, images with more or less saturated colours.

    Args:
      factor: from 0 (grey) over 0.5 (as it is) to 1 (fully saturated): two numbers between which it is drawn; one
        number f is (-f, f), and what is below 0 is grey.
      value_range: limits of the saturation.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    bounds = (-1.0, 1.0)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        factor = super()._draw(batch, height, width, seed)["factor"]
        return {"factor": factor / (1 - factor + config.epsilon())}

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        axis = 1 if self.data_format == "channels_first" else -1
        colors = ops.image.rgb_to_hsv(images, data_format=self.data_format)
        hue, saturation, value = wnp.split(colors, 3, axis=axis)
        saturation = wnp.clip(saturation * _each(transformation["factor"]).astype(images.dtype), *self.value_range)
        colors = wnp.concatenate([hue, saturation, value], axis=axis)
        return ops.image.hsv_to_rgb(colors, data_format=self.data_format)


class RandomHue(FactorColorLayer):
    """In training, images whose hue is turned in one direction or the other.

    Args:
      factor: how far at most, or at least and at most; 1 is half of the circle.
      value_range: the smallest and largest value of a pixel.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        direction = wnp.where(random.uniform((batch,), seed=seed) > 0.5, -1.0, 1.0)
        return {"factor": direction * super()._draw(batch, height, width, seed)["factor"] * 0.5}

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        axis = 1 if self.data_format == "channels_first" else -1
        colors = ops.image.rgb_to_hsv(rescale(images, self.value_range, (0, 1)), data_format=self.data_format)
        hue, saturation, value = wnp.split(colors, 3, axis=axis)
        hue = hue + _each(transformation["factor"]).astype(images.dtype)
        hue = wnp.where(hue > 1.0, hue - 1.0, hue)
        hue = wnp.where(hue < 0.0, hue + 1.0, hue)
        colors = wnp.concatenate([hue, saturation, value], axis=axis)
        out = wnp.clip(ops.image.hsv_to_rgb(colors, data_format=self.data_format), 0, 1)
        return rescale(out, (0, 1), self.value_range)


class RandomColorDegeneration(FactorColorLayer):
    """Mix images with their grey version in training.

    Args:
      factor: the share of grey at most, or at least and at most.
      value_range: the smallest and largest value of a pixel.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    bounds = (-1.0, 1.0)

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        grey = ops.image.rgb_to_grayscale(images, data_format=self.data_format)
        factor = _each(transformation["factor"]).astype(images.dtype)
        return wnp.clip(images + factor * (grey - images), *self.value_range)


class RandomPosterization(FactorColorLayer):
    """In training, images with fewer levels of each colour.

    Args:
      factor: how many of 8 bits stay: between 1 and this number, or between two.
      value_range: the smallest and largest value of a pixel.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    bounds = (1.0, 8.0)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        lower, upper = (int(bits) for bits in self.factor)
        if lower == upper:
            return {"shift_factor": wnp.full((batch,), 8 - lower, wnp.uint8)}
        bits = random.randint((batch,), lower, upper, seed=seed, dtype="uint8")
        return {"shift_factor": (8 - bits).astype(wnp.uint8)}

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        levels = rescale(images, self.value_range, _BYTES).astype(wnp.uint8)
        shift = _each(transformation["shift_factor"])
        coarse = wnp.left_shift(wnp.right_shift(levels, shift), shift)
        return rescale(coarse.astype(self.compute_dtype), _BYTES, self.value_range)


class RandomSharpness(FactorColorLayer):
    """In training, images smoothed or sharpened.

    Args:
      factor: from 0 (smooth) over 0.5 (as it is) to 1 (sharp): a number, or between which it is drawn.
      value_range: the smallest and largest value of a pixel.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        channels = images.shape[1 if self.data_format == "channels_first" else -1]
        weights = wnp.asarray([[1, 1, 1], [1, 5, 1], [1, 1, 1]], images.dtype) / 13
        kernel = wnp.broadcast_to(weights[:, :, None, None], (3, 3, channels, 1))
        smooth = depthwise_conv(images, kernel, 1, "same", self.data_format)
        factor = _each(transformation["factor"] * 2).astype(images.dtype)
        return wnp.clip(images + (1.0 - factor) * (smooth - images), *self.value_range)


class Solarization(ColorLayer):
    """In training, pixels above a threshold are inverted, after a number was added.

    Args:
      addition_factor: what is added, as a part of the range: up to this number, or between two.
      threshold_factor: the threshold likewise.
      value_range: the smallest and largest value of a pixel.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    def __init__(
        self,
        addition_factor: Factor = 0.0,
        threshold_factor: Factor = 0.0,
        value_range: Range = _BYTES,
        seed: int | None = None,
        **kwargs: Any,
    ):
        data_format = kwargs.pop("data_format", None)
        super().__init__(**kwargs)
        self.addition_factor = limits(addition_factor, "addition_factor", 0.0, 1.0)
        self.threshold_factor = limits(threshold_factor, "threshold_factor", 0.0, 1.0)
        self._set_range(value_range, seed, data_format)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        draw = lambda pair: random.uniform(
            (batch, 1, 1, 1), pair[0], pair[1] * 255, seed=seed, dtype=self.compute_dtype
        )
        return {"additions": draw(self.addition_factor), "thresholds": draw(self.threshold_factor)}

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        addition, threshold = transformation["additions"], transformation["thresholds"]
        out = wnp.clip(rescale(images, self.value_range, _BYTES) + addition, 0, 255)
        return rescale(wnp.where(out < threshold, out, 255 - out), _BYTES, self.value_range)


class AutoContrast(ImageLayer):
    """Images whose darkest and brightest pixels, in each channel, are the ends of the range.

    Args:
      value_range: the smallest and largest value of a pixel.
    """

    def __init__(self, value_range: Range = _BYTES, **kwargs: Any):
        data_format = kwargs.pop("data_format", None)
        super().__init__(**kwargs)
        self._set_data_format(data_format)
        self.value_range = check_value_range(value_range)

    def transform_images(self, images: Array, transformation: Any = None, training: bool | None = True) -> Array:
        """Transform a batch of images."""
        pixels = rescale(images.astype(self.compute_dtype), self.value_range, _BYTES)
        axes = (self.height_axis, self.width_axis)
        low, high = (reduce(pixels, axis=axes, keepdims=True) for reduce in (wnp.min, wnp.max))
        flat = high == low
        scale = 255.0 / wnp.where(flat, 1, high - low)
        out = rescale(wnp.clip((pixels - low) * scale, 0.0, 255.0), _BYTES, self.value_range)
        return wnp.where(flat, images.astype(self.compute_dtype), out)

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """Return the masks unchanged."""
        return masks

    def transform_bounding_boxes(self, boxes: dict[str, Any], transformation: Any, training: bool | None = True) -> Any:
        """Return the boxes unchanged."""
        return boxes


class Equalization(ImageLayer):
    """Images whose levels are as frequent as each other, as far as possible; levels are those of the whole batch.

    Args:
      value_range: the smallest and largest value of a pixel.
      bins: the number of levels.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
    """

    def __init__(self, value_range: Range = _BYTES, bins: int = 256, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self._set_data_format(data_format)
        self.value_range = check_value_range(value_range)
        self.bins = bins

    def transform_images(self, images: Array, transformation: Any, training: bool | None = True) -> Array:
        """Transform a batch of images."""
        if not training:
            return images
        axis = 1 if self.data_format == "channels_first" else images.ndim - 1
        images = images.astype(self.compute_dtype)
        parts = [self._equalize(part) for part in wnp.split(images, images.shape[axis], axis=axis)]
        return wnp.concatenate(parts, axis=axis)

    def _equalize(self, channel: Array) -> Array:
        pixels = rescale(channel, self.value_range, _BYTES)
        level = wnp.clip((pixels * (self.bins - 1) / 255.0).astype(wnp.int32), 0, self.bins - 1)
        counts = wnp.zeros((self.bins,), wnp.int32).at[level.ravel()].add(1)
        total = wnp.cumsum(counts)
        first = wnp.min(wnp.where(total > 0, total, total[-1]))
        new = wnp.round((total - first) * 255 / wnp.maximum(total[-1] - first, 1))
        out = wnp.where(wnp.count_nonzero(counts) <= 1, pixels, wnp.clip(new, 0, 255)[level].astype(pixels.dtype))
        return rescale(out, _BYTES, self.value_range)

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """Return the masks unchanged."""
        return masks

    def transform_bounding_boxes(self, boxes: dict[str, Any], transformation: Any, training: bool | None = True) -> Any:
        """Return the boxes unchanged."""
        return boxes
