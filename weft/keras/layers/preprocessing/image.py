"""What layers for images share, Resizing and CenterCrop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError, NotSupportedError
from weft.keras import ops
from weft.keras.core.config import standardize_data_format
from weft.keras.graph.shapes import compute_output_spec
from weft.keras.graph.tensor import any_symbolic
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.numerics.boxes import densify
from weft.keras.utils import bounding_boxes


class ImageLayer(ConfiguredLayer):
    """Base class of layers for one image or a batch, or for a dict with "images" and any of "labels",
    "bounding_boxes" (a dict with "boxes" and "labels") and "segmentation_masks".

    Subclasses define what is drawn at random (`get_random_transformation`) and how each part is transformed.

    Args:
        bounding_box_format: the format of boxes (see `keras.utils.bounding_boxes.convert_format`).
    """

    def __init__(self, *, bounding_box_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if bounding_box_format is not None and bounding_box_format not in bounding_boxes.FORMATS:
            raise ArgumentError(
                f"`bounding_box_format` must be one of {', '.join(bounding_boxes.FORMATS)}.",
                received=f"{bounding_box_format=}",
            )
        self.bounding_box_format = bounding_box_format

    def _set_data_format(self, data_format: str | None) -> None:
        self.data_format = standardize_data_format(data_format)
        self.height_axis, self.width_axis = (-2, -1) if self.data_format == "channels_first" else (-3, -2)

    def get_random_transformation(self, data: Any, training: bool | None = True, seed: Any = None) -> Any:
        """Draw the parameters of a transformation; None if there are none."""
        return None

    def transform_images(self, images: Array, transformation: Any, training: bool | None = True) -> Array:
        """Transform a batch of images."""
        raise NotImplementedError

    def transform_labels(self, labels: Any, transformation: Any, training: bool | None = True) -> Any:
        """Transform the labels; by default they are unchanged."""
        return labels

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """Transform the masks; by default like images."""
        return self.transform_images(masks, transformation, training)

    def transform_bounding_boxes(self, boxes: dict[str, Any], transformation: Any, training: bool | None = True) -> Any:
        """Transform the boxes of a batch.

        Args:
            boxes: a dict with "boxes" of shape (batch, n, 4), in the layer's `bounding_box_format`, and "labels".
            transformation: what `get_random_transformation` returned.
            training: whether the layer is called in training.

        Returns:
            A new dict.
        """
        raise NotSupportedError(
            f"{type(self).__name__} cannot transform bounding boxes.", fix='leave "bounding_boxes" out of the dict'
        )

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        config = {**super().get_config(), "data_format": self.data_format}
        return (
            config if self.bounding_box_format is None else {**config, "bounding_box_format": self.bounding_box_format}
        )

    def _convert_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # Boxes may be lists of different lengths, and pixel numbers do not fit in half precision.
        data = args[0] if args else kwargs.get("data")
        if not isinstance(data, dict) or "bounding_boxes" not in data:
            return super()._convert_arguments(args, kwargs)
        boxes = data["bounding_boxes"]
        rest = {name: value for name, value in data.items() if name != "bounding_boxes"}
        args, kwargs = super()._convert_arguments(
            (rest, *args[1:]) if args else args, kwargs if args else {**kwargs, "data": rest}
        )
        if not any_symbolic(boxes):
            boxes = densify(boxes)
        whole = {**(args[0] if args else kwargs["data"]), "bounding_boxes": boxes}
        return ((whole, *args[1:]), kwargs) if args else (args, {**kwargs, "data": whole})

    def call(self, data: Any, training: bool | None = True) -> Any:
        """Transform images, or each part of a dict; the dict is not changed."""
        if not isinstance(data, dict):
            return self._transform_batch(self.transform_images, data, self._drawn(data, training), training)
        images = data["images"]
        transformation = self._drawn(images, training)
        out = {**data, "images": self._transform_batch(self.transform_images, images, transformation, training)}
        single = images.ndim == 3
        if "bounding_boxes" in data:
            out["bounding_boxes"] = self._transform_boxes(data["bounding_boxes"], transformation, training, single)
        for name, transform in (
            ("labels", self.transform_labels),
            ("segmentation_masks", self.transform_segmentation_masks),
        ):
            if name in data:
                values = wnp.asarray(data[name])
                result = transform(values[None] if single else values, transformation, training)
                out[name] = result[0] if single else result
        return out

    def _transform_boxes(self, boxes: Any, transformation: Any, training: bool | None, single: bool) -> Any:
        if not self.bounding_box_format:
            raise ArgumentError(
                f"{type(self).__name__} needs the format of bounding boxes.",
                received="a dict with 'bounding_boxes'",
                fix=f"construct it with a format, {type(self).__name__}(..., bounding_box_format='xyxy')",
            )
        boxes = densify(boxes)
        if not single:
            return self.transform_bounding_boxes(boxes, transformation, training)
        one = {**boxes, "boxes": boxes["boxes"][None], "labels": boxes["labels"][None]}
        out = self.transform_bounding_boxes(one, transformation, training)
        return {**out, "boxes": out["boxes"][0], "labels": out["labels"][0]}

    def _to_corners(self, boxes: dict[str, Any], height: int, width: int) -> dict[str, Any]:
        return bounding_boxes.convert_format(boxes, self.bounding_box_format or "xyxy", "xyxy", height, width)

    def _clip_boxes(self, boxes: dict[str, Any], height: int, width: int) -> dict[str, Any]:
        """Clip corners to an image of a size and convert them to the layer's format."""
        boxes = bounding_boxes.clip_to_image_size(boxes, height, width)
        return bounding_boxes.convert_format(boxes, "xyxy", self.bounding_box_format or "xyxy", height, width)

    def _drawn(self, images: Any, training: bool | None) -> Any:
        if images.ndim not in (3, 4):
            raise ArgumentError(
                f"{type(self).__name__} takes an image (3 dimensions) or a batch of images (4). "
                f"Received: shape {images.shape}"
            )
        return self.get_random_transformation(images, training=training)

    def _transform_batch(self, transform: Any, images: Array, transformation: Any, training: bool | None) -> Array:
        if images.ndim == 4:
            return transform(images, transformation, training)
        return transform(images[None], transformation, training)[0]

    def _size(self, images: Array) -> tuple[int, int]:
        return self._sides(images.shape)

    def _sides(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return the height and the width of images of a shape."""
        return shape[self.height_axis], shape[self.width_axis]

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the input shape unchanged."""
        return input_shape if isinstance(input_shape, dict) else tuple(input_shape)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs; a dict, whose entries have different dtypes, is traced through `call`."""
        data = args[0] if args else kwargs.get("data")
        if isinstance(data, dict):
            return compute_output_spec(self.call, *args, **kwargs)
        return super().compute_output_spec(*args, **kwargs)

    def _resize_shape(self, input_shape: Any) -> Any:
        if isinstance(input_shape, dict):
            images = {name: input_shape[name] for name in ("images", "segmentation_masks") if name in input_shape}
            return {**input_shape, **{name: self._resize_shape(shape) for name, shape in images.items()}}
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
        """Resize a batch of images."""
        return self._resize(images, self.interpolation)

    def transform_segmentation_masks(
        self, masks: Array, transformation: Any = None, training: bool | None = True
    ) -> Array:
        """Resize the masks with nearest-neighbor sampling."""
        return self._resize(masks, "nearest")

    def get_random_transformation(self, data: Any, training: bool | None = True, seed: Any = None) -> Any:
        """Return the height and the width of images: nothing is drawn."""
        return self._size(data["images"] if isinstance(data, dict) else data)

    def transform_bounding_boxes(self, boxes: dict[str, Any], transformation: Any, training: bool | None = True) -> Any:
        """Scale boxes as images are; boxes that are all 0 or all -1 fill up a batch and become 0."""
        height, width = transformation
        empty = wnp.all(boxes["boxes"] == -1, axis=-1) | wnp.all(boxes["boxes"] == 0, axis=-1)
        corners = self._to_corners(boxes, height, width)
        down, across = self.height / height, self.width / width
        top = left = 0.0
        if self.pad_to_aspect_ratio or self.crop_to_aspect_ratio:
            down = across = min(down, across) if self.pad_to_aspect_ratio else max(down, across)
            top, left = (self.height - height * down) / 2, (self.width - width * down) / 2
            top, left = (float(math.floor(abs(part))) * (1 if part >= 0 else -1) for part in (top, left))
        scale, shift = (np.asarray(pair * 2, "float32") for pair in ([across, down], [left, top]))
        moved = wnp.where(empty[..., None], 0.0, corners["boxes"] * scale + shift)
        return self._clip_boxes({**corners, "boxes": moved}, self.height, self.width)

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

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output shape for an input shape."""
        return self._resize_shape(input_shape)


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

    def get_random_transformation(self, data: Any, training: bool | None = True, seed: Any = None) -> Any:
        """Return the shape of the images: nothing is drawn."""
        return {"input_shape": (data["images"] if isinstance(data, dict) else data).shape}

    def transform_bounding_boxes(self, boxes: dict[str, Any], transformation: Any, training: bool | None = True) -> Any:
        """Express boxes in the coordinates of the part."""
        height, width = self._sides(transformation["input_shape"])
        corners = self._to_corners(boxes, height, width)
        part_height, part_width = self.height, self.width
        if height < self.height or width < self.width:
            part_height, part_width = aspect_part(height, width, self.height, self.width)
        top, left = (height - part_height) // 2, (width - part_width) // 2
        moved = bounding_boxes.crop(corners["boxes"], top, left, part_height, part_width)
        down, across = self.height / part_height, self.width / part_width
        moved = moved * np.asarray([across, down, across, down], "float32")
        return self._clip_boxes({**corners, "boxes": moved}, self.height, self.width)

    def transform_images(self, images: Array, transformation: Any = None, training: bool | None = True) -> Array:
        """Crop the center of a batch of images; smaller images are resized."""
        images = images.astype(self.compute_dtype)
        height, width = self._size(images)
        top, left = (height - self.height) // 2, (width - self.width) // 2
        if top >= 0 and left >= 0 and height >= self.height and width >= self.width:
            return crop(images, top, left, self.height, self.width, self.height_axis)
        out = ops.image.resize(
            images, (self.height, self.width), crop_to_aspect_ratio=True, data_format=self.data_format
        )
        return out.astype(self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output shape for an input shape."""
        return self._resize_shape(input_shape)


def aspect_part(height: int, width: int, target_height: int, target_width: int) -> tuple[int, int]:
    """Return the size of the largest part of an image that has the ratio of sides of a target."""
    part_height = max(min(height, int(width * target_height / target_width)), 1)
    part_width = max(min(width, int(height * target_width / target_height)), 1)
    return part_height, part_width


def crop(images: Array, top: Any, left: Any, height: int, width: int, height_axis: int) -> Array:
    """Crop images; `top` and `left` may be traced."""
    axis = height_axis % images.ndim
    out = lax.dynamic_slice_in_dim(images, top, height, axis=axis)
    return lax.dynamic_slice_in_dim(out, left, width, axis=axis + 1)
