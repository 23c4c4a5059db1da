"""Programs with operations that StableHLO cannot express, such as callbacks: these run on the host, one after the
other, and the plugin runs the parts of the program between them.

Only operations of the program itself can be between parts. One in the body of a loop or in a branch is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from weft.base.dataclass import dataclass
from weft.compiler.target.stablehlo.emitter import has_rule
from weft.compiler.target.stablehlo.module import prepare
from weft.ir.context import EVALUATION, context
from weft.ir.jaxpr import Equation, Jaxpr, Literal, Var
from weft.ir.types import ArrayType
from weft.runtime.array import ConcreteArray, adopt_array
from weft.runtime.device import HOME, Placement
from weft.runtime.eager import native_run


@dataclass(frozen=True)
class Part:
    """Equations that the plugin runs together, as a jaxpr, or one equation for the host."""

    jaxpr: Jaxpr | None
    equation: Equation | None = None


def is_for_host(equation: Equation) -> bool:
    """Return whether an equation has no equivalent in StableHLO; of one with bodies the emitter says so."""
    return not has_rule(equation) and not equation.primitive.higher_order


def split_program(jaxpr: Jaxpr, platform: str) -> tuple[Jaxpr, list[Part]] | None:
    """Split a program at the operations for the host; return it with its calls inlined, and its parts.

    Return None without such operations, and if a value between the parts is no array.
    """
    whole = prepare(jaxpr, platform)
    values = [v.aval for equation in whole.eqns for v in equation.outvars]
    if not any(map(is_for_host, whole.eqns)) or not all(isinstance(t, ArrayType) for t in values):
        return None
    groups = [(on_host, list(group)) for on_host, group in groupby(whole.eqns, is_for_host)]
    parts: list[Part] = []
    for i, (on_host, equations) in enumerate(groups):
        if on_host:
            parts += [Part(None, equation) for equation in equations]
        else:
            later = [atom for _, group in groups[i + 1 :] for equation in group for atom in equation.invars]
            parts.append(Part(close_over(whole, equations, {*variables([*later, *whole.outvars])}, len(parts))))
    return whole, parts


def variables(atoms: Sequence[Any]) -> Iterator[Var]:
    """Yield the variables among atoms."""
    return (atom for atom in atoms if not isinstance(atom, Literal))


def close_over(whole: Jaxpr, equations: Sequence[Equation], needed: set[Var], number: int) -> Jaxpr:
    """Return a jaxpr of some equations of a program: its arguments are what they read, its results what is `needed`."""
    defined = dict.fromkeys(v for equation in equations for v in equation.outvars)
    read = dict.fromkeys(v for equation in equations for v in variables(equation.invars))
    arguments = [v for v in read if v not in defined]
    results = [v for v in defined if v in needed]
    return Jaxpr((), arguments, results, list(equations), (), f"{whole.name or 'program'} part {number}")


def run_parts(
    whole: Jaxpr, parts: Sequence[tuple[Part, Callable[[Sequence[Any]], list[Any]]]], operands: Sequence[ConcreteArray]
) -> list[Any]:
    """Run the parts of a program, each by its function of arrays; return its results as arrays or literals."""
    values: dict[Any, Any] = dict(zip(whole.invars, operands, strict=True))

    def read(atom: Any) -> Any:
        if isinstance(atom, Literal):
            aval: Any = atom.aval
            return np.asarray(atom.val, aval.dtype)
        return values[atom]

    for part, run in parts:
        equation = part.equation
        inputs = part.jaxpr.invars if part.jaxpr is not None else equation.invars  # type: ignore[union-attr]
        outputs = part.jaxpr.outvars if part.jaxpr is not None else equation.outvars  # type: ignore[union-attr]
        values.update(zip(outputs, run([read(atom) for atom in inputs]), strict=True))
    return [read(atom) for atom in whole.outvars]


def host_call(
    equation: Equation, types: Sequence[Any], results: Sequence[Any], placement: Placement
) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function of arrays that computes an operation on the host: operands are copied there, results back."""
    primitive, params, line = equation.primitive, equation.params, equation.source
    native = native_run(primitive, types, params, results, HOME)

    def run(args: Sequence[Any]) -> list[Any]:
        values = [a._value if isinstance(a, ConcreteArray) else a for a in args]
        if native is not None:
            found = [a._value for a in native(values)]
        else:
            trace, source = context.trace, context.source
            context.trace, context.source = EVALUATION, line or source
            try:
                with np.errstate(all="ignore"):
                    out = primitive.eval(*values, **params)
            finally:
                context.trace, context.source = trace, source
            found = list(out) if primitive.multiple_results else [out]
        return [adopt_array(np.asarray(v), t, placement) for v, t in zip(found, results, strict=True)]

    return run
