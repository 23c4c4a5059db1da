"""Reorder a loop's body so that all reads of a carry precede the equation that computes its next value, where possible.
The next value is then written to the carry's slot and need not be copied there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.jaxpr import Equation, Jaxpr, Var


def readers_first(jaxpr: Jaxpr, carries: Sequence[tuple[Var, Any]]) -> Jaxpr:
    """Return the body in that order. `carries` has pairs of a carry and its next value."""
    equations = list(jaxpr.eqns)
    for carry, following in carries:
        equations = _reorder(equations, carry, following)
    if all(one is other for one, other in zip(equations, jaxpr.eqns, strict=True)):
        return jaxpr
    return jaxpr.replace(eqns=equations)


def _reorder(equations: list[Equation], carry: Var, following: Any) -> list[Equation]:
    """Delay the equation that computes `following`, and its users, until the last read of the carry.

    Return the equations unchanged if that last read depends on it.
    """
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
