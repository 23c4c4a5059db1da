"""Passes before partitioning: inline calls, replace composites by their definitions, make broadcasts explicit.
`shard_map` and `sharding_constraint` stay."""

from __future__ import annotations

from weft.compiler.partition.sink_sums import sink_sums
from weft.compiler.partition.updates import pad_updates
from weft.compiler.passes.canonicalize import canonicalize
from weft.compiler.passes.decompose import with_definitions
from weft.compiler.passes.drop_dead import drop_dead
from weft.compiler.passes.fold_constants import fold_constants
from weft.compiler.passes.inline import inline
from weft.compiler.passes.merge_equal import merge_equal
from weft.compiler.passes.simplify import simplify
from weft.compiler.rewrite import everywhere
from weft.ir.jaxpr import Jaxpr
from weft.ir.unplaced import drop_placements


@everywhere
def decompose_operations(jaxpr: Jaxpr) -> Jaxpr:
    """Replace operations that are defined by others, except those that the partitioner reads."""
    # The definition of a primitive, not `define` of an equation: a complex reduction is partitioned as one, and each
    # device computes its shard in pairs of real numbers.
    return with_definitions(
        jaxpr, lambda e: None if e.primitive.partitions else e.primitive.definition, identities=True
    )


PASSES = (
    inline,
    drop_dead,
    decompose_operations,
    canonicalize,
    fold_constants,
    simplify,
    pad_updates,
    sink_sums,
    merge_equal,
)


def prepare(jaxpr: Jaxpr) -> Jaxpr:
    """Bring a jaxpr to the form that `partition` takes. States along manual axes are dropped from its types: they have
    been checked by now."""
    jaxpr = drop_placements(jaxpr)
    for function in PASSES:
        jaxpr = function(jaxpr)
    return jaxpr
