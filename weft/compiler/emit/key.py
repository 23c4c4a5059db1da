"""Key of an emission: the structure of a fusion with types and parameters, without its float literals."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from weft.base import dtypes
from weft.compiler.emit.emission import storage
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Jaxpr, Literal
from weft.ir.parameters import params_key
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.families import Indexing


def fusion_key(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target) -> Hashable | None:
    """Return a key that is equal for fusions with the same kernels, or None if a parameter cannot be compared.
    Elementwise and indexing equations are ordered by the results that need them, whatever their order in the jaxpr:
    kernels are written in that order, and equal layers often differ in nothing else. The order of other equations
    counts."""
    variables: dict[Any, int] = {v: n for n, v in enumerate(jaxpr.invars)}
    # The same literal object twice is one operand of the kernel, two equal ones are two.
    literals: dict[int, int] = {}
    for equation in jaxpr.eqns:
        for atom in equation.invars:
            if type(atom) is Literal:
                literals.setdefault(id(atom), len(literals))
    ordered = in_order_of_use(jaxpr)
    first = None if hero is None else ordered.index(jaxpr.eqns[hero])
    parts: list[Any] = [kind, first, target, tuple(v.aval for v in jaxpr.invars)]
    for equation in ordered:
        operands: list[Any] = []
        for atom in equation.invars:
            if type(atom) is not Literal:
                operands.append(variables[atom])
                continue
            dtype = storage(atom)
            value = None if dtypes.kind(dtype) in "fc" else atom.val.item()
            operands.append((literals[id(atom)], dtype, value))
        for v in equation.outvars:
            variables[v] = len(variables)
        try:
            params = params_key(equation.params)
        except TypeError:
            return None
        parts.append((equation.primitive, tuple(operands), params, tuple(v.aval for v in equation.outvars)))
    parts.append(tuple(variables[e.outvars[0]] for e in jaxpr.eqns if not is_written_on_demand(e)))
    parts.append(tuple(variables[v] for v in jaxpr.outvars))
    return tuple(parts)


def is_written_on_demand(equation: Equation) -> bool:
    """Return whether kernels compute elements of an equation's result only where they are needed."""
    return not equation.invars or isinstance(equation.primitive, (Elementwise, Indexing))


def in_order_of_use(jaxpr: Jaxpr) -> list[Equation]:
    """Sort equations so that each follows its operands, in the order in which results need them; equations that no
    result needs come last.
    """
    defined = {v: e for e in jaxpr.eqns for v in e.outvars}
    found: dict[Equation, None] = {}
    # Stack of values, with whether their operands are already visited.
    wanted = [(e, False) for e in reversed(jaxpr.eqns)]
    wanted += [(defined[v], False) for v in reversed(jaxpr.outvars) if v in defined]
    while wanted:
        equation, complete = wanted.pop()
        if equation in found:
            continue
        if complete:
            found[equation] = None
            continue
        wanted.append((equation, True))
        operands = [a for a in reversed(equation.invars) if type(a) is not Literal]
        wanted += [(defined[a], False) for a in operands if a in defined]
    return list(found)
