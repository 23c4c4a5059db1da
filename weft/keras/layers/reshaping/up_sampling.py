"""UpSampling: each element several times along the spatial dimensions."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array, image
from weft.errors import ArgumentError
from weft.keras.core.config import standardize_data_format
from weft.keras.core.spec import InputSpec
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.numerics.convolution import Sizes
from weft.keras.numerics.shapes import Shape, sizes, spatial_axes, spatial_sizes, with_spatial


class UpSampling(ConfiguredLayer):
    """Each element repeated `size` times along each of `rank` spatial dimensions."""

    rank: int
    size: Any

    def __init__(self, size: Sizes = 2, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.set_arguments(size=sizes(size, self.rank, "size"), data_format=standardize_data_format(data_format))
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs: Array) -> Array:
        """Repeat the elements along the spatial axes."""
        out = inputs
        for axis, size in zip(spatial_axes(self.rank, self.data_format), self._factors(), strict=True):
            out = wnp.repeat(out, size, axis=axis)
        return out

    def _factors(self) -> tuple[int, ...]:
        return self.size

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        before = spatial_sizes(input_shape, self.data_format)
        after = [None if size is None else size * factor for size, factor in zip(before, self._factors(), strict=True)]
        return with_spatial(input_shape, after, self.data_format)


class UpSampling1D(UpSampling):
    """Each step of (batch, steps, channels) `size` times."""

    rank = 1

    def __init__(self, size: int = 2, **kwargs: Any):
        super().__init__(size, "channels_last", **kwargs)
        (self.size,) = self.size

    def _factors(self) -> tuple[int, ...]:
        return (self.size,)


class UpSampling2D(UpSampling):
    """An image `size` times as large.

    Args:
      size: factors of height and width, or one integer for both.
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      interpolation: "nearest" (pixels are repeated), "bilinear", "bicubic", "lanczos3" or "lanczos5".

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.UpSampling2D((1, 3))(weft.numpy.ones((1, 4, 4, 3))).shape
      (1, 4, 12, 3)
    """

    rank = 2

    def __init__(self, size: Sizes = 2, data_format: str | None = None, interpolation: str = "nearest", **kwargs: Any):
        super().__init__(size, data_format, **kwargs)
        allowed = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")
        if not isinstance(interpolation, str) or interpolation.lower() not in allowed:
            raise ArgumentError(f"`interpolation` must be one of {allowed}. Received: interpolation={interpolation!r}")
        self.set_arguments(interpolation=interpolation.lower())

    def call(self, inputs: Array) -> Array:
        """Enlarge the images by the interpolation."""
        if self.interpolation == "nearest":
            return super().call(inputs)
        shape = self.compute_output_shape(inputs.shape)
        return image.resize(inputs, shape, self.interpolation, antialias=False)  # type: ignore[arg-type]


class UpSampling3D(UpSampling):
    """A volume `size` times as large, by repetition."""

    rank = 3
