"""RandAugment: some of many transformations, chosen at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array, lax
from weft.keras import random
from weft.keras.layers.preprocessing.colors import (
    AutoContrast,
    Equalization,
    RandomColorDegeneration,
    RandomPosterization,
    RandomSharpness,
    Solarization,
)
from weft.keras.layers.preprocessing.random_color import RandomBrightness, RandomContrast, checked_range
from weft.keras.layers.preprocessing.random_geometry import (
    Factor,
    RandomImageLayer,
    RandomRotation,
    RandomShear,
    RandomTranslation,
    limits,
)


class RandAugment(RandomImageLayer):
    """In training, `num_ops` of eleven transformations, one after the other, chosen at random for a batch
    (Cubuk et al. 2019).

    Args:
      value_range: the smallest and largest value of a pixel.
      num_ops: how many.
      factor: how strong each is at most, or at least and at most; from 0 to 1.
      interpolation: "bilinear" or "nearest".
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        num_ops: int = 2,
        factor: Factor = 0.5,
        interpolation: str = "bilinear",
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._set_data_format(data_format)
        self._set_seed(seed)
        self.value_range = checked_range(value_range)
        self.num_ops = num_ops
        self.factor = limits(factor, "factor", 0.0, 1.0)
        self.interpolation = interpolation
        common: dict[str, Any] = {"data_format": self.data_format, "dtype": self.dtype_policy}
        moved: dict[str, Any] = {**common, "interpolation": interpolation, "seed": seed}
        colored: dict[str, Any] = {**common, "value_range": value_range, "seed": seed}
        # In the order of Keras: the generator is asked in it.
        self.random_shear = RandomShear(self.factor, self.factor, **moved)
        self.random_translation = RandomTranslation(self.factor, self.factor, **moved)
        self.random_rotation = RandomRotation(self.factor, **moved)
        self.random_brightness = RandomBrightness(self.factor, **colored)
        self.random_color_degeneration = RandomColorDegeneration(self.factor, **colored)
        self.random_contrast = RandomContrast(self.factor, **colored)
        self.random_sharpness = RandomSharpness(self.factor, **colored)
        self.random_posterization = RandomPosterization(max(1, int(8 * self.factor[1])), **colored)
        self.solarization = Solarization(self.factor, self.factor, **colored)
        self.auto_contrast = AutoContrast(value_range=value_range, **common)
        self.equalization = Equalization(value_range=value_range, **common)

    def _parts(self) -> list[Any]:
        return [
            self.random_shear,
            self.random_translation,
            self.random_rotation,
            self.random_brightness,
            self.random_color_degeneration,
            self.random_contrast,
            self.random_sharpness,
            self.random_posterization,
            self.solarization,
            self.auto_contrast,
            self.equalization,
        ]

    def get_random_transformation(self, data: Any, training: bool | None = True, seed: Any = None) -> Any:
        """Which transformations, and what each draws."""
        if not training:
            return None
        source = self.generator if seed is None else seed
        chosen = random.randint((self.num_ops,), 0, len(self._parts()), seed=source)
        return chosen, [part.get_random_transformation(data, training=training, seed=source) for part in self._parts()]

    def _transform(self, images: Array, transformation: Any) -> Array:
        return self._switched(images, transformation, "transform_images")

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """The masks moved as the images are."""
        return self._switched(masks, transformation, "transform_segmentation_masks") if training else masks

    def _switched(self, images: Array, transformation: Any, method: str) -> Array:
        chosen, drawn = transformation
        branches = [
            lambda images, part=part, values=values: getattr(part, method)(images, values).astype(images.dtype)
            for part, values in zip(self._parts(), drawn, strict=True)
        ]
        for i in range(self.num_ops):
            images = lax.switch(wnp.asarray(chosen[i]), branches, images)
        return images
