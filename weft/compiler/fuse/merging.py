"""Fusion merging: a fusion goes into all the fusions that read it, if that moves no more bytes and every one takes it.

Instruction fusion decides on one equation at a time; here the whole chain behind it is known, which may read less than
its result (a slice of something large, a broadcast) or be cheap although its last equation has many readers.
"""

from __future__ import annotations

from weft.compiler.fuse.cost import Reason, bytes_of
from weft.compiler.fuse.graph import POINTWISE_KINDS, Graph, Group, Node
from weft.compiler.fuse.instructions import is_cheap_chain, obstacle, overwrites, take

RULE = "merging"


def merge_fusions(graph: Graph) -> None:
    """Dissolve fusions into their readers, from the last to the first."""
    for node in reversed(graph.nodes):
        group = node.owner
        if group is None or node.bare or group.kind not in POINTWISE_KINDS or group.last != node.index:
            continue
        if not node.is_output and node.users:
            _merge(graph, group, node)


def _merge(graph: Graph, group: Group, node: Node) -> None:
    readers: dict[Group, None] = {}
    for user in node.users:
        if user.bare:
            return
        readers.update(dict.fromkeys(g for g in user.groups if g is not group))
    members = list(group.members.values())
    if not readers or len(readers) > graph.limits.copies or not is_cheap_chain(members, graph.limits):
        return
    if any(n.is_output or any(u.index not in group.members for u in n.users) for n in members if n is not node):
        return  # another of its values is read elsewhere
    made = {v for n in members for v in n.equation.outvars}
    extra = [v for v in group.operands if v not in made]
    before = sum(bytes_of(v.aval) for v in extra) + node.bytes * (1 + len(readers))
    after = sum(bytes_of(v.aval) for reader in readers for v in extra if v not in reader.operands)
    numbers = (("copies", len(readers)), ("bytes before", before), ("bytes after", after))
    name = next(iter(readers)).label if len(readers) == 1 else f"{len(readers)} fusions"
    if after > before:
        graph.note(None, Reason(RULE, group.label, name, False, numbers))
        return
    room = graph.limits.values - len(members)
    for reader in readers:
        refusal = obstacle(graph, reader, node)
        if refusal is None and len(reader.members) > room:
            refusal = (("values", len(reader.members) + len(members)), ("limit", graph.limits.values))
        if refusal is None and overwrites(reader, extra):
            refusal = (("in place", "it would read what the hero overwrites"),)
        reads = len({*reader.operands, *extra})
        if refusal is None and reads > graph.limits.operands + 1:
            refusal = (("operands", reads - 1), ("limit", graph.limits.operands))
        if refusal is not None:
            graph.note(None, Reason(RULE, group.label, reader.label, False, refusal))
            return
    label = group.label
    for reader in readers:
        graph.note(reader, Reason(RULE, label, reader.label, True, numbers))
        _copy(graph, members, reader)
    _dissolve(group, members)


def _copy(graph: Graph, members: list[Node], reader: Group) -> None:
    noted = len(reader.reasons)
    for member in sorted(members, key=lambda n: -n.index):
        if member.index not in reader.members:
            take(graph, reader, member, owner=False)
    del reader.reasons[noted:]  # one reason for all of them stands already


def _dissolve(group: Group, members: list[Node]) -> None:
    for member in members:
        member.groups = [g for g in member.groups if g is not group]
        if member.owner is group:
            member.owner = None
    group.members = {}
    group.operands = {}
