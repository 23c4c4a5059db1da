"""What a jaxpr goes through before it is partitioned: calls opened, composites by their definitions, broadcasts
explicit. What speaks of meshes stays: `shard_map` and `sharding_constraint`."""

from __future__ import annotations

from weft.compiler.partition.blocks import choose_blocks
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
    """Replace operations that are defined by others, but for those that partitioning reads."""
    # The definition of a primitive, not `define` of an equation: a product of complex numbers is split as the
    # reduction that it is, and each device writes its part in pairs.
    return with_definitions(
        jaxpr, lambda e: None if e.primitive.partitions else e.primitive.definition, identities=True
    )


PASSES = (inline, drop_dead, decompose_operations, canonicalize, fold_constants, simplify, choose_blocks, merge_equal)


def prepared(jaxpr: Jaxpr) -> Jaxpr:
    """A jaxpr in the form that is partitioned. What types say of manual axes has been checked and used by now."""
    jaxpr = drop_placements(jaxpr)
    for function in PASSES:
        jaxpr = function(jaxpr)
    return jaxpr
