"""Which rows of a batch a process reads. `batch_size` is that of all processes together, so batches are the same for
any number of processes, and all have equally many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import weft
from weft.errors import ArgumentError


@dataclass(frozen=True)
class Share:
    """The part of process `index` of `count`: a range of the rows of each batch."""

    index: int = 0
    count: int = 1

    def rows(self, size: int) -> slice:
        """The rows of a batch of `size` that are this process's."""
        return slice(self.index * size // self.count, (self.index + 1) * size // self.count)


@dataclass(frozen=True)
class ShardingShare:
    """The part that the devices of this process have of arrays split as `sharding` says."""

    sharding: Any

    def rows(self, size: int) -> slice:
        """The rows of a batch of `size` that devices of this process have."""
        spec = getattr(self.sharding, "spec", None)
        if not spec or spec[0] is None:
            return slice(0, size)
        along_rows = weft.NamedSharding(self.sharding.mesh, weft.P(spec[0]))
        return weft.process_slices(along_rows, (size,))[0]


WHOLE = Share()


def share_of(shard: tuple[int, int] | str | None, sharding: Any = None) -> Share | ShardingShare:
    """The share that is asked for: "process", a pair (index, count), or None for all rows."""
    if sharding is not None and shard == "process":
        return ShardingShare(sharding)
    if shard is None:
        return WHOLE
    if shard == "process":
        return Share(weft.process_index(), weft.process_count())
    if isinstance(shard, tuple) and len(shard) == 2 and 0 <= shard[0] < shard[1]:
        return Share(*shard)
    raise ArgumentError(
        "shard is 'process', None, or the pair (index, count).",
        received=repr(shard),
        fix="shard=(weft.process_index(), weft.process_count())",
    )
