"""What layers for images share, Resizing and CenterCrop."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError, NotSupportedError
from weft.keras import ops
from weft.keras.core.config import standardize_data_format
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.numerics.shapes import Shape


class ImageLayer(ConfiguredLayer):
    """A layer for one image or a batch, or for a dict with "images", "labels" and "segmentation_masks".

    Subclasses say what is drawn at random (`get_random_transformation`) and what is done with it.
    """

    def _set_data_format(self, data_format: str | None) -> None:
        self.data_format = standardize_data_format(data_format)
        self.height_axis, self.width_axis = (-2, -1) if self.data_format == "channels_first" else (-3, -2)

    def get_random_transformation(self, data: Any, training: bool | None = True, seed: Any = None) -> Any:
        """What is drawn for images; None where nothing is."""
        return None

    def transform_images(self, images: Array, transformation: Any, training: bool | None = True) -> Array:
        """The new images of a batch."""
        raise NotImplementedError

    def transform_labels(self, labels: Any, transformation: Any, training: bool | None = True) -> Any:
        """The labels of the new images: as they are."""
        return labels

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """The new masks: as images are transformed."""
        return self.transform_images(masks, transformation, training)

    def call(self, data: Any, training: bool | None = True) -> Any:
        """The new images, or a dict with them."""
        if not isinstance(data, dict):
            return self._batched(self.transform_images, data, self._drawn(data, training), training)
        if "bounding_boxes" in data:
            raise NotSupportedError(f"{type(self).__name__} does not transform bounding boxes.")
        transformation = self._drawn(data["images"], training)
        out = {**data, "images": self._batched(self.transform_images, data["images"], transformation, training)}
        if "labels" in data:
            out["labels"] = self.transform_labels(data["labels"], transformation, training)
        if "segmentation_masks" in data:
            masks = data["segmentation_masks"]
            out["segmentation_masks"] = self._batched(
                self.transform_segmentation_masks, masks, transformation, training
            )
        return out

    def _drawn(self, images: Any, training: bool | None) -> Any:
        if images.ndim not in (3, 4):
            raise ArgumentError(
                f"{type(self).__name__} takes an image (3 dimensions) or a batch of images (4). "
                f"Received: shape {images.shape}"
            )
        return self.get_random_transformation(images, training=training)

    def _batched(self, transform: Any, images: Array, transformation: Any, training: bool | None) -> Array:
        if images.ndim == 4:
            return transform(images, transformation, training)
        return transform(images[None], transformation, training)[0]

    def _size(self, images: Array) -> tuple[int, int]:
        return images.shape[self.height_axis], images.shape[self.width_axis]

    def compute_output_shape(self, input_shape: Any) -> Any:
        """That of the input."""
        return input_shape if isinstance(input_shape, dict) else tuple(input_shape)

    def _resized_shape(self, input_shape: Any) -> Shape:
        shape = list(input_shape)
        shape[self.height_axis], shape[self.width_axis] = self.height, self.width
        return tuple(shape)


class Resizing(ImageLayer):
    """Images of another size.

    Args:
      height, width: the new size.
      interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
      crop_to_aspect_ratio: whether the largest part of the image with the new ratio of sides is taken, and not all.
      pad_to_aspect_ratio: whether the image keeps its ratio of sides, with `fill_value` around it.
      fill_mode: "constant".
      fill_value: the value around an image that is padded.
      antialias: whether all pixels count where the image shrinks.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Resizing(4, 6)(weft.numpy.ones((2, 8, 8, 3))).shape
      (2, 4, 6, 3)
    """

    def __init__(
        self,
        height: int,
        width: int,
        interpolation: str = "bilinear",
        crop_to_aspect_ratio: bool = False,
        pad_to_aspect_ratio: bool = False,
        fill_mode: str = "constant",
        fill_value: float = 0.0,
        antialias: bool = False,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._set_data_format(data_format)
        self.set_arguments(
            height=height,
            width=width,
            interpolation=interpolation,
            crop_to_aspect_ratio=crop_to_aspect_ratio,
            pad_to_aspect_ratio=pad_to_aspect_ratio,
            fill_mode=fill_mode,
            fill_value=fill_value,
            antialias=bool(antialias),
        )

    def transform_images(self, images: Array, transformation: Any = None, training: bool | None = True) -> Array:
        """The resized images of a batch."""
        return self._resize(images, self.interpolation)

    def transform_segmentation_masks(
        self, masks: Array, transformation: Any = None, training: bool | None = True
    ) -> Array:
        """The resized masks, of the nearest pixels."""
        return self._resize(masks, "nearest")

    def _resize(self, images: Array, interpolation: str) -> Array:
        out = ops.image.resize(
            images,
            (self.height, self.width),
            interpolation=interpolation,
            antialias=self.antialias,
            crop_to_aspect_ratio=self.crop_to_aspect_ratio,
            pad_to_aspect_ratio=self.pad_to_aspect_ratio,
            fill_mode=self.fill_mode,
            fill_value=self.fill_value,
            data_format=self.data_format,
        )
        if out.dtype == images.dtype:
            return out
        if wnp.issubdtype(images.dtype, wnp.integer):
            limits = wnp.iinfo(images.dtype)
            out = wnp.clip(wnp.round(out), limits.min, limits.max)
        return out.astype(images.dtype)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """The shape of the result for an input of a shape."""
        return self._resized_shape(input_shape)


class CenterCrop(ImageLayer):
    """The middle of images; those that are too small are resized, without changing the ratio of sides.

    Args:
      height, width: the size of the part.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.CenterCrop(4, 6)(weft.numpy.ones((2, 8, 8, 3))).shape
      (2, 4, 6, 3)
    """

    def __init__(self, height: int, width: int, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self._set_data_format(data_format)
        self.set_arguments(height=height, width=width)

    def transform_images(self, images: Array, transformation: Any = None, training: bool | None = True) -> Array:
        """The middle of the images of a batch."""
        images = images.astype(self.compute_dtype)
        height, width = self._size(images)
        top, left = (height - self.height) // 2, (width - self.width) // 2
        if top >= 0 and left >= 0 and height >= self.height and width >= self.width:
            return crop(images, top, left, self.height, self.width, self.height_axis)
        out = ops.image.resize(
            images, (self.height, self.width), crop_to_aspect_ratio=True, data_format=self.data_format
        )
        return out.astype(self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """The shape of the result for an input of a shape."""
        return self._resized_shape(input_shape)


def crop(images: Array, top: Any, left: Any, height: int, width: int, height_axis: int) -> Array:
    """A part of images; `top` and `left` may be traced."""
    axis = height_axis % images.ndim
    out = lax.dynamic_slice_in_dim(images, top, height, axis=axis)
    return lax.dynamic_slice_in_dim(out, left, width, axis=axis + 1)
