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
from weft.keras.layers.preprocessing.image import ImageLayer, aspect_part, crop
from weft.keras.numerics.boxes import map_corners
from weft.keras.utils import bounding_boxes

Factor = float | Sequence[float]


def limits(factor: Any, name: str, smallest: float = -1.0, largest: float = 1.0) -> tuple[float, float]:
    """Return (lower, upper) from a pair, or from one number f, which is (-f, f), but not below the smallest."""
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
        """Draw the parameters of a transformation for each image; None outside of training."""
        if not training:
            return None
        images = data["images"] if isinstance(data, dict) else data
        batch = images.shape[0] if images.ndim == 4 else 1
        drawn = self._draw(batch, *self._size(images), self.generator if seed is None else seed)
        return {**drawn, "input_shape": images.shape} if isinstance(drawn, dict) else drawn

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> Any:
        """Draw the parameters that transform a batch of images of a size; subclasses define it."""
        raise NotImplementedError

    def transform_images(self, images: Array, transformation: Any = None, training: bool | None = True) -> Array:
        """Transform a batch of images in training; else return them unchanged."""
        images = wnp.asarray(images).astype(self.compute_dtype)
        return self._transform(images, transformation) if training else images

    def transform_bounding_boxes(self, boxes: dict[str, Any], transformation: Any, training: bool | None = True) -> Any:
        """Transform the boxes of a batch as the images are; outside of training they stay as they are."""
        return self._transform_box_dict(boxes, transformation) if training else boxes

    def _transform_box_dict(self, boxes: dict[str, Any], transformation: Any) -> dict[str, Any]:
        """Transform boxes in training; subclasses define it."""
        return super().transform_bounding_boxes(boxes, transformation)

    def _warp_boxes(self, boxes: dict[str, Any], matrices: Any, shape: Sequence[int]) -> dict[str, Any]:
        """Map boxes by matrices that say where each pixel of the result comes from."""
        size = self._sides(shape)
        corners = self._to_corners(boxes, *size)
        mapped = map_corners(corners["boxes"], wnp.linalg.inv(matrices))
        # A singular matrix leaves nothing of the image.
        mapped = wnp.where(wnp.all(wnp.isfinite(mapped), axis=-1, keepdims=True), mapped, 0.0)
        return self._clip_boxes({**corners, "boxes": mapped}, *size)

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

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        return {"flips": random.uniform((batch, 1, 1, 1), seed=seed) <= 0.5}

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        for word, axis in (("horizontal", self.width_axis), ("vertical", self.height_axis)):
            if word in self.mode:
                images = wnp.where(transformation["flips"], wnp.flip(images, axis=axis), images)
        return images

    def _transform_box_dict(self, boxes: dict[str, Any], transformation: dict[str, Any]) -> dict[str, Any]:
        height, width = self._sides(transformation["input_shape"])
        corners = self._to_corners(boxes, height, width)
        flips = wnp.reshape(transformation["flips"], (-1, *(1,) * (corners["boxes"].ndim - 2)))
        x1, y1, x2, y2 = (corners["boxes"][..., i] for i in range(4))
        if "horizontal" in self.mode:
            x1, x2 = wnp.where(flips, width - x2, x1), wnp.where(flips, width - x1, x2)
        if "vertical" in self.mode:
            y1, y2 = wnp.where(flips, height - y2, y1), wnp.where(flips, height - y1, y2)
        return self._clip_boxes({**corners, "boxes": wnp.stack([x1, y1, x2, y2], axis=-1)}, height, width)


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

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        return self._affine(images, transformation, self.interpolation)

    def _matrices(self, transformation: dict[str, Any]) -> Array:
        """Return eight parameters for each image, as `keras.ops.image.affine_transform` expects; subclasses define
        it.
        """
        raise NotImplementedError

    def _transform_box_dict(self, boxes: dict[str, Any], transformation: dict[str, Any]) -> dict[str, Any]:
        rows = self._matrices(transformation).astype("float32")
        matrices = wnp.reshape(wnp.concatenate([rows, wnp.ones_like(rows[:, :1])], axis=1), (-1, 3, 3))
        return self._warp_boxes(boxes, matrices, transformation["input_shape"])

    def _affine(self, images: Array, transformation: dict[str, Any], interpolation: str) -> Array:
        return ops.image.affine_transform(
            images,
            self._matrices(transformation),
            interpolation=interpolation,
            fill_mode=self.fill_mode,
            fill_value=self.fill_value,
            data_format=self.data_format,
        )

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """Transform the masks like the images, with nearest-neighbor sampling."""
        return self._affine(masks, transformation, "nearest") if training else masks


