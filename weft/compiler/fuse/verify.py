"""Verification of the fused form, between passes and in tests.

1. Every equation is a fusion, a library call, control flow, a callback, a collective or a barrier.
2. The inner jaxpr of a fusion runs over one space, as its kind says, and its hero's operands that must be in memory
   are operands of the fusion.
3. Results, barriers and the order of effects are those of the jaxpr before.
4. The jaxpr is well formed, so nothing is read before it is computed: no cycle.
5. All of that holds in sub-jaxprs too.
"""

from __future__ import annotations

from typing import Any, NoReturn

from weft.base.errors import InternalError
from weft.compiler.fuse.classify import classify, leading
from weft.compiler.fuse.fusion import KINDS, fusion
from weft.compiler.fuse.graph import IN_PLACE_KINDS, REDUCTIONS
from weft.compiler.fuse.instructions import EPILOGUE_KINDS
from weft.compiler.target.target import Target
from weft.ir.fusing import (
    BARRIER,
    CONTROL,
    EXPAND,
    HERO,
    LOOKUP,
    POINTWISE,
    UNFUSED_ROLES,
    Properties,
    Space,
    squeeze_shape,
)
from weft.ir.jaxpr import Equation, Jaxpr, Literal, Var, drop_dead, subjaxprs
from weft.ir.printer import equation_text
from weft.ir.verifier import verify

# Kinds with one hero, after which pointwise work at its own index may follow.
WITH_EPILOGUE = EPILOGUE_KINDS - REDUCTIONS
ALONE = frozenset(("dynamic_update_slice", "scatter", "sort", "argmax", "matrices"))


def verify_equation(equation: Equation, target: Target) -> None:
    """Raise unless an equation is a well-formed fusion, or has a role that is not fused."""
    if equation.primitive is fusion:
        verify_fusion(equation, target)
    elif classify(equation, target).role not in UNFUSED_ROLES:
        fail(f"`{equation.primitive.name}` is in no fusion.", equation)


def verify_fusion_pass(before: Jaxpr, after: Jaxpr, target: Target) -> Jaxpr:
    """Raise `InternalError` unless `after` has the equations of `before` in fusions; return it."""
    verify(after)
    if before.invars != after.invars or not _same_atoms(before.outvars, after.outvars):
        fail("Fusion changed the arguments or the results of the program.")
    unfused = {e.outvars: e for e in after.eqns if e.primitive is not fusion}
    for equation in after.eqns:
        verify_equation(equation, target)
    alive = drop_dead(before, [True] * len(before.outvars))[0]
    effects = [(e.primitive, e.outvars) for e in alive.eqns if e.effects]
    if effects != [(e.primitive, e.outvars) for e in after.eqns if e.effects]:
        fail("Fusion changed the effects of the program or their order.")
    for equation in alive.eqns:
        role = classify(equation, target).role
        if role == BARRIER and equation.outvars not in unfused:
            fail("A barrier went away.", equation)
        if role == CONTROL and equation.primitive is not fusion and not equation.effects:
            inner = subjaxprs(unfused[equation.outvars].params)
            for first, second in zip(subjaxprs(equation.params), inner, strict=True):
                verify_fusion_pass(first, second, target.inside(equation))
    return after


def verify_fusion(equation: Equation, target: Target) -> None:
    """Raise unless the kind, the hero and the spaces of a fusion fit together."""
    kind, position, inner = (equation.params[name] for name in ("kind", "hero", "jaxpr"))
    if kind not in KINDS:
        fail(f"There is no kind of fusion `{kind}`.", equation)
    if kind == "library":  # verified by the target that made it
        return
    properties = [classify(e, target) for e in inner.eqns]
    properties = [f if f.at_index is None or i == position else f.at_index for i, f in enumerate(properties)]
    for e, f in zip(inner.eqns, properties, strict=True):
        if f.role in UNFUSED_ROLES:
            fail(f"`{e.primitive.name}` is in a fusion of kind {kind}.", equation)
    if not inner.outvars:
        fail("A fusion has no results.", equation)
    hero = None
    if position is not None:
        if not 0 <= position < len(inner.eqns):
            fail(f"The hero is equation {position} of {len(inner.eqns)}.", equation)
        hero = properties[position]
    _check_memory_operands(equation, inner, properties)
    if kind in ("loop", "gather", "alias"):
        _check_loop(equation, kind, inner, properties, hero)
        return
    if hero is None:
        fail(f"A fusion of kind {kind} has no hero.", equation)
    if kind in REDUCTIONS:
        _check_reduction(equation, kind, inner, properties, hero)
    elif kind == "slices":
        if not all(classify(e, target).piece for e in _makers(inner)):
            fail("A result of a fusion of slices is no slice.", equation)
    else:
        _check_hero(equation, kind, inner, properties, position)


