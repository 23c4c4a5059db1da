"""Partial evaluation of a program: split it into what can be computed now and what waits for unknown arguments.

One mechanism serves linearize (unknown = tangents), remat (which known values are kept is a policy) and loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.ir.jaxpr import Atom, Equation, Jaxpr, Var, drop_dead
from weft.ir.types import Type


@dataclass(frozen=True)
class PartialProgram:
    """`known`: known arguments -> known results, then residuals. `unknown`: residuals, then unknown arguments ->
    unknown results."""

    known: Jaxpr
    unknown: Jaxpr
    unknown_out: tuple[bool, ...]
    residual_types: tuple[Type, ...]


def partial_eval(
    jaxpr: Jaxpr,
    unknown_in: Sequence[bool],
    *,
    instantiate: bool | Sequence[bool] = False,
    saveable: Callable[[Equation], bool] | None = None,
) -> PartialProgram:
    """Split `jaxpr`. Results marked in `instantiate` are put on the unknown side. A known value that the unknown side
    needs
    becomes a residual, unless `saveable` refuses its equation: then the equation is computed again on the unknown
    side."""
    force = [instantiate] * len(jaxpr.outvars) if isinstance(instantiate, bool) else list(instantiate)
    unknown: set[Atom] = {v for v, u in zip(jaxpr.invars, unknown_in, strict=True) if u}
    known_equations: list[Equation] = []
    unknown_equations: list[Equation] = []
    for equation in jaxpr.eqns:
        mask = [v in unknown for v in equation.invars]
        if not any(mask):
            known_equations.append(equation)
        else:
            _split(equation, mask, known_equations, unknown_equations, unknown)

    unknown_out = tuple(v in unknown or f for v, f in zip(jaxpr.outvars, force, strict=True))
    unknown_outvars = [v for v, u in zip(jaxpr.outvars, unknown_out, strict=True) if u]
    defined = {v for e in unknown_equations for v in e.outvars} | {
        v for v, u in zip(jaxpr.invars, unknown_in, strict=True) if u
    }
    reads: list[Atom] = [v for e in unknown_equations for v in e.invars]
    needed: dict[Var, None] = {v: None for v in (*reads, *unknown_outvars) if type(v) is Var and v not in defined}

    recomputed: list[Equation] = []
    residuals: list[Var] = []
    for equation in reversed(known_equations):
        hit = [v for v in equation.outvars if v in needed]
        if not hit:
            continue
        for v in hit:
            del needed[v]
        if saveable is None or equation.effects or saveable(equation):
            residuals.extend(hit)
        else:
            recomputed.append(equation)
            needed.update((v, None) for v in equation.invars if type(v) is Var and v not in residuals)
    constants = dict(zip(jaxpr.constvars, jaxpr.consts, strict=True))
    residuals = [v for v in needed if v not in constants] + residuals[::-1]

    known_outvars = [v for v, u in zip(jaxpr.outvars, unknown_out, strict=True) if not u]
    known_invars = [v for v, u in zip(jaxpr.invars, unknown_in, strict=True) if not u]
    known = Jaxpr(
        jaxpr.constvars, known_invars, [*known_outvars, *residuals], known_equations, jaxpr.consts, jaxpr.name
    )
    known, _ = drop_dead(known, [True] * len(known.outvars))
    unknown_invars = [v for v, u in zip(jaxpr.invars, unknown_in, strict=True) if u]
    rest = Jaxpr(
        jaxpr.constvars,
        [*residuals, *unknown_invars],
        unknown_outvars,
        [*recomputed[::-1], *unknown_equations],
        jaxpr.consts,
        jaxpr.name,
    )
    rest, _ = drop_dead(rest, [True] * len(rest.outvars))
    return PartialProgram(known, rest, unknown_out, tuple(v.aval for v in residuals))


def _split(
    equation: Equation, mask: list[bool], known: list[Equation], unknown: list[Equation], unknown_vars: set[Atom]
) -> None:
    """Put one equation with unknown operands on the unknown side, or on both where its primitive can be split."""
    split = equation.primitive.partial_eval(mask, [v.aval for v in equation.invars], equation.params)
    if split is None:
        unknown.append(equation)
        unknown_vars.update(equation.outvars)
        return
    residuals = [Var(t) for t in split.residual_types]
    outs = list(zip(equation.outvars, split.unknown_out, strict=True))
    if split.known is not None:
        card, params = split.known
        operands = [equation.invars[i] for i in split.known_in]
        made = [*(v for v, u in outs if not u), *residuals]
        effects = card.effects([v.aval for v in operands], params)
        known.append(Equation(operands, made, card, params, effects, equation.source, equation.stack))
    card, params = split.unknown
    waiting = [equation.invars[i] if i >= 0 else residuals[~i] for i in split.unknown_in]
    results = [v for v, u in outs if u]
    effects = card.effects([v.aval for v in waiting], params)
    unknown.append(Equation(waiting, results, card, params, effects, equation.source, equation.stack))
    unknown_vars.update(results)
