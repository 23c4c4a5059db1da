"""Modules of programs on several devices.

`emit` writes the program of one partition of a mesh. XLA runs one program on many devices in two ways: as partitions of
a program for all of them, in which every operation needs a mark that XLA's partitioner respects, or as replicas, whose
collectives name the members of each group. The second says what Weft has after its own partitioner, so the module is
changed to it: the numbers of devices stay the same.
"""

from __future__ import annotations

import re

_CHANNEL = re.compile(r", channel_handle = #stablehlo\.channel_handle<handle = \d+, type = \d+>")


def as_replicas(text: str, count: int) -> str:
    """Change a module of `count` partitions to one of as many replicas."""
    text = _CHANNEL.sub("", text).replace(", use_global_device_ids", "")
    text = text.replace('"stablehlo.partition_id"', '"stablehlo.replica_id"')
    partitions = f"mhlo.num_partitions = {count} : i32, mhlo.num_replicas = 1 : i32"
    return text.replace(partitions, f"mhlo.num_partitions = 1 : i32, mhlo.num_replicas = {count} : i32", 1)
