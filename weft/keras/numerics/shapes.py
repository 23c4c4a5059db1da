"""Sizes, paddings and data formats as Keras writes them, and the shapes that windows lead to. A size may be None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import ArgumentError

Shape = tuple[int | None, ...]


def sizes(value: Any, rank: int, name: str, *, allow_zero: bool = False) -> tuple[int, ...]:
    """Return one integer for each of `rank` dimensions, from one for all or one for each."""
    try:
        out = (value,) * rank if isinstance(value, int) else tuple(int(size) for size in value)
    except (TypeError, ValueError):
        out = ()
    if len(out) != rank or any(size < (0 if allow_zero else 1) for size in out):
        kind = "non-negative" if allow_zero else "positive"
        raise ArgumentError(f"The `{name}` argument must be {rank} {kind} integers, or one. Received: {name}={value!r}")
    return out


def pairs(value: Any, rank: int, name: str) -> tuple[tuple[int, int], ...]:
    """Return (before, after) for each of `rank` dimensions: from one integer, one for each dimension, or pairs."""
    if isinstance(value, int):
        value = (value,) * rank
    try:
        entries = tuple(value)
    except TypeError:
        entries = ()
    if len(entries) != rank:
        raise ArgumentError(
            f"`{name}` must be an integer, or {rank} entries that are integers or pairs of integers. "
            f"Received: {name}={value!r}"
        )
    return tuple(sizes(entry, 2, f"entry {i} of {name}", allow_zero=True) for i, entry in enumerate(entries))  # type: ignore[misc]


def padding_name(value: Any, *, allow_causal: bool = False) -> str:
    """Return "valid" or "same", or "causal" if that is allowed, in lower case."""
    allowed = ("valid", "same", "causal") if allow_causal else ("valid", "same")
    if not isinstance(value, str) or value.lower() not in allowed:
        raise ArgumentError(f"The `padding` argument must be one of {allowed}. Received: padding={value!r}")
    return value.lower()


def spatial_axes(rank: int, data_format: str) -> tuple[int, ...]:
    """Return the spatial axes of an array with batch, channels and `rank` spatial dimensions."""
    first = 2 if data_format == "channels_first" else 1
    return tuple(range(first, first + rank))


def channel_axis(data_format: str) -> int:
    """Return the axis of the channels: 1 or -1."""
    return 1 if data_format == "channels_first" else -1


def with_spatial(shape: Sequence[int | None], spatial: Sequence[int | None], data_format: str) -> Shape:
    """Replace the spatial sizes of a shape."""
    if data_format == "channels_first":
        return (shape[0], shape[1], *spatial)
    return (shape[0], *spatial, shape[-1])


def spatial_sizes(shape: Sequence[int | None], data_format: str) -> Shape:
    """Return the spatial sizes of a shape."""
    return tuple(shape[2:]) if data_format == "channels_first" else tuple(shape[1:-1])


def window_count(size: int | None, window: int, stride: int, padding: str, dilation: int = 1) -> int | None:
    """Return the number of windows that fit; raise an error if none does. None for an unknown size."""
    if size is None:
        return None
    if padding != "valid":
        return (size - 1) // stride + 1
    reach = (window - 1) * dilation + 1
    if size < reach:
        raise ArgumentError(
            f"A window of {reach} does not fit into a dimension of {size}: the computed output size would be zero or "
            "negative. Use padding='same', a smaller window, or a larger input."
        )
    return (size - reach) // stride + 1


def window_shape(
    shape: Sequence[int | None],
    window: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str,
    dilation: Sequence[int] | None = None,
) -> Shape:
    """Return the shape after windows slid over the spatial dimensions; the channels are unchanged."""
    spatial = spatial_sizes(shape, data_format)
    if len(spatial) != len(window):
        raise ArgumentError(
            f"A window {tuple(window)} needs an input with {len(window)} spatial dimensions beside batch and channels. "
            f"Received: shape {tuple(shape)}"
        )
    dilation = dilation or (1,) * len(window)
    counts = [
        window_count(size, one, step, padding, wide)
        for size, one, step, wide in zip(spatial, window, strides, dilation, strict=True)
    ]
    return with_spatial(shape, counts, data_format)
