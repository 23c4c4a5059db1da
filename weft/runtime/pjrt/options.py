"""Options of a compilation as XLA's protocol buffers, written by hand: three messages of a few numbers.

`CompileOptionsProto` has `ExecutableBuildOptionsProto` as field 3, and that the numbers of replicas and partitions and
the `DeviceAssignmentProto` as fields 4, 5 and 9.
"""

from __future__ import annotations

from collections.abc import Sequence

VARINT, BYTES = 0, 2


def write_varint(number: int) -> bytes:
    """Encode a number in base 128, the least significant digits first; negative ones as 64 bits."""
    number &= (1 << 64) - 1
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def write_number(field: int, number: int) -> bytes:
    """Encode a field that is a number."""
    return write_varint(field << 3 | VARINT) + write_varint(number)


def write_message(field: int, content: bytes) -> bytes:
    """Encode a field that is a message or a list of numbers."""
    return write_varint(field << 3 | BYTES) + write_varint(len(content)) + content


def write_device_assignment(devices: Sequence[int]) -> bytes:
    """Encode a `DeviceAssignmentProto`: the device of each replica of one computation."""
    replicas = write_message(1, b"".join(map(write_varint, devices)))
    return write_number(1, len(devices)) + write_number(2, 1) + write_message(3, replicas)


def write_compile_options(devices: Sequence[int]) -> bytes:
    """Encode the options for a program that runs as a replica on each of these devices."""
    build = write_number(4, len(devices)) + write_number(5, 1) + write_message(9, write_device_assignment(devices))
    return write_message(3, build)
