"""Which whole numbers a value of a program can be: checks that cannot fail are left out.

The range of a value follows from how it is made. What `select_n` chooses is looked at under the condition by which it
is chosen, so that `i % n`, `where(i < 0, i + n, i)` and the like have the ranges that one expects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.indexing.ranges import Range
from weft.ir.jaxpr import Atom, Equation, Literal
from weft.ir.types import ArrayType

# How far back the making of a value is followed.
DEEPEST, DEEPEST_CONDITION = 24, 6
# The conditions under which a value is looked at, the nearest ones: each further one may double the work.
MOST_ASSUMPTIONS = 4
# A value that one chooses under a condition: (condition, which way it went).
Assumption = tuple[Atom, bool]

_BOTH, _NO, _YES = Range(0, 1), Range(0, 0), Range(1, 1)
# Operations whose results are among the elements of the first operand.
_CHOICES = frozenset(
    (
        "broadcast_in_dim",
        "copy",
        "cummax",
        "cummin",
        "dynamic_slice",
        "name",
        "optimization_barrier",
        "reduce_max",
        "reduce_min",
        "reshape",
        "rev",
        "slice",
        "squeeze",
        "stop_gradient",
        "tile",
        "transpose",
    )
)
# The comparison that holds where another does not, and the one with its sides changed.
_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def joined(first: Range, second: Range) -> Range:
    """The least range with all members of both."""
    return Range(min(first.lower, second.lower), max(first.upper, second.upper))


def limits_of(aval: Any) -> Range:
    """What a type of whole numbers can hold."""
    if not isinstance(aval, ArrayType):
        return Range.EVERYTHING
    if dtypes.kind(aval.dtype) == "b":
        return _BOTH
    if dtypes.kind(aval.dtype) not in "iu":
        return Range.EVERYTHING
    limits = dtypes.iinfo(aval.dtype)
    return Range(int(limits.min), int(limits.max))


class Bounds:
    """The ranges of a program's values. `defined` has the equation that makes each, `known` the ranges of arguments."""

    def __init__(self, defined: Mapping[Any, Equation], known: Mapping[Any, Range]) -> None:
        self.defined, self.known = defined, known
        self._remembered: dict[tuple[Atom, tuple[Assumption, ...]], Range] = {}

    def of(self, atom: Atom) -> Range:
        """All that the elements of a value can be."""
        return self._range(atom, (), DEEPEST)

    def _range(self, atom: Atom, assumed: tuple[Assumption, ...], depth: int) -> Range:
        if (remembered := self._remembered.get((atom, assumed))) is not None:
            return remembered
        limits = limits_of(atom.aval)
        if limits is Range.EVERYTHING:
            return limits
        found = limits
        if type(atom) is Literal:
            found = Range.constant(int(atom.val))
        elif atom in self.known:
            found = self.known[atom]
        elif depth > 0 and (equation := self.defined.get(atom)) is not None:
            made = self._made(equation, assumed, depth - 1)
            found = made if made.within(limits) else limits  # else it wraps
        for condition, way in assumed:
            found = found.intersect(self._where(condition, way, atom, DEEPEST_CONDITION)) or found
        self._remembered[atom, assumed] = found
        return found

    def _made(self, equation: Equation, assumed: tuple[Assumption, ...], depth: int) -> Range:
        name, params, operands = equation.primitive.name, equation.params, equation.invars

        def of(position: int) -> Range:
            return self._range(operands[position], assumed, depth)

        def anywhere(position: int) -> Range:  # what is assumed of one element need not hold of the others
            return self._range(operands[position], (), depth)

        if name in _CHOICES or (name == "gather" and not _can_fill(params)):
            return anywhere(0)
        match name:
            case "iota":
                size = params["shape"][params["dimension"]]
                return Range(0, max(size - 1, 0)) if type(size) is int else Range.EVERYTHING
            case "argmax" | "argmin":
                shape: Any = operands[0].aval.shape  # type: ignore[attr-defined]
                sizes = [shape[axis] for axis in params["axes"]]
                return Range(0, sizes[0] - 1) if len(sizes) == 1 and type(sizes[0]) is int else Range.EVERYTHING
            case "add":
                return of(0) + of(1)
            case "sub":
                return of(0) - of(1)
            case "mul":
                return of(0) * of(1)
            case "neg":
                return -of(0)
            case "max":
                return of(0).maximum(of(1))
            case "min":
                return of(0).minimum(of(1))
            case "clamp":
                return of(1).maximum(of(0)).minimum(of(2))
            case "rem":
                return _remainder(of(0), of(1))
            case "div":
                return _quotient(of(0), of(1))
            case "sign":
                values = of(0)
                return Range(-1 if values.lower < 0 else 0, 1 if values.upper > 0 else 0)
            case "abs":
                values = of(0)
                least = 0 if 0 in values else min(abs(values.lower), abs(values.upper))
                return Range(least, max(abs(values.lower), abs(values.upper)))
            case "and":
                masks = [mask.upper for mask in (of(0), of(1)) if mask.lower >= 0]
                if masks:
                    return Range(0, min(masks))
            case "convert_element_type":
                return of(0)
            case "concatenate":
                return _all([anywhere(n) for n in range(len(operands))])
            case "select_n":
                if len(operands) == 3 and limits_of(operands[0].aval) is _BOTH:
                    ways = [((operands[0], bool(n)), operands[n + 1]) for n in range(2)]
                    return _all([self._range(a, (*assumed, case)[-MOST_ASSUMPTIONS:], depth) for case, a in ways])
                return _all([of(n) for n in range(1, len(operands))])
            case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
                return _compared(name, of(0), of(1))
        return Range.EVERYTHING

    def _where(self, condition: Atom, way: bool, atom: Atom, depth: int) -> Range:
        """What a value can be where a condition holds, or does not."""
        equation = self.defined.get(condition)
        if equation is None or depth <= 0:
            return Range.EVERYTHING
        name, operands = equation.primitive.name, equation.invars
        if name in ("broadcast_in_dim", "reshape", "squeeze", "transpose"):
            return Range.EVERYTHING  # elements of others
        if name == "not":
            return self._where(operands[0], not way, atom, depth - 1)
        if name in ("and", "or"):
            parts = [self._where(a, way, atom, depth - 1) for a in operands]
            both = way if name == "and" else not way
            return (parts[0].intersect(parts[1]) or parts[0]) if both else joined(*parts)
        if name not in _OPPOSITE:
            return Range.EVERYTHING
        if limits_of(operands[0].aval) is _BOTH:  # two conditions: the same as one of them if the other is known
            for one, other in (operands, operands[::-1]):
                known = self._range(other, (), DEEPEST)
                if known.is_constant and name in ("eq", "ne"):
                    return self._where(one, way == ((name == "eq") == (known == _YES)), atom, depth - 1)
            return Range.EVERYTHING
        for position in (0, 1):
            if operands[position] is atom:
                holds = name if position == 0 else _MIRRORED[name]
                return _side(holds if way else _OPPOSITE[holds], self._range(operands[1 - position], (), DEEPEST))
        return Range.EVERYTHING


