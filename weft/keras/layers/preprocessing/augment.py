"""RandAugment and AugMix: some of many transformations, chosen at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import weft
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
from weft.keras.layers.preprocessing.random_color import RandomBrightness, RandomContrast, check_value_range
from weft.keras.layers.preprocessing.random_geometry import (
    Factor,
    RandomImageLayer,
    RandomRotation,
    RandomShear,
    RandomTranslation,
    limits,
)

_RAND_AUGMENT = (
    "random_shear",
    "random_translation",
    "random_rotation",
    "random_brightness",
    "random_color_degeneration",
    "random_contrast",
    "random_sharpness",
    "random_posterization",
    "solarization",
    "auto_contrast",
    "equalization",
)


class AugmentingLayer(RandomImageLayer):
    """Base class of layers that choose among others, which are attributes by the names of their classes."""

    def _make_parts(self, seed: int | None) -> None:
        common: dict[str, Any] = {
            "data_format": self.data_format,
            "dtype": self.dtype_policy,
            "bounding_box_format": self.bounding_box_format,
        }
        moved: dict[str, Any] = {**common, "interpolation": self.interpolation, "seed": seed}
        colored: dict[str, Any] = {**common, "value_range": self.value_range, "seed": seed}
        # In the order of Keras, in which each draws from the generator.
        self.random_shear = RandomShear(self.factor, self.factor, **moved)
        self.random_translation = RandomTranslation(self.factor, self.factor, **moved)
        self.random_rotation = RandomRotation(self.factor, **moved)
        self.random_brightness = RandomBrightness(self.factor, **colored)
        self.random_color_degeneration = RandomColorDegeneration(self.factor, **colored)
        self.random_contrast = RandomContrast(self.factor, **colored)
        self.random_sharpness = RandomSharpness(self.factor, **colored)
        self.random_posterization = RandomPosterization(max(1, int(8 * self.factor[1])), **colored)
        self.solarization = Solarization(self.factor, self.factor, **colored)
        self.auto_contrast = AutoContrast(value_range=self.value_range, **common)
        self.equalization = Equalization(value_range=self.value_range, **common)


class RandAugment(AugmentingLayer):
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
        self.value_range = check_value_range(value_range)
        self.num_ops = num_ops
        self.factor = limits(factor, "factor", 0.0, 1.0)
        self.interpolation = interpolation
        self._make_parts(seed)

    def _parts(self) -> list[Any]:
        return [getattr(self, name) for name in _RAND_AUGMENT]

    def get_random_transformation(self, data: Any, training: bool | None = True, seed: Any = None) -> Any:
        """Draw which layers are applied, and the transformation of each."""
        if not training:
            return None
        source = self.generator if seed is None else seed
        chosen = random.randint((self.num_ops,), 0, len(self._parts()), seed=source)
        drawn = [part.get_random_transformation(data, training=training, seed=source) for part in self._parts()]
        return {"layer_idxes": chosen, "transforms": dict(zip(_RAND_AUGMENT, drawn, strict=True))}

    def _transform(self, images: Array, transformation: Any) -> Array:
        return self._switch(images, transformation, "transform_images")

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """Transform the masks like the images."""
        return self._switch(masks, transformation, "transform_segmentation_masks") if training else masks

    def _transform_box_dict(self, boxes: dict[str, Any], transformation: dict[str, Any]) -> dict[str, Any]:
        return self._switch(boxes, transformation, "transform_bounding_boxes")

    def _switch(self, values: Any, transformation: dict[str, Any], method: str) -> Any:
        branches = [_branch(getattr(self, name), method, drawn) for name, drawn in transformation["transforms"].items()]
        chosen = wnp.asarray(transformation["layer_idxes"])
        return lax.scan(lambda each, i: (lax.switch(i, branches, each), None), values, chosen)[0]


def _branch(part: Any, method: str, drawn: Any) -> Any:
    """Return a function that applies a method of a layer and keeps the dtypes of its operand."""

    def run(values: Any) -> Any:
        out = getattr(part, method)(values, drawn)
        return weft.tree.map(lambda new, old: new.astype(old.dtype), out, values)

    return run


class AugMix(AugmentingLayer):
    """In training, images mixed with the weighted sum of several chains of transformations of themselves
    (Hendrycks et al. 2019). Bounding boxes stay as they are.

    Args:
      value_range: the smallest and largest value of a pixel.
      num_chains: how many chains are mixed.
      chain_depth: how many transformations a chain has at most.
      factor: how strong each is at most, or at least and at most; from 0 to 1.
      alpha: the parameter of the beta and Dirichlet distributions that weights are drawn from.
      all_ops: whether brightness, colour, contrast and sharpness are changed too.
      interpolation: "bilinear" or "nearest".
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.AugMix(seed=1)(weft.numpy.ones((2, 8, 8, 3)), training=True).shape
      (2, 8, 8, 3)
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        num_chains: int = 3,
        chain_depth: int = 3,
        factor: Factor = 0.3,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: str = "bilinear",
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._set_data_format(data_format)
        self._set_seed(seed)
        self.value_range = check_value_range(value_range)
        self.factor = limits(factor, "factor", 0.0, 1.0)
        self.set_arguments(
            num_chains=num_chains, chain_depth=chain_depth, alpha=alpha, all_ops=all_ops, interpolation=interpolation
        )
        self._make_parts(seed)

    def _names(self) -> list[str]:
        always = ("random_shear", "random_translation", "random_rotation", "random_posterization", "solarization")
        colors = ("random_brightness", "random_color_degeneration", "random_contrast", "random_sharpness")
        return [*always, "auto_contrast", "equalization", *(colors if self.all_ops else ())]

    def get_random_transformation(self, data: Any, training: bool | None = True, seed: Any = None) -> Any:
        """Draw the weights, and the transformations of each chain: in a compiled loop others in each step."""
        if not training:
            return None
        source = self.generator if seed is None else seed
        gamma = random.gamma((self.num_chains,), self.alpha, seed=source)
        weight = random.beta((), self.alpha, self.alpha, seed=source)
        images = data["images"] if isinstance(data, dict) else data
        batch = images.shape[0] if images.ndim == 4 else 1
        names, steps = self._names(), (self.num_chains, self.chain_depth)

        def draw(part: Any) -> Any:
            if not isinstance(part, RandomImageLayer):
                return None
            drawn = part._draw(batch * math.prod(steps), *self._size(images), source)
            return {name: wnp.reshape(value, (*steps, batch, *value.shape[1:])) for name, value in drawn.items()}

        return {
            "chain_mixing_weights": gamma / wnp.sum(gamma),
            "weight_sample": weight,
            # The last index is no transformation.
            "chosen": random.randint(steps, 0, len(names) + 1, seed=source),
            "chain_transforms": {name: draw(getattr(self, name)) for name in names},
            "input_shape": images.shape,
        }

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        return wnp.clip(self._mix(images, transformation, "transform_images"), *self.value_range)

    def _mix(self, values: Array, transformation: dict[str, Any], method: str) -> Array:
        shape = transformation["input_shape"]

        def step(each: Array, inputs: Any) -> tuple[Array, None]:
            chosen, drawn = inputs
            branches = [
                _branch(getattr(self, name), method, None if one is None else {**one, "input_shape": shape})
                for name, one in drawn.items()
            ]
            return lax.switch(chosen, [*branches, lambda same: same], each), None

        def chain(total: Array, inputs: Any) -> tuple[Array, None]:
            share, *steps = inputs
            return total + lax.scan(step, values, tuple(steps))[0] * share.astype(values.dtype), None

        each = (transformation["chain_mixing_weights"], transformation["chosen"], transformation["chain_transforms"])
        total, _ = lax.scan(chain, wnp.zeros_like(values), each)
        weight = transformation["weight_sample"].astype(values.dtype)
        return weight * values + (1 - weight) * total

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """Mix the masks as the images are; classes should be one-hot, as numbers of classes have no mean."""
        if not training:
            return masks
        dtype = masks.dtype if wnp.issubdtype(masks.dtype, wnp.floating) else self.compute_dtype
        return self._mix(masks.astype(dtype), transformation, "transform_segmentation_masks")

    def _transform_box_dict(self, boxes: dict[str, Any], transformation: dict[str, Any]) -> dict[str, Any]:
        return boxes
