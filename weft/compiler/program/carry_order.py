"""The order of the equations in a loop's body: those that read a carry come before the one that computes its next
value, where that can be, so that the next value is written where the carry was and need not be copied there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.jaxpr import Equation, Jaxpr, Var


def readers_first(jaxpr: Jaxpr, carries: Sequence[tuple[Var, Any]]) -> Jaxpr:
    """The body with its equations in such an order. `carries` are pairs of a carry and its next value."""
    equations = list(jaxpr.eqns)
    for carry, following in carries:
        equations = _ordered(equations, carry, following)
    if all(one is other for one, other in zip(equations, jaxpr.eqns, strict=True)):
        return jaxpr
    return jaxpr.replace(eqns=equations)


def _ordered(equations: list[Equation], carry: Var, following: Any) -> list[Equation]:
    """The equations with the one that computes `following`, and those that depend on it, after the last that reads the
    carry, if that does not depend on it."""
    first = next((i for i, e in enumerate(equations) if any(v is following for v in e.outvars)), len(equations))
    last = max((i for i, e in enumerate(equations) if any(a is carry for a in e.invars)), default=-1)
    if first >= last:
        return equations
    waiting, others = [equations[first]], []
    computed = set(equations[first].outvars)
    for equation in equations[first + 1 : last + 1]:
        if any(isinstance(a, Var) and a in computed for a in equation.invars):
            waiting.append(equation)
            computed.update(equation.outvars)
        else:
            others.append(equation)
    if waiting[-1] is equations[last] or any(e.effects for e in waiting):
        return equations
    if any(a is carry for e in waiting[1:] for a in e.invars):
        return equations
    return [*equations[:first], *others, *waiting, *equations[last + 1 :]]
