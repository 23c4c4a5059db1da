"""Sub-jaxprs of primitives on scalars (combiners, comparators), evaluated on values of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.errors import InternalError
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Value
from weft.ir.jaxpr import Jaxpr, Literal
from weft.primitives.elementwise.elementwise import Elementwise


def run_on_scalars(k: KernelBuilder, jaxpr: Jaxpr, values: Sequence[Value]) -> list[Value]:
    """Emit a jaxpr of elementwise operations on scalars; return its results."""
    known: dict[Any, Value] = dict(zip(jaxpr.invars, values, strict=True))
    for v, const in zip(jaxpr.constvars, jaxpr.consts, strict=True):
        known[v] = k.constant(const, v.aval.dtype)  # type: ignore[attr-defined]

    def read(atom: Any) -> Value:
        if isinstance(atom, Literal):
            return k.constant(atom.val, atom.aval.dtype)  # type: ignore[attr-defined]
        return known[atom]

    for equation in jaxpr.eqns:
        operands = [read(atom) for atom in equation.invars]
        if isinstance(equation.primitive, Elementwise):
            out = equation.primitive.emit(k.scalars, *operands, **equation.params)
        elif equation.primitive.copies == "all" and len(operands) == 1:
            out = operands[0]  # of a scalar there is only one element
        else:
            raise InternalError(
                f"`{equation.primitive.name}` cannot be in a jaxpr on scalars that a kernel runs.",
                stage="emit",
                text=str(jaxpr),
            )
        known[equation.outvars[0]] = out
    return [read(atom) for atom in jaxpr.outvars]
