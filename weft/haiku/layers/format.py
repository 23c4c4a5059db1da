"""Data formats: the position of the channel axis."""

from __future__ import annotations

import re

from weft.errors import ArgumentError

_FIRST = re.compile("channels_first|NC[^C]*")
_LAST = re.compile("channels_last|N[^C]*C|(BT|TB)[^D]*D")


def get_channel_index(data_format: str) -> int:
    """Return 1 for formats with channels first, -1 for formats with channels last."""
    if _FIRST.fullmatch(data_format):
        return 1
    if _LAST.fullmatch(data_format):
        return -1
    raise ArgumentError(
        f"data_format is {data_format!r}; 'channels_first', 'channels_last', or letters such as "
        "'NHWC', 'NCHW' and 'BTD' are expected."
    )
