"""ContrastLimitedAdaptiveHistogramEqualization: contrast that depends on the surroundings of a pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.layers.preprocessing.colors import rescale
from weft.keras.layers.preprocessing.image import ImageLayer
from weft.keras.layers.preprocessing.random_color import check_value_range

_LEVELS = 256


class ContrastLimitedAdaptiveHistogramEqualization(ImageLayer):
    """Images whose levels are about as frequent as each other in each part of the image, which shows details in dark
    and in bright parts (CLAHE; Zuiderveld 1994).

    The image is cut into tiles. Each has a curve from levels to levels, by the histogram of its pixels; a pixel goes
    through the curves of the four nearest tiles, weighted by distance. Masks and boxes stay as they are.

    Args:
      value_range: the smallest and largest value of a pixel.
      clip_limit: how often a level counts at most, in units of the mean count; 0 is without a limit.
      tile_grid_size: how many tiles there are along the height and the width.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.ContrastLimitedAdaptiveHistogramEqualization()(weft.numpy.ones((2, 16, 16, 3))).shape
      (2, 16, 16, 3)
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        clip_limit: float = 4.0,
        tile_grid_size: Sequence[int] = (8, 8),
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._set_data_format(data_format)
        self.value_range = check_value_range(value_range)
        self.set_arguments(clip_limit=clip_limit, tile_grid_size=tuple(tile_grid_size))
        if len(self.tile_grid_size) != 2 or min(self.tile_grid_size) < 1:
            raise ArgumentError("`tile_grid_size` must be two positive integers.", received=f"{tile_grid_size=}")

    def transform_images(self, images: Array, transformation: Any = None, training: bool | None = True) -> Array:
        """Transform a batch of images; the dtype stays."""
        images = wnp.asarray(images)
        first = self.data_format == "channels_first"
        pixels = rescale(images.astype("float32"), self.value_range, (0, 255))
        pixels = pixels if first else wnp.moveaxis(pixels, -1, 1)
        shape = pixels.shape
        out = self._equalize(wnp.reshape(pixels, (-1, *shape[2:]))).reshape(shape)
        out = out if first else wnp.moveaxis(out, 1, -1)
        return rescale(out, (0, 255), self.value_range).astype(images.dtype)

    def _equalize(self, channels: Array) -> Array:
        """Equalize channels of shape (n, height, width), with values from 0 to 255."""
        count, height, width = channels.shape
        rows, columns = self.tile_grid_size
        tile = -(-height // rows), -(-width // columns)
        pads = [(0, 0), (0, tile[0] * rows - height), (0, tile[1] * columns - width)]
        padded = wnp.pad(channels, pads, mode="symmetric")
        level = wnp.clip(padded, 0, _LEVELS - 1).astype("int32")
        tiles = wnp.reshape(level, (count, rows, tile[0], columns, tile[1]))
        tiles = wnp.reshape(wnp.moveaxis(tiles, 2, 3), (-1, tile[0] * tile[1]))
        curves = wnp.reshape(self._curves(tiles), (count, rows, columns, _LEVELS))
        above, below, down = _neighbours(tile[0], rows)
        before, after, right = _neighbours(tile[1], columns)
        image = np.arange(count)[:, None, None]

        def through(row: np.ndarray, column: np.ndarray) -> Array:
            return curves[image, row[:, None], column[None, :], level]

        top = through(above, before) * (1 - right) + through(above, after) * right
        bottom = through(below, before) * (1 - right) + through(below, after) * right
        return (top * (1 - down[:, None]) + bottom * down[:, None])[:, :height, :width]

    def _curves(self, tiles: Array) -> Array:
        """Return what each level becomes in each tile."""
        size = tiles.shape[1]
        which = wnp.arange(len(tiles))[:, None]
        counts = wnp.zeros((len(tiles), _LEVELS), "float32").at[which, tiles].add(1.0)
        if self.clip_limit > 0:
            clipped = wnp.minimum(counts, self.clip_limit * size / _LEVELS)
            counts = clipped + wnp.sum(counts - clipped, axis=-1, keepdims=True) / _LEVELS
        total = wnp.cumsum(counts, axis=-1)
        first = total[:, :1]
        rest = size - first
        return wnp.clip((total - first) * 255.0 / wnp.where(rest == 0, 1.0, rest), 0, 255)

    def transform_segmentation_masks(self, masks: Array, transformation: Any, training: bool | None = True) -> Array:
        """Return the masks unchanged."""
        return masks

    def transform_bounding_boxes(self, boxes: dict[str, Any], transformation: Any, training: bool | None = True) -> Any:
        """Return the boxes unchanged."""
        return boxes


def _neighbours(tile: int, tiles: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for each pixel along a side, the tiles before and after it and the weight of the latter."""
    position = (np.arange(tile * tiles) - tile / 2) / tile
    before = np.floor(position)
    weight = (position - before).astype(np.float32)
    index = lambda tile: np.clip(tile, 0, tiles - 1).astype(np.int32)
    return index(before), index(before + 1), weight
