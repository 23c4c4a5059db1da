"""Dead code elimination."""

from __future__ import annotations

from weft.compiler.rewrite import everywhere
from weft.ir.jaxpr import Equation, Jaxpr, drop_dead as live_part


@everywhere
def drop_dead(jaxpr: Jaxpr) -> Jaxpr:
    """Remove equations that no result or effect depends on, and shrink sub-jaxprs. Needs: any. Keeps: its form."""
    while True:
        smaller = with_originals(live_part(jaxpr, [True] * len(jaxpr.outvars))[0], jaxpr)
        if same_equations(smaller, jaxpr):
            smaller = jaxpr
        shrunk = without_unread_operands(smaller)
        if shrunk is smaller:
            return smaller
        jaxpr = shrunk


def with_originals(smaller: Jaxpr, jaxpr: Jaxpr) -> Jaxpr:
    """Restore the original objects of equations that kept all operands and results: their sub-jaxprs were cleaned
    before, so nothing in them changed."""
    known = set(map(id, jaxpr.eqns))
    if all(id(e) in known for e in smaller.eqns):
        return smaller
    defining = {e.outvars[0]: e for e in jaxpr.eqns if e.outvars}

    def original(equation: Equation) -> Equation:
        """Return the equation as it was before, if it has the same operands and results."""
        if id(equation) in known or not equation.outvars:
            return equation
        before = defining.get(equation.outvars[0])
        if before is None or before.outvars != equation.outvars or len(before.invars) != len(equation.invars):
            return equation
        return before

    return smaller.replace(eqns=[original(e) for e in smaller.eqns])


def same_equations(first: Jaxpr, second: Jaxpr) -> bool:
    """Return whether two jaxprs consist of the same equation objects."""
    return (
        len(first.eqns) == len(second.eqns)
        and len(first.constvars) == len(second.constvars)
        and all(a is b for a, b in zip(first.eqns, second.eqns, strict=True))
    )


def without_unread_operands(jaxpr: Jaxpr) -> Jaxpr:
    """Remove arguments that sub-jaxprs do not read, though all their results are needed."""
    changed: dict[int, Equation] = {}
    for i, equation in enumerate(jaxpr.eqns):
        if not equation.primitive.higher_order:
            continue
        smaller = equation.primitive.live_operands([True] * len(equation.outvars), equation.params)
        if smaller is None or all(smaller[0]):
            continue
        used, params, computed = smaller
        operands = [a for a, u in zip(equation.invars, used, strict=True) if u]
        results = [v for v, c in zip(equation.outvars, computed, strict=True) if c]
        changed[i] = equation.replace(invars=operands, outvars=results, params=params)
    if not changed:
        return jaxpr
    return jaxpr.replace(eqns=[changed.get(i, e) for i, e in enumerate(jaxpr.eqns)])
