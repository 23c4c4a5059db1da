"""Concatenations that are computed where they are read.

A concatenation can own the loops of its kernel, operand by operand, which select nothing, or be data movement: an
element at an index, from the operand that the index is in. A kernel has one owner of its loops. So where several
concatenations meet in elementwise work (the neighbours of a stencil, by `roll`), or a reduction or another movement
reads one, they are data movement; otherwise each is written to memory and read again.
"""

from __future__ import annotations

from weft.compiler.fuse.graph import REDUCTIONS, FusionGraph, FusionNode, in_memory
from weft.ir.fusing import HERO, LOOKUP, MOVE, POINTWISE


def demote_joins(graph: FusionGraph) -> None:
    """Let concatenations be data movement where they are read at an index, before equations are put into groups."""
    nodes = [n for n in graph.nodes if n.properties.at_index is not None]
    if not nodes:
        return
    together = _meetings(graph)
    for node in nodes:
        if _is_read_at_index(graph, node, together):
            node.demote()


def _is_read_at_index(graph: FusionGraph, node: FusionNode, together: dict[FusionNode, int]) -> bool:
    """Return whether all readers of a concatenation take an element at an index, and it may not own their loops."""
    if node.is_output or not node.users or len(node.equation.invars) > graph.limits.sites:
        return False
    # An operand that is computed for this concatenation only is computed once per element if that owns the loops.
    for producer in node.producers:
        if producer is not None and producer.role in (POINTWISE, LOOKUP) and len(producer.users) == 1:
            return False
    results = set(node.equation.outvars)
    shares = False
    for user in node.users:
        if user.unfused or not results.isdisjoint(in_memory(user)):
            return False
        if user.role == POINTWISE:
            shares = shares or together[user] > 1
        elif user.role == MOVE or user.properties.at_index is not None or user.properties.kind in REDUCTIONS:
            shares = True
        else:
            return False
    return shares


def _meetings(graph: FusionGraph) -> dict[FusionNode, int]:
    """Return how many concatenations each elementwise equation is connected to by others of its space."""
    parent: dict[FusionNode, FusionNode] = {}

    def root(node: FusionNode) -> FusionNode:
        while (above := parent.setdefault(node, node)) is not node:
            parent[node] = node = parent[above]
        return node

    pointwise = [n for n in graph.nodes if n.role == POINTWISE]
    joins: dict[FusionNode, set[FusionNode]] = {}
    for node in pointwise:
        for producer in node.producers:
            if producer is not None and producer.role == POINTWISE and producer.space == node.space:
                parent[root(producer)] = root(node)
    for node in pointwise:
        found = {p for p in node.producers if p is not None and p.role == HERO and p.properties.at_index is not None}
        joins.setdefault(root(node), set()).update(found)
    return {node: len(joins[root(node)]) for node in pointwise}
