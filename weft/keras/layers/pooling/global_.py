"""Global pooling: all spatial dimensions are reduced."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.keras.core.config import standardize_data_format
from weft.keras.core.spec import InputSpec
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.numerics.shapes import Shape, spatial_axes, with_spatial


class GlobalPooling(ConfiguredLayer):
    """All of the `rank` spatial dimensions reduced, to 1 with `keepdims`."""

    rank: int

    def __init__(self, data_format: str | None = None, keepdims: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.set_arguments(data_format=standardize_data_format(data_format), keepdims=keepdims)
        self.input_spec = InputSpec(ndim=self.rank + 2)
        self._build_at_init()

    def _axes(self) -> tuple[int, ...]:
        return spatial_axes(self.rank, self.data_format)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        sizes = (1,) * self.rank if self.keepdims else ()
        return with_spatial(input_shape, sizes, self.data_format)


class GlobalMaxPooling(GlobalPooling):
    """The largest element of each channel."""

    def call(self, inputs: Array) -> Array:
        """Return the maximum over the spatial dimensions."""
        return wnp.max(inputs, axis=self._axes(), keepdims=self.keepdims)


class GlobalAveragePooling(GlobalPooling):
    """The mean of each channel."""

    def call(self, inputs: Array) -> Array:
        """Return the mean over the spatial dimensions."""
        return wnp.mean(inputs, axis=self._axes(), keepdims=self.keepdims)


class GlobalMaxPooling1D(GlobalMaxPooling):
    """The largest over all steps, for (batch, steps, channels).

    Args:
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      keepdims: whether reduced dimensions stay, with size 1.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.GlobalMaxPooling1D()(weft.numpy.arange(6.0).reshape(1, 3, 2))
      Array([[4., 5.]], dtype=float32)
    """

    rank = 1


class GlobalMaxPooling2D(GlobalMaxPooling):
    """The largest element of each channel of an image; arguments are those of `GlobalMaxPooling1D`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.GlobalMaxPooling2D()(weft.numpy.ones((2, 4, 4, 3))).shape
      (2, 3)
    """

    rank = 2


class GlobalMaxPooling3D(GlobalMaxPooling):
    """The largest element of each channel of a volume; arguments are those of `GlobalMaxPooling1D`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.GlobalMaxPooling3D(keepdims=True)(weft.numpy.ones((2, 4, 4, 4, 3))).shape
      (2, 1, 1, 1, 3)
    """

    rank = 3


class GlobalAveragePooling1D(GlobalAveragePooling):
    """The mean over all steps, for (batch, steps, channels); with a mask, over those whose mask is true.

    Args:
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      keepdims: whether reduced dimensions stay, with size 1.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.GlobalAveragePooling1D()(weft.numpy.arange(6.0).reshape(1, 3, 2))
      Array([[2., 3.]], dtype=float32)
    """

    rank = 1

    def __init__(self, data_format: str | None = None, keepdims: bool = False, **kwargs: Any):
        super().__init__(data_format, keepdims, **kwargs)
        self.supports_masking = True

    def call(self, inputs: Array, mask: Any = None) -> Array:
        """Return the mean over the steps, or over the valid steps if there is a mask."""
        if mask is None:
            return super().call(inputs)
        (axis,) = self._axes()
        valid = wnp.expand_dims(mask, 2 if self.data_format == "channels_last" else 1).astype(bool)
        total = wnp.sum(wnp.where(valid, inputs, 0), axis=axis, keepdims=self.keepdims)
        return total / wnp.sum(valid.astype(inputs.dtype), axis=axis, keepdims=self.keepdims)

    def compute_mask(self, inputs: Any, mask: Any = None) -> None:  # Keras's names override those of Layer
        """Return None: the result has no steps."""


class GlobalAveragePooling2D(GlobalAveragePooling):
    """The mean of each channel of an image.

    Args:
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
      keepdims: whether reduced dimensions stay, with size 1.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.GlobalAveragePooling2D()(weft.numpy.ones((2, 4, 4, 3))).shape
      (2, 3)
    """

    rank = 2


class GlobalAveragePooling3D(GlobalAveragePooling):
    """The mean of each channel of a volume; arguments are those of `GlobalAveragePooling2D`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.GlobalAveragePooling3D()(weft.numpy.ones((2, 4, 4, 4, 3))).shape
      (2, 3)
    """

    rank = 3
