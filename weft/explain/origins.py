"""Provenance of traced equations: the fusions that each became part of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.compiler.provenance import Line
from weft.ir.jaxpr import Equation, Jaxpr, Var, subjaxprs


def map_equations_to_fusions(
    traced: Jaxpr, makers: Mapping[Any, str], by_line: Mapping[Line, Sequence[str]]
) -> dict[int, list[str]]:
    """Return the fusions of each equation of a traced jaxpr, by the `id` of the equation.

    `makers` has the fusion that computes each value of the fused jaxpr. An equation whose value passes have replaced is
    attributed to the fusions of its users or, where those are unknown too, of its line (`by_line`). A dead equation has
    none.
    """
    found: dict[int, list[str]] = {}

    def visit(jaxpr: Jaxpr, outside: Sequence[str]) -> None:
        used: dict[Any, dict[str, None]] = {v: dict.fromkeys(outside) for v in jaxpr.outvars if type(v) is Var}
        for equation in reversed(jaxpr.eqns):
            line = None if equation.source is None else Line.of(equation.source)
            near = by_line.get(line, ()) if line is not None else ()
            units = dict.fromkeys(makers[v] for v in results(equation) if v in makers)
            dead = not equation.effects and not any(v in used for v in equation.outvars)
            if not units and not dead:
                users = dict.fromkeys(u for v in equation.outvars for u in used.get(v, ()))
                units = dict.fromkeys(u for u in users if u in near) or users or dict.fromkeys(near)
            found[id(equation)] = list(units)
            for atom in equation.invars:
                if type(atom) is Var and not dead:
                    used.setdefault(atom, {}).update(units)
            for inner in subjaxprs(equation.params):
                visit(inner, list(units))

    visit(traced, ())
    return found


def results(equation: Equation) -> Iterator[Var]:
    """Yield the results of an equation and of those in its sub-jaxprs."""
    yield from equation.outvars
    for body in subjaxprs(equation.params):
        for inner in body.eqns:
            yield from results(inner)
