"""Profile of the arrays in memory for `pprof`: counts and bytes by type and device.

The format is a protocol buffer message; only the few fields that `pprof` needs are written.
"""

from __future__ import annotations

import gzip
import os
import pathlib
from collections import Counter
from typing import Any

from weft.api.devices import live_arrays
from weft.base.protobuf import varint


def device_memory_profile(backend: str | None = None) -> bytes:
    """Return a compressed profile for `pprof` of the arrays of this process, on one platform or on all.

    A sample has the type of arrays (`f32[2,3]`) inside of the device that they are on; its values are how many there
    are, and their bytes.
    """
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for array in live_arrays(backend):
        for shard in array.addressable_shards:
            if shard.data is None:
                continue
            key = (shard.data.aval.short(), str(shard.device))
            counts[key] += 1
            sizes[key] += shard.data.nbytes
    return gzip.compress(_profile(counts, sizes))


def save_device_memory_profile(filename: str | os.PathLike[str], backend: str | None = None) -> None:
    """Write `device_memory_profile(backend)` to a file: `pprof -top FILE` shows it."""
    pathlib.Path(filename).write_bytes(device_memory_profile(backend))


def _profile(counts: Counter[tuple[str, str]], sizes: Counter[tuple[str, str]]) -> bytes:
    """Encode the message `perftools.profiles.Profile`."""
    texts: dict[str, int] = {"": 0}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    functions: dict[str, int] = {}
    out = b"".join(
        _field(1, _integer(1, text(kind)) + _integer(2, text(unit)))
        for kind, unit in (("allocations", "count"), ("space", "bytes"))
    )
    for key in sorted(counts):
        stack = b"".join(varint(functions.setdefault(name, len(functions) + 1)) for name in key)
        values = varint(counts[key]) + varint(sizes[key])
        out += _field(2, _field(1, stack) + _field(2, values))
    for index in functions.values():  # a location for each function
        out += _field(4, _integer(1, index) + _field(4, _integer(1, index)))
    for name, index in functions.items():
        out += _field(5, _integer(1, index) + _integer(2, text(name)))
    return out + b"".join(_field(6, value.encode()) for value in texts)


def _integer(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _field(field: int, content: Any) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content
