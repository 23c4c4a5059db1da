"""Inline calls: replace a call equation by the equations of the called jaxpr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.context import join_stacks
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Var

# Variables and values of the constants of a jaxpr under construction, by the id of the value.
Constants = dict[int, tuple[Var, Any]]


def collect_constants(jaxpr: Jaxpr) -> Constants:
    """Collect the constants of a jaxpr, for `copy_equations` to extend."""
    found: Constants = {}
    for var, value in zip(jaxpr.constvars, jaxpr.consts, strict=True):
        # A value that two variables share needs two entries: the second has the id of its variable as key.
        found[id(var) if id(value) in found else id(value)] = (var, value)
    return found


def copy_equations(
    jaxpr: Jaxpr, caller: Equation, operands: Sequence[Atom], equations: list[Equation], constants: Constants
) -> list[Atom]:
    """Append copies of the equations of `jaxpr`, called by `caller` on `operands`; return the atoms that hold its
    results.

    The copies define new variables, because a jaxpr may be called more than once. An equation without a source line
    gets the caller's, and its name stack is put inside the caller's. Constants are added to `constants`.
    """
    bound: dict[Any, Atom] = dict(zip(jaxpr.invars, operands, strict=True))
    for var, value in zip(jaxpr.constvars, jaxpr.consts, strict=True):
        bound[var] = constants.setdefault(id(value), (var, value))[0]
    read = bound.get
    for equation in jaxpr.eqns:
        variables = []
        for var in equation.outvars:
            variable = Var(var.aval)
            bound[var] = variable
            variables.append(variable)
        equations.append(
            Equation(
                [read(a, a) for a in equation.invars],
                variables,
                equation.primitive,
                equation.params,
                equation.effects,
                equation.source or caller.source,
                join_stacks(caller.stack, equation.stack),
            )
        )
    return [read(a, a) for a in jaxpr.outvars]


def inline_calls(jaxpr: Jaxpr, only: Any = None) -> Jaxpr:
    """Inline calls in a jaxpr, recursively: those of all primitives that are plain calls (`opens`), or those of the
    primitive `only`. Return the same object if it has no calls."""
    if not any(is_call(e, only) for e in jaxpr.eqns):
        return jaxpr
    return jaxpr.memoize(("inline_calls", only), lambda: _inline_calls(jaxpr, only))


def is_call(equation: Equation, only: Any) -> bool:
    """Return whether an equation is a plain call that is to be inlined."""
    return equation.primitive.opens is not None and (only is None or equation.primitive is only)


def _inline_calls(jaxpr: Jaxpr, only: Any) -> Jaxpr:
    equations: list[Equation] = []
    constants = collect_constants(jaxpr)
    renamed: dict[Any, Atom] = {}
    read = renamed.get
    for equation in jaxpr.eqns:
        operands = [read(a, a) for a in equation.invars]
        parameter = equation.primitive.opens
        if parameter is None or not is_call(equation, only):
            changed = any(a is not b for a, b in zip(operands, equation.invars, strict=True))
            equations.append(equation.replace(invars=operands) if changed else equation)
            continue
        inner = inline_calls(equation.params[parameter], only)
        results = copy_equations(inner, equation, operands, equations, constants)
        renamed.update(zip(equation.outvars, results, strict=True))
    return jaxpr.replace(
        constvars=[v for v, _ in constants.values()],
        consts=[c for _, c in constants.values()],
        eqns=equations,
        outvars=[read(a, a) for a in jaxpr.outvars],
    )
