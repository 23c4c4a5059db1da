"""Builds the fused jaxpr: one `fusion` equation for each group, in their order."""

from __future__ import annotations

from typing import Any

from weft.compiler.fuse.cost import FusionReason
from weft.compiler.fuse.fusion import fusion
from weft.compiler.fuse.graph import FusionGraph, FusionGroup, GroupOrder
from weft.ir.fusing import LOOKUP
from weft.ir.jaxpr import Equation, Jaxpr, Var

FUSION: Any = fusion


def build(graph: FusionGraph, order: GroupOrder, unfused: dict[int, Equation]) -> Jaxpr:
    """Build the fused jaxpr; `unfused` has the other equations by index, with their sub-jaxprs fused."""
    needed = {v for v in graph.jaxpr.outvars if type(v) is Var}
    groups = order.groups()
    for group in groups:
        needed.update(group.operands)
    equations = []
    for group in groups:
        if group.unfused:
            equations.append(unfused[next(iter(group.members))])
        else:
            equations.append(fusion_equation(group, needed))
    return graph.jaxpr.replace(eqns=equations)


def fusion_equation(group: FusionGroup, needed: set[Var]) -> Equation:
    """Make the equation of a group. Its inner variables are those of the jaxpr around it, so that names stay."""
    members = [group.members[i] for i in sorted(group.members)]
    operands: dict[Var, None] = {}
    owned_here: dict[Var, bool] = {}
    for node in members:
        for v in node.operands:
            if v not in owned_here:
                operands[v] = None
        for v in node.equation.outvars:
            owned_here[v] = node.owner is group
    results = [v for v, own in owned_here.items() if own and v in needed]
    inner = Jaxpr((), list(operands), results, [n.equation for n in members])
    kind, hero = group.kind, group.hero if group.kind != "alias" else None
    if kind == "loop" and hero is None:
        if all(n.properties.alias for n in members):
            kind = "alias"
        else:
            hero = next((n for n in members if n.role == LOOKUP), None)
            kind = "loop" if hero is None else "gather"
    last = members[-1].equation
    position = None if hero is None else next(i for i, n in enumerate(members) if n is hero)
    reasons: tuple[FusionReason, ...] = tuple(group.reasons)
    params = {"jaxpr": inner, "kind": kind, "hero": position, "reasons": reasons}
    return Equation(list(operands), results, FUSION, params, source=last.source, stack=last.stack)
