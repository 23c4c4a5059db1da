"""RandomPerspective and RandomElasticTransform: images warped at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras import ops, random
from weft.keras.core.seeds import draw_seed
from weft.keras.layers.preprocessing.random_color import check_value_range
from weft.keras.layers.preprocessing.random_geometry import Factor, RandomImageLayer, limits
from weft.keras.ops.image.transforms import elastic, homography


class RandomPerspective(RandomImageLayer):
    """In training, some images as if seen from another side: each corner is moved.

    Args:
      factor: the probability, or between which it is drawn.
      scale: how far corners are moved, from 0 to 1.
      interpolation: "bilinear" or "nearest".
      fill_value: the value of what was not in the image.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
    """

    def __init__(
        self,
        factor: Factor = 1.0,
        scale: float = 1.0,
        interpolation: str = "bilinear",
        fill_value: float = 0.0,
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if not 0 <= scale <= 1:
            raise ArgumentError(f"`scale` must be from 0 to 1. Received: scale={scale}")
        if interpolation not in ("nearest", "bilinear"):
            raise ArgumentError(
                f"`interpolation` must be 'nearest' or 'bilinear'. Received: interpolation={interpolation!r}"
            )
        self.factor = limits(factor, "factor", 0.0, 1.0)
        self.set_arguments(scale=scale, interpolation=interpolation, fill_value=fill_value)
        self._set_data_format(data_format)
        self._set_seed(seed)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        probability = random.uniform((batch,), *self.factor, seed=seed)
        chosen = random.uniform((batch,), 0.0, 1.0, seed=seed) < probability
        shift = random.uniform((batch, 4, 2), -0.5 * self.scale, 0.5 * self.scale, seed=seed, dtype=self.compute_dtype)
        right, bottom = float(width - 1), float(height - 1)
        corners = wnp.asarray([[0.0, 0.0], [right, 0.0], [0.0, bottom], [right, bottom]], "float32")
        corners = wnp.broadcast_to(corners, (batch, 4, 2))
        ends = corners + corners * shift.astype("float32")
        return {"apply_perspective": chosen, "start_points": corners, "end_points": ends}

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        return self._warp(images, transformation, self.interpolation)

    def _warp(self, images: Array, transformation: dict[str, Any], interpolation: str) -> Array:
        out = ops.image.perspective_transform(
            images,
            transformation["start_points"],
            transformation["end_points"],
            interpolation=interpolation,
            fill_value=self.fill_value,
            data_format=self.data_format,
        )
        # One image without a batch may come with what was drawn for a batch of one.
        chosen = wnp.reshape(transformation["apply_perspective"], (-1, 1, 1, 1))
        return wnp.where(chosen if images.ndim == 4 else chosen[0], out, images)

    def _transform_box_dict(self, boxes: dict[str, Any], transformation: dict[str, Any]) -> dict[str, Any]:
        chosen = wnp.reshape(transformation["apply_perspective"], (-1, 1, 1))
        rows = homography(transformation["start_points"], transformation["end_points"], len(chosen))
        rows = wnp.concatenate([rows, wnp.ones_like(rows[:, :1])], axis=1)
        matrices = wnp.where(chosen, wnp.reshape(rows, (-1, 3, 3)), wnp.eye(3, dtype=rows.dtype))
        shape = [int(size) for size in transformation["input_shape"]]
        return self._warp_boxes(boxes, matrices, shape)

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """Warp the masks like the images, with nearest-neighbor sampling."""
        return self._warp(masks, transformation, "nearest") if training else masks


class RandomElasticTransform(RandomImageLayer):
    """In training, some images whose pixels come from random neighbours, which change smoothly (Simard et al. 2003).

    Segmentation masks are warped exactly as the images. Bounding boxes cannot be transformed.

    Args:
      factor: the probability, or between which it is drawn.
      scale: how strong the distortion is: at most, or at least and at most; from 0 to 1.
      interpolation: "bilinear" or "nearest".
      fill_mode: what is outside: "constant", "nearest" (the edge), "wrap", "mirror" or "reflect".
      fill_value: the constant.
      value_range: the smallest and largest value of a pixel.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.RandomElasticTransform(seed=1)(weft.numpy.ones((2, 8, 8, 3)), training=True).shape
      (2, 8, 8, 3)
    """

    def __init__(
        self,
        factor: Factor = 1.0,
        scale: Factor = 1.0,
        interpolation: str = "bilinear",
        fill_mode: str = "reflect",
        fill_value: float = 0.0,
        value_range: Sequence[float] = (0, 255),
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        for name, value, known in (
            ("interpolation", interpolation, ("nearest", "bilinear")),
            ("fill_mode", fill_mode, ("constant", "nearest", "wrap", "mirror", "reflect")),
        ):
            if value not in known:
                raise ArgumentError(f"`{name}` must be one of {', '.join(known)}.", received=f"{name}={value!r}")
        self.factor = limits(factor, "factor", 0.0, 1.0)
        self.scale = limits(scale, "scale", 0.0, 1.0)
        self.value_range = check_value_range(value_range)
        self.set_arguments(interpolation=interpolation, fill_mode=fill_mode, fill_value=fill_value)
        self._set_data_format(data_format)
        self._set_seed(seed)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any] | None:
        if self.scale[1] == 0 or self.factor[1] == 0:
            return None
        probability = random.uniform((batch,), *self.factor, seed=seed)
        chosen = random.uniform((batch,), 0.0, 1.0, seed=seed) < probability
        strength = random.uniform((), *self.scale, seed=seed, dtype="float32")
        # One key for the images and the masks: both are warped in the same way.
        return {"apply_transform": chosen, "distortion_factor": strength, "seed": draw_seed(seed)}

    def _transform(self, images: Array, transformation: dict[str, Any] | None) -> Array:
        if transformation is None:
            return images
        out = self._distort(images, transformation, self.interpolation)
        return wnp.clip(out, *self.value_range)

    def _distort(self, images: Array, transformation: dict[str, Any], interpolation: str) -> Array:
        height, width = self._size(images)
        strength, seed = transformation["distortion_factor"], transformation["seed"]
        out = elastic(
            images,
            max(height, width) * 0.1 * strength,
            wnp.maximum(min(height, width) * 0.05 * strength, 1e-3),
            int(6 * min(height, width) * 0.05 * self.scale[1]) | 1,
            interpolation,
            self.fill_mode,
            self.fill_value,
            seed if isinstance(seed, Array) else draw_seed(seed),
            self.data_format,
        )
        chosen = wnp.reshape(transformation["apply_transform"], (-1, 1, 1, 1))
        return wnp.where(chosen if images.ndim == 4 else chosen[0], out, images)

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """Warp the masks like the images, with nearest-neighbor sampling."""
        if not training or transformation is None:
            return masks
        return self._distort(masks, transformation, "nearest")
