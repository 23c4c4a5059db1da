"""Reductions over windows of the spatial axes."""

from __future__ import annotations

from typing import Any

from weft.keras.core.config import standardize_data_format
from weft.keras.numerics import pooling
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import inexact, operation, tensor


@operation
def max_pool(
    inputs: Any, pool_size: Any, strides: Any = None, padding: str = "valid", data_format: str | None = None
) -> Any:
    """Compute the maximum of each window.

    Args:
        inputs: an array of shape (batch, *spatial, channels), or (batch, channels, *spatial).
        pool_size: the size of a window, one integer or one for each spatial axis.
        strides: the distance of windows; `pool_size` by default.
        padding: "valid" (whole windows only) or "same" (windows go over the border).
        data_format: "channels_last" or "channels_first"; None is the setting.

    Returns:
        An array.
    """
    return pooling.max_pool(tensor(inputs), pool_size, strides, padding, standardize_data_format(data_format))


@operation
def average_pool(
    inputs: Any, pool_size: Any, strides: Any = None, padding: str = "valid", data_format: str | None = None
) -> Any:
    """Compute the mean of each window; padding does not count.

    Args:
        inputs: an array of shape (batch, *spatial, channels), or (batch, channels, *spatial).
        pool_size: the size of a window, one integer or one for each spatial axis.
        strides: the distance of windows; `pool_size` by default.
        padding: "valid" (whole windows only) or "same" (windows go over the border).
        data_format: "channels_last" or "channels_first"; None is the setting.

    Returns:
        An array of floats.
    """
    return pooling.average_pool(inexact(inputs), pool_size, strides, padding, standardize_data_format(data_format))


@operation
@document("An array of floats.", output_size="the spatial sizes of the result, one integer or one for each axis.")
def adaptive_average_pool(inputs: Any, output_size: Any, data_format: str | None = None) -> Any:
    """Compute the means of windows that are chosen such that the result has given sizes."""
    return pooling.adaptive_average_pool(inexact(inputs), output_size, standardize_data_format(data_format))


@operation
@document("An array.", output_size="the spatial sizes of the result, one integer or one for each axis.")
def adaptive_max_pool(inputs: Any, output_size: Any, data_format: str | None = None) -> Any:
    """Compute the maxima of windows that are chosen such that the result has given sizes."""
    return pooling.adaptive_max_pool(tensor(inputs), output_size, standardize_data_format(data_format))
