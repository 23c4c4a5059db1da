"""RandomFlip, RandomRotation, RandomTranslation, RandomZoom, RandomShear, RandomCrop: images moved at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras import ops, random
from weft.keras.core.seeds import SeedGenerator
from weft.keras.layers.preprocessing.image import ImageLayer, crop
from weft.keras.numerics.shapes import Shape

Factor = float | Sequence[float]


def limits(factor: Any, name: str, smallest: float = -1.0, largest: float = 1.0) -> tuple[float, float]:
    """(lower, upper), from these or from one number f, which is (-f, f), but not below the smallest."""
    pair = sorted(factor) if isinstance(factor, (list, tuple)) else None
    if pair is None and isinstance(factor, (int, float)):
        pair = [max(-abs(factor), smallest), abs(factor)]
    if pair is None or len(pair) != 2 or pair[0] < smallest or pair[1] > largest:
        raise ArgumentError(
            f"`{name}` must be a number, or two, from {smallest} to {largest}. Received: {name}={factor!r}"
        )
    return float(pair[0]), float(pair[1])


class RandomImageLayer(ImageLayer):
    """A layer for images that draws; with `training=False` it returns images as they are."""

    def _set_seed(self, seed: int | None) -> None:
        self.seed = seed
        self.generator = SeedGenerator(seed)

    def get_random_transformation(self, data: Any, training: bool | None = True, seed: Any = None) -> Any:
        """What is drawn for images, one for each; None outside of training."""
        if not training:
            return None
        images = data["images"] if isinstance(data, dict) else data
        batch = images.shape[0] if images.ndim == 4 else 1
        return self._draw(batch, *self._size(images), self.generator if seed is None else seed)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> Any:
        raise NotImplementedError

    def transform_images(self, images: Array, transformation: Any, training: bool | None = True) -> Array:
        """The new images of a batch."""
        images = images.astype(self.compute_dtype)
        return self._transform(images, transformation) if training else images

    def _transform(self, images: Array, transformation: Any) -> Array:
        raise NotImplementedError


class RandomFlip(RandomImageLayer):
    """In training, images mirrored at random.

    Args:
      mode: "horizontal", "vertical" or "horizontal_and_vertical".
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.RandomFlip("horizontal", seed=1)(weft.numpy.ones((2, 4, 4, 3)), training=True).shape
      (2, 4, 4, 3)
    """

    def __init__(
        self,
        mode: str = "horizontal_and_vertical",
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if mode not in ("horizontal", "vertical", "horizontal_and_vertical"):
            raise ArgumentError(
                f"`mode` must be 'horizontal', 'vertical' or 'horizontal_and_vertical'. Received: mode={mode!r}"
            )
        self._set_data_format(data_format)
        self._set_seed(seed)
        self.mode = mode

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> Array:
        return random.uniform((batch, 1, 1, 1), seed=seed) <= 0.5

    def _transform(self, images: Array, transformation: Array) -> Array:
        for word, axis in (("horizontal", self.width_axis), ("vertical", self.height_axis)):
            if word in self.mode:
                images = wnp.where(transformation, wnp.flip(images, axis=axis), images)
        return images


class AffineLayer(RandomImageLayer):
    """Images moved by a matrix drawn for each."""

    def _set_affine(
        self, fill_mode: str, interpolation: str, seed: int | None, fill_value: float, data_format: str | None
    ) -> None:
        if fill_mode not in ("reflect", "wrap", "constant", "nearest"):
            raise ArgumentError(
                f"`fill_mode` must be 'reflect', 'wrap', 'constant' or 'nearest'. Received: fill_mode={fill_mode!r}"
            )
        if interpolation not in ("nearest", "bilinear"):
            raise ArgumentError(
                f"`interpolation` must be 'nearest' or 'bilinear'. Received: interpolation={interpolation!r}"
            )
        self._set_data_format(data_format)
        self._set_seed(seed)
        self.set_arguments(fill_mode=fill_mode, interpolation=interpolation, fill_value=fill_value)

    def _transform(self, images: Array, transformation: Array) -> Array:
        return self._affine(images, transformation, self.interpolation)

    def _affine(self, images: Array, matrices: Array, interpolation: str) -> Array:
        return ops.image.affine_transform(
            images,
            matrices,
            interpolation=interpolation,
            fill_mode=self.fill_mode,
            fill_value=self.fill_value,
            data_format=self.data_format,
        )

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """The new masks, of the nearest pixels."""
        return self._affine(masks, transformation, "nearest") if training else masks


def _rows(batch: int, *columns: Any) -> Array:
    """The first eight entries of 3 x 3 matrices, one row for each of a batch; the last two are 0."""
    filled = [wnp.broadcast_to(wnp.asarray(column, wnp.float32).reshape(-1), (batch,)) for column in (*columns, 0, 0)]
    return wnp.stack(filled, axis=1)


class RandomRotation(AffineLayer):
    """In training, images rotated at random.

    Args:
      factor: the largest angle in both directions, or the smallest and the largest, as a part of a full circle.
      fill_mode: what lies beyond the edge: "reflect", "wrap", "constant" or "nearest".
      interpolation: "bilinear" or "nearest".
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
      fill_value: with "constant".
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.RandomRotation(0.1, seed=1)(weft.numpy.ones((2, 4, 4, 3)), training=True).shape
      (2, 4, 4, 3)
    """

    def __init__(
        self,
        factor: Factor,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: int | None = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.factor = limits(factor, "factor")
        self._set_affine(fill_mode, interpolation, seed, fill_value, data_format)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> Array:
        lower, upper = (factor * 360.0 for factor in self.factor)
        angle = random.uniform((batch,), lower, upper, seed=seed) * (math.pi / 180.0)
        cos, sin = wnp.cos(angle), wnp.sin(angle)
        x, y = 0.5 * (width - 1), 0.5 * (height - 1)
        return _rows(batch, cos, -sin, x - x * cos + y * sin, sin, cos, y - x * sin - y * cos)


class RandomTranslation(AffineLayer):
    """In training, images shifted at random.

    Args:
      height_factor: the largest shift up and down, or the smallest and the largest (negative is up), as a part of the
        height.
      width_factor: likewise, of the width (negative is left).
      fill_mode, interpolation, seed, fill_value, data_format: as in `RandomRotation`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.RandomTranslation(0.2, 0.2, seed=1)(weft.numpy.ones((2, 4, 4, 3)), training=True).shape
      (2, 4, 4, 3)
    """

    def __init__(
        self,
        height_factor: Factor,
        width_factor: Factor,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: int | None = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.set_arguments(height_factor=height_factor, width_factor=width_factor)
        self._height_limits = limits(height_factor, "height_factor")
        self._width_limits = limits(width_factor, "width_factor")
        self._set_affine(fill_mode, interpolation, seed, fill_value, data_format)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> Array:
        down = random.uniform((batch, 1), *self._height_limits, seed=seed) * height
        right = random.uniform((batch, 1), *self._width_limits, seed=seed) * width
        return _rows(batch, 1, 0, -right, 0, 1, -down)


class RandomZoom(AffineLayer):
    """In training, images made larger or smaller at random.

    Args:
      height_factor: the largest change of the height, or the smallest and the largest; positive shows more than the
        image, negative a part of it.
      width_factor: likewise; that of the height by default, which keeps the ratio of sides.
      fill_mode, interpolation, seed, fill_value, data_format: as in `RandomRotation`.
    """

    def __init__(
        self,
        height_factor: Factor,
        width_factor: Factor | None = None,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: int | None = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.set_arguments(height_factor=height_factor, width_factor=width_factor)
        self._height_limits = limits(height_factor, "height_factor")
        self._width_limits = None if width_factor is None else limits(width_factor, "width_factor")
        self._set_affine(fill_mode, interpolation, seed, fill_value, data_format)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> Array:
        one = lambda pair: random.uniform((batch, 1), 1.0 + pair[0], 1.0 + pair[1], seed=seed)
        high = one(self._height_limits)
        wide = high if self._width_limits is None else one(self._width_limits)
        return _rows(batch, wide, 0, (width - 1) / 2 * (1 - wide), 0, high, (height - 1) / 2 * (1 - high))


class RandomShear(AffineLayer):
    """In training, images slanted at random.

    Args:
      x_factor: how much at most along the width, or at least and at most, from 0 to 1; in both directions.
      y_factor: likewise, along the height.
      interpolation, fill_mode, fill_value, data_format, seed: as in `RandomRotation`.
    """

    def __init__(
        self,
        x_factor: Factor = 0.0,
        y_factor: Factor = 0.0,
        interpolation: str = "bilinear",
        fill_mode: str = "reflect",
        fill_value: float = 0.0,
        data_format: str | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.x_factor = limits(x_factor, "x_factor")
        self.y_factor = limits(y_factor, "y_factor")
        self._set_affine(fill_mode, interpolation, seed, fill_value, data_format)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> Array:
        draw = lambda pair: random.uniform((batch, 1), pair[0], pair[1], seed=seed, dtype=self.compute_dtype)
        direction = wnp.where(draw((0, 1)) > 0.5, -1.0, 1.0)
        along_height, along_width = draw(self.y_factor), draw(self.x_factor)
        return _rows(batch, 1, along_width * direction, 0, along_height * direction, 1, 0)


class RandomCrop(RandomImageLayer):
    """In training, a part of the images at random, the same for all of a batch; otherwise images as they are.

    Images that are too small are resized.

    Args:
      height, width: the size of the part.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
    """

    def __init__(
        self,
        height: int,
        width: int,
        seed: int | None = None,
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        self.set_arguments(height=height, width=width)
        self._set_data_format(data_format)
        self._set_seed(seed)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> tuple[Any, Any]:
        if height > self.height and width > self.width:
            top, left = (
                random.uniform((), 0, float(size - part + 1), seed=seed).astype(wnp.int32)
                for size, part in ((height, self.height), (width, self.width))
            )
            return top, left
        part_height = max(min(height, int(width * self.height / self.width)), 1)
        part_width = max(min(width, int(height * self.width / self.height)), 1)
        return (height - part_height) // 2, (width - part_width) // 2

    def _transform(self, images: Array, transformation: tuple[Any, Any]) -> Array:
        top, left = transformation
        height, width = self._size(images)
        if height > self.height and width > self.width:
            return crop(images, top, left, self.height, self.width, self.height_axis)
        # What there is of the part, resized.
        part = crop(
            images,
            top,
            left,
            min(self.height, height - top),
            min(self.width, width - left),
            self.height_axis,
        )
        if self._size(part) == (self.height, self.width):
            return part
        out = ops.image.resize(part, (self.height, self.width), data_format=self.data_format)
        return out.astype(self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """The shape in training."""
        return self._resized_shape(input_shape)
