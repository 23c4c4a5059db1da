"""What an emission depends on: the structure of a fusion, with types and parameters, but without its float literals."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from weft.base import dtypes
from weft.compiler.emit.emission import storage
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr, Literal
from weft.ir.parameters import params_key


def fusion_key(kind: str, program: Jaxpr, hero: int | None, target: Target) -> Hashable | None:
    """Equal for fusions with the same kernels; None if a parameter cannot be compared."""
    numbers: dict[Any, int] = {v: n for n, v in enumerate(program.invars)}
    literals: dict[int, int] = {}
    parts: list[Any] = [kind, hero, target, tuple(v.aval for v in program.invars)]
    for equation in program.eqns:
        operands: list[Any] = []
        for atom in equation.invars:
            if type(atom) is not Literal:
                operands.append(numbers[atom])
                continue
            dtype = storage(atom)
            # The same literal object twice is one operand of the kernel, two equal ones are two.
            which = literals.setdefault(id(atom), len(literals))
            number = None if dtypes.kind(dtype) in "fc" else atom.val.item()
            operands.append((which, dtype, number))
        for v in equation.outvars:
            numbers[v] = len(numbers)
        try:
            params = params_key(equation.params)
        except TypeError:
            return None
        parts.append((equation.primitive, tuple(operands), params, tuple(v.aval for v in equation.outvars)))
    parts.append(tuple(numbers[v] for v in program.outvars))
    return tuple(parts)
