"""Fusion merging: copies a fusion into all the fusions that read it, if all of them can take it and no more bytes are
read and written.

Instruction fusion decides on one equation at a time; here the whole chain is known, which may read less than its result
(a slice of a large array, a broadcast), or be cheap although its last equation has many readers.
"""

from __future__ import annotations

from weft.compiler.fuse.cost import Details, FusionReason, count_bytes
from weft.compiler.fuse.graph import POINTWISE_KINDS, FusionGraph, FusionGroup, FusionNode
from weft.compiler.fuse.instructions import is_cheap_chain, obstacle, overwrites, take
from weft.ir.jaxpr import Var

RULE = "merging"


def merge_fusions(graph: FusionGraph) -> None:
    """Dissolve fusions into their readers, from the last to the first."""
    for node in reversed(graph.nodes):
        group = node.owner
        if group is None or node.unfused or group.kind not in POINTWISE_KINDS or group.last != node.index:
            continue
        if not node.is_output and node.users:
            _merge(graph, group, node)


def _merge(graph: FusionGraph, group: FusionGroup, node: FusionNode) -> None:
    """Copy a group into the readers of `node`, its last one, if all can take it and no more bytes are read."""
    readers, members = _readers(group, node), list(group.members.values())
    if not readers or len(readers) > graph.limits.copies or not is_cheap_chain(members, graph.limits):
        return
    if any(n.is_output or any(u.index not in group.members for u in n.users) for n in members if n is not node):
        return  # another of its values is read elsewhere
    computed = {v for n in members for v in n.equation.outvars}
    operands = [v for v in group.operands if v not in computed]
    before = sum(count_bytes(v.aval) for v in operands) + node.bytes * (1 + len(readers))
    after = sum(count_bytes(v.aval) for reader in readers for v in operands if v not in reader.operands)
    details = (("copies", len(readers)), ("bytes before", before), ("bytes after", after))
    if after > before:
        name = readers[0].label if len(readers) == 1 else f"{len(readers)} fusions"
        graph.note(None, FusionReason(RULE, group.label, name, False, details))
        return
    for reader in readers:
        refusal = _refusal(graph, reader, node, operands, len(members))
        if refusal is not None:
            graph.note(None, FusionReason(RULE, group.label, reader.label, False, refusal))
            return
    label = group.label
    for reader in readers:
        graph.note(reader, FusionReason(RULE, label, reader.label, True, details))
        _copy(graph, members, reader)
    _dissolve(group, members)


def _readers(group: FusionGroup, node: FusionNode) -> list[FusionGroup]:
    """Return the other groups that read a node; an empty list if an unfused equation does."""
    if any(user.unfused for user in node.users):
        return []
    return list(dict.fromkeys(g for user in node.users for g in user.groups if g is not group))


def _refusal(
    graph: FusionGraph, reader: FusionGroup, node: FusionNode, operands: list[Var], size: int
) -> Details | None:
    """Return the reason why `reader` cannot take a group that ends in `node`, reads `operands` and has `size` members,
    or None."""
    limits = graph.limits
    refusal = obstacle(graph, reader, node)
    if refusal is not None:
        return refusal
    if len(reader.members) + size > limits.values:
        return (("values", len(reader.members) + size), ("limit", limits.values))
    if overwrites(reader, operands):
        return (("in place", "it would read what the hero overwrites"),)
    reads = len({*reader.operands, *operands})  # with the value that is now read from memory
    if reads > limits.operands + 1:
        return (("operands", reads - 1), ("limit", limits.operands))
    return None


def _copy(graph: FusionGraph, members: list[FusionNode], reader: FusionGroup) -> None:
    """Copy the members of a group into a reader."""
    noted = len(reader.reasons)
    for member in sorted(members, key=lambda n: -n.index):
        if member.index not in reader.members:
            take(graph, reader, member, owner=False)
    del reader.reasons[noted:]  # there is one reason for all of them already


def _dissolve(group: FusionGroup, members: list[FusionNode]) -> None:
    """Empty a group that was copied into all of its readers."""
    for member in members:
        member.groups = [g for g in member.groups if g is not group]
        if member.owner is group:
            member.owner = None
    group.members = {}
    group.operands = {}
