"""MaxNumBoundingBoxes: as many bounding boxes for each image."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.layers.preprocessing.image import ImageLayer


class MaxNumBoundingBoxes(ImageLayer):
    """Bounding boxes cut off or filled up to a fixed number; images, labels and masks stay as they are.

    Args:
      max_number: how many boxes each image has afterwards.
      fill_value: the coordinates and labels of boxes that fill up.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Example:
      >>> import weft.numpy as wnp
      >>> from weft import keras
      >>> boxes = {"boxes": wnp.ones((1, 4)), "labels": wnp.ones((1,), "int32")}
      >>> layer = keras.layers.MaxNumBoundingBoxes(3, bounding_box_format="xyxy")
      >>> layer({"images": wnp.ones((8, 8, 3)), "bounding_boxes": boxes})["bounding_boxes"]["labels"]
      Array([ 1, -1, -1], dtype=int32)
    """

    def __init__(self, max_number: int, fill_value: int = -1, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self._set_data_format(data_format)
        self.set_arguments(max_number=int(max_number), fill_value=int(fill_value))
        if self.max_number < 1:
            raise ArgumentError("`max_number` must be positive.", received=f"{max_number=}")

    def transform_images(self, images: Array, transformation: Any = None, training: bool | None = True) -> Array:
        """Return the images unchanged."""
        return images

    def transform_bounding_boxes(self, boxes: dict[str, Any], transformation: Any, training: bool | None = True) -> Any:
        """Cut off or fill up boxes and labels."""
        missing = max(0, self.max_number - boxes["boxes"].shape[1])

        def fit(values: Array) -> Array:
            pads = [(0, 0), (0, missing), *[(0, 0)] * (values.ndim - 2)]
            return wnp.pad(values[:, : self.max_number], pads, constant_values=self.fill_value)

        return {**boxes, "boxes": fit(boxes["boxes"]), "labels": fit(boxes["labels"])}
