"""Replace operations whose result depends on the platform only by that result."""

from __future__ import annotations

from typing import Any

from weft.compiler.rewrite import everywhere, rename_operands
from weft.compiler.target.target import Target
from weft.ir.context import context
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal
from weft.primitives.control.platform import platform_index

INDEX: Any = platform_index  # the primitive, not its class


@everywhere
def choose_platform(jaxpr: Jaxpr, target: Target) -> Jaxpr:
    """Replace equations whose result depends on the platform only by a literal.

    Needs: no calls. Makes: the same form.
    """
    values: dict[Any, Atom] = {}
    for equation in jaxpr.eqns:
        if equation.primitive is platform_index:
            values[equation.outvars[0]] = Literal(value_on(target.kind, equation), equation.outvars[0].aval)
    if not values:
        return jaxpr
    equations = [rename_operands(e, values) for e in jaxpr.eqns if not e.outvars or e.outvars[0] not in values]
    return jaxpr.replace(eqns=equations, outvars=[values.get(a, a) for a in jaxpr.outvars])


def value_on(platform: str, equation: Equation) -> Any:
    """Return the value of the result on a platform; errors show the source line of the equation."""
    before, context.source = context.source, equation.source
    try:
        return INDEX.on_platform(platform, equation.params)
    finally:
        context.source = before
