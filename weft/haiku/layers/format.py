"""Data formats: where the channels are."""

from __future__ import annotations

from weft.errors import ArgumentError

_FIRST = ("channels_first", "NCW", "NCHW", "NCDHW", "NC...")
_LAST = ("channels_last", "NWC", "NHWC", "NDHWC", "N...C")


def get_channel_index(data_format: str) -> int:
    """1 for formats with channels first, -1 for those with channels last."""
    if data_format in _FIRST:
        return 1
    if data_format in _LAST:
        return -1
    raise ArgumentError(
        f"data_format is {data_format!r}; 'channels_first', 'channels_last', or letters such as "
        "'NHWC' and 'NCHW' are expected."
    )
