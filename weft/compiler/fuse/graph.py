"""The fusion graph: nodes (equations), groups (the fusions that they become), and the order of groups.

It is the one mutable structure of the compiler. These invariants hold between two fusion mechanisms; `invariants.py`
verifies them if `CompileOptions.verifies`. A group without members was merged into others, and is not meant here.

Nodes:
- `node in group.members.values()` exactly if `group in node.groups`; unfused nodes are in no group of the graph.
- A node may be in several groups, where it is computed again. Other groups read its value from one of them, its
  `owner`. If its value is a result, or read by a group without it or by an unfused equation, a node has an owner.

Groups:
- `evaluations`, `direct` and `sites` have the keys of `members`, and `last` is the largest of these.
- `operands` are the values that members read and that no member computes. So a value is either computed in a group or
  read from memory, never both.
- `repeated` is the sum of `code_at_further_sites` over the members.
- The `hero` is a member. Of a reduction, `out` is `full` without the dimensions `reduced`.

The order (`GroupOrder`), which exists once instruction fusion and merging are done:
- `items[group.position] is group` for every group and every unfused equation, which is a group of its own there.
- `predecessors` and `successors` are inverse relations. The owners of a group's operands are among its predecessors,
  and all predecessors have smaller positions: so merging two groups by `join` never makes a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.compiler.fuse.classify import classify
from weft.compiler.fuse.cost import FusionReason, count_bytes
from weft.compiler.target.costs import FusionLimits
from weft.compiler.target.target import Target
from weft.ir.fusing import (
    EXPAND,
    HERO,
    LOOKUP,
    MOVE,
    POINTWISE,
    UNFUSED_ROLES,
    Properties,
    Space,
    element_count,
    measure,
)
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.rules.compilation import element_cost
from weft.ir.types import ArrayType

REDUCTIONS = frozenset({"row", "column", "all"})
IN_PLACE_KINDS = frozenset({"dynamic_update_slice", "scatter"})
POINTWISE_KINDS = frozenset({"loop", "gather"})


class FusionNode:
    """An equation with properties that many rules need, computed once."""

    __slots__ = (
        "bytes",
        "equation",
        "properties",
        "groups",
        "hero_properties",
        "index",
        "is_output",
        "limits",
        "operands",
        "owner",
        "producers",
        "role",
        "shape",
        "size",
        "space",
        "unfused",
        "users",
        "weight",
    )

    def __init__(self, index: int, equation: Equation, properties: Properties, limits: FusionLimits):
        self.index, self.equation, self.properties, self.limits = index, equation, properties, limits
        self.role = properties.role
        self.hero_properties: Properties | None = None  # of a hero that became data movement
        self.unfused = properties.role in UNFUSED_ROLES
        first = equation.outvars[0].aval if equation.outvars else None
        self.shape: Any = first.shape if isinstance(first, ArrayType) else ()
        self.space, self.size = measure(self.shape)
        if len(equation.outvars) == 1:
            self.bytes = count_bytes(first)  # type: ignore[arg-type]
        else:
            self.bytes = sum(count_bytes(v.aval) for v in equation.outvars)
        self.weight = 0.0 if self.unfused else element_cost(equation)
        self.operands: tuple[Var, ...] = ()
        self.producers: tuple[FusionNode, ...] = ()
        self.users: list[FusionNode] = []
        self.is_output = False
        self.groups: list[FusionGroup] = []
        self.owner: FusionGroup | None = None

    @property
    def cheap(self) -> bool:
        """Whether computing it again is cheaper than storing it."""
        limits = self.limits
        return self.role != HERO and (
            self.weight <= limits.cheap_weight or self.weight * self.size <= limits.cheap_flops
        )

    def demote(self) -> None:
        """Become data movement, which is computed where it is read, instead of a hero."""
        at_index = self.properties.at_index
        assert at_index is not None
        self.properties, self.role, self.hero_properties = at_index, at_index.role, self.properties

    @property
    def label(self) -> str:
        """Primitive and position of the equation, for reasons."""
        return f"{self.equation.primitive.name}.{self.index}"

    def __repr__(self) -> str:
        return self.label


class FusionGroup:
    """Equations that become one kernel.

    Attributes:
        kind: the kind of fusion, one of `fusion.KINDS`, or "unfused".
        out: the space of its results.
        full: the space of a reduction's operand; `out` for other kinds.
        reduced: the dimensions of `full` that are reduced, None for other kinds.
        hero: the equation that owns the loops, if any.
        members: its equations by index.
        last: the largest of these indices.
        operands: the values that it reads from memory.
        evaluations: for each member, the number of elements that are computed.
        direct: for each member, whether it is computed at the index of the loops, so that it may also be a result.
        sites: for each member, the different indices at which it is computed, each with its own copy of the code.
        repeated: estimate of the statements in further copies than the first, of all members.
        reasons: the decisions that made the group.
        position: its index in the order.
        predecessors: groups that must run before it.
        successors: groups that must run after it.
    """

    __slots__ = (
        "direct",
        "evaluations",
        "full",
        "hero",
        "kind",
        "last",
        "members",
        "operands",
        "out",
        "position",
        "predecessors",
        "reasons",
        "reduced",
        "repeated",
        "sites",
        "successors",
    )

    def __init__(self, kind: str, out: Space):
        self.kind, self.out, self.full = kind, out, out
        self.reduced: tuple[int, ...] | None = None
        self.hero: FusionNode | None = None
        self.members: dict[int, FusionNode] = {}
        self.last = -1
        self.operands: dict[Var, None] = {}
        self.evaluations: dict[int, float] = {}
        self.direct: dict[int, bool] = {}
        self.sites: dict[int, frozenset[int]] = {}
        self.repeated = 0
        self.reasons: list[FusionReason] = []
        self.position = -1
        self.predecessors: set[FusionGroup] = set()
        self.successors: set[FusionGroup] = set()

    @property
    def unfused(self) -> bool:
        """Whether it is an equation that is not fused, in the order of groups."""
        return self.kind == "unfused"

    @property
    def label(self) -> str:
        """Kind and index of the last equation, which name the fusion before it is built."""
        return self.members[self.last].label if self.unfused else f"{self.kind}.{self.last}"

    def add(self, node: FusionNode, evaluations: float, direct: bool) -> None:
        """Add an equation whose results the group has read from memory until now."""
        self.members[node.index] = node
        if node.index > self.last:
            self.last = node.index
        self.evaluations[node.index] = evaluations
        self.direct[node.index] = direct
        self.sites[node.index] = find_sites(self, node)
        self.repeated += code_at_further_sites(node, len(self.sites[node.index]))
        operands = self.operands
        for v in node.equation.outvars:
            operands.pop(v, None)
        for v, producer in zip(node.operands, node.producers, strict=True):
            if producer is None or producer.index not in self.members:
                operands[v] = None
        node.groups.append(self)

    def __repr__(self) -> str:
        return f"FusionGroup({self.label})"


class FusionGraph:
    """Nodes of a jaxpr and their groups; the module states the invariants."""

    def __init__(self, jaxpr: Jaxpr, target: Target):
        limits = target.fusion
        self.jaxpr, self.target, self.limits = jaxpr, target, limits
        self.nodes: list[FusionNode] = []
        self.node_of: dict[Var, FusionNode] = {}
        self.groups: list[FusionGroup] = []
        self.refusals: list[FusionReason] = []
        node_of = self.node_of
        for index, equation in enumerate(jaxpr.eqns):
            properties = classify(equation, target)
            node = FusionNode(index, equation, properties, limits)
            operands = tuple(dict.fromkeys([a for a in equation.invars if type(a) is Var]))
            node.operands = operands
            node.producers = tuple([node_of.get(v) for v in operands])  # type: ignore[misc]
            for producer in dict.fromkeys(node.producers):
                if producer is not None:
                    producer.users.append(node)
            for v in equation.outvars:
                node_of[v] = node
            self.nodes.append(node)
        for atom in jaxpr.outvars:
            if type(atom) is Var and atom in node_of:
                node_of[atom].is_output = True

    def new_group(self, kind: str, out: Space) -> FusionGroup:
        """Add an empty group."""
        group = FusionGroup(kind, out)
        self.groups.append(group)
        return group

    def lead(self, node: FusionNode) -> FusionGroup:
        """Start a group with an equation, which owns its loops if it is a hero, or could be one."""
        if node.hero_properties is not None:
            node.properties, node.role = node.hero_properties, HERO
        properties = node.properties
        group = self.new_group(properties.kind if node.role == HERO else "loop", node.space)
        if node.role == HERO:
            set_hero(group, node)
        group.add(node, node.size, True)
        node.owner = group
        return group

    def note(self, group: FusionGroup | None, reason: FusionReason) -> None:
        """Record a decision: with the group that it made, or among the refusals."""
        if group is not None and reason.verdict:
            group.reasons.append(reason)
        else:
            self.refusals.append(reason)


def set_hero(group: FusionGroup, node: FusionNode) -> None:
    """Make a node the hero of a group, which owns its loops."""
    properties = node.properties
    group.kind, group.hero = properties.kind, node
    if properties.full is not None:
        group.full, group.reduced = properties.full, properties.reduced


# ---------------------------------------------------------------------------------------- how often, and at which index


def demand(user: FusionNode, node: FusionNode, evaluations: float) -> float:
    """Return how many elements of `node` are computed when `user` is computed at `evaluations` indices.

    A value that is invariant in the inner loops is computed outside of them, so trailing repetition is free.
    """
    if not node.shape:
        return 1.0
    properties, equation = user.properties, user.equation
    if user.role == POINTWISE or properties.trivial:
        return evaluations
    if user.role == EXPAND:
        dimensions = equation.params["broadcast_dimensions"]
        last = max((dimensions[i] for i, d in enumerate(node.shape) if d != 1), default=-1)
        return evaluations / max(element_count(user.shape[last + 1 :]), 1)
    if user.role == MOVE:
        return evaluations if node.equation.outvars[0] is equation.invars[0] else 1.0
    if user.role == LOOKUP:
        return evaluations if node.equation.outvars[0] is equation.invars[0] else min(evaluations, node.size)
    if properties.full is not None:  # a reduction reads every element of its operand
        return float(node.size)
    if properties.repeats is not None:
        positions = [i for i, a in enumerate(equation.invars) if type(a) is Var and a in node.equation.outvars]
        return float(node.size * sum(properties.repeats[i] for i in positions))
    return float(node.size)


def is_direct(group: FusionGroup, user: FusionNode, node: FusionNode) -> bool:
    """Return whether `user` reads `node` at the index of the group's loops."""
    if not group.direct[user.index]:
        return False
    if user.role == POINTWISE or user.properties.trivial:
        return node.space == user.space
    return (
        user.properties.full is not None and user.properties.kind in REDUCTIONS and node.space == user.properties.full
    )


