"""A reader of the wire format of protocol buffers, for what Weft writes in it."""

from __future__ import annotations

from typing import Any

# Bytes of values whose length the wire type says: 64 bits, and 32.
SIZES = {1: 8, 5: 4}


def fields(message: bytes) -> list[tuple[int, Any]]:
    """Return a message as a list of (field, value); values are integers or bytes."""
    found: list[tuple[int, Any]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
            continue
        size = SIZES.get(key & 7) or varint()
        found.append((key >> 3, message[at : at + size]))
        at += size
    assert at == len(message)
    return found