def _can_fill(params: Mapping[str, Any]) -> bool:
    """Whether a gather may give numbers that are not in its operand."""
    return getattr(params["mode"], "name", "") == "FILL_OR_DROP"


def _all(ranges: Sequence[Range]) -> Range:
    total = ranges[0]
    for other in ranges[1:]:
        total = joined(total, other)
    return total


def _remainder(value: Range, divisor: Range) -> Range:
    """With the sign of the value."""
    if 0 in divisor or not divisor.is_bounded:
        return Range.EVERYTHING
    most = max(abs(divisor.lower), abs(divisor.upper)) - 1
    return Range(max(-most, value.lower) if value.lower < 0 else 0, min(most, value.upper) if value.upper > 0 else 0)


def _quotient(value: Range, divisor: Range) -> Range:
    """Cut towards 0."""
    if 0 in divisor or not divisor.is_bounded or not value.is_bounded:
        return Range.EVERYTHING
    corners = [_cut(a, b) for a in (value.lower, value.upper) for b in (divisor.lower, divisor.upper)]
    if 0 in value:
        corners.append(0)
    return Range(min(corners), max(corners))


def _cut(value: Any, divisor: Any) -> int:
    quotient = abs(value) // abs(divisor)
    return quotient if (value < 0) == (divisor < 0) else -quotient


def _side(name: str, other: Range) -> Range:
    """What stands left of a comparison that holds, if this stands right of it."""
    match name:
        case "lt":
            return Range(-np.inf, other.upper - 1)
        case "le":
            return Range(-np.inf, other.upper)
        case "gt":
            return Range(other.lower + 1, np.inf)
        case "ge":
            return Range(other.lower, np.inf)
        case "eq":
            return other
    return Range.EVERYTHING


def _compared(name: str, first: Range, second: Range) -> Range:
    match name:
        case "lt" if first.upper < second.lower:
            return _YES
        case "lt" if first.lower >= second.upper:
            return _NO
        case "gt" if first.lower > second.upper:
            return _YES
        case "gt" if first.upper <= second.lower:
            return _NO
        case "le" if first.upper <= second.lower:
            return _YES
        case "le" if first.lower > second.upper:
            return _NO
        case "ge" if first.lower >= second.upper:
            return _YES
        case "ge" if first.upper < second.lower:
            return _NO
        case "eq" | "ne" if first.is_constant and first == second:
            return _YES if name == "eq" else _NO
        case "eq" | "ne" if first.intersect(second) is None:
            return _NO if name == "eq" else _YES
    return _BOTH