def users_in(group: FusionGroup, node: FusionNode) -> list[FusionNode]:
    """Return the members of a group that read a node."""
    members = group.members
    return [u for u in node.users if u.index in members]


def usage(group: FusionGroup, node: FusionNode) -> tuple[float, bool]:
    """Return how many elements of `node` would be computed in `group`, and whether at the index of its loops."""
    aligned, elsewhere, direct = 0.0, 0.0, True
    for user in users_in(group, node):
        wanted = demand(user, node, group.evaluations[user.index])
        if user.role == POINTWISE or user.properties.trivial or user.properties.full is not None:
            aligned = max(aligned, wanted)  # users at one index share the value
        else:
            elsewhere += wanted
        direct = direct and is_direct(group, user, node)
    return aligned + elsewhere, direct


def in_memory(node: FusionNode) -> list[Var]:
    """Return the operands of an equation that must be in memory."""
    materialized = node.properties.materialized
    if materialized is not None and not materialized:
        return []
    return [
        a for i, a in enumerate(node.equation.invars) if type(a) is Var and (materialized is None or i in materialized)
    ]


# The index of the loops of a group.
HERE = frozenset((0,))


def find_sites(group: FusionGroup, node: FusionNode) -> frozenset[int]:
    """Return integers that identify the indices at which `group` would compute `node`: users that read it at their own
    index pass theirs on, each that reads at another index makes new ones."""
    found: set[int] = set()
    for user in users_in(group, node):
        asked = group.sites.get(user.index, HERE)
        if user.role == POINTWISE or user.properties.trivial or user.properties.full is not None:
            found |= asked
        else:
            found.update(hash((user.index, site)) for site in asked)
    return frozenset(found) or HERE


