"""Range analysis of the integers of a jaxpr: checks that cannot fail are left out.

The range of a result follows from the ranges of its operands by the rule `bounds` of each primitive. Cases of
`select_n` are analysed under the condition that selects them (`bounds_where`), so that `i % n` or
`where(i < 0, i + n, i)` get the ranges that a reader expects.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.indexing.ranges import Range
from weft.ir.flow import dtype_range
from weft.ir.jaxpr import Atom, Equation, Literal
from weft.ir.types import Type

# Length of the chain of definitions that is followed, for values and for conditions.
DEEPEST, DEEPEST_CONDITION = 24, 6
# Limit of the conditions assumed at once, the innermost ones: each further one may double the work.
MOST_ASSUMPTIONS = 4
# A condition, and whether it holds.
Assumption = tuple[Atom, bool]


class Bounds:
    """Ranges of a jaxpr's values. `defined` has the equation of each value, `known` the ranges of arguments."""

    def __init__(self, defined: Mapping[Atom, Equation], known: Mapping[Atom, Range]) -> None:
        self.defined, self.known = defined, known
        self._remembered: dict[tuple[Atom, tuple[Assumption, ...]], Range] = {}

    def of(self, atom: Atom) -> Range:
        """Return a range that contains every element of a value."""
        return self.where(atom, (), DEEPEST)

    def where(self, atom: Atom, assumed: tuple[Assumption, ...], depth: int) -> Range:
        """Return the range of an element under assumptions about the elements at the same index."""
        if (remembered := self._remembered.get((atom, assumed))) is not None:
            return remembered
        limits = dtype_range(atom.aval)
        if limits is Range.EVERYTHING:
            return limits
        found = limits
        if type(atom) is Literal:
            found = Range.constant(int(atom.val))
        elif atom in self.known:
            found = self.known[atom]
        elif depth > 0 and (equation := self.defined.get(atom)) is not None:
            possible = equation.primitive.bounds(_Operands(self, equation, atom, assumed, depth - 1), **equation.params)
            found = possible if possible.within(limits) else limits  # else it wraps
        for condition, holds in assumed:
            found = found.intersect(self.range_under(condition, holds, atom, DEEPEST_CONDITION)) or found
        self._remembered[atom, assumed] = found
        return found

    def range_under(self, condition: Atom, holds: bool, atom: Atom, depth: int) -> Range:
        """Return the range that a condition implies for a value where it holds, or where it does not."""
        equation = self.defined.get(condition)
        if equation is None or depth <= 0:
            return Range.EVERYTHING
        return equation.primitive.bounds_where(holds, _Condition(self, equation, atom, depth - 1))


class _Operands:
    """Ranges of an equation's operands, for the rule `bounds` of a primitive; see `OperandRanges`."""

    def __init__(
        self, bounds: Bounds, equation: Equation, atom: Atom, assumed: tuple[Assumption, ...], depth: int
    ) -> None:
        self._bounds, self._atoms = bounds, equation.invars
        self._assumed, self._depth = assumed, depth
        self.types: list[Type] = [a.aval for a in equation.invars]
        self.result = equation.outvars.index(atom)

    def __call__(self, operand: int) -> Range:
        return self._bounds.where(self._atoms[operand], self._assumed, self._depth)

    def anywhere(self, operand: int) -> Range:
        # An assumption about one element need not hold for the others.
        return self._bounds.where(self._atoms[operand], (), self._depth)

    def where(self, operand: int, condition: int, holds: bool) -> Range:
        assumed = (*self._assumed, (self._atoms[condition], holds))[-MOST_ASSUMPTIONS:]
        return self._bounds.where(self._atoms[operand], assumed, self._depth)


class _Condition:
    """Operands of a condition, for the rule `bounds_where` of a primitive; see `Condition`."""

    def __init__(self, bounds: Bounds, equation: Equation, atom: Atom, depth: int) -> None:
        self._bounds, self._atoms, self._atom, self._depth = bounds, equation.invars, atom, depth
        self.types: list[Type] = [a.aval for a in equation.invars]

    def is_value(self, operand: int) -> bool:
        return self._atoms[operand] is self._atom

    def where(self, operand: int, holds: bool) -> Range:
        return self._bounds.range_under(self._atoms[operand], holds, self._atom, self._depth)

    def anywhere(self, operand: int) -> Range:
        return self._bounds.of(self._atoms[operand])
