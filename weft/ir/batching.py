"""The axis that a batching transformation maps over, and the batching of sub-jaxprs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.ir.hooks import hooks
from weft.sharding.shardings import NamedSharding


@dataclass(frozen=True)
class Axis:
    """Axis that a batching transformation maps over: its size, its name, and the mesh axes `spmd` over which a
    `shard_map` inside splits it."""

    size: Any
    name: Any = None
    spmd: tuple[Any, ...] = ()
    # The sharding of this one dimension over Explicit mesh axes, as types record it; None if it is not split.
    sharding: NamedSharding | None = None

    def insert_into(self, aval: Any, dim: int = 0) -> Any:
        """Return the type `aval` with this axis inserted at dimension `dim`."""
        found = aval.with_dimension(dim, self.size)
        if self.sharding is None:
            return found
        entries = (*found.spec.partitions[:dim], self.sharding.spec[0], *found.spec.partitions[dim + 1 :])
        spec = found.spec.update(partitions=entries)
        return found.with_placement(sharding=(found.explicit_sharding or self.sharding).update(spec=spec))


def batch_jaxpr(
    jaxpr: Any, axis: Axis, batched: Sequence[bool], forced: bool | Sequence[bool] = True
) -> tuple[Any, tuple[bool, ...]]:
    """Batch a sub-jaxpr along dimension 0 of the arguments marked in `batched`. Return it and which of its results are
    batched: those that depend on a batched argument, and those that `forced` marks."""
    result: tuple[Any, tuple[bool, ...]] = hooks.batch_jaxpr(jaxpr, axis, batched, forced)
    return result
