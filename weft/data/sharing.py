"""The rows of a batch that a process reads.

`batch_size` counts the rows of all processes, so batches do not depend on the number of processes, and all processes
have the same number of batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import weft
from weft.errors import ArgumentError


@dataclass(frozen=True)
class Share:
    """The rows of process `index` of `count`: a range of each batch."""

    index: int = 0
    count: int = 1

    def rows(self, size: int) -> slice:
        """Return the rows of a batch of `size` that this process reads."""
        return slice(self.index * size // self.count, (self.index + 1) * size // self.count)


@dataclass(frozen=True)
class ShardingShare:
    """The rows on the devices of this process under a sharding."""

    sharding: Any

    def rows(self, size: int) -> slice:
        """Return the rows of a batch of `size` that devices of this process hold."""
        spec = getattr(self.sharding, "spec", None)
        if not spec or spec[0] is None:
            return slice(0, size)
        along_rows = weft.NamedSharding(self.sharding.mesh, weft.P(spec[0]))
        return weft.process_slices(along_rows, (size,))[0]


WHOLE = Share()


def make_share(shard: tuple[int, int] | str | None, sharding: Any = None) -> Share | ShardingShare:
    """Return the share for "process", a pair (index, count), or None (all rows)."""
    if sharding is not None and shard == "process":
        return ShardingShare(sharding)
    if shard is None:
        return WHOLE
    if shard == "process":
        return Share(weft.process_index(), weft.process_count())
    if isinstance(shard, tuple) and len(shard) == 2 and 0 <= shard[0] < shard[1]:
        return Share(*shard)
    raise ArgumentError(
        "shard must be 'process', None, or a pair (index, count).",
        received=repr(shard),
        fix="shard=(weft.process_index(), weft.process_count())",
    )
