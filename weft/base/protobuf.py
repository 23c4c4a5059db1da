"""Messages in the wire format of protocol buffers, for models of ONNX and profiles.

A message is a list of fields, each a number and a value. Three wire types are written: variable-length integers, 32-bit
floats, and bytes with a length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

VARINT, LENGTH, FIXED32 = 0, 2, 5
LOW_BITS, MORE = 0x7F, 0x80


def varint(value: int) -> bytes:
    """Encode an integer in groups of seven bits, the lowest first; negative ones as their 64-bit complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > LOW_BITS:
        out.append(value & LOW_BITS | MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


class Message:
    """Protocol buffer under construction: fields are appended in the order of the calls."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def integer(self, field: int, value: int) -> Message:
        """Append an integer."""
        self._parts += (varint(field << 3 | VARINT), varint(value))
        return self

    def real(self, field: int, value: float) -> Message:
        """Append a 32-bit float."""
        self._parts += (varint(field << 3 | FIXED32), struct.pack("<f", value))
        return self

    def data(self, field: int, value: bytes) -> Message:
        """Append bytes, also an empty field."""
        self._parts += (varint(field << 3 | LENGTH), varint(len(value)), value)
        return self

    def text(self, field: int, value: str) -> Message:
        """Append a string; an empty one, which is the default, is left out."""
        return self.data(field, value.encode()) if value else self

    def message(self, field: int, value: Message) -> Message:
        """Append a message inside of this one."""
        return self.data(field, value.encode())

    def messages(self, field: int, values: Iterable[Message]) -> Message:
        """Append a repeated message."""
        for value in values:
            self.message(field, value)
        return self

    def integers(self, field: int, values: Iterable[int]) -> Message:
        """Append repeated integers, packed into one field."""
        return self.data(field, b"".join(map(varint, values)))

    def encode(self) -> bytes:
        """Return the bytes of the message."""
        return b"".join(self._parts)
