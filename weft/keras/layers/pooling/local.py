"""Max and average pooling: a window slides over the spatial dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import Array
from weft.keras.core.config import standardize_data_format
from weft.keras.core.spec import InputSpec
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.numerics import pooling
from weft.keras.numerics.pooling import Sizes
from weft.keras.numerics.shapes import Shape, padding_name, sizes, window_shape


class Pooling(ConfiguredLayer):
    """Windows of `pool_size` over `rank` spatial dimensions, each reduced to one element."""

    rank: int
    reduce: Callable[..., Array]

    def __init__(
        self,
        pool_size: Sizes = 2,
        strides: Sizes | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        window = sizes(pool_size, self.rank, "pool_size")
        self.set_arguments(
            pool_size=window,
            padding=padding_name(padding),
            strides=window if strides is None else sizes(strides, self.rank, "strides"),
            data_format=standardize_data_format(data_format),
        )
        self.input_spec = InputSpec(ndim=self.rank + 2)
        self._build_at_init()

    def call(self, inputs: Array) -> Array:
        """Reduce each window of the inputs."""
        return type(self).reduce(inputs, self.pool_size, self.strides, self.padding, self.data_format)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        return window_shape(input_shape, self.pool_size, self.strides, self.padding, self.data_format)


class BaseMaxPooling(Pooling):
    """The largest element of each window."""

    reduce = staticmethod(pooling.max_pool)


class BaseAveragePooling(Pooling):
    """The mean of each window; padding does not count."""

    reduce = staticmethod(pooling.average_pool)

    def __init__(
        self,
        pool_size: Sizes,
        strides: Sizes | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(pool_size, strides, padding, data_format, name, **kwargs)


class MaxPooling1D(BaseMaxPooling):
    """The largest of each window of steps, for (batch, steps, channels); arguments are those of `MaxPooling2D`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.MaxPooling1D(2)(weft.numpy.arange(6.0).reshape(1, 6, 1)).ravel()
      Array([1., 3., 5.], dtype=float32)
    """

    rank = 1


class MaxPooling2D(BaseMaxPooling):
    """The largest element of each window of an image.

    Args:
      pool_size: height and width of the window, or one integer for both.
      strides: from window to window; by default windows lie side by side.
      padding: "valid" (windows lie within the image) or "same" (they may reach over its edge).
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Returns:
      A layer; called on (batch, height, width, channels) it returns (batch, new height, new width, channels).

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.MaxPooling2D()(weft.numpy.ones((1, 6, 7, 3))).shape
      (1, 3, 3, 3)
    """

    rank = 2


class MaxPooling3D(BaseMaxPooling):
    """The largest element of each window of a volume; arguments are those of `MaxPooling2D`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.MaxPooling3D(2)(weft.numpy.ones((1, 4, 4, 4, 3))).shape
      (1, 2, 2, 2, 3)
    """

    rank = 3


class AveragePooling1D(BaseAveragePooling):
    """The mean of each window of steps, for (batch, steps, channels); arguments are those of `AveragePooling2D`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.AveragePooling1D(2)(weft.numpy.arange(6.0).reshape(1, 6, 1)).ravel()
      Array([0.5, 2.5, 4.5], dtype=float32)
    """

    rank = 1


class AveragePooling2D(BaseAveragePooling):
    """The mean of each window of an image.

    Args:
      pool_size: height and width of the window, or one integer for both.
      strides: from window to window; by default windows lie side by side.
      padding: "valid" (windows lie within the image) or "same" (they may reach over its edge, and what is there does
        not count).
      data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.AveragePooling2D(3, strides=2, padding="same")(weft.numpy.ones((1, 6, 6, 3))).shape
      (1, 3, 3, 3)
    """

    rank = 2


class AveragePooling3D(BaseAveragePooling):
    """The mean of each window of a volume; arguments are those of `AveragePooling2D`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.AveragePooling3D(2)(weft.numpy.ones((1, 4, 4, 4, 3))).shape
      (1, 2, 2, 2, 3)
    """

    rank = 3
