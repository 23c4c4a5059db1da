"""Options of a compilation as XLA's protocol buffers, written by hand: three messages of a few numbers.

`CompileOptionsProto` has `ExecutableBuildOptionsProto` as field 3, and that the numbers of replicas and partitions and
the `DeviceAssignmentProto` as fields 4, 5 and 9. Its field 7 is a map of settings that differ from XLA's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


# What XLA's CPUs do by default besides what StableHLO says: extremes that lose a nan, and short floats that are not
# rounded between operations.
CPU_SETTINGS = {"xla_cpu_enable_fast_min_max": False, "xla_allow_excess_precision": False}


def write_setting(name: str, value: bool) -> bytes:
    """Encode an entry of a map of settings, whose key is field 1 and whose value has booleans in field 2."""
    return write_message(1, name.encode()) + write_message(2, write_number(2, int(value)))


def write_compile_options(devices: Sequence[int], settings: Mapping[str, bool] | None = None) -> bytes:
    """Encode the options for a program that runs as a replica on each of these devices, with other settings of XLA than
    its defaults."""
    build = write_number(4, len(devices)) + write_number(5, 1) + write_message(9, write_device_assignment(devices))
    overrides = [write_message(7, write_setting(name, value)) for name, value in (settings or {}).items()]
    return write_message(3, build) + b"".join(overrides)
