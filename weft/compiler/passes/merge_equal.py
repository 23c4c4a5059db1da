"""Common subexpression elimination."""

from __future__ import annotations

from typing import Any

from weft.compiler.rewrite import everywhere, with_renamed
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.parameters import params_key
from weft.ir.types import TapeType


@everywhere
def merge_equal(jaxpr: Jaxpr) -> Jaxpr:
    """Compute equal things once: the first of several equations with the same primitive, operands and parameters stays.

    Needs: any. Keeps: its form. Equations with effects, barriers and tapes (which have one reader) are not merged;
    values that passed a barrier are not equal to those before it.
    """
    known: dict[Any, Equation] = {}
    renamed: dict[Any, Atom] = {}
    equations: list[Equation] = []
    for equation in jaxpr.eqns:
        if renamed:
            equation = with_renamed(equation, renamed)
        if equation.effects or equation.primitive.fence or has_tapes(equation):
            equations.append(equation)
            continue
        try:
            first = known.setdefault(key_of(equation), equation)
        except TypeError:  # a parameter that cannot be compared
            equations.append(equation)
            continue
        if first is equation:
            equations.append(equation)
        else:
            renamed.update(zip(equation.outvars, first.outvars, strict=True))
    if not renamed:
        return jaxpr
    outvars = [renamed.get(a, a) for a in jaxpr.outvars]
    return Jaxpr(jaxpr.constvars, jaxpr.invars, outvars, equations, jaxpr.consts, jaxpr.name)


def has_tapes(equation: Equation) -> bool:
    return any(type(v.aval) is TapeType for v in equation.outvars) or any(
        type(a.aval) is TapeType for a in equation.invars
    )


def key_of(equation: Equation) -> Any:
    """Equal for equations that compute the same; raises TypeError if a parameter has no such key."""
    operands = tuple([a if type(a) is Var else literal_key(a) for a in equation.invars])
    if not equation.params:
        return equation.primitive, operands
    return equation.primitive, operands, params_key(equation.params)


def literal_key(atom: Atom) -> Any:
    assert type(atom) is Literal
    return atom.aval, atom.val.tobytes()
