"""Sibling fusion: fusions that read the same operand and run over compatible spaces become one with several results."""

from __future__ import annotations

from weft.compiler.fuse.cost import Reason, bytes_of
from weft.compiler.fuse.graph import POINTWISE_KINDS, REDUCTIONS, Graph, Group, Node, Order, in_memory
from weft.ir.fusing import Space
from weft.ir.jaxpr import Var

RULE = "sibling"


def fuse_siblings(graph: Graph, order: Order) -> None:
    """Look at the readers of every operand in order, and merge each with the one before it that has its space."""
    readers: dict[Var, list[Group]] = {}
    for group in order.groups():
        if group.kind in POINTWISE_KINDS or group.kind in REDUCTIONS:
            for v in group.operands:
                readers.setdefault(v, []).append(group)
    for v, groups in readers.items():
        if len(groups) > 1:
            _join_readers(graph, order, v, groups)


def _join_readers(graph: Graph, order: Order, v: Var, groups: list[Group]) -> None:
    hosts: dict[object, Group] = {}
    scalar = not getattr(v.aval, "shape", ())
    for group in groups:
        if not group.members:  # merged already, by way of another operand
            continue
        if scalar and group.full:
            continue  # everybody may read a scalar; that makes no family
        key: object = group.full
        if is_slice_of(group, v):
            key = "slices"
        host = hosts.get(key)
        if host is None or not host.members or host is group:
            hosts[key] = group
            continue
        first, last = (host, group) if host.position < group.position else (group, host)
        hosts[key] = first if try_sibling(graph, order, v, first, last, key == "slices") else group


def is_slice_of(group: Group, v: Var) -> bool:
    """Whether the group only cuts pieces out of `v`."""
    return all(n.properties.piece and n.operands == (v,) for n in group.members.values())


def try_sibling(graph: Graph, order: Order, v: Var, first: Group, last: Group, slices: bool) -> bool:
    saved = bytes_of(v.aval)
    kind = "slices" if slices else combined_kind(first, last)
    if kind is None or last in first.successors:  # one that reads the other is no sibling
        return False
    why = joint_obstacle(graph, order, first, last)
    first_label, last_label = first.label, last.label
    if why is None and (refused := order.join(first, last, comes_early(graph, order, first, last))) is not None:
        why = (("order", refused),)
    if why is not None:
        graph.note(None, Reason(RULE, first_label, last_label, False, why))
        return False
    adopt_kind(first, last, kind)
    if slices:
        first.hero = first.members[min(first.members)]
    graph.note(first, Reason(RULE, first_label, last_label, True, (("read once", saved),)))
    return True


def joint_obstacle(graph: Graph, order: Order, first: Group, last: Group) -> tuple[tuple[str, object], ...] | None:
    """Limits on two groups that become one, and on the distance between them."""
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


def can_wait(graph: Graph, first: Group, last: Group) -> bool:
    """Whether the first of two groups may as well run when the last does: nobody else needs it, and it reads arguments
    of the program and scalars only, which take no memory of their own. Updates of trees are such: a step for each leaf,
    then the next step for each."""
    if any(item is not last for item in first.successors):
        return False
    return all(v not in graph.node_of or not getattr(v.aval, "shape", ()) for v in first.operands)


def comes_early(graph: Graph, order: Order, first: Group, last: Group) -> bool:
    """Whether the last of two groups that are far apart may as well run when the first does: what it needs besides is
    there, or small, and what it computes are results of the program, which take no memory for longer. Optimizers have
    such groups: moments of all parameters, then steps of all."""
    if last.position - first.position <= graph.limits.window or can_wait(graph, first, last):
        return False
    read_elsewhere = (n for n in last.members.values() if n.owner is last and not _is_inside(n, last))
    if any(not n.is_output for n in read_elsewhere):
        return False
    needed = order.needed(first, last)
    return sum(n.bytes for item in needed for n in item.members.values()) <= graph.limits.early_bytes


def _is_inside(node: Node, group: Group) -> bool:
    return all(user.index in group.members for user in node.users)


def count_results(graph: Graph, group: Group) -> int:
    """How many equations of the group have values that others read."""
    count = 0
    for node in group.members.values():
        if node.owner is group and (node.is_output or any(group not in u.groups for u in node.users)):
            count += 1
    return count


def combined_kind(first: Group, second: Group) -> str | None:
    """The kind of one kernel for both, or None where their spaces do not go together."""
    if first.kind in POINTWISE_KINDS and second.kind in POINTWISE_KINDS:
        has_hero = first.hero is not None or second.hero is not None
        return "loop" if first.out == second.out and not has_hero else None
    if first.kind in REDUCTIONS and second.kind in REDUCTIONS:
        if first.full != second.full or first.reduced != second.reduced:
            return None
        return first.kind if first.kind == second.kind else "row"  # all of one row, and that row worked on again
    if first.kind in REDUCTIONS and second.kind in POINTWISE_KINDS:
        return first.kind if second.out == first.full and second.hero is None else None
    if first.kind in POINTWISE_KINDS and second.kind in REDUCTIONS:
        return second.kind if first.out == second.full and first.hero is None else None
    return None


def adopt_kind(first: Group, last: Group, kind: str) -> None:
    """Set the kind and the spaces of the merged group, which is `first`."""
    first.kind = kind
    leader = first if first.reduced is not None else last
    spaces: tuple[Space, Space] = (leader.out, leader.full)
    first.out, first.full = spaces
    first.reduced = leader.reduced
    heroes = [g.hero for g in (first, last) if g.hero is not None]
    first.hero = min(heroes, key=lambda n: n.index) if heroes else None
