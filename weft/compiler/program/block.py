"""A block of a program being built: where its values are, and which of them nobody needs any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.compiler.fuse.graph import IN_PLACE_KINDS
from weft.compiler.program.ir import Slot
from weft.ir.jaxpr import Jaxpr, Literal


class Block:
    """The values of one jaxpr (the whole, a loop's body, a branch) while its steps are built.

    A slot that the block owns dies with the last use of the last of its values; the memory of others belongs to blocks
    around, which may need it again. `targets` says where a value must go in the end, `preferred` where it would best go
    if what is there has died by then.
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
        """Say where a value is."""
        self.slots[v] = slot
        self.users.setdefault(slot, []).append(v)

    def dead(self, slot: Slot, position: int, from_now: bool) -> bool:
        """Whether the memory may be overwritten by equation `position`: nobody reads it later; if `from_now`, the
        equation itself does not read it either."""
        if slot not in self.owned:
            return False
        limit = position - 1 if from_now else position
        return all(self.last.get(v, -1) <= limit for v in self.users.get(slot, ()))

    def send(self, targets: Mapping[Any, Slot]) -> None:
        """Say where results go, and values that become one of them in place, so that they need not be copied."""
        self.targets.update(targets)
        updated = {e.outvars[n]: e.invars[m] for e in self.jaxpr.eqns for m, n in self.updates(e)}
        defined = {v for e in self.jaxpr.eqns for v in e.outvars}
        for v, slot in list(targets.items()):
            if v in self.preferred:  # it may take a donated argument instead, and then nothing goes to its target
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
        """Pairs (operand, result) of a fusion that share memory by its nature."""
        if equation.params.get("kind") == "alias":
            return [(0, 0)] if len(equation.invars) == len(equation.outvars) == 1 else []
        if equation.params.get("kind") not in IN_PLACE_KINDS:
            return []
        inner = equation.params["jaxpr"]
        hero = inner.eqns[equation.params["hero"]]
        buffer, result = hero.invars[0], hero.outvars[0]
        if buffer not in inner.invars or result not in inner.outvars:
            return []
        if buffer in hero.invars[1:]:  # what is read elsewhere while it changes is copied first
            return []
        return [(inner.invars.index(buffer), inner.outvars.index(result))]
