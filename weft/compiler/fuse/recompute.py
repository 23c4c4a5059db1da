"""Recomputation: results of a fusion that others compute again from fewer bytes than they read.

    forward:  x -> mean, 1 / deviation;  centred = x - mean;  y = ...        stores mean, and not centred
    backward: ... centred ...                                                computes it from x, in memory, and mean

Instruction fusion copies an equation into all the fusions that read it, or starts a fusion with it; an equation that
row-wise or producer-consumer fusion took into a kernel stays there, and its value is stored if others read it. Here
both that kernel and the others compute it.
"""

from __future__ import annotations

from typing import Any

from weft.compiler.fuse.cost import Details, FusionReason, count_bytes
from weft.compiler.fuse.graph import (
    IN_PLACE_KINDS,
    POINTWISE_KINDS,
    REDUCTIONS,
    FusionGraph,
    FusionGroup,
    FusionNode,
    GroupOrder,
    link,
)
from weft.compiler.fuse.instructions import obstacle, overwrites, take
from weft.compiler.fuse.siblings import count_results
from weft.ir.fusing import EXPAND, POINTWISE
from weft.ir.jaxpr import Var

RULE = "recompute"


class RecomputeChain:
    """The equations of a fusion that compute a value again, the values that they read (`leaves`), and which of these
    the fusion must store from now on."""

    def __init__(self, node: FusionNode) -> None:
        self.nodes: dict[int, FusionNode] = {node.index: node}
        self.leaves: dict[Var, None] = {}
        self.stored: list[FusionNode] = []

    @property
    def weight(self) -> float:
        """Weighted operations of one element."""
        return sum(n.weight for n in self.nodes.values())


def recompute(graph: FusionGraph, order: GroupOrder) -> None:
    """Recompute results of fusions in their readers if that reads and writes fewer bytes."""
    if not graph.limits.recompute_weight:
        return
    groups = order.groups()
    readers: dict[Var, list[FusionGroup]] = {}
    for group in groups:
        for v in group.operands:
            readers.setdefault(v, []).append(group)
    updated = {g.hero.equation.invars[0] for g in groups if g.kind in IN_PLACE_KINDS and g.hero is not None}
    for group in groups:
        if group.kind in POINTWISE_KINDS or group.kind in REDUCTIONS:
            for index in sorted(group.members):
                node = group.members[index]
                if node.owner is group and not node.is_output and node.bytes >= graph.limits.recompute_bytes:
                    _recompute(graph, group, node, readers, updated)


def _recompute(
    graph: FusionGraph, group: FusionGroup, node: FusionNode, readers: dict[Var, list[FusionGroup]], updated: set[Any]
) -> None:
    """Recompute a value of a group in all of its readers, if that is better and none refuses. `updated` has the values
    that fusions write in place."""
    v = node.equation.outvars[0]
    others = readers.get(v, [])
    if not others or len(node.equation.outvars) > 1 or any(other.unfused for other in others):
        return
    chain = find_chain(group, node, readers)
    if chain is None or chain.weight > graph.limits.recompute_weight or not updated.isdisjoint(chain.leaves):
        return
    read = sum(count_bytes(leaf.aval) for other in others for leaf in chain.leaves if leaf not in other.operands)
    before, after = node.bytes * (1 + len(others)), read + sum(n.bytes for n in chain.stored)
    details = (("readers", len(others)), ("bytes before", before), ("bytes after", after))
    # The leaves live longer now: they may take no more memory than the value that is no longer stored.
    alive = sum(count_bytes(leaf.aval) for leaf in chain.leaves if leaf in graph.node_of)
    if after >= before or alive > node.bytes + sum(n.bytes for n in chain.stored):
        return
    for other in others:
        refusal = _refusal(graph, other, node, chain)
        if refusal is not None:
            graph.note(None, FusionReason(RULE, node.label, other.label, False, refusal))
            return
    if count_results(graph, group) + len(chain.stored) > graph.limits.results + 1:
        return
    for stored in chain.stored:
        stored.owner = group
    for other in others:
        graph.note(other, FusionReason(RULE, node.label, other.label, True, details))
        noted = len(other.reasons)
        for member in sorted(chain.nodes.values(), key=lambda n: -n.index):
            if member.index not in other.members:
                take(graph, other, member, owner=False)
        del other.reasons[noted:]
        for leaf in chain.leaves:
            if leaf not in other.operands:
                continue
            producer = graph.node_of.get(leaf)
            if producer is not None and producer.owner is not None:
                link(producer.owner, other)
            if other not in readers.setdefault(leaf, []):
                readers[leaf].append(other)
    del readers[v]


def find_chain(group: FusionGroup, node: FusionNode, readers: dict[Var, list[FusionGroup]]) -> RecomputeChain | None:
    """Return the cheap equations that compute a value of a group from values in memory, values of rows, and values that
    are smaller than it and than their own operands; None if they are not cheap."""
    chain = RecomputeChain(node)
    todo = [node]
    while todo:
        top = todo.pop()
        if top.role not in (POINTWISE, EXPAND) or not top.cheap:
            return None
        for v, producer in zip(top.operands, top.producers, strict=True):
            if producer is None or producer.index not in group.members or _is_in_memory(group, producer, readers):
                chain.leaves[v] = None
            elif _is_small(group, producer, node):
                if producer.owner not in (group, None) or len(producer.equation.outvars) > 1:
                    return None
                chain.leaves[v] = None
                chain.stored.append(producer)
            elif producer.index not in chain.nodes:
                chain.nodes[producer.index] = producer
                todo.append(producer)
    return chain


def _is_small(group: FusionGroup, producer: FusionNode, node: FusionNode) -> bool:
    """Return whether a value is better stored than recomputed too."""
    if group.kind == "row" and producer.space == group.out != group.full:
        return True
    return 2 * producer.bytes <= node.bytes and 2 * producer.bytes <= sum(
        count_bytes(v.aval) for v in producer.operands
    )


def _is_in_memory(group: FusionGroup, node: FusionNode, readers: dict[Var, list[FusionGroup]]) -> bool:
    """Return whether a value of a group is in memory anyway."""
    return node.owner is group and (node.is_output or any(v in readers for v in node.equation.outvars))


def _refusal(graph: FusionGraph, reader: FusionGroup, node: FusionNode, chain: RecomputeChain) -> Details | None:
    """Return the reason why a group cannot compute a value itself, or None."""
    limits = graph.limits
    refusal = obstacle(graph, reader, node)
    if refusal is not None:
        return refusal
    if len(reader.members) + len(chain.nodes) > limits.values:
        return (("values", len(reader.members) + len(chain.nodes)), ("limit", limits.values))
    if overwrites(reader, tuple(chain.leaves)):
        return (("in place", "it would read what the hero overwrites"),)
    reads = len({*reader.operands, *chain.leaves})
    if reads > limits.operands + 1:
        return (("operands", reads - 1), ("limit", limits.operands))
    return None
