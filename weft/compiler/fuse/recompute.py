"""Computing again instead of storing: a result of a fusion that others compute from less than it takes.

    forward:  x -> mean, 1 / deviation;  centred = x - mean;  y = ...        stores mean, and not centred
    backward: ... centred ...                                                computes it of x, which is there, and mean

Instruction fusion puts an equation into all the fusions that read it, or makes it one of their own; what row-wise and
producer-consumer fusion took into a kernel stays there, and what others read of it is stored. Here the kernel may go on
to compute it for itself, while others do too.
"""

from __future__ import annotations

from typing import Any

from weft.compiler.fuse.cost import Reason, bytes_of
from weft.compiler.fuse.graph import IN_PLACE_KINDS, POINTWISE_KINDS, REDUCTIONS, Graph, Group, Node, Order
from weft.compiler.fuse.instructions import obstacle, overwrites, take
from weft.compiler.fuse.siblings import count_results
from weft.ir.fusing import EXPAND, POINTWISE
from weft.ir.jaxpr import Var

RULE = "recompute"


class Chain:
    """What computes a value again: equations of its fusion, what they read, and values of the fusion among that which
    it must store from now on."""

    def __init__(self, node: Node) -> None:
        self.nodes: dict[int, Node] = {node.index: node}
        self.leaves: dict[Var, None] = {}
        self.stored: list[Node] = []

    @property
    def weight(self) -> float:
        return sum(n.weight for n in self.nodes.values())


def recompute(graph: Graph, order: Order) -> None:
    """Let others compute results of fusions, where they read and write fewer bytes so."""
    if not graph.limits.recompute_weight:
        return
    groups = order.groups()
    readers: dict[Var, list[Group]] = {}
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


def _recompute(graph: Graph, group: Group, node: Node, readers: dict[Var, list[Group]], updated: set[Any]) -> None:
    v = node.equation.outvars[0]
    others = readers.get(v, [])
    if not others or len(node.equation.outvars) > 1 or any(other.unfused for other in others):
        return
    chain = chain_of(group, node, readers)
    if chain is None or chain.weight > graph.limits.recompute_weight or not updated.isdisjoint(chain.leaves):
        return
    read = sum(bytes_of(leaf.aval) for other in others for leaf in chain.leaves if leaf not in other.operands)
    before, after = node.bytes * (1 + len(others)), read + sum(n.bytes for n in chain.stored)
    details = (("readers", len(others)), ("bytes before", before), ("bytes after", after))
    # What is computed on the way lives longer now: no more than what is no longer stored.
    alive = sum(bytes_of(leaf.aval) for leaf in chain.leaves if leaf in graph.node_of)
    if after >= before or alive > node.bytes + sum(n.bytes for n in chain.stored):
        return
    for other in others:
        refusal = _refusal(graph, other, node, chain)
        if refusal is not None:
            graph.note(None, Reason(RULE, node.label, other.label, False, refusal))
            return
    if count_results(graph, group) + len(chain.stored) > graph.limits.results + 1:
        return
    for stored in chain.stored:
        stored.owner = group
    for other in others:
        graph.note(other, Reason(RULE, node.label, other.label, True, details))
        noted = len(other.reasons)
        for member in sorted(chain.nodes.values(), key=lambda n: -n.index):
            if member.index not in other.members:
                take(graph, other, member, owner=False)
        del other.reasons[noted:]
        for leaf in chain.leaves:
            if leaf in other.operands and other not in readers.setdefault(leaf, []):
                readers[leaf].append(other)
    del readers[v]


def chain_of(group: Group, node: Node, readers: dict[Var, list[Group]]) -> Chain | None:
    """How to compute a value of a group from what is in memory, from values of rows, and from values that are smaller
    than it and than what they are computed from; None if that is not cheap."""
    chain = Chain(node)
    todo = [node]
    while todo:
        top = todo.pop()
        if top.role not in (POINTWISE, EXPAND) or not top.cheap:
            return None
        for v, producer in zip(top.operands, top.producers, strict=True):
            if producer is None or producer.index not in group.members or _is_stored(group, producer, readers):
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


def _is_small(group: Group, producer: Node, node: Node) -> bool:
    """Whether a value is better stored than computed again too."""
    if group.kind == "row" and producer.space == group.out != group.full:
        return True
    return 2 * producer.bytes <= node.bytes and 2 * producer.bytes <= sum(bytes_of(v.aval) for v in producer.operands)


def _is_stored(group: Group, node: Node, readers: dict[Var, list[Group]]) -> bool:
    """Whether a value of a group is in memory anyway."""
    return node.owner is group and (node.is_output or any(v in readers for v in node.equation.outvars))


def _refusal(graph: Graph, reader: Group, node: Node, chain: Chain) -> tuple[tuple[str, object], ...] | None:
    """Why a group does not compute a value itself, or None."""
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
