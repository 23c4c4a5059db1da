"""ZeroPadding and Cropping: more or less around the spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError
from weft.keras.core.config import standardize_data_format
from weft.keras.core.spec import InputSpec
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.numerics.shapes import Shape, pairs, sizes, spatial_axes, spatial_sizes, with_spatial

Amounts = int | Sequence[Any]


class ZeroPadding(ConfiguredLayer):
    """Zeros around `rank` spatial dimensions."""

    rank: int
    padding: Any

    def __init__(self, padding: Amounts = 1, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.set_arguments(
            padding=pairs(padding, self.rank, "padding"), data_format=standardize_data_format(data_format)
        )
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def _pairs(self) -> tuple[tuple[int, int], ...]:
        return self.padding

    def call(self, inputs: Array) -> Array:
        """Pad the inputs with zeros."""
        amounts: list[tuple[int, int]] = [(0, 0)] * inputs.ndim
        for axis, pair in zip(spatial_axes(self.rank, self.data_format), self._pairs(), strict=True):
            amounts[axis] = pair
        return wnp.pad(inputs, amounts)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        before = spatial_sizes(input_shape, self.data_format)
        after = [None if size is None else size + sum(pair) for size, pair in zip(before, self._pairs(), strict=True)]
        return with_spatial(input_shape, after, self.data_format)


class ZeroPadding1D(ZeroPadding):
    """Zeros before and after the steps of (batch, steps, channels).

    Args:
      padding: how many on both sides, or (before, after).
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
    """

    rank = 1

    def __init__(self, padding: Amounts = 1, data_format: str | None = None, **kwargs: Any):
        super().__init__((sizes(padding, 2, "padding", allow_zero=True),), data_format, **kwargs)
        (self.padding,) = self.padding

    def _pairs(self) -> tuple[tuple[int, int], ...]:
        return (self.padding,)


class ZeroPadding2D(ZeroPadding):
    """Zeros around an image.

    Args:
      padding: how many on all sides, or one for height and one for width, or ((top, bottom), (left, right)).
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.ZeroPadding2D(((1, 0), (2, 2)))(weft.numpy.ones((1, 4, 4, 3))).shape
      (1, 5, 8, 3)
    """

    rank = 2


class ZeroPadding3D(ZeroPadding):
    """Zeros around a volume; as `ZeroPadding2D`, with three entries."""

    rank = 3


class Cropping(ConfiguredLayer):
    """Less at the ends of `rank` spatial dimensions."""

    rank: int
    cropping: Any

    def __init__(self, cropping: Amounts = 0, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.set_arguments(
            cropping=pairs(cropping, self.rank, "cropping"), data_format=standardize_data_format(data_format)
        )
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def _pairs(self) -> tuple[tuple[int, int], ...]:
        return self.cropping

    def call(self, inputs: Array) -> Array:
        """Crop the inputs."""
        self.compute_output_shape(inputs.shape)
        out = inputs
        for axis, (before, after) in zip(spatial_axes(self.rank, self.data_format), self._pairs(), strict=True):
            out = lax.slice_in_dim(out, before, out.shape[axis] - after, axis=axis)
        return out

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        before = spatial_sizes(input_shape, self.data_format)
        after = [None if size is None else size - sum(pair) for size, pair in zip(before, self._pairs(), strict=True)]
        if any(size is not None and size <= 0 for size in after):
            raise ArgumentError(
                f"{type(self).__name__} {self.name!r} would leave nothing. Received: "
                f"input_shape={tuple(input_shape)}, cropping={self.cropping}"
            )
        return with_spatial(input_shape, after, self.data_format)


class Cropping1D(Cropping):
    """Without the first and last steps of (batch, steps, channels).

    Args:
      cropping: how many on both sides, or (before, after).
    """

    rank = 1

    def __init__(self, cropping: Amounts = 1, **kwargs: Any):
        super().__init__((sizes(cropping, 2, "cropping", allow_zero=True),), "channels_last", **kwargs)
        (self.cropping,) = self.cropping

    def _pairs(self) -> tuple[tuple[int, int], ...]:
        return (self.cropping,)


class Cropping2D(Cropping):
    """The inner part of an image.

    Args:
      cropping: how much less on all sides, or one for height and one for width, or ((top, bottom), (left, right)).
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Cropping2D(((1, 0), (1, 1)))(weft.numpy.ones((1, 4, 4, 3))).shape
      (1, 3, 2, 3)
    """

    rank = 2


class Cropping3D(Cropping):
    """The inner part of a volume; as `Cropping2D`, with three entries. By default one less on all sides."""

    rank = 3

    def __init__(self, cropping: Amounts = 1, data_format: str | None = None, **kwargs: Any):
        super().__init__(cropping, data_format, **kwargs)
