"""What files may ask for, so that a hostile one is an error and not a machine without memory."""

from __future__ import annotations

from weft.errors import FileFormatError

MOST_LEVELS = 100
MOST_MEMBERS = 10_000
MOST_TEXT = 1 << 28
MOST_BYTES = 1 << 40
# Members of archives are stored; other data may be compressed by at most this factor.
MOST_EXPANSION = 200


def check_size(size: int, what: str, most: int = MOST_BYTES) -> None:
    """Raise if something is larger than files may ask for."""
    if size > most:
        raise FileFormatError(f"{what} must have at most {most:,} bytes; got {size:,}.")
