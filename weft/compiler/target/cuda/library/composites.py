"""Groups of equations that become one library call: matching helpers, and regrouping of a jaxpr."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from weft.base.dataclass import dataclass
from weft.compiler.fuse.cost import FusionReason
from weft.compiler.fuse.fusion import fusion
from weft.compiler.patterns import Definitions
from weft.compiler.target.library_call import LibraryCall
from weft.ir.jaxpr import Equation, Jaxpr, Literal, Var
from weft.ir.primitive import lookup

_FUSION: Any = fusion


class LibraryComposite(ABC):
    """Computation of one call: the `routine` of a fusion of kind "library". Equal composites are equal calls. `slow`
    ones are prepared while kernels are compiled."""

    slow: ClassVar[bool] = False

    @abstractmethod
    def plan(self, equation: Equation) -> LibraryCall:
        """Return the call of a fusion."""


@dataclass(frozen=True)
class EquationGroup:
    """Equations, in order, that one call computes, with its operands and results; `hero` is the leading one."""

    equations: tuple[Equation, ...]
    operands: tuple[Var, ...]
    results: tuple[Var, ...]
    hero: Equation
    routine: LibraryComposite

    def fusion(self) -> Equation:
        """Return the group as one fusion equation."""
        last = self.equations[-1]
        reasons = (FusionReason("library", self.hero.primitive.name, str(self.routine), True),)
        params = {
            "jaxpr": Jaxpr((), self.operands, self.results, self.equations),
            "kind": "library",
            "hero": self.equations.index(self.hero),
            "reasons": reasons,
            "routine": self.routine,
        }
        return Equation(self.operands, self.results, _FUSION, params, source=last.source, stack=last.stack)


class JaxprReader:
    """Use-def index of a jaxpr: the definition of each value, and its readers."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.definitions = Definitions()
        self.definitions.update((v, e) for e in jaxpr.eqns for v in e.outvars)
        self.uses: Counter[Any] = Counter(a for e in jaxpr.eqns for a in e.invars if type(a) is Var)
        self.results = {a for a in jaxpr.outvars if type(a) is Var}
        self.uses.update(self.results)
        self._positions = {id(e): n for n, e in enumerate(jaxpr.eqns)}
        self.readers: dict[Any, list[Equation]] = {}
        for equation in jaxpr.eqns:
            for atom in dict.fromkeys(a for a in equation.invars if type(a) is Var):
                self.readers.setdefault(atom, []).append(equation)

    def position(self, equation: Equation) -> int:
        """Return the position of an equation."""
        return self._positions[id(equation)]

    def definition(self, atom: Any, name: str) -> Equation | None:
        """Return the equation that computes a value, if it is this operation and has no effects."""
        found = None if type(atom) is Literal else self.definitions.get(atom)
        return found if found is not None and is_operation(found, name) and not found.effects else None

    def only_reader(self, v: Any, name: str = "") -> Equation | None:
        """Return the only reader of a value, if there is exactly one and it is this operation."""
        if v in self.results or len(self.readers.get(v, ())) != 1:
            return None
        (reader,) = self.readers[v]
        return reader if not name or is_operation(reader, name) else None

    def is_read_outside(self, v: Any, inside: Sequence[Equation]) -> bool:
        """Return whether equations other than these read a value."""
        return v in self.results or any(all(e is not i for i in inside) for e in self.readers.get(v, ()))


def is_operation(equation: Equation, name: str) -> bool:
    """Return whether an equation applies this built-in primitive."""
    return equation.primitive is lookup(name)


def is_literal(atom: Any, value: float) -> bool:
    """Return whether an operand is this number, in its dtype."""
    if type(atom) is not Literal:
        return False
    array = atom.val
    return bool(array == array.dtype.type(value))


class EquationOrder:
    """Topological order of equations; `makers` maps each value to its definition."""

    def __init__(self, makers: Mapping[Any, Equation]) -> None:
        self.equations: list[Equation] = []
        self._makers = makers
        self._state: dict[int, bool] = {}  # True: placed; False: waiting for its operands

    def put(self, equation: Equation) -> bool:
        """Append an equation after its dependencies; return False if they are cyclic."""
        stack = [equation]
        while stack:
            top = stack[-1]
            if self._state.get(id(top)):
                stack.pop()
                continue
            waiting = [self._makers[a] for a in top.invars if type(a) is Var and a in self._makers]
            waiting = [e for e in waiting if not self._state.get(id(e))]
            if not waiting:
                self._state[id(top)] = True
                self.equations.append(top)
                stack.pop()
            elif id(top) in self._state:  # for the second time
                return False
            else:
                self._state[id(top)] = False
                stack += waiting
        return True


def regroup(jaxpr: Jaxpr, groups: Sequence[EquationGroup]) -> Jaxpr:
    """Replace the equations of groups by fusions. Values of a group that other equations read are results of it or
    recomputed. Groups that would create a cycle are dropped; so are all if effects would be reordered."""
    if not groups:
        return jaxpr
    fusions = [g.fusion() for g in groups]
    makers: dict[Any, Equation] = {v: e for e in jaxpr.eqns for v in e.outvars}
    makers |= {v: f for f in fusions for v in f.outvars}
    # A group stands at the position of its last equation, or before its first reader.
    positions = {id(e): n for n, e in enumerate(jaxpr.eqns)}
    of_last: dict[int, list[Equation]] = {}
    for group, fused in zip(groups, fusions, strict=True):
        last = max((e for e in group.equations if id(e) in positions), key=lambda e: positions[id(e)])
        of_last.setdefault(id(last), []).append(fused)
    alive = _alive(jaxpr, makers)
    order = EquationOrder(makers)
    for equation in jaxpr.eqns:
        for fused in of_last.get(id(equation), ()):
            if id(fused) in alive and not order.put(fused):
                return regroup(jaxpr, [g for g, f in zip(groups, fusions, strict=True) if f is not fused])
        if id(equation) in alive and not order.put(equation):
            return regroup(jaxpr, groups[:-1])
    if [e for e in order.equations if e.effects] != [e for e in jaxpr.eqns if e.effects]:
        return jaxpr
    return jaxpr.replace(eqns=order.equations)


def _alive(jaxpr: Jaxpr, makers: dict[Any, Equation]) -> set[int]:
    """Return the identities of equations that results and effects depend on."""
    found: set[int] = set()
    todo = [makers[a] for a in jaxpr.outvars if type(a) is Var and a in makers]
    todo += [e for e in jaxpr.eqns if e.effects]
    while todo:
        equation = todo.pop()
        if id(equation) not in found:
            found.add(id(equation))
            todo += [makers[a] for a in equation.invars if type(a) is Var and a in makers]
    return found
