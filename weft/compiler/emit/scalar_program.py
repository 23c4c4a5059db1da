"""Programs on scalars that primitives carry (how to combine, how to choose), run on values of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.errors import InternalError
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Value
from weft.ir.jaxpr import Jaxpr, Literal
from weft.primitives.elementwise.elementwise import Elementwise


def run_on_scalars(k: KernelBuilder, program: Jaxpr, values: Sequence[Value]) -> list[Value]:
    """The results of a program of elementwise operations on scalars."""
    known: dict[Any, Value] = dict(zip(program.invars, values, strict=True))
    for v, number in zip(program.constvars, program.consts, strict=True):
        known[v] = k.constant(number, v.aval.dtype)  # type: ignore[attr-defined]

    def value_of(atom: Any) -> Value:
        if isinstance(atom, Literal):
            return k.constant(atom.val, atom.aval.dtype)  # type: ignore[attr-defined]
        return known[atom]

    for equation in program.eqns:
        operands = [value_of(atom) for atom in equation.invars]
        if isinstance(equation.primitive, Elementwise):
            made = equation.primitive.emit(k.scalars, *operands, **equation.params)
        elif equation.primitive.copies == "all" and len(operands) == 1:
            made = operands[0]  # of a scalar there is only one element
        else:
            raise InternalError(
                f"`{equation.primitive.name}` cannot stand in a program on scalars that a kernel runs.",
                stage="emit",
                text=str(program),
            )
        known[equation.outvars[0]] = made
    return [value_of(atom) for atom in program.outvars]
