"""Groups of equations that become one call: how a jaxpr is searched for them, and how it is regrouped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.compiler.fuse.cost import Reason
from weft.compiler.fuse.fusion import fusion
from weft.compiler.target.library_call import LibraryCall
from weft.ir.jaxpr import Equation, Jaxpr, Literal, Var, drop_dead
from weft.ir.primitive import lookup

_FUSION: Any = fusion


class Composite:
    """What one call computes: the `routine` of a fusion of the kind "library". Equal ones are equal calls."""

    def plan(self, equation: Equation) -> LibraryCall:
        """The call of a fusion."""
        raise NotImplementedError


@dataclass(frozen=True)
class Group:
    """Equations, in order, that are one call with these operands and results; `hero` is the leading one."""

    equations: tuple[Equation, ...]
    operands: tuple[Var, ...]
    results: tuple[Var, ...]
    hero: Equation
    routine: Composite

    def fusion(self) -> Equation:
        """The group as one equation."""
        last = self.equations[-1]
        reasons = (Reason("library", self.hero.primitive.name, str(self.routine), True),)
        params = {
            "jaxpr": Jaxpr((), self.operands, self.results, self.equations),
            "kind": "library",
            "hero": self.equations.index(self.hero),
            "reasons": reasons,
            "routine": self.routine,
        }
        return Equation(self.operands, self.results, _FUSION, params, source=last.source, stack=last.stack)


class Reader:
    """A jaxpr as patterns read it: which equation computes a value, and which read it."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.definitions: dict[Any, Equation] = {v: e for e in jaxpr.eqns for v in e.outvars}
        self.uses: Counter[Any] = Counter(a for e in jaxpr.eqns for a in e.invars if type(a) is Var)
        self.results = {a for a in jaxpr.outvars if type(a) is Var}
        self.uses.update(self.results)
        self.readers: dict[Any, list[Equation]] = {}
        for equation in jaxpr.eqns:
            for atom in dict.fromkeys(a for a in equation.invars if type(a) is Var):
                self.readers.setdefault(atom, []).append(equation)

    def computed_by(self, atom: Any, name: str) -> Equation | None:
        """The equation that computes a value, if it is this operation and has no effects."""
        found = None if type(atom) is Literal else self.definitions.get(atom)
        return found if found is not None and is_operation(found, name) and not found.effects else None

    def only_reader(self, v: Any, name: str = "") -> Equation | None:
        """The one equation that reads a value, if there is one and it is this operation."""
        if v in self.results or len(self.readers.get(v, ())) != 1:
            return None
        (reader,) = self.readers[v]
        return reader if not name or is_operation(reader, name) else None

    def needed_outside(self, v: Any, inside: Sequence[Equation]) -> bool:
        """Whether others than these equations read a value."""
        return v in self.results or any(all(e is not i for i in inside) for e in self.readers.get(v, ()))


def is_operation(equation: Equation, name: str) -> bool:
    """Whether an equation is of this primitive of Weft's."""
    return equation.primitive is lookup(name)


def is_literal(atom: Any, value: float) -> bool:
    """Whether an operand is this number, in its dtype."""
    if type(atom) is not Literal:
        return False
    array = atom.val
    return bool(array == array.dtype.type(value))


def regrouped(jaxpr: Jaxpr, groups: Sequence[Group]) -> Jaxpr:
    """The jaxpr with groups in place of their equations. Groups that would have to wait for themselves are left out,
    and so are all if effects would change their order."""
    if not groups:
        return jaxpr
    of_group = {id(e): g for g in groups for e in g.equations}
    fusions = {id(g): g.fusion() for g in groups}
    makers: dict[Any, Equation] = {v: e for e in jaxpr.eqns for v in e.outvars}
    makers |= {v: fusions[id(g)] for g in groups for v in g.results}
    ordered: list[Equation] = []
    state: dict[int, bool] = {}  # whether an equation is in its place, or waits for its operands

    def put(equation: Equation) -> bool:
        stack = [equation]
        while stack:
            top = stack[-1]
            if state.get(id(top)):
                stack.pop()
                continue
            waiting = [makers[a] for a in top.invars if type(a) is Var and a in makers]
            waiting = [e for e in waiting if not state.get(id(e))]
            if not waiting:
                state[id(top)] = True
                ordered.append(top)
                stack.pop()
            elif id(top) in state:  # for the second time
                return False
            else:
                state[id(top)] = False
                stack += waiting
        return True

    for equation in jaxpr.eqns:
        group = of_group.get(id(equation))
        if group is not None and not put(fusions[id(group)]):
            return regrouped(jaxpr, [g for g in groups if g is not group])
        # What others read of a group is a result of it, or computed again; what nobody reads is dropped below.
        if group is None or not any(v in group.results for v in equation.outvars):
            put(equation)
    if [e for e in ordered if e.effects] != [e for e in jaxpr.eqns if e.effects]:
        return jaxpr
    return drop_dead(jaxpr.replace(eqns=ordered), [True] * len(jaxpr.outvars))[0]
