"""Files that TensorBoard reads: records with checksums, of messages in the wire format of protocol buffers.

Only what an event file needs is here: a record is its length, the masked CRC-32C of that, the message, and its masked
CRC-32C; a message is a sequence of fields, each with a key, a wire type and a value.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

import numpy as np

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, with its bits in reverse


def _table() -> list[int]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ _POLYNOMIAL, table >> 1).astype(np.uint32)
    return table.tolist()


_TABLE = _table()


def crc32c(message: bytes) -> int:
    """Return the CRC-32C of bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    table = _TABLE
    for byte in message:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def mask_crc32c(message: bytes) -> int:
    """Return the checksum of a record: rotated and offset, so that checksums of checksums are no special case."""
    crc = crc32c(message)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(message: bytes) -> bytes:
    """Frame a message as a record."""
    length = struct.pack("<Q", len(message))
    checks = struct.pack("<I", mask_crc32c(length)), struct.pack("<I", mask_crc32c(message))
    return length + checks[0] + message + checks[1]


def varint(value: int) -> bytes:
    """Encode an integer in groups of seven bits, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    """Encode a field with an integer or a flag."""
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    """Encode a field with a 64-bit float."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    """Encode a field with a 32-bit float."""
    return varint(field << 3 | 5) + struct.pack("<f", value)


def content(field: int, value: bytes | str) -> bytes:
    """Encode a field with text, bytes or a message."""
    encoded = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(encoded)) + encoded


def doubles(field: int, values: Iterable[float]) -> bytes:
    """Encode a packed field of 64-bit floats."""
    return content(field, np.asarray(list(values), "<f8").tobytes())


def png(image: np.ndarray) -> bytes:
    """Encode a uint8 image, `(rows, columns, channels)` with 1, 3 or 4 channels, as PNG."""
    height, width, channels = image.shape
    colour = {1: 0, 3: 2, 4: 6}[channels]

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    lines = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, width * channels)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes())) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
