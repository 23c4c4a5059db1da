"""Partial evaluation of a jaxpr: split it into a part that depends on known arguments only, and the rest.

linearize (unknown = tangents), remat (a policy says which known values are saved) and loops share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from weft.base.dataclass import dataclass
from weft.ir.choices import mask_residuals
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Var, drop_dead
from weft.ir.types import Type
from weft.ir.unplaced import varying_along
from weft.ir.varying import varying_type


@dataclass(frozen=True)
class PartialJaxpr:
    """Jaxpr split in two. `known`: known arguments -> known results, then residuals. `unknown`: residuals, then
    unknown arguments -> unknown results."""

    known: Jaxpr
    unknown: Jaxpr
    unknown_out: tuple[bool, ...]
    residual_types: tuple[Type, ...]

    def varying_along(self, axes: frozenset[Any]) -> PartialJaxpr:
        """Return the split of the jaxpr whose values all vary along `axes`, because each device runs, or skips, it on
        its own."""
        if not axes:
            return self
        types = tuple(varying_type(t, axes) for t in self.residual_types)
        return replace(
            self, known=varying_along(self.known, axes), unknown=varying_along(self.unknown, axes), residual_types=types
        )


def partial_eval(
    jaxpr: Jaxpr,
    unknown_in: Sequence[bool],
    *,
    instantiate: bool | Sequence[bool] = False,
    saveable: Callable[[Equation], bool] | None = None,
    inside: bool = False,
) -> PartialJaxpr:
    """Split `jaxpr` by which arguments are unknown.

    Results marked in `instantiate` become unknown results even if they are known. Known values that the unknown side
    reads become residuals, unless `saveable` rejects their equation: then the equation is recomputed on the unknown
    side. With `inside`, equations with sub-jaxprs are split by `remat_split`, so that values inside of them can be
    saved.
    """
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
    known_invars, unknown_invars = _partition(jaxpr.invars, unknown_in)
    known_outvars, unknown_outvars = _partition(jaxpr.outvars, unknown_out)
    masks, unknown_equations = mask_residuals(known_equations, unknown_equations, unknown_outvars, unknown)
    known_equations.extend(masks)
    defined = {v for e in unknown_equations for v in e.outvars}.union(unknown_invars)
    reads: list[Atom] = [v for e in unknown_equations for v in e.invars]
    needed: dict[Var, None] = {v: None for v in (*reads, *unknown_outvars) if type(v) is Var and v not in defined}
    residuals, recomputed = _choose_residuals(known_equations, needed, saveable, inside)
    constants = set(jaxpr.constvars)
    residuals = [v for v in needed if v not in constants] + residuals

    known_results = [*known_outvars, *residuals]
    known = Jaxpr(jaxpr.constvars, known_invars, known_results, known_equations, jaxpr.consts, jaxpr.name)
    known, _ = drop_dead(known, [True] * len(known.outvars))
    arguments, equations = [*residuals, *unknown_invars], [*recomputed, *unknown_equations]
    rest = Jaxpr(jaxpr.constvars, arguments, unknown_outvars, equations, jaxpr.consts, jaxpr.name)
    rest, _ = drop_dead(rest, [True] * len(rest.outvars))
    return PartialJaxpr(known, rest, unknown_out, tuple(v.aval for v in residuals))


def _partition(variables: Sequence[Any], unknown: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """Partition into known and unknown variables."""
    known = [v for v, u in zip(variables, unknown, strict=True) if not u]
    return known, [v for v, u in zip(variables, unknown, strict=True) if u]


def _choose_residuals(
    equations: list[Equation], needed: dict[Var, None], saveable: Callable[[Equation], bool] | None, inside: bool
) -> tuple[list[Var], list[Equation]]:
    """Choose the residuals among the results of the known `equations`, and the equations to recompute on the unknown
    side, in order.

    `needed` contains the variables that the unknown side reads; on return it contains arguments and constants only.
    Equations that save values inside are replaced in `equations`.
    """
    recomputed: list[Equation] = []
    residuals: list[Var] = []
    for i in reversed(range(len(equations))):
        equation = equations[i]
        hit = [v for v in equation.outvars if v in needed]
        if not hit:
            continue
        for v in hit:
            del needed[v]
        if saveable is None or equation.effects:
            residuals.extend(hit)
            continue
        both = split_remat(equation, hit, saveable) if inside and equation.primitive.higher_order else None
        if both is not None:
            equations[i], again, stored = both
            residuals.extend(stored)
        elif saveable(equation):
            residuals.extend(hit)
            continue
        else:
            again = equation
        if again is not None:
            recomputed.append(again)
            needed.update((v, None) for v in again.invars if type(v) is Var and v not in residuals)
    return residuals[::-1], recomputed[::-1]


def split_remat(
    equation: Equation, hit: Sequence[Var], saveable: Callable[[Equation], bool]
) -> tuple[Equation, Equation | None, list[Var]] | None:
    """Split a rematerialised equation whose results `hit` are read again, so that values inside of it are saved.

    Return a forward equation that also returns residuals, a recompute equation that reads them (None if every result
    that is read is saved itself), and the residual variables. Return None if nothing inside may be saved.
    """
    rule = equation.primitive.remat_split([v.aval for v in equation.invars], equation.params, saveable)
    if rule is None:
        return None
    primitive, params = rule.first
    further = [Var(t) for t in rule.first_types[len(equation.outvars) :]]
    results = [*equation.outvars, *further]
    effects = primitive.effects([v.aval for v in equation.invars], params)
    first = equation.replace(outvars=results, primitive=primitive, params=params, effects=effects)
    whole = [equation.outvars[k] for k in rule.whole if equation.outvars[k] in hit]
    missing = [v in hit and v not in whole for v in equation.outvars]
    if not any(missing):
        return first, None, whole
    primitive, params = rule.second
    operands = [equation.invars[i] if i >= 0 else results[rule.stored[~i]] for i in rule.second_in]
    second_out = [v if m else Var(v.aval) for v, m in zip(equation.outvars, missing, strict=True)]
    effects = primitive.effects([v.aval for v in operands], params)
    second = equation.replace(invars=operands, outvars=second_out, primitive=primitive, params=params, effects=effects)
    smaller = primitive.live_operands(missing, params)
    if smaller is not None:
        used, params, live = smaller
        second = second.replace(
            invars=[v for v, u in zip(operands, used, strict=True) if u],
            outvars=[v for v, m in zip(second_out, live, strict=True) if m],
            params=params,
        )
    stored = [results[k] for k in rule.stored if results[k] in second.invars]
    return first, second, list(dict.fromkeys([*whole, *stored]))


def remat_split_jaxpr(jaxpr: Jaxpr, saveable: Callable[[Equation], bool]) -> tuple[Jaxpr, Jaxpr, list[Var]] | None:
    """Split a rematerialised jaxpr into a forward jaxpr that also returns the residuals `saveable` allows, a recompute
    jaxpr that takes them as additional arguments, and the residual variables. Return None if nothing can be saved."""
    first: list[Equation] = []
    second: list[Equation] = []
    stored: list[Var] = []
    for equation in jaxpr.eqns:
        both = None
        if equation.primitive.higher_order and not equation.effects:
            both = split_remat(equation, [v for v in equation.outvars if type(v) is Var], saveable)
        if both is not None:
            first.append(both[0])
            stored.extend(both[2])
            if both[1] is not None:
                second.append(both[1])
        elif equation.effects or (not equation.primitive.higher_order and saveable(equation)):
            first.append(equation)
            stored.extend(equation.outvars)
        else:
            first.append(equation)
            second.append(equation)
    again = jaxpr.replace(invars=[*jaxpr.invars, *stored], eqns=second)
    keep = [*[True] * len(jaxpr.invars), *[False] * len(stored)]
    again, used = drop_dead(again, [True] * len(jaxpr.outvars), keep)
    stored = [v for v, u in zip(stored, used[len(jaxpr.invars) :], strict=True) if u]
    if not stored:
        return None
    return jaxpr.replace(outvars=[*jaxpr.outvars, *stored], eqns=first), again, stored


def _split(
    equation: Equation, mask: list[bool], known: list[Equation], unknown: list[Equation], unknown_vars: set[Atom]
) -> None:
    """Put an equation with unknown operands on the unknown side, or split it if its primitive can be split."""
    split = equation.primitive.partial_eval(mask, [v.aval for v in equation.invars], equation.params)
    if split is None:
        unknown.append(equation)
        unknown_vars.update(equation.outvars)
        return
    residuals = [Var(t) for t in split.residual_types]
    outs = list(zip(equation.outvars, split.unknown_out, strict=True))
    if split.known is not None:
        primitive, params = split.known
        operands = [equation.invars[i] for i in split.known_in]
        known_out = [*(v for v, u in outs if not u), *residuals]
        effects = primitive.effects([v.aval for v in operands], params)
        known.append(Equation(operands, known_out, primitive, params, effects, equation.source, equation.stack))
    primitive, params = split.unknown
    waiting = [equation.invars[i] if i >= 0 else residuals[~i] for i in split.unknown_in]
    results = [v for v, u in outs if u]
    effects = primitive.effects([v.aval for v in waiting], params)
    unknown.append(Equation(waiting, results, primitive, params, effects, equation.source, equation.stack))
    unknown_vars.update(results)
