"""Pooling with Keras' arguments."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import Array, nn
from weft.keras.numerics.shapes import padding_name, sizes, spatial_axes

Sizes = int | Sequence[int]


def max_pool(
    inputs: Array,
    pool_size: Sizes,
    strides: Sizes | None = None,
    padding: str = "valid",
    data_format: str = "channels_last",
) -> Array:
    """Compute the maximum of each window, ignoring padding. Strides default to the window."""
    return _pool(nn.max_pool, inputs, pool_size, strides, padding, data_format)


def average_pool(
    inputs: Array,
    pool_size: Sizes,
    strides: Sizes | None = None,
    padding: str = "valid",
    data_format: str = "channels_last",
) -> Array:
    """Compute the mean of each window; padding does not count."""
    padding = padding_name(padding)
    return _pool(
        functools.partial(nn.avg_pool, count_include_pad=padding == "valid"),
        inputs,
        pool_size,
        strides,
        padding,
        data_format,
    )


def _pool(reduce: Any, inputs: Array, pool_size: Sizes, strides: Sizes | None, padding: str, data_format: str) -> Array:
    rank = inputs.ndim - 2
    window = sizes(pool_size, rank, "pool_size")
    steps = window if strides is None else sizes(strides, rank, "strides")
    padding = padding_name(padding).upper()
    if data_format == "channels_last":
        return reduce(inputs, window, steps, padding)
    # Channels that come first are one more batch dimension, and a channel dimension of 1 is put last.
    return wnp.squeeze(reduce(wnp.expand_dims(inputs, -1), window, steps, padding), -1)


def adaptive_max_pool(inputs: Array, output_size: Sizes, data_format: str = "channels_last") -> Array:
    """Compute the maxima of `output_size` windows whose sizes are chosen such that they cover the input."""
    return _adaptive(wnp.max, inputs, output_size, data_format)


def adaptive_average_pool(inputs: Array, output_size: Sizes, data_format: str = "channels_last") -> Array:
    """Compute the means of `output_size` windows whose sizes are chosen such that they cover the input."""
    return _adaptive(wnp.mean, inputs, output_size, data_format)


def _adaptive(reduce: Any, inputs: Array, output_size: Sizes, data_format: str) -> Array:
    """Reduce windows along one axis after the other; window i of m over n elements is from ⌊i n / m⌋ to ⌈(i + 1) n /
    m⌉.
    """
    rank = inputs.ndim - 2
    counts = sizes(output_size, rank, "output_size")
    out = inputs
    for axis, count in zip(spatial_axes(rank, data_format), counts, strict=True):
        size = out.shape[axis]
        starts = [i * size // count for i in range(count)]
        stops = [-(-(i + 1) * size // count) for i in range(count)]
        widths = {stop - start for start, stop in zip(starts, stops, strict=True)}
        if len(widths) == 1:
            # Windows of one size are gathered in one step: (windows, width) indices.
            index = np.asarray(starts)[:, None] + np.arange(widths.pop())
            out = reduce(wnp.take(out, index, axis=axis), axis=axis + 1)
        else:
            ends = zip(starts, stops, strict=True)
            parts = [reduce(_between(out, axis, *pair), axis=axis, keepdims=True) for pair in ends]
            out = wnp.concatenate(parts, axis=axis)
    return out


def _between(x: Array, axis: int, start: int, stop: int) -> Array:
    return x[(slice(None),) * axis + (slice(start, stop),)]
