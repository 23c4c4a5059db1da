"""Common subexpression elimination."""

from __future__ import annotations

from typing import Any

from weft.compiler.rewrite import everywhere, rename_operands
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.parameters import params_key
from weft.ir.types import TapeType
from weft.primitives.control.remat import optimization_barrier


@everywhere
def merge_equal(jaxpr: Jaxpr) -> Jaxpr:
    """Merge equations with the same primitive, operands and parameters into the first of them.

    Needs: any. Keeps: its form. Equations with effects, barriers and tapes (which have one reader) are not merged;
    values that passed a barrier are not equal to those before it.
    """
    known: dict[Any, Equation] = {}
    renamed: dict[Any, Atom] = {}
    equations: list[Equation] = []
    for equation in jaxpr.eqns:
        if renamed:
            equation = rename_operands(equation, renamed)
        if equation.effects or equation.primitive is optimization_barrier or has_tapes(equation):
            equations.append(equation)
            continue
        try:
            first = known.setdefault(equation_key(equation), equation)
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
    """Return whether an operand or a result of an equation is a tape."""
    return any(type(v.aval) is TapeType for v in equation.outvars) or any(
        type(a.aval) is TapeType for a in equation.invars
    )


def equation_key(equation: Equation) -> Any:
    """Return a key that equations share if they compute the same; raise TypeError if a parameter is not hashable."""
    operands = tuple([a if type(a) is Var else literal_key(a) for a in equation.invars])
    if not equation.params:
        return equation.primitive, operands
    return equation.primitive, operands, params_key(equation.params)


def literal_key(atom: Atom) -> Any:
    """Return a key that is equal for literals of one type with the same bits."""
    assert type(atom) is Literal
    return atom.aval, atom.val.tobytes()
