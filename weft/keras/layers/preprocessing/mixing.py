"""MixUp and CutMix (several images as one), RandomErasing, RandomGaussianBlur, RandomColorJitter, Pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras import ops, random
from weft.keras.core import registry
from weft.keras.layers.layer import Layer
from weft.keras.layers.preprocessing.colors import RandomHue, RandomSaturation
from weft.keras.layers.preprocessing.random_color import ColorLayer, RandomBrightness, RandomContrast
from weft.keras.layers.preprocessing.random_geometry import Factor, RandomImageLayer, limits
from weft.keras.layers.signature import call_signature
from weft.keras.numerics.shapes import sizes


class MixUp(RandomImageLayer):
    """In training, each image is the weighted sum of itself and another of the batch; labels likewise
    (Zhang et al. 2017).

    Args:
      alpha: both parameters of the beta distribution that weights are drawn from.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    def __init__(self, alpha: float = 0.2, data_format: str | None = None, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.alpha = alpha
        self._set_data_format(data_format)
        self._set_seed(seed)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        order = random.shuffle(wnp.arange(batch), seed=seed)
        return {"permutation_order": order, "mix_weight": random.beta((batch,), self.alpha, self.alpha, seed=seed)}

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        # Keras's results have four dimensions, also for one image.
        return _mix(images if images.ndim == 4 else images[None], transformation)

    def transform_labels(self, labels: Array, transformation: Any, training: bool | None = True) -> Array:
        """Mix the labels with the weights of the images."""
        return _mix(wnp.asarray(labels).astype(self.compute_dtype), transformation) if training else labels

    def _transform_box_dict(self, boxes: dict[str, Any], transformation: dict[str, Any]) -> dict[str, Any]:
        order = wnp.asarray(transformation["permutation_order"])
        both = lambda values, axis: wnp.concatenate([values, wnp.take(values, order, axis=0)], axis=axis)
        coordinates, labels = wnp.asarray(boxes["boxes"]), wnp.asarray(boxes["labels"])
        return {**boxes, "boxes": both(coordinates, 1), "labels": both(labels, min(1, labels.ndim - 1))}


def _mix(values: Array, transformation: dict[str, Any]) -> Array:
    order, weight = wnp.asarray(transformation["permutation_order"]), wnp.asarray(transformation["mix_weight"])
    weight = wnp.reshape(weight, (-1, *(1,) * (values.ndim - 1))).astype(values.dtype)
    return weight * values + (1.0 - weight) * wnp.take(values, order, axis=0)


class BoxLayer(RandomImageLayer):
    """Something happens inside of a box drawn for each image."""

    def _ends(self, batch: int, length: int, share: Array, seed: Any) -> tuple[Array, Array]:
        """Draw where a box begins and ends along one side, given its share of the side."""
        size = (share * length).astype(self.compute_dtype)
        start = random.uniform((batch,), 0, 1, dtype=self.compute_dtype, seed=seed) * (length - size)
        return start, start + size

    def _inside(self, height: int, width: int, x: tuple[Array, Array], y: tuple[Array, Array]) -> Array:
        """Return which pixels are inside the boxes, for broadcasting to images."""
        row, column = (wnp.arange(size).astype(self.compute_dtype) for size in (height, width))
        within = lambda values, ends: (values >= ends[0][:, None]) & (values < ends[1][:, None])
        out = within(row, y)[:, :, None] & within(column, x)[:, None, :]
        return wnp.expand_dims(out, 1 if self.data_format == "channels_first" else -1)


class CutMix(BoxLayer):
    """In training, a box of each image is that of another image of the batch; labels are mixed by the area
    (Yun et al. 2019).

    Args:
      factor: the parameter of the beta distribution that areas are drawn from: up to this number, or between two.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
    """

    def __init__(self, factor: Factor = 1.0, seed: int | None = None, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.factor = limits(factor, "factor", 0.0, 1.0)
        self._set_data_format(data_format)
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool | None = True, seed: Any = None) -> Any:
        """Draw the boxes for a batch; None for one image."""
        images = data["images"] if isinstance(data, dict) else data
        return None if images.ndim == 3 else super().get_random_transformation(data, training, seed)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        alpha = random.uniform((), *self.factor, dtype=self.compute_dtype, seed=seed) + 1e-6
        weight = random.beta((batch,), alpha, alpha, seed=seed, dtype=self.compute_dtype)
        share = wnp.sqrt(1.0 - weight)
        x = self._ends(batch, width, share, seed)
        y = self._ends(batch, height, share, seed)
        area = (x[1] - x[0]) * (y[1] - y[0]) / (width * height)
        order = random.shuffle(wnp.arange(batch), seed=seed)
        mask = self._inside(height, width, x, y)
        return {"permutation_order": order, "batch_masks": mask, "mix_weight": 1.0 - area}

    def _transform(self, images: Array, transformation: Any) -> Array:
        if transformation is None:
            return images
        order, inside = wnp.asarray(transformation["permutation_order"]), transformation["batch_masks"]
        return wnp.where(inside, wnp.take(images, order, axis=0), images)

    def transform_labels(self, labels: Array, transformation: Any, training: bool | None = True) -> Array:
        """Mix the labels with weights by area."""
        if not training or transformation is None:
            return labels
        return _mix(wnp.asarray(labels).astype(self.compute_dtype), transformation)


class RandomErasing(BoxLayer):
    """In training, a box of some images is noise, or of one colour (Zhong et al. 2017).

    Args:
      factor: the probability, or between which it is drawn.
      scale: the area of the box as a part of the image: at most, or at least and at most.
      fill_value: a number, or one for each channel; noise by default.
      value_range: the smallest and largest value of a pixel.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
    """

    def __init__(
        self,
        factor: Factor = 1.0,
        scale: Factor = (0.02, 0.33),
        fill_value: float | Sequence[float] | None = None,
        value_range: Sequence[float] = (0, 255),
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.factor = limits(factor, "factor", 0.0, 1.0)
        self.scale = limits(scale, "scale", 0.0, 1.0)
        self.set_arguments(fill_value=fill_value, value_range=value_range)
        self._set_data_format(data_format)
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool | None = True, seed: Any = None) -> Any:
        """Draw the boxes, whether they are erased, and their fill values."""
        drawn = super().get_random_transformation(data, training, seed)
        if drawn is None:
            return None
        images = data["images"] if isinstance(data, dict) else data
        shape = images.shape if images.ndim == 4 else (1, *images.shape)
        source = self.generator if seed is None else seed
        if self.fill_value is None:
            fill = random.normal(shape, dtype=self.compute_dtype, seed=source) * self.value_range[1]
        else:
            fill = wnp.asarray(self.fill_value, self.compute_dtype)
            if fill.ndim and self.data_format == "channels_first":
                fill = fill[:, None, None]
        return {**drawn, "fill_value": wnp.clip(fill, *self.value_range)}

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        share = wnp.sqrt(random.uniform((batch, 2), *self.scale, dtype=self.compute_dtype, seed=seed))
        x = self._ends(batch, width, share[:, 0], seed)
        y = self._ends(batch, height, share[:, 1], seed)
        probability = random.uniform((batch,), *self.factor, seed=seed)
        erased = random.uniform((batch,), 0.0, 1.0, seed=seed) < probability
        return {"apply_erasing": erased, "batch_masks": self._inside(height, width, x, y)}

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        erased = wnp.reshape(transformation["apply_erasing"], (-1, 1, 1, 1))
        fill = wnp.asarray(transformation["fill_value"]).astype(images.dtype)
        return wnp.where(erased & transformation["batch_masks"], fill, images)

    def _transform_box_dict(self, boxes: dict[str, Any], transformation: dict[str, Any]) -> dict[str, Any]:
        return boxes

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """Return the masks unchanged."""
        return masks


class RandomGaussianBlur(ColorLayer):
    """In training, some images are smoothed by a Gaussian window.

    Args:
      factor: the probability, or between which it is drawn.
      kernel_size: the size of the window, odd: one number, or two.
      sigma: the standard deviation: up to this number, or between two; from 0 to 1.
      value_range: the smallest and largest value of a pixel.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
    """

    def __init__(
        self,
        factor: Factor = 1.0,
        kernel_size: int | Sequence[int] = 3,
        sigma: Factor = 1.0,
        value_range: Sequence[float] = (0, 255),
        data_format: str | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.factor = limits(factor, "factor", 0.0, 1.0)
        self.sigma = limits(sigma, "sigma", 0.0, 1.0)
        self.kernel_size = sizes(kernel_size, 2, "kernel_size")
        if any(size % 2 == 0 for size in self.kernel_size):
            raise ArgumentError(f"`kernel_size` must be odd. Received: kernel_size={kernel_size}")
        self._set_range(value_range, seed, data_format)

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> dict[str, Any]:
        probability = random.uniform((batch,), *self.factor, seed=seed)
        chosen = random.uniform((batch,), 0.0, 1.0, seed=seed) < probability
        sigma = random.uniform((2,), *self.sigma, seed=seed, dtype=self.compute_dtype) + 1e-6
        return {"should_apply_blur": chosen, "blur_factor": sigma}

    def _transform(self, images: Array, transformation: dict[str, Any]) -> Array:
        chosen, sigma = wnp.reshape(transformation["should_apply_blur"], (-1, 1, 1, 1)), transformation["blur_factor"]
        smooth = ops.image.gaussian_blur(
            images, kernel_size=self.kernel_size, sigma=sigma, data_format=self.data_format
        )
        return wnp.clip(wnp.where(chosen, smooth, images), *self.value_range)


class RandomColorJitter(ColorLayer):
    """In training, brightness, contrast, saturation and hue changed one after the other.

    Args:
      value_range: the smallest and largest value of a pixel.
      brightness_factor, contrast_factor, saturation_factor, hue_factor: those of `RandomBrightness`, `RandomContrast`,
        `RandomSaturation` and `RandomHue`; None leaves one out.
      seed: an integer; without one, the generator's seed is drawn when the layer is made.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        brightness_factor: Factor | None = None,
        contrast_factor: Factor | None = None,
        saturation_factor: Factor | None = None,
        hue_factor: Factor | None = None,
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._set_range(value_range, seed, data_format)
        self.set_arguments(
            brightness_factor=brightness_factor,
            contrast_factor=contrast_factor,
            saturation_factor=saturation_factor,
            hue_factor=hue_factor,
        )
        options: dict[str, Any] = {
            "value_range": value_range,
            "seed": seed,
            "data_format": self.data_format,
            "dtype": self.dtype_policy,
        }
        self._parts = [
            make(factor, **options)
            for make, factor in (
                (RandomBrightness, brightness_factor),
                (RandomContrast, contrast_factor),
                (RandomSaturation, saturation_factor),
                (RandomHue, hue_factor),
            )
            if factor is not None
        ]

    def _draw(self, batch: int, height: int, width: int, seed: Any) -> list[Any]:
        return [part._draw(batch, height, width, seed) for part in self._parts]

    def _transform(self, images: Array, transformation: list[Any]) -> Array:
        for part, drawn in zip(self._parts, transformation, strict=True):
            images = part.transform_images(images, drawn)
        return images


class Pipeline(Layer):
    """Layers that prepare data, one after the other, as one layer.

    Args:
      layers: the layers.
      name: the name.
    """

    def __init__(self, layers: Sequence[Any], name: str | None = None, **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self._pipeline_layers = list(layers)

    @property
    def layers(self) -> list[Any]:
        """The layers."""
        return self._pipeline_layers

    def call(self, inputs: Any, training: bool | None = True, mask: Any = None) -> Any:
        """Apply the layers one after the other; the mask goes through them with the data."""
        for layer in self._pipeline_layers:
            options = {"training": training} if mask is None else {"training": training, "mask": mask}
            accepted = call_signature(type(layer).call)
            before, inputs = inputs, layer(inputs, **{name: each for name, each in options.items() if name in accepted})
            mask = layer.compute_mask(before, mask) if mask is not None else None
        return inputs

    def get_config(self) -> dict[str, Any]:
        """Return the layers and the name as plain data."""
        return {"layers": [registry.serialize_keras_object(layer) for layer in self.layers], "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Pipeline:
        """Construct a pipeline from a config of `get_config`."""
        config = dict(config)
        if not isinstance(config.get("layers"), (list, tuple)):
            raise ArgumentError("The config of a Pipeline must have a list of layers.", received=f"{config}"[:200])
        layers = [registry.deserialize_keras_object(layer, custom_objects) for layer in config.pop("layers")]
        return cls(layers, **config)
