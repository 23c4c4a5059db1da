"""RandomPerspective: images warped at random."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras import ops, random
from weft.keras.layers.preprocessing.random_geometry import Factor, RandomImageLayer, limits


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

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> tuple[Array, Array, Array]:
        probability = random.uniform((batch,), *self.factor, seed=seed)
        chosen = random.uniform((batch,), 0.0, 1.0, seed=seed) < probability
        shift = random.uniform((batch, 4, 2), -0.5 * self.scale, 0.5 * self.scale, seed=seed, dtype=self.compute_dtype)
        right, bottom = float(width - 1), float(height - 1)
        corners = wnp.asarray([[0.0, 0.0], [right, 0.0], [0.0, bottom], [right, bottom]], self.compute_dtype)
        corners = wnp.broadcast_to(corners, (batch, 4, 2))
        return wnp.reshape(chosen, (-1, 1, 1, 1)), corners, corners + corners * shift

    def _transform(self, images: Array, transformation: tuple[Array, Array, Array]) -> Array:
        return self._warped(images, transformation, self.interpolation)

    def _warped(self, images: Array, transformation: tuple[Array, Array, Array], interpolation: str) -> Array:
        chosen, before, after = transformation
        out = ops.image.perspective_transform(
            images,
            before,
            after,
            interpolation=interpolation,
            fill_value=self.fill_value,
            data_format=self.data_format,
        )
        return wnp.where(chosen, out, images)

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """The masks, warped as the images, by the nearest pixels."""
        return self._warped(masks, transformation, "nearest") if training else masks