def code_at_further_sites(node: FusionNode, sites: int) -> int:
    """Estimate the statements of a fusion for a value at all of its sites but the first."""
    return (sites - 1) * node.properties.statements


# ------------------------------------------------------------------------------------------------------------ the order


class GroupOrder:
    """A schedule of all groups and unfused equations, which stays valid while groups are merged."""

    def __init__(self, graph: FusionGraph):
        self.graph = graph
        self.items: list[FusionGroup | None] = list(self._schedule())
        for position, item in enumerate(self.items):
            item.position = position  # type: ignore[union-attr]

    def groups(self) -> list[FusionGroup]:
        """Return all groups and unfused equations in an order in which they can run."""
        return [item for item in self.items if item is not None]

    def _schedule(self) -> list[FusionGroup]:
        """Link groups and unfused equations, and sort them topologically."""
        graph = self.graph
        items = [g for g in graph.groups if g.members]
        last_effect: FusionGroup | None = None
        for node in graph.nodes:
            if not node.unfused:
                continue
            item = FusionGroup("unfused", ())
            item.members[node.index] = node
            item.last = node.index
            item.operands = dict.fromkeys(node.operands)
            node.owner = item
            items.append(item)
            if node.equation.effects:  # effects happen in the order in which they were written
                if last_effect is not None:
                    link(last_effect, item)
                last_effect = item
        for item in items:
            for v in item.operands:
                producer = graph.node_of.get(v)
                if producer is not None and producer.owner is not None:
                    link(producer.owner, item)
        items.sort(key=lambda item: item.last)
        return topological(items)

    def path(self, first: FusionGroup, last: FusionGroup) -> set[FusionGroup] | None:
        """Return the groups before `last` that depend on `first`, or None if `last` depends on one of them."""
        limit, seen = last.position, set()
        stack = [s for s in first.successors if s is not last and s.position < limit]
        while stack:
            item = stack.pop()
            if item in seen:
                continue
            seen.add(item)
            for s in item.successors:
                if s is last:
                    return None
                if s.position < limit and s not in seen:
                    stack.append(s)
        return seen

    def prerequisites(self, first: FusionGroup, last: FusionGroup) -> set[FusionGroup]:
        """Return the groups after `first` on which `last` depends."""
        found: set[FusionGroup] = set()
        stack = [p for p in last.predecessors if p is not first and p.position > first.position]
        while stack:
            item = stack.pop()
            if item not in found:
                found.add(item)
                stack += [p for p in item.predecessors if p.position > first.position]
        return found

    def join(self, first: FusionGroup, last: FusionGroup, early: bool = False) -> str | None:
        """Merge `last` into `first`, and return None, or the reason if that would make a cycle.

        Groups between them that depend on `first` move behind the merged group; the others stay before it, or, if the
        merged group should run `early`, only those do on which it depends.
        """
        after = self.path(first, last)
        if after is None:
            return "one leads to the other by way of a third"

        between = self.items[first.position + 1 : last.position]
        if early:
            before = self.prerequisites(first, last)
            after = {i for i in between if i is not None and i not in before}
        ahead = [i for i in between if i is not None and i not in after and i.kind in IN_PLACE_KINDS and i.hero]
        written = {i.hero.equation.invars[0] for i in ahead if i.hero is not None}
        if written and any(not written.isdisjoint(i.operands) for i in (first, *after)):
            return "what is read would be overwritten before"
        replaced = [i for i in between if i not in after] + [first] + [i for i in between if i in after]
        start = first.position
        # The position of `last` stays empty, so that groups behind it keep theirs.
        self.items[start : last.position + 1] = [*replaced, None]
        for position, item in enumerate(replaced, start):
            if item is not None:
                item.position = position
        self._absorb(first, last)
        return None

    def _absorb(self, first: FusionGroup, last: FusionGroup) -> None:
        """Move the members, reasons and links of `last` to `first`, which owns all that `last` owned."""
        for index in last.members:
            shared = index in first.members  # each has a copy: one remains
            first.direct[index] = last.direct[index] and (not shared or first.direct[index])
            first.evaluations[index] = last.evaluations[index] + (first.evaluations[index] if shared else 0)
            first.sites[index] = last.sites[index] | (first.sites[index] if shared else frozenset())
        first.members.update(last.members)
        first.repeated = sum(code_at_further_sites(n, len(first.sites[i])) for i, n in first.members.items())
        first.last = max(first.last, last.last)
        computed = {v for n in first.members.values() for v in n.equation.outvars}
        first.operands = {v: None for v in (*first.operands, *last.operands) if v not in computed}
        for node in last.members.values():
            node.groups = list(dict.fromkeys(first if g is last else g for g in node.groups))
            if node.owner is last:
                node.owner = first
        first.reasons += last.reasons
        for item in last.predecessors:
            item.successors.discard(last)
            if item is not first:
                link(item, first)
        for item in last.successors:
            item.predecessors.discard(last)
            if item is not first:
                link(first, item)
        first.successors.discard(last)
        first.predecessors.discard(last)
        last.members = {}


def link(first: FusionGroup, last: FusionGroup) -> None:
    """Make `first` a predecessor of `last`."""
    if first is not last:
        first.successors.add(last)
        last.predecessors.add(first)


def topological(items: Sequence[FusionGroup]) -> list[FusionGroup]:
    """Sort groups topologically by their predecessors, and otherwise by the order of `items`."""
    done: set[FusionGroup] = set()
    result: list[FusionGroup] = []
    for root in items:
        stack: list[tuple[FusionGroup, bool]] = [(root, False)]
        while stack:
            item, ready = stack.pop()
            if ready:
                result.append(item)
                continue
            if item in done:
                continue
            done.add(item)
            stack.append((item, True))
            waiting: Iterable[FusionGroup] = sorted(
                (p for p in item.predecessors if p not in done), key=lambda p: p.last, reverse=True
            )
            stack.extend((p, False) for p in waiting)
    return result
