"""A jaxpr whose types say nothing of where values are: what one device runs."""

from __future__ import annotations

from typing import Any

from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.types import Type


def unplaced(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with plain types, in its sub-jaxprs too; itself if it has no others."""
    known: dict[Var, Var] = {}

    def variable(var: Var) -> Var:
        if var not in known:
            known[var] = var if var.aval.is_plain else Var(var.aval.plain)
        return known[var]

    def atom(a: Atom) -> Atom:
        if type(a) is Literal:
            return a if a.aval.is_plain else Literal(a.val, a.aval.plain)
        return variable(a)  # type: ignore[arg-type]

    def equation(e: Equation) -> Equation:
        params = {key: parameter(value) for key, value in e.primitive.unplaced(e.params).items()}
        changed = len(params) < len(e.params) or any(params[key] is not e.params[key] for key in params)
        invars, outvars = tuple(map(atom, e.invars)), tuple(map(variable, e.outvars))
        if not changed and invars == e.invars and outvars == e.outvars:
            return e
        return e.replace(invars=invars, outvars=outvars, params=params)

    constvars, invars = tuple(map(variable, jaxpr.constvars)), tuple(map(variable, jaxpr.invars))
    eqns, outvars = tuple(map(equation, jaxpr.eqns)), tuple(map(atom, jaxpr.outvars))
    same = constvars == jaxpr.constvars and invars == jaxpr.invars and outvars == jaxpr.outvars
    if same and all(a is b for a, b in zip(eqns, jaxpr.eqns, strict=True)):
        return jaxpr
    return jaxpr.replace(constvars=constvars, invars=invars, eqns=eqns, outvars=outvars)


def parameter(value: Any) -> Any:
    """A parameter of an equation without what it says of where values are."""
    if isinstance(value, Jaxpr):
        return unplaced(value)
    if isinstance(value, Type):
        return value if value.is_plain else value.plain
    if type(value) in (tuple, list):
        changed = [parameter(item) for item in value]
        return value if all(a is b for a, b in zip(changed, value, strict=True)) else type(value)(changed)
    return value
