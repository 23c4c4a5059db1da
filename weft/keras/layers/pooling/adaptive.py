"""Adaptive pooling: as many windows as the result has elements, as large as they must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import Array
from weft.keras.core.config import standardize_data_format
from weft.keras.core.spec import InputSpec
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.numerics import pooling
from weft.keras.numerics.pooling import Sizes
from weft.keras.numerics.shapes import Shape, sizes, with_spatial


class AdaptivePooling(ConfiguredLayer):
    """`output_size` windows in each of `rank` spatial dimensions; they cover the input and may overlap by one."""

    rank: int
    reduce: Callable[..., Array]

    def __init__(self, output_size: Sizes, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.set_arguments(
            output_size=sizes(output_size, self.rank, "output_size"), data_format=standardize_data_format(data_format)
        )
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs: Array) -> Array:
        """Reduce each window of the inputs."""
        return type(self).reduce(inputs, self.output_size, self.data_format)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        return with_spatial(input_shape, self.output_size, self.data_format)


class AdaptiveMaxPooling1D(AdaptivePooling):
    """The largest element of each of `output_size` windows of steps."""

    rank = 1
    reduce = staticmethod(pooling.adaptive_max_pool)


class AdaptiveMaxPooling2D(AdaptivePooling):
    """The largest element of each of `output_size` windows of an image."""

    rank = 2
    reduce = staticmethod(pooling.adaptive_max_pool)


class AdaptiveMaxPooling3D(AdaptivePooling):
    """The largest element of each of `output_size` windows of a volume."""

    rank = 3
    reduce = staticmethod(pooling.adaptive_max_pool)


class AdaptiveAveragePooling1D(AdaptivePooling):
    """The mean of each of `output_size` windows of steps."""

    rank = 1
    reduce = staticmethod(pooling.adaptive_average_pool)


class AdaptiveAveragePooling2D(AdaptivePooling):
    """The mean of each of `output_size` windows of an image."""

    rank = 2
    reduce = staticmethod(pooling.adaptive_average_pool)


class AdaptiveAveragePooling3D(AdaptivePooling):
    """The mean of each of `output_size` windows of a volume."""

    rank = 3
    reduce = staticmethod(pooling.adaptive_average_pool)
