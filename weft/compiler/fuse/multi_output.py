"""Producer-consumer fusion: merges a fusion with one that reads it into one kernel that stores both results.

The consumer must read at the index of the producer's loops: then it uses the value where it is computed and stored, and
does not read it from memory.
"""

from __future__ import annotations

from weft.compiler.fuse.cost import FusionReason, count_bytes
from weft.compiler.fuse.graph import (
    POINTWISE_KINDS,
    REDUCTIONS,
    FusionGraph,
    FusionGroup,
    FusionNode,
    GroupOrder,
    is_direct,
    users_in,
)
from weft.compiler.fuse.instructions import EPILOGUE_KINDS
from weft.compiler.fuse.siblings import adopt_kind, comes_early, joint_obstacle
from weft.ir.jaxpr import Var

RULE = "producer-consumer"


def fuse_producers(graph: FusionGraph, order: GroupOrder) -> None:
    """Merge fusions with their readers, from the last fusion to the first, the nearest reader first."""
    for group in reversed(order.groups()):
        if group.members and not group.unfused:
            for reader in sorted(group.successors, key=lambda g: g.position):
                if reader.members and not reader.unfused and reader in group.successors:
                    _try(graph, order, group, reader)


def _try(graph: FusionGraph, order: GroupOrder, producer: FusionGroup, consumer: FusionGroup) -> None:
    """Merge two groups if their spaces and limits allow it."""
    shared = [(v, n) for v in consumer.operands if (n := graph.node_of.get(v)) is not None and n.owner is producer]
    if not shared:
        return
    kind = joint_kind(producer, consumer, shared)
    if kind is None:
        return
    names = producer.label, consumer.label
    why = joint_obstacle(graph, order, producer, consumer)
    early = comes_early(graph, order, producer, consumer)
    if why is None and (refused := order.join(producer, consumer, early)) is not None:
        why = (("order", refused),)
    if why is not None:
        graph.note(None, FusionReason(RULE, *names, False, why))
        return
    full, out, reduced, hero = producer.full, producer.out, producer.reduced, producer.hero
    adopt_kind(producer, consumer, kind)
    if kind not in REDUCTIONS and kind not in POINTWISE_KINDS:
        producer.full, producer.out, producer.reduced, producer.hero = full, out, reduced, hero
    saved = sum(count_bytes(v.aval) for v, _ in shared)
    graph.note(producer, FusionReason(RULE, *names, True, (("not read again", saved),)))


def joint_kind(producer: FusionGroup, consumer: FusionGroup, shared: list[tuple[Var, FusionNode]]) -> str | None:
    """Return the kind of one kernel for both, or None if the consumer reads at another index than the producer's."""
    if any(not producer.direct[n.index] or not _read_directly(consumer, n) for _, n in shared):
        return None
    spaces = {n.space for _, n in shared}
    if len(spaces) != 1:
        return None
    (space,) = spaces
    if producer.kind in POINTWISE_KINDS:
        if producer.hero is not None or consumer.full != producer.out or space != producer.out:
            return None
        if consumer.kind in REDUCTIONS:
            return consumer.kind
        return "loop" if consumer.kind in POINTWISE_KINDS and consumer.hero is None else None
    if consumer.kind not in POINTWISE_KINDS or consumer.hero is not None:
        return None
    if producer.kind in REDUCTIONS:
        if space == producer.out == consumer.out:
            return producer.kind
        return producer.kind if space == producer.full == consumer.out and _usable_in_full(producer, shared) else None
    return producer.kind if producer.kind in EPILOGUE_KINDS and space == producer.out == consumer.out else None


def _usable_in_full(producer: FusionGroup, shared: list[tuple[Var, FusionNode]]) -> bool:
    """Return whether full values of a reduction can be used: anywhere in rows, else before the reduction."""
    return True if producer.kind == "row" else all(n.role != "hero" for _, n in shared)


def _read_directly(consumer: FusionGroup, node: FusionNode) -> bool:
    """Return whether all users of a node in a group read it at the index of the loops."""
    return all(is_direct(consumer, user, node) for user in users_in(consumer, node))
