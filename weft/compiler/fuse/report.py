"""The fusion report: a fused jaxpr with costs and the reasons for each decision."""

from __future__ import annotations

from weft.compiler.fuse.cost import FusionReason, equation_cost
from weft.compiler.fuse.driver import fuse, refusals
from weft.compiler.fuse.fusion import fusion
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Jaxpr, subjaxprs
from weft.ir.printer import to_text


def explain(jaxpr: Jaxpr, target: Target) -> str:
    """Format the fused jaxpr, then the cost and the reasons of each fusion, then the refusals.

    Operations in reasons are named by primitive and position in the jaxpr before fusion, fusions by kind and the
    position of their last equation at the time of the decision.
    """
    fused = fuse(jaxpr, target)
    lines = [to_text(without_reasons(fused)), ""]
    lines += decisions(fused, refusals(jaxpr, target))
    for i, (before, after) in enumerate(zip(inner_jaxprs(jaxpr), inner_jaxprs(fused), strict=True)):
        lines += ["", f"carried program {i}", *decisions(after, refusals(before, target))]
    return "\n".join(lines)


def decisions(fused: Jaxpr, refused: tuple[FusionReason, ...]) -> list[str]:
    """Format the lines about each fusion of a jaxpr, and about the refusals."""
    lines = []
    for i, equation in enumerate(e for e in fused.eqns if e.primitive is fusion):
        cost, inner = equation_cost(equation), equation.params["jaxpr"]
        hero = equation.params["hero"]
        led = "" if hero is None else f" led by {inner.eqns[hero].primitive.name}"
        lines.append(
            f"fusion {i}: {equation.params['kind']}{led}, {len(inner.eqns)} equations, "
            f"reads {cost.read} B, writes {cost.written} B, {cost.flops:g} flops"
        )
        lines += [f"  {reason.text}" for reason in equation.params["reasons"]]
    if refused:
        lines.append("not fused")
        lines += [f"  {reason.text}" for reason in refused]
    return lines


def inner_jaxprs(jaxpr: Jaxpr) -> list[Jaxpr]:
    """Return the sub-jaxprs of the unfused equations of a jaxpr."""
    return [
        p for e in jaxpr.eqns if e.primitive.higher_order and e.primitive is not fusion for p in subjaxprs(e.params)
    ]


def without_reasons(jaxpr: Jaxpr) -> Jaxpr:
    """Remove the reasons from a jaxpr's fusions."""
    return jaxpr.replace(eqns=[_plain(e) for e in jaxpr.eqns])


def _plain(equation: Equation) -> Equation:
    if equation.primitive is fusion:
        return equation.replace(params={**equation.params, "reasons": None})
    params = {}
    for name, value in equation.params.items():
        if isinstance(value, Jaxpr):
            value = without_reasons(value)
        elif type(value) is tuple and value and all(isinstance(p, Jaxpr) for p in value):
            value = tuple(without_reasons(p) for p in value)
        params[name] = value
    return equation.replace(params=params)