def _check_memory_operands(equation: Equation, inner: Jaxpr, properties: list[Properties]) -> None:
    available = {*inner.invars, *inner.constvars}
    for e, f in zip(inner.eqns, properties, strict=True):
        for i, atom in enumerate(e.invars):
            in_memory = f.materialized is None or i in f.materialized
            if in_memory and type(atom) is Var and atom not in available:
                fail(f"Operand {i} of `{e.primitive.name}` must be in memory, but is computed in the fusion.", equation)


def _check_loop(
    equation: Equation, kind: str, inner: Jaxpr, properties: list[Properties], hero: Properties | None
) -> None:
    if any(f.role == HERO and f.kind not in ("loop", "alias") for f in properties):
        fail(f"A hero is in a fusion of kind {kind}.", equation)
    if kind == "alias" and not all(f.alias for f in properties):
        fail("An equation of an alias does more than show bytes under another shape.", equation)
    if kind == "gather" and (hero is None or hero.role != LOOKUP):
        fail("The hero of a gather is no gather.", equation)
    if kind != "alias" and len({get_space(v) for v in inner.outvars}) != 1:
        fail(f"The results of a fusion of kind {kind} have different spaces.", equation)


def _check_reduction(
    equation: Equation, kind: str, inner: Jaxpr, properties: list[Properties], hero: Properties
) -> None:
    full, reduced = hero.full, hero.reduced
    assert full is not None and reduced is not None
    if hero.kind != kind and not (kind == "row" and hero.kind == "all"):
        fail(f"The hero reduces as {hero.kind}, the fusion says {kind}.", equation)
    out = tuple(d for i, d in enumerate(full) if i not in reduced)
    for v in inner.outvars:
        if get_space(v) not in (full, out):
            fail(f"A result has space {get_space(v)}, which is neither {full} nor {out}.", equation)
    after: set[Var] = set()  # what depends on a reduction
    for e, f in zip(inner.eqns, properties, strict=True):
        depends = any(type(a) is Var and a in after for a in e.invars)
        if f.role == HERO and ((f.full, f.reduced) != (full, reduced) or f.kind not in REDUCTIONS):
            fail(f"`{e.primitive.name}` does not reduce as the hero does.", equation)
        if depends and not _stays_in_rows(e, f, full, out, kind == "row"):
            fail(f"`{e.primitive.name}` leaves the space of the reduction it depends on.", equation)
        if f.role == HERO or depends:
            after.update(e.outvars)


def _stays_in_rows(e: Equation, f: Properties, full: Space, out: Space, rows: bool) -> bool:
    space = get_space(e.outvars[0])
    if f.role == HERO:
        return rows
    if f.role == POINTWISE or f.trivial:
        return space == out or (rows and space == full)
    if f.role != EXPAND or not rows or space != full:
        return False
    operand: Any = e.invars[0].aval
    return leading(operand, e.outvars[0].aval, e.params["broadcast_dimensions"], out)  # type: ignore[arg-type]


def _check_hero(equation: Equation, kind: str, inner: Jaxpr, properties: list[Properties], position: int) -> None:
    leader = inner.eqns[position]
    if kind in IN_PLACE_KINDS and any(leader.invars[0] in e.invars for e in inner.eqns if e is not leader):
        fail("Another equation reads what the hero writes in place.", equation)
    if properties[position].kind != kind:
        fail(f"The hero leads a {properties[position].kind}, the fusion says {kind}.", equation)
    space = get_space(leader.outvars[0])
    after: set[Any] = set()
    for e, f in zip(inner.eqns, properties, strict=True):
        depends = any(type(a) is Var and a in after for a in e.invars)
        if f.role == HERO and e is not leader:
            if kind != "transpose" or e.primitive is not leader.primitive or e.params != leader.params:
                fail(f"`{e.primitive.name}` is a second hero.", equation)
        if depends and (kind in ALONE or not (f.role == POINTWISE or f.trivial) or get_space(e.outvars[0]) != space):
            fail(f"`{e.primitive.name}` follows the hero but not at its index.", equation)
        if f.role == HERO or depends:
            after.update(e.outvars)
    for v in inner.outvars:
        if kind in ALONE and v not in leader.outvars:
            fail(f"A fusion of kind {kind} has a result besides its hero's.", equation)
        if kind in WITH_EPILOGUE and get_space(v) != space:
            fail("A result does not have the hero's space.", equation)


def _makers(inner: Jaxpr) -> list[Equation]:
    results = {v for v in inner.outvars if type(v) is Var}
    return [e for e in inner.eqns if not results.isdisjoint(e.outvars)]


def get_space(atom: Any) -> Space:
    return squeeze_shape(getattr(atom.aval, "shape", ()))


def _same_atoms(first: Any, second: Any) -> bool:
    return len(first) == len(second) and all(
        a is b or (type(a) is Literal and type(b) is Literal and a.aval == b.aval)
        for a, b in zip(first, second, strict=True)
    )


def fail(what: str, equation: Equation | None = None) -> NoReturn:
    raise InternalError(what, stage="fuse", text=None if equation is None else equation_text(equation))
