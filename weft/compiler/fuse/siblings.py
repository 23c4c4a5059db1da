"""Sibling fusion: fusions that read the same operand and run over compatible spaces become one with several results."""

from __future__ import annotations

from weft.compiler.fuse.cost import Details, FusionReason, count_bytes
from weft.compiler.fuse.graph import (
    POINTWISE_KINDS,
    REDUCTIONS,
    FusionGraph,
    FusionGroup,
    FusionNode,
    GroupOrder,
    in_memory,
)
from weft.ir.fusing import Space
from weft.ir.jaxpr import Var

RULE = "sibling"


def fuse_siblings(graph: FusionGraph, order: GroupOrder) -> None:
    """Merge each reader of an operand with the nearest one before it in the same space, for all operands."""
    readers: dict[Var, list[FusionGroup]] = {}
    for group in order.groups():
        if group.kind in POINTWISE_KINDS or group.kind in REDUCTIONS:
            for v in group.operands:
                readers.setdefault(v, []).append(group)
    for v, groups in readers.items():
        if len(groups) > 1:
            _join_readers(graph, order, v, groups)


def _join_readers(graph: FusionGraph, order: GroupOrder, v: Var, groups: list[FusionGroup]) -> None:
    """Merge the readers of one operand."""
    hosts: dict[object, FusionGroup] = {}
    scalar = not getattr(v.aval, "shape", ())
    for group in groups:
        if not group.members:  # merged already, by way of another operand
            continue
        if scalar and group.full:
            continue  # a scalar has unrelated readers
        key: object = group.full
        if only_slices(group, v):
            key = "slices"
        host = hosts.get(key)
        if host is None or not host.members or host is group:
            hosts[key] = group
            continue
        first, last = (host, group) if host.position < group.position else (group, host)
        hosts[key] = first if try_sibling(graph, order, v, first, last, key == "slices") else group


def only_slices(group: FusionGroup, v: Var) -> bool:
    """Return whether a group only slices `v`."""
    return all(n.properties.piece and n.operands == (v,) for n in group.members.values())


def try_sibling(
    graph: FusionGraph, order: GroupOrder, v: Var, first: FusionGroup, last: FusionGroup, slices: bool
) -> bool:
    """Merge two readers of `v`, and return whether that was possible; `slices` says that they only slice it."""
    saved = count_bytes(v.aval)
    kind = "slices" if slices else sibling_kind(first, last)
    if kind is None or last in first.successors:  # one that reads the other is no sibling
        return False
    why = joint_obstacle(graph, order, first, last)
    first_label, last_label = first.label, last.label
    if why is None and (refused := order.join(first, last, comes_early(graph, order, first, last))) is not None:
        why = (("order", refused),)
    if why is not None:
        graph.note(None, FusionReason(RULE, first_label, last_label, False, why))
        return False
    adopt_kind(first, last, kind)
    if slices:
        first.hero = first.members[min(first.members)]
    graph.note(first, FusionReason(RULE, first_label, last_label, True, (("read once", saved),)))
    return True


def joint_obstacle(graph: FusionGraph, order: GroupOrder, first: FusionGroup, last: FusionGroup) -> Details | None:
    """Return the limit that two groups would exceed as one, or None."""
    limits = graph.limits
    distance = last.position - first.position
    if distance > limits.reach or (
        distance > limits.window and not can_wait(graph, first, last) and not comes_early(graph, order, first, last)
    ):
        return (("steps between", distance), ("limit", limits.window))
    values = len(first.members) + len(last.members)
    if values > limits.values:
        return (("values", values), ("limit", limits.values))
    operands = len({*first.operands, *last.operands})
    if operands > limits.operands:
        return (("operands", operands), ("limit", limits.operands))
    results = count_results(graph, first) + count_results(graph, last)
    if results > limits.results:
        return (("results", results), ("limit", limits.results))
    for group, other in ((first, last), (last, first)):
        computed = {v for node in other.members.values() for v in node.equation.outvars}
        for node in group.members.values():
            if not computed.isdisjoint(in_memory(node)):
                return (("closed", f"{node.label} reads from memory what {other.label} computes too"),)
    return None


def can_wait(graph: FusionGraph, first: FusionGroup, last: FusionGroup) -> bool:
    """Return whether the first of two groups may run as late as the last: no other group reads it, and it reads only
    arguments of the program and scalars, which need no memory longer. Updates of trees are such: a step for each leaf,
    then the next step for each."""
    if any(item is not last for item in first.successors):
        return False
    return all(v not in graph.node_of or not getattr(v.aval, "shape", ()) for v in first.operands)


def comes_early(graph: FusionGraph, order: GroupOrder, first: FusionGroup, last: FusionGroup) -> bool:
    """Return whether the last of two distant groups may run as early as the first: its other operands are computed by
    then, or small, and it computes results of the program, which need no memory longer. Optimizers have such groups:
    moments of all parameters, then steps of all."""
    if last.position - first.position <= graph.limits.window or can_wait(graph, first, last):
        return False
    read_elsewhere = (n for n in last.members.values() if n.owner is last and not _is_inside(n, last))
    if any(not n.is_output for n in read_elsewhere):
        return False
    needed = order.prerequisites(first, last)
    return sum(n.bytes for item in needed for n in item.members.values()) <= graph.limits.early_bytes


def _is_inside(node: FusionNode, group: FusionGroup) -> bool:
    """Return whether only members of a group read a node."""
    return all(user.index in group.members for user in node.users)


def count_results(graph: FusionGraph, group: FusionGroup) -> int:
    """Return the number of equations of a group whose values are read outside of it."""
    count = 0
    for node in group.members.values():
        if node.owner is group and (node.is_output or any(group not in u.groups for u in node.users)):
            count += 1
    return count


def sibling_kind(first: FusionGroup, second: FusionGroup) -> str | None:
    """Return the kind of one kernel for both groups, or None if their spaces are incompatible."""
    if first.kind in POINTWISE_KINDS and second.kind in POINTWISE_KINDS:
        has_hero = first.hero is not None or second.hero is not None
        return "loop" if first.out == second.out and not has_hero else None
    if first.kind in REDUCTIONS and second.kind in REDUCTIONS:
        if first.full != second.full or first.reduced != second.reduced:
            return None
        return first.kind if first.kind == second.kind else "row"  # one reduces a single row, the other has its values
    if first.kind in REDUCTIONS and second.kind in POINTWISE_KINDS:
        return first.kind if second.out == first.full and second.hero is None else None
    if first.kind in POINTWISE_KINDS and second.kind in REDUCTIONS:
        return second.kind if first.out == second.full and first.hero is None else None
    return None


def adopt_kind(first: FusionGroup, last: FusionGroup, kind: str) -> None:
    """Set the kind and the spaces of the merged group, which is `first`."""
    first.kind = kind
    leader = first if first.reduced is not None else last
    spaces: tuple[Space, Space] = (leader.out, leader.full)
    first.out, first.full = spaces
    first.reduced = leader.reduced
    heroes = [g.hero for g in (first, last) if g.hero is not None]
    first.hero = min(heroes, key=lambda n: n.index) if heroes else None
