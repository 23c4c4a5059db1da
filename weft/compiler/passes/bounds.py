"""Which integers a value of a jaxpr can be: checks that cannot fail are left out.

The range of a value follows from how it is computed: cards say so (`bounds`). What `select_n` chooses is looked at
under the condition by which it is chosen (`bounds_where`), so that `i % n`, `where(i < 0, i + n, i)` and the like have
the ranges that one expects.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.indexing.ranges import Range
from weft.ir.flow import dtype_range
from weft.ir.jaxpr import Atom, Equation, Literal
from weft.ir.types import Type

# How many equations back the operands of a value are followed.
DEEPEST, DEEPEST_CONDITION = 24, 6
# The conditions under which a value is looked at, the nearest ones: each further one may double the work.
MOST_ASSUMPTIONS = 4
# A value that one chooses under a condition: (condition, whether it holds).
Assumption = tuple[Atom, bool]


class Bounds:
    """The ranges of a jaxpr's values. `defined` has the equation of each, `known` the ranges of arguments."""

    def __init__(self, defined: Mapping[Atom, Equation], known: Mapping[Atom, Range]) -> None:
        self.defined, self.known = defined, known
        self._remembered: dict[tuple[Atom, tuple[Assumption, ...]], Range] = {}

    def of(self, atom: Atom) -> Range:
        """All that the elements of a value can be."""
        return self.where(atom, (), DEEPEST)

    def where(self, atom: Atom, assumed: tuple[Assumption, ...], depth: int) -> Range:
        """What an element of a value can be under assumptions about the elements at its index."""
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
            found = found.intersect(self.implied(condition, holds, atom, DEEPEST_CONDITION)) or found
        self._remembered[atom, assumed] = found
        return found

    def implied(self, condition: Atom, holds: bool, atom: Atom, depth: int) -> Range:
        """What a value can be where a condition holds, or does not."""
        equation = self.defined.get(condition)
        if equation is None or depth <= 0:
            return Range.EVERYTHING
        return equation.primitive.bounds_where(holds, _Condition(self, equation, atom, depth - 1))


class _Operands:
    """What a card asks about the operands of an equation; see `OperandRanges`."""

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
        # What is assumed of one element need not hold of the others.
        return self._bounds.where(self._atoms[operand], (), self._depth)

    def where(self, operand: int, condition: int, holds: bool) -> Range:
        assumed = (*self._assumed, (self._atoms[condition], holds))[-MOST_ASSUMPTIONS:]
        return self._bounds.where(self._atoms[operand], assumed, self._depth)


class _Condition:
    """What a card asks about a condition; see `Condition`."""

    def __init__(self, bounds: Bounds, equation: Equation, atom: Atom, depth: int) -> None:
        self._bounds, self._atoms, self._atom, self._depth = bounds, equation.invars, atom, depth
        self.types: list[Type] = [a.aval for a in equation.invars]

    def is_value(self, operand: int) -> bool:
        return self._atoms[operand] is self._atom

    def where(self, operand: int, holds: bool) -> Range:
        return self._bounds.implied(self._atoms[operand], holds, self._atom, self._depth)

    def anywhere(self, operand: int) -> Range:
        return self._bounds.of(self._atoms[operand])
