"""Pooling: reduction of windows that slide over an array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.errors import ArgumentError
from weft.haiku.module import Module


def _sizes_per_dimension(x: Any, size: int | Sequence[int], channel_axis: int | None, what: str) -> tuple[int, ...]:
    """Return a size per dimension: one number is for spatial dimensions, and missing leading sizes are 1."""
    if not isinstance(size, int):
        sizes = tuple(size)
        if len(sizes) > x.ndim:
            raise ArgumentError(f"{what} must not have more dimensions than the input {x.shape}; got {sizes}.")
        return (1,) * (x.ndim - len(sizes)) + sizes
    if channel_axis is not None and not -x.ndim <= channel_axis < x.ndim:
        raise ArgumentError(f"channel_axis {channel_axis} is not an axis of the input {x.shape}.")
    channel = None if channel_axis is None else channel_axis % x.ndim
    return tuple(1 if axis in (0, channel) else size for axis in range(x.ndim))


def _check_padding(padding: str, what: str) -> str:
    if padding not in ("SAME", "VALID"):
        raise ArgumentError(f"{what} needs padding 'SAME' or 'VALID', got {padding!r}.")
    return padding


def max_pool(
    value: Any,
    window_shape: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str,
    channel_axis: int | None = -1,
) -> Any:
    """Return the largest element of each window.

    Args:
        value: an array.
        window_shape: the sizes of the window, of all dimensions or of the last ones.
        strides: its steps.
        padding: "SAME" or "VALID".
        channel_axis: the axis that is not pooled, or None.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> from weft import haiku
    >>> haiku.max_pool(wnp.arange(4.0).reshape(1, 4, 1), (1, 2, 1), (1, 2, 1), "VALID").ravel()
    Array([1., 3.], dtype=float32)
    """
    value = wnp.asarray(value)
    window = _sizes_per_dimension(value, window_shape, channel_axis, "max_pool: window_shape")
    steps = _sizes_per_dimension(value, strides, channel_axis, "max_pool: strides")
    floating = wnp.issubdtype(value.dtype, wnp.inexact)
    lowest = np.array(-np.inf if floating else wnp.iinfo(value.dtype).min, value.dtype)
    return lax.reduce_window(value, lowest, lax.max, window, steps, _check_padding(padding, "max_pool"))


def avg_pool(
    value: Any,
    window_shape: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str,
    channel_axis: int | None = -1,
) -> Any:
    """Return the mean of each window, excluding padding.

    Args:
        value: an array.
        window_shape: the sizes of the window, of all dimensions or of the last ones.
        strides: its steps.
        padding: "SAME" or "VALID".
        channel_axis: the axis that is not pooled, or None.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> from weft import haiku
    >>> haiku.avg_pool(wnp.arange(4.0).reshape(1, 4, 1), (1, 2, 1), (1, 2, 1), "VALID").ravel()
    Array([0.5, 2.5], dtype=float32)
    """
    value = wnp.asarray(value)
    window = _sizes_per_dimension(value, window_shape, channel_axis, "avg_pool: window_shape")
    steps = _sizes_per_dimension(value, strides, channel_axis, "avg_pool: strides")
    zero = np.array(0, value.dtype)
    total = lax.reduce_window(value, zero, lax.add, window, steps, _check_padding(padding, "avg_pool"))
    if padding == "VALID":
        return total / np.array(math.prod(window), value.dtype)
    # The number of elements of each window that are not padding, equal for all batches and channels.
    shape = tuple(
        size if taps > 1 or step > 1 else 1 for size, taps, step in zip(value.shape, window, steps, strict=True)
    )
    return total / lax.reduce_window(wnp.ones(shape, value.dtype), zero, lax.add, window, steps, padding)


class MaxPool(Module):
    """`max_pool` as a module.

    Args:
        window_shape: the sizes of the window, of all dimensions or of the last ones.
        strides: its steps.
        padding: "SAME" or "VALID".
        channel_axis: the axis that is not pooled, or None.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.MaxPool((1, 2, 1), (1, 2, 1), "VALID")(x))
    >>> x = wnp.ones((1, 4, 1))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 2, 1)
    """

    def __init__(
        self,
        window_shape: int | Sequence[int],
        strides: int | Sequence[int],
        padding: str,
        channel_axis: int | None = -1,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.window_shape = window_shape
        self.strides = strides
        self.padding = padding
        self.channel_axis = channel_axis

    def __call__(self, value: Any) -> Any:
        return max_pool(value, self.window_shape, self.strides, self.padding, self.channel_axis)


class AvgPool(Module):
    """`avg_pool` as a module."""

    def __init__(
        self,
        window_shape: int | Sequence[int],
        strides: int | Sequence[int],
        padding: str,
        channel_axis: int | None = -1,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.window_shape = window_shape
        self.strides = strides
        self.padding = padding
        self.channel_axis = channel_axis

    def __call__(self, value: Any) -> Any:
        return avg_pool(value, self.window_shape, self.strides, self.padding, self.channel_axis)
