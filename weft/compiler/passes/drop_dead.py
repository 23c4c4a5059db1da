"""Remove what nobody needs."""

from __future__ import annotations

from weft.compiler.rewrite import everywhere
from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.jaxpr import drop_dead as live_part


@everywhere
def drop_dead(jaxpr: Jaxpr) -> Jaxpr:
    """Remove equations that no result and no effect needs, and shrink carried programs. Needs: any. Keeps: its form."""
    program = jaxpr
    while True:
        smaller = with_originals(live_part(program, [True] * len(program.outvars))[0], program)
        if same_equations(smaller, program):
            smaller = program
        shrunk = without_unread_operands(smaller)
        if shrunk is smaller:
            return smaller
        program = shrunk


def with_originals(smaller: Jaxpr, program: Jaxpr) -> Jaxpr:
    """Equations that were made anew, but have all their operands and results, as they were: their carried programs have
    been cleaned before, and nothing else changed."""
    known = set(map(id, program.eqns))
    if all(id(e) in known for e in smaller.eqns):
        return smaller
    defining = {e.outvars[0]: e for e in program.eqns if e.outvars}

    def original(equation: Equation) -> Equation:
        if id(equation) in known or not equation.outvars:
            return equation
        before = defining.get(equation.outvars[0])
        if before is None or before.outvars != equation.outvars or len(before.invars) != len(equation.invars):
            return equation
        return before

    return smaller.replace(eqns=[original(e) for e in smaller.eqns])


def same_equations(first: Jaxpr, second: Jaxpr) -> bool:
    return (
        len(first.eqns) == len(second.eqns)
        and len(first.constvars) == len(second.constvars)
        and all(a is b for a, b in zip(first.eqns, second.eqns, strict=True))
    )


def without_unread_operands(jaxpr: Jaxpr) -> Jaxpr:
    """Carried programs without arguments that they do not read, though all their results are needed."""
    changed: dict[int, Equation] = {}
    for number, equation in enumerate(jaxpr.eqns):
        if not equation.primitive.higher_order:
            continue
        smaller = equation.primitive.live_operands([True] * len(equation.outvars), equation.params)
        if smaller is None or all(smaller[0]):
            continue
        used, params, made = smaller
        operands = [a for a, u in zip(equation.invars, used, strict=True) if u]
        results = [v for v, m in zip(equation.outvars, made, strict=True) if m]
        changed[number] = equation.replace(invars=operands, outvars=results, params=params)
    if not changed:
        return jaxpr
    return jaxpr.replace(eqns=[changed.get(number, e) for number, e in enumerate(jaxpr.eqns)])
