"""Change the types in jaxprs: to plain types for one device, or to types that vary along mesh axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.kinds import ManualCast
from weft.ir.primitive import Params, Primitive
from weft.ir.types import Type
from weft.ir.varying import varying_type


def drop_placements(jaxpr: Jaxpr) -> Jaxpr:
    """Remove placements from all types, in sub-jaxprs too; return the same object if no type has one."""
    return map_types(jaxpr, lambda aval: aval.plain, lambda primitive, params: primitive.drop_placement(params))


def varying_along(jaxpr: Jaxpr, axes: frozenset[Any]) -> Jaxpr:
    """Make all values vary along `axes`, for a jaxpr that each device along them runs, or skips, on its own."""
    if not axes:
        return jaxpr
    change = lambda aval: varying_type(aval, axes)
    return jaxpr.memoize(("varying along", axes), lambda: map_types(jaxpr, change, cast=axes))


def map_types(
    jaxpr: Jaxpr,
    change: Callable[[Type], Type],
    parameters: Callable[[Primitive, Params], Params] = lambda primitive, params: params,
    cast: frozenset[Any] = frozenset(),
) -> Jaxpr:
    """Map the types of a jaxpr and its sub-jaxprs by `change` and the parameters of equations by `parameters`; return
    the same object if nothing changes. Casts along the axes `cast` are removed."""
    known: dict[Atom, Atom] = {}

    def variable(var: Atom) -> Atom:
        if type(var) is Literal:
            aval = change(var.aval)
            return var if aval is var.aval else Literal(var.val, aval)
        if var not in known:
            aval = change(var.aval)
            known[var] = var if aval is var.aval else Var(aval)
        return known[var]

    def parameter(value: Any) -> Any:
        if isinstance(value, Jaxpr):
            return map_types(value, change, parameters, cast)
        if isinstance(value, Type):
            return change(value)
        if type(value) in (tuple, list):
            changed = [parameter(item) for item in value]
            return value if all(a is b for a, b in zip(changed, value, strict=True)) else type(value)(changed)
        return value

    equations: list[Equation] = []
    for e in jaxpr.eqns:
        params = {key: parameter(value) for key, value in parameters(e.primitive, e.params).items()}
        if isinstance(e.primitive, ManualCast) and cast.intersection(params["axes"]):
            rest = tuple(a for a in params["axes"] if a not in cast)
            if not rest:
                known[e.outvars[0]] = variable(e.invars[0])
                continue
            params["axes"] = rest
        changed = any(params[key] is not e.params.get(key) for key in params) or len(params) != len(e.params)
        invars, outvars = tuple(map(variable, e.invars)), tuple(map(variable, e.outvars))
        same = not changed and invars == e.invars and outvars == e.outvars
        equations.append(e if same else e.replace(invars=invars, outvars=outvars, params=params))
    constvars, invars = tuple(map(variable, jaxpr.constvars)), tuple(map(variable, jaxpr.invars))
    outvars = tuple(map(variable, jaxpr.outvars))
    same = constvars == jaxpr.constvars and invars == jaxpr.invars and outvars == jaxpr.outvars
    if same and len(equations) == len(jaxpr.eqns) and all(a is b for a, b in zip(equations, jaxpr.eqns, strict=True)):
        return jaxpr
    return jaxpr.replace(constvars=constvars, invars=invars, eqns=equations, outvars=outvars)


def with_casts_outside(jaxpr: Jaxpr, count: int) -> Jaxpr:
    """Move casts of a loop body's first `count` arguments, the loop constants, in front of the loop.

    Only if one kind of cast is all that reads the constant. Its cotangents are then summed over devices once instead of
    in every iteration.
    """
    uses: dict[Atom, list[Equation]] = {v: [] for v in jaxpr.invars[:count]}
    for e in jaxpr.eqns:
        for v in e.invars:
            if v in uses:
                uses[v].append(e)
    known: dict[Atom, Var] = {}
    for v, readers in uses.items():
        kinds = {(e.primitive.name, e.params["axes"]) if isinstance(e.primitive, ManualCast) else None for e in readers}
        if len(kinds) == 1 and None not in kinds and v not in jaxpr.outvars:
            known[v] = Var(readers[0].outvars[0].aval)
            known.update((e.outvars[0], known[v]) for e in readers)
    if not known:
        return jaxpr
    renamed = lambda atoms: tuple(known.get(v, v) for v in atoms)
    equations = [e.replace(invars=renamed(e.invars)) for e in jaxpr.eqns if not e.outvars or e.outvars[0] not in known]
    return jaxpr.replace(invars=renamed(jaxpr.invars), eqns=equations, outvars=renamed(jaxpr.outvars))
