"""Passes over a row: which reduction and which result can be computed in which pass, and what is stored between passes.

A reduction whose operand needs no other reduction is computed in the first pass; one that needs those of the first
pass, in the second; and so on: softmax takes three passes, and the last of them only stores. Values are computed again
in each pass that needs them, except for expensive ones (the exponential of softmax): these are stored in the memory of
a result that is written later, and read from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.compiler.emit.emission import KernelWriter, storage
from weft.compiler.emit.in_place import read_elsewhere
from weft.compiler.emit.values import MultiIndex, expand, get_space, row_major
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.rules.compilation import element_cost

# Values are stored if that saves at least this weight.
EXPENSIVE = 8


class Passes:
    """Passes of a fusion whose reductions `heroes` reduce the space `full`."""

    def __init__(self, jaxpr: Jaxpr, heroes: Sequence[Equation], full: tuple[int, ...]) -> None:
        self.jaxpr, self.heroes, self.full = jaxpr, heroes, full
        self.defined: dict[Any, Equation] = {v: e for e in jaxpr.eqns for v in e.outvars}
        self._hero_ids = {id(e) for e in heroes}
        self.levels: dict[Any, int] = {}
        for equation in jaxpr.eqns:
            level = max((self.level(a) for a in equation.invars), default=0)
            for v in equation.outvars:
                self.levels[v] = level + self._is_hero(equation)
        self.results = [v for v in jaxpr.outvars if self.is_full(v)]
        last = [self.level(e.invars[0]) for e in heroes] + [self.level(v) for v in self.results]
        self.count = 1 + max(last, default=0)
        # For each stored value, the result whose memory holds it and the pass that writes it.
        self.stored_in: dict[Any, tuple[Any, int]] = {}
        self._needed: dict[int, set[Any]] = {}
        self._elsewhere = read_elsewhere(jaxpr, full, heroes)
        if self.count > 1:
            self._choose_stores()

    def level(self, atom: Any) -> int:
        """Return the first pass in which a value can be computed."""
        return self.levels.get(atom, 0)

    def is_full(self, v: Any) -> bool:
        """Return whether a value has an element for each element that is reduced."""
        return get_space(v) == self.full

    def weight(self, pass_index: int) -> float:
        """Return the weight of a pass for one element."""
        computed = [
            self.defined[v]
            for v in self.list_values(pass_index)
            if v in self.defined and not self._is_stored(v, pass_index)
        ]
        return sum(element_cost(e) for e in computed if self.is_full(e.outvars[0])) + sum(
            self.level(e.invars[0]) == pass_index for e in self.heroes
        )

    def list_values(self, pass_index: int) -> set[Any]:
        """Return all values that a pass computes or reads."""
        found = self._needed.get(pass_index)
        if found is None:
            found = self._needed[pass_index] = set()
            stack = [e.invars[0] for e in self.heroes if self.level(e.invars[0]) == pass_index]
            stack += [v for v in self.results if self.level(v) == pass_index]
            while stack:
                v = stack.pop()
                if not isinstance(v, Var) or v in found:
                    continue
                found.add(v)
                equation = self.defined.get(v)
                if equation is not None and not self._is_hero(equation) and not self._is_stored(v, pass_index):
                    stack.extend(equation.invars)
        return found

    # -- stored values ---------------------------------------------------------------------------------------------

    @contextmanager
    def reuse_stored(self, writer: KernelWriter, pass_index: int, index: MultiIndex) -> Iterator[None]:
        """Read values that an earlier pass stored instead of computing them, at an index of the full space."""
        stored = [v for v in self.stored_in if self._is_stored(v, pass_index) and v in self.list_values(pass_index)]
        for v in stored:
            result = self.stored_in[v][0]
            offset = row_major(result.aval.shape, expand(result, index))
            writer.values.overrides[v] = writer.k.load(writer.result(result), offset)
        yield
        for v in stored:
            del writer.values.overrides[v]

    def store(self, writer: KernelWriter, pass_index: int, index: MultiIndex) -> None:
        """Write the full results that are known in a pass, and what is stored for later ones. All values are computed
        before the first is written, so that an argument may share its memory with a result."""
        pairs = [(v, v) for v in self.results if self.level(v) == pass_index]
        pairs += [
            (v, result) for v, (result, first) in self.stored_in.items() if first == pass_index and result is not v
        ]
        values = [(result, writer.values.at(v, expand(v, index))) for v, result in pairs]
        for result, value in values:
            writer.store(result, index, value)

    def _is_stored(self, v: Any, pass_index: int) -> bool:
        return v in self.stored_in and self.stored_in[v][1] < pass_index

    def _is_hero(self, equation: Equation) -> bool:
        return id(equation) in self._hero_ids

    def _choose_stores(self) -> None:
        """Choose expensive values to store, the one that saves most first: its operands may then not be needed
        again."""
        reused: set[Any] = set()
        while True:
            best: tuple[float, Any, Any, int] | None = None
            costs = self._costs()
            for equation in self.jaxpr.eqns:
                v = equation.outvars[0]
                if v in self.stored_in or not self.is_full(v) or self._is_hero(equation):
                    continue
                passes = [n for n in range(self.count) if v in self.list_values(n)]
                saved = costs[v] * (len(passes) - 1)
                if saved < EXPENSIVE or (best is not None and saved <= best[0]) or v in self._elsewhere:
                    continue
                result = self._result_for(v, passes, reused)
                if result is not None:
                    best = saved, v, result, passes[0]
            if best is None:
                return
            _, v, result, first = best
            self.stored_in[v] = (result, first)
            self._needed.clear()
            if result is not v:
                reused.add(result)

    def _result_for(self, v: Any, passes: Sequence[int], reused: set[Any]) -> Any:
        """Return a result whose memory can hold a value between passes: written after the first pass that needs the
        value and not before the last; or the value itself, if it is a result.
        """
        if v in self.results:
            return v
        for result in self.results:
            later = self.level(result) > passes[0] and self.level(result) >= passes[-1]
            if later and result not in reused and storage(result) == storage(v):
                return result
        return None

    def _costs(self) -> dict[Any, float]:
        """Return the weight of recomputing an element of each full value from what is read."""
        costs: dict[Any, float] = {}
        for equation in self.jaxpr.eqns:
            v = equation.outvars[0]
            if v not in self.stored_in and self.is_full(v) and not self._is_hero(equation):
                costs[v] = element_cost(equation) + sum(costs.get(a, 0) for a in {*equation.invars})
        return costs

    # -- memory ----------------------------------------------------------------------------------------------------

    def in_place(self) -> list[tuple[int, int]]:
        """Return pairs (argument, result) that may share memory: the argument is read at the index of the result
        only, and not in passes after the first that writes there."""
        pairs = []
        for i, argument in enumerate(self.jaxpr.invars):
            if not self.is_full(argument) or argument in self._elsewhere:
                continue
            read = max((n for n in range(self.count) if argument in self.list_values(n)), default=0)
            for j, result in enumerate(self.jaxpr.outvars):
                if not self.is_full(result) or storage(result).itemsize != storage(argument).itemsize:
                    continue
                first = min([n for r, n in self.stored_in.values() if r is result] + [self.level(result)])
                if read <= first:
                    pairs.append((i, j))
        return pairs
