"""Verification of the fusion graph between mechanisms: the invariants that `graph.py` states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from weft.base.errors import InternalError
from weft.compiler.fuse.graph import REDUCTIONS, FusionGraph, FusionGroup, FusionNode, GroupOrder, code_at_further_sites
from weft.ir.jaxpr import Var
from weft.ir.printer import to_text


def verify_graph(graph: FusionGraph, mechanism: str, order: GroupOrder | None = None) -> None:
    """Raise `InternalError` unless the graph is consistent after a mechanism, and `order` a schedule of its groups."""
    Checker(graph, mechanism).run(order)


class Checker:
    """Checks one graph; errors name the mechanism that ran last."""

    def __init__(self, graph: FusionGraph, mechanism: str):
        self.graph, self.mechanism = graph, mechanism
        self.groups = [g for g in graph.groups if g.members]

    def run(self, order: GroupOrder | None) -> None:
        """Check nodes, groups, and the order if there is one."""
        for node in self.graph.nodes:
            self.check_node(node)
        for group in self.groups:
            self.check_members(group)
            self.check_operands(group)
            self.check_loops(group)
        if order is not None:
            self.check_order(order)

    def check_node(self, node: FusionNode) -> None:
        """Check that a node and its groups know each other, and that its owner is one of them."""
        if node.unfused:
            if node.groups:
                self.fail(f"{node} must not be fused; it is in {node.groups}.")
            return
        if len(set(node.groups)) < len(node.groups):
            self.fail(f"{node} must be in each group once; got {node.groups}.")
        for group in node.groups:
            if group.members.get(node.index) is not node:
                self.fail(f"{node} must be a member of {group}, which it names.")
        if node.owner is not None and node.owner not in node.groups:
            self.fail(f"The owner of {node} must be one of its groups {node.groups}; got {node.owner}.")
        if node.is_output and node.owner is None and node.groups:
            self.fail(f"{node}, whose value is a result, must have an owner.")

    def check_members(self, group: FusionGroup) -> None:
        """Check that the fields by member have the group's members as keys, and the sums over them their values."""
        for index, node in group.members.items():
            if node.index != index or self.graph.nodes[index] is not node or node.unfused:
                self.fail(f"Member {index} of {group} must be that node of the graph, and fused; got {node}.")
            if group not in node.groups:
                self.fail(f"{node} must name {group}, of which it is a member; got {node.groups}.")
        for name in ("direct", "evaluations", "sites"):
            if getattr(group, name).keys() != group.members.keys():
                self.fail(f"`{name}` of {group} must have the keys of `members`; got {sorted(getattr(group, name))}.")
        if group.last != max(group.members):
            self.fail(f"`last` of {group} must be its last member, {max(group.members)}.")
        if not all(group.sites.values()):
            self.fail(f"Each member of {group} must have a site; got {group.sites}.")
        repeated = sum(code_at_further_sites(n, len(group.sites[i])) for i, n in group.members.items())
        if group.repeated != repeated:
            self.fail(f"`repeated` of {group} must be {repeated}, the sum over its members; got {group.repeated}.")

    def check_operands(self, group: FusionGroup) -> None:
        """Check that a group reads what its members read and do not compute, each value from its owner."""
        computed = {v for n in group.members.values() for v in n.equation.outvars}
        read = {v for n in group.members.values() for v in n.operands if v not in computed}
        if group.operands.keys() != read:
            self.fail(f"`operands` of {group} must be what its members read and do not compute.")

    def check_loops(self, group: FusionGroup) -> None:
        """Check the hero, and that the spaces of a reduction fit together."""
        if group.hero is not None and group.members.get(group.hero.index) is not group.hero:
            self.fail(f"The hero of {group} must be a member; got {group.hero}.")
        if group.kind in REDUCTIONS:
            if group.reduced is None or group.hero is None:
                self.fail(f"{group} must have a hero and reduced dimensions.")
            out = tuple(d for i, d in enumerate(group.full) if i not in group.reduced)
            if group.out != out:
                self.fail(f"The space of {group} must be {out}, {group.full} without {group.reduced}; got {group.out}.")

    def check_order(self, order: GroupOrder) -> None:
        """Check that every group has its position, after all that it reads."""
        scheduled = order.groups()
        unfused = [g for g in scheduled if g.unfused]
        if len(set(scheduled)) != len(scheduled) or {*scheduled} != {*self.groups, *unfused}:
            self.fail("The order must have every group once.")
        indices = [n.index for g in unfused for n in g.members.values()]
        if sorted(indices) != [n.index for n in self.graph.nodes if n.unfused]:
            self.fail("The order must have every unfused equation once.")
        for group in scheduled:
            if order.items[group.position] is not group:
                self.fail(f"{group} must be at its position, {group.position}.")
            for before in group.predecessors:
                if group not in before.successors or not before.members or before.position >= group.position:
                    self.fail(f"{before} must be a predecessor of {group}, at an earlier position.")
            if any(group not in after.predecessors for after in group.successors):
                self.fail(f"Successors of {group} must have it as a predecessor.")
            self.check_owners(group, list(group.operands))

    def check_owners(self, group: FusionGroup, operands: Sequence[Var]) -> None:
        """Check that another group owns each value that a group reads, and is a predecessor."""
        for v in operands:
            producer = self.graph.node_of.get(v)
            if producer is not None and (producer.owner is None or producer.owner not in group.predecessors):
                self.fail(f"The owner of {producer}, which {group} reads, must be a predecessor; got {producer.owner}.")

    def fail(self, what: str) -> NoReturn:
        """Raise the error of a broken invariant."""
        text = to_text(self.graph.jaxpr)
        raise InternalError(f"The fusion graph is wrong after {self.mechanism}: {what}", stage="fuse", text=text)
