"""What an emission depends on: the structure of a fusion, with types and parameters, but without its float literals."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from weft.base import dtypes
from weft.compiler.emit.emission import storage
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr, Literal
from weft.ir.parameters import params_key


def fusion_key(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target) -> Hashable | None:
    """Equal for fusions with the same kernels; None if a parameter cannot be compared."""
    variables: dict[Any, int] = {v: n for n, v in enumerate(jaxpr.invars)}
    literals: dict[int, int] = {}
    parts: list[Any] = [kind, hero, target, tuple(v.aval for v in jaxpr.invars)]
    for equation in jaxpr.eqns:
        operands: list[Any] = []
        for atom in equation.invars:
            if type(atom) is not Literal:
                operands.append(variables[atom])
                continue
            dtype = storage(atom)
            # The same literal object twice is one operand of the kernel, two equal ones are two.
            which = literals.setdefault(id(atom), len(literals))
            value = None if dtypes.kind(dtype) in "fc" else atom.val.item()
            operands.append((which, dtype, value))
        for v in equation.outvars:
            variables[v] = len(variables)
        try:
            params = params_key(equation.params)
        except TypeError:
            return None
        parts.append((equation.primitive, tuple(operands), params, tuple(v.aval for v in equation.outvars)))
    parts.append(tuple(variables[v] for v in jaxpr.outvars))
    return tuple(parts)
