"""Replace composite operations by their definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.errors import InternalError
from weft.base.memo import Memo
from weft.base.settings import config
from weft.compiler.passes.inline import inline
from weft.compiler.rewrite import everywhere, rename_operands
from weft.ir.context import context
from weft.ir.inline import Constants, collect_constants, copy_equations
from weft.ir.jaxpr import Atom, Equation, Jaxpr
from weft.ir.parameters import params_key
from weft.ir.types import Type
from weft.trace.closed import stage_subjaxpr

# Definitions by operation, operand types and parameters; staging one takes a thousand times longer than copying it.
_staged: Memo[Any, Jaxpr] = Memo(1024)


@everywhere
def decompose(jaxpr: Jaxpr) -> Jaxpr:
    """Replace operations that are defined by others, and random bits by the hash of counters.

    Needs: no calls. Makes: primitives that can be emitted.
    """
    return with_definitions(jaxpr, lambda equation: equation.primitive.define(equation), identities=True)


def with_definitions(
    jaxpr: Jaxpr, definition_for: Callable[[Equation], Callable[..., Any] | None], identities: bool = False
) -> Jaxpr:
    """Replace each equation that has a definition by the equations of that definition, and, with `identities`, the
    result of identity operations by their operand."""
    equations: list[Equation] = []
    renamed: dict[Any, Atom] = {}
    constants: Constants | None = None
    for equation in jaxpr.eqns:
        if renamed:
            equation = rename_operands(equation, renamed)
        primitive = equation.primitive
        if identities and primitive.identity:
            renamed[equation.outvars[0]] = equation.invars[0]
            continue
        definition = definition_for(equation)
        if definition is None:
            equations.append(equation)
            continue
        if constants is None:
            constants = collect_constants(jaxpr)
        body = lookup_definition(definition, equation)
        results = copy_equations(body, equation, equation.invars, equations, constants)
        for var, atom in zip(equation.outvars, results, strict=True):
            if not atom.aval.matches(var.aval):
                raise InternalError(
                    f"The definition of {primitive.name} must have a result of type {var.aval.short()}, as its type "
                    f"rule says; got {atom.aval.short()}.",
                    stage="decompose",
                )
            renamed[var] = atom
    if not renamed and len(equations) == len(jaxpr.eqns):
        return jaxpr
    found = collect_constants(jaxpr) if constants is None else constants
    return jaxpr.replace(
        constvars=[v for v, _ in found.values()],
        consts=[c for _, c in found.values()],
        eqns=equations,
        outvars=[renamed.get(a, a) for a in jaxpr.outvars],
    )


def lookup_definition(definition: Callable[..., Any], equation: Equation) -> Jaxpr:
    """Return the definition as a jaxpr of primitives, memoized if the parameters are hashable."""
    types = tuple(a.aval for a in equation.invars)
    try:
        # Targets define one operation by functions of their own, often by new closures.
        origin = getattr(definition, "__module__", None), getattr(definition, "__qualname__", definition)
        key = (equation.primitive, origin, types, params_key(equation.params), config.key())
        found = _staged.get(key)
    except TypeError:
        return stage_definition(definition, types, equation)
    return found if found is not None else _staged.keep(key, stage_definition(definition, types, equation))


def stage_definition(definition: Callable[..., Any], types: Sequence[Type], equation: Equation) -> Jaxpr:
    """Trace a definition, inline its calls, and decompose its equations too."""

    def function(*args: Any) -> Sequence[Any]:
        results = definition(*args, **equation.params)
        return results if isinstance(results, (list, tuple)) else [results]

    before = context.stack
    context.stack = ()
    try:
        body = inline(stage_subjaxpr(function, types, name=equation.primitive.name))
    finally:
        context.stack = before
    # The lines of a definition are not the user's: copies get the line of the equation they replace.
    return decompose(body.replace(eqns=[e.replace(source=None) for e in body.eqns]))
