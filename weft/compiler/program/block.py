"""A block of a program being built: the slots of its values, and which of those slots are dead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.compiler.fuse.graph import IN_PLACE_KINDS
from weft.compiler.program.ir import Slot
from weft.ir.jaxpr import Jaxpr, Literal


class JaxprValues:
    """The values of one jaxpr (the whole, a loop's body, a branch) while its steps are built.

    A slot in `owned` dies with the last use of the last of its values; other memory belongs to enclosing blocks, which
    may need it again. `targets` maps values to slots where they must end up, `preferred` to slots that they should take
    if these are dead by then.
    """

    def __init__(self, jaxpr: Jaxpr, owned: Iterable[Slot] = ()) -> None:
        self.jaxpr = jaxpr
        self.slots: dict[Any, Slot] = {}
        self.owned: set[Slot] = set(owned)
        self.users: dict[Slot, list[Any]] = {}
        self.targets: dict[Any, Slot] = {}
        self.preferred: dict[Any, Slot] = {}
        self.last: dict[Any, int] = {}
        for i, equation in enumerate(jaxpr.eqns):
            for atom in equation.invars:
                if type(atom) is not Literal:
                    self.last[atom] = i
        for atom in jaxpr.outvars:
            self.last[atom] = len(jaxpr.eqns)

    def put(self, v: Any, slot: Slot) -> None:
        """Record the slot of a value."""
        self.slots[v] = slot
        self.users.setdefault(slot, []).append(v)

    def dead(self, slot: Slot, position: int, from_now: bool) -> bool:
        """Return whether equation `position` may overwrite a slot because no later equation reads it.

        With `from_now`, the equation itself must not read it either.
        """
        if slot not in self.owned:
            return False
        limit = position - 1 if from_now else position
        return all(self.last.get(v, -1) <= limit for v in self.users.get(slot, ()))

    def send(self, targets: Mapping[Any, Slot]) -> None:
        """Set the targets of results, and of values that are updated in place to become one of them, so that no copy is
        needed.
        """
        self.targets.update(targets)
        updated = {e.outvars[n]: e.invars[m] for e in self.jaxpr.eqns for m, n in self.updates(e)}
        defined = {v for e in self.jaxpr.eqns for v in e.outvars}
        for v, slot in list(targets.items()):
            if v in self.preferred:  # it may take a donated argument instead, and then its target stays unused
                continue
            source = updated.get(v)
            while source is not None and source in defined and source not in self.targets:
                if self.last[source] >= len(self.jaxpr.eqns) or self._reads(source) != 1:
                    break
                self.targets[source] = slot
                source = updated.get(source)

    def _reads(self, v: Any) -> int:
        return sum(atom is v for e in self.jaxpr.eqns for atom in e.invars)

    @staticmethod
    def updates(equation: Any) -> list[tuple[int, int]]:
        """Return pairs (operand, result) of a fusion that always share memory."""
        if equation.params.get("kind") == "alias":
            return [(0, 0)] if len(equation.invars) == len(equation.outvars) == 1 else []
        if equation.params.get("kind") not in IN_PLACE_KINDS:
            return []
        inner = equation.params["jaxpr"]
        hero = inner.eqns[equation.params["hero"]]
        buffer, result = hero.invars[0], hero.outvars[0]
        if buffer not in inner.invars or result not in inner.outvars:
            return []
        if buffer in hero.invars[1:]:  # a buffer that is also read elsewhere during the update is copied first
            return []
        return [(inner.invars.index(buffer), inner.outvars.index(result))]
