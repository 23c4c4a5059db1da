"""Pooling: reductions over windows of the spatial dimensions of (batch..., spatial..., features)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base.arguments import indices
from weft.base.errors import ArgumentError
from weft.numpy.util import ensure_arrays
from weft.primitives.reduction.reduce_extrema import highest, lowest
from weft.trace.array import Array


def pool(
    inputs: Any,
    init: Any,
    reduce_fn: Callable[[Any, Any], Any],
    window_shape: Sequence[int],
    strides: Sequence[int] | None,
    padding: str | Sequence[tuple[int, int]],
) -> Array:
    """Reduce windows of `inputs` with `reduce_fn` from `init`; batch dimensions are optional."""
    window = indices(window_shape, "The window_shape of a pool")
    steps = (1,) * len(window) if strides is None else indices(strides, "The strides of a pool")
    if len(steps) != len(window):
        raise ArgumentError(f"pool needs a stride for each of {window}, got strides {steps}.")
    batches = inputs.ndim - (len(window) + 1)
    if batches < 0:
        raise ArgumentError(
            f"pool needs an input with {len(window)} spatial dimensions and one of features, got shape {inputs.shape}."
        )
    pads: Any = padding
    if not isinstance(padding, str):
        pairs = tuple((pair, pair) if isinstance(pair, int) else tuple(pair) for pair in padding)
        if len(pairs) != len(window) or any(len(pair) != 2 for pair in pairs):
            raise ArgumentError(
                f"pool needs 'SAME', 'VALID' or a pair (low, high) for each of {window}, got {padding!r}."
            )
        pads = ((0, 0),) * batches + pairs + ((0, 0),)
    outer = (1,) * batches
    return lax.reduce_window(inputs, init, reduce_fn, (*outer, *window, 1), (*outer, *steps, 1), pads)


def max_pool(
    inputs: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
) -> Array:
    """Compute the maximum of each window; padding is ignored.

    Args:
        inputs: an array (batch..., spatial..., features).
        window_shape: the sizes of the window.
        strides: the steps of the window; 1 by default.
        padding: "VALID", "SAME" or pairs (low, high).

    Returns:
        An array (batch..., windows..., features).

    >>> import weft.numpy as wnp
    >>> from weft import linen
    >>> linen.max_pool(wnp.arange(4.0).reshape(1, 4, 1), (2,), (2,)).ravel()
    Array([1., 3.], dtype=float32)
    """
    (inputs,) = ensure_arrays("max_pool", inputs)
    return pool(inputs, lowest(inputs.dtype), lax.max, window_shape, strides, padding)


def min_pool(
    inputs: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
) -> Array:
    """Compute the minimum of each window; padding is ignored."""
    (inputs,) = ensure_arrays("min_pool", inputs)
    return pool(inputs, highest(inputs.dtype), lax.min, window_shape, strides, padding)


def avg_pool(
    inputs: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    count_include_pad: bool = True,
) -> Array:
    """Compute the mean of each window; padding counts as zeros, or is ignored without `count_include_pad`.

    Args:
        inputs: an array (batch..., spatial..., features).
        window_shape: the sizes of the window.
        strides: the steps of the window; 1 by default.
        padding: "VALID", "SAME" or pairs (low, high).
        count_include_pad: whether padding counts as zeros.

    Returns:
        An array (batch..., windows..., features).

    >>> import weft.numpy as wnp
    >>> from weft import linen
    >>> linen.avg_pool(wnp.arange(4.0).reshape(1, 4, 1), (2,), (2,)).ravel()
    Array([0.5, 2.5], dtype=float32)
    """
    (inputs,) = ensure_arrays("avg_pool", inputs)
    zero = np.array(0, inputs.dtype)
    total = pool(inputs, zero, lax.add, window_shape, strides, padding)
    if count_include_pad:
        return total / np.array(np.prod(window_shape), inputs.dtype)
    # The number of elements per window is the same for all batches and features.
    first = inputs.ndim - (len(window_shape) + 1)
    ones = wnp.ones((*(1,) * first, *inputs.shape[first:-1], 1), inputs.dtype)
    return total / pool(ones, zero, lax.add, window_shape, strides, padding)