def _rows(batch: int, *columns: Any) -> Array:
    """Return the first eight entries of 3 x 3 matrices, one row for each image of a batch; the last two are 0."""
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

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        lower, upper = (factor * 360.0 for factor in self.factor)
        return {"angle": random.uniform((batch,), lower, upper, seed=seed)}

    def _matrices(self, transformation: dict[str, Any]) -> Array:
        height, width = self._sides(transformation["input_shape"])
        angle = wnp.asarray(transformation["angle"]) * (math.pi / 180.0)
        cos, sin = wnp.cos(angle), wnp.sin(angle)
        x, y = 0.5 * (width - 1), 0.5 * (height - 1)
        return _rows(len(angle), cos, -sin, x - x * cos + y * sin, sin, cos, y - x * sin - y * cos)


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

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        down = random.uniform((batch, 1), *self._height_limits, seed=seed) * height
        right = random.uniform((batch, 1), *self._width_limits, seed=seed) * width
        return {"translations": wnp.concatenate([right, down], axis=1)}

    def _matrices(self, transformation: dict[str, Any]) -> Array:
        shifts = wnp.asarray(transformation["translations"])
        return _rows(len(shifts), 1, 0, -shifts[:, 0], 0, 1, -shifts[:, 1])

    def _transform_box_dict(self, boxes: dict[str, Any], transformation: dict[str, Any]) -> dict[str, Any]:
        size = self._sides(transformation["input_shape"])
        corners = self._to_corners(boxes, *size)
        shifts = wnp.tile(wnp.asarray(transformation["translations"]).astype("float32"), (1, 2))
        moved = corners["boxes"] + (shifts if corners["boxes"].ndim == 2 else shifts[:, None])
        return self._clip_boxes({**corners, "boxes": moved}, *size)


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

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        one = lambda pair: random.uniform((batch, 1), 1.0 + pair[0], 1.0 + pair[1], seed=seed)
        high = one(self._height_limits)
        return {"height_zoom": high, "width_zoom": high if self._width_limits is None else one(self._width_limits)}

    def _matrices(self, transformation: dict[str, Any]) -> Array:
        height, width = self._sides(transformation["input_shape"])
        high, wide = (wnp.asarray(transformation[name]) for name in ("height_zoom", "width_zoom"))
        return _rows(len(high), wide, 0, (width - 1) / 2 * (1 - wide), 0, high, (height - 1) / 2 * (1 - high))


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

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        draw = lambda pair: random.uniform((batch, 1), pair[0], pair[1], seed=seed, dtype=self.compute_dtype)
        direction = wnp.where(draw((0, 1)) > 0.5, -1.0, 1.0)
        along_height, along_width = draw(self.y_factor), draw(self.x_factor)
        return {"shear_factor": wnp.concatenate([along_width, along_height], axis=1) * direction}

    def _matrices(self, transformation: dict[str, Any]) -> Array:
        factors = wnp.asarray(transformation["shear_factor"])
        return _rows(len(factors), 1, factors[:, 0], 0, factors[:, 1], 1, 0)


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

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        if height > self.height and width > self.width:
            top, left = (
                random.uniform((), 0, float(size - part + 1), seed=seed).astype(wnp.int32)
                for size, part in ((height, self.height), (width, self.width))
            )
            return {"top": top, "left": left}
        part_height, part_width = aspect_part(height, width, self.height, self.width)
        return {"top": (height - part_height) // 2, "left": (width - part_width) // 2}

    def _transform_box_dict(self, boxes: dict[str, Any], transformation: dict[str, Any]) -> dict[str, Any]:
        height, width = self._sides(transformation["input_shape"])
        top, left = transformation["top"], transformation["left"]
        part_height, part_width = self.height, self.width
        if not (height > self.height and width > self.width):
            part_height, part_width = min(self.height, height - top), min(self.width, width - left)
        corners = self._to_corners(boxes, height, width)
        moved = bounding_boxes.crop(corners["boxes"], top, left, part_height, part_width)
        down, across = self.height / part_height, self.width / part_width
        moved = moved * wnp.asarray([across, down, across, down], "float32")
        return self._clip_boxes({**corners, "boxes": moved}, self.height, self.width)

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        top, left = transformation["top"], transformation["left"]
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

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output shape in training."""
        return self._resize_shape(input_shape)
