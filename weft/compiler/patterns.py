"""Patterns over equations, written in the algebra of the user.

    x * 1                                   a multiplication by the literal 1
    reshape(reshape(x))                     a reshape of a reshape
    transpose(dot(x, y).once)               ... whose operand has no other reader
    (carry.once + update).in_any_order      an addition to a loop's carry, on either side

`operands` and `literal` name what a pattern matches, `operation` builds patterns of operations, `.named` binds the
equation of an operation, `.once` requires a value that is read once, `either` lists alternatives, and `loop` describes
how an iteration of a loop updates its carries. `rewrite.py` makes rules of patterns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.primitive import Primitive

Bound = dict[str, Any]
Uses = Counter[Var]


class Definitions(dict[Any, Equation]):
    """The equation that defines each variable, and the number of readers of each if patterns ask for it."""

    def __init__(self, uses: Uses | None = None):
        super().__init__()
        self.uses: Uses = Counter() if uses is None else uses

    @classmethod
    def of_jaxpr(cls, jaxpr: Jaxpr) -> Definitions:
        """Collect the definitions and uses of a whole jaxpr."""
        definitions = cls(count_uses(jaxpr))
        definitions.update((v, e) for e in jaxpr.eqns for v in e.outvars)
        return definitions


def count_uses(jaxpr: Jaxpr) -> Uses:
    """Count how often each variable is read by equations, or is a result."""
    uses = Counter(a for e in jaxpr.eqns for a in e.invars if type(a) is Var)
    uses.update(a for a in jaxpr.outvars if type(a) is Var)
    return uses


class Pattern:
    """What an operand looks like. Operators and `operation` build patterns as users build expressions."""

    counts_uses = False
    """Whether matching needs the number of readers of values."""

    def __add__(self, other: Any) -> Apply:
        return operation("add")(self, other)

    def __sub__(self, other: Any) -> Apply:
        return operation("sub")(self, other)

    def __mul__(self, other: Any) -> Apply:
        return operation("mul")(self, other)

    def __truediv__(self, other: Any) -> Apply:
        return operation("div")(self, other)

    def __and__(self, other: Any) -> Apply:
        return operation("and")(self, other)

    def __or__(self, other: Any) -> Apply:
        return operation("or")(self, other)

    def __xor__(self, other: Any) -> Apply:
        return operation("xor")(self, other)

    def __lt__(self, other: Any) -> Apply:
        return operation("lt")(self, other)

    def __neg__(self) -> Apply:
        return operation("neg")(self)

    def __invert__(self) -> Apply:
        return operation("not")(self)

    @property
    def once(self) -> Pattern:
        """The same pattern, of a variable that is read exactly once."""
        return ReadOnce(self)

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        """Return whether the operand matches, and enter what the pattern names into `bound`."""
        raise NotImplementedError


class OperandPattern(Pattern):
    """Any operand, under a name; named twice it must be the same value."""

    def __init__(self, name: str):
        self.name = name

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        known = bound.setdefault(self.name, atom)
        return known is atom or same_literal(known, atom)


class AnyLiteral(Pattern):
    """Any literal, under a name."""

    def __init__(self, name: str):
        self.name = name

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        if type(atom) is not Literal:
            return False
        bound[self.name] = atom
        return True


class Exactly(Pattern):
    """A literal with the bits of this number in its dtype: 0 is not -0.0."""

    def __init__(self, value: Any):
        self.value = value
        self.bits: dict[Any, bytes] = {}

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        if type(atom) is not Literal:
            return False
        dtype = atom.val.dtype
        bits = self.bits.get(dtype)
        if bits is None:
            bits = self.bits[dtype] = np.asarray(self.value).astype(dtype).tobytes()
        result: bool = atom.val.tobytes() == bits
        return result


class ReadOnce(Pattern):
    """A variable that one operand of one equation reads, or that is one result, and nothing else."""

    counts_uses = True

    def __init__(self, pattern: Pattern):
        self.pattern = pattern

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        return type(atom) is Var and definitions.uses[atom] == 1 and self.pattern.match(atom, definitions, bound)


class AnyOf(Pattern):
    """The first of several patterns that matches."""

    def __init__(self, patterns: tuple[Pattern, ...]):
        self.patterns = patterns
        self.counts_uses = any(p.counts_uses for p in patterns)

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        for pattern in self.patterns:
            attempt = dict(bound)
            if pattern.match(atom, definitions, attempt):
                bound.update(attempt)
                return True
        return False


class Apply(Pattern):
    """The result of an operation whose operands match (None: any operands); `more` allows others after them, and
    `commutes` the exchange of two. `named` binds its equation."""

    def __init__(
        self,
        head: str | type[Primitive],
        operands: tuple[Pattern, ...] | None,
        name: str | None = None,
        more: bool = False,
        commutes: bool = False,
    ):
        self.head, self.operands, self.name, self.more, self.commutes = head, operands, name, more, commutes
        self.counts_uses = any(p.counts_uses for p in operands or ())

    def named(self, name: str) -> Apply:
        """Bind the equation to a name."""
        return Apply(self.head, self.operands, name, self.more, self.commutes)

    @property
    def in_any_order(self) -> Apply:
        """The same operation on its two operands or on these exchanged."""
        return Apply(self.head, self.operands, self.name, self.more, True)

    def accepts(self, primitive: Primitive) -> bool:
        """Return whether the pattern is one of this operation."""
        return primitive.name == self.head if isinstance(self.head, str) else isinstance(primitive, self.head)

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        equation = definitions.get(atom)
        if equation is None or not self.accepts(equation.primitive):
            return False
        return self.match_equation(equation, definitions, bound)

    def match_equation(self, equation: Equation, definitions: Definitions, bound: Bound) -> bool:
        """Return whether an equation of this operation matches, and enter names into `bound`."""
        patterns = self.operands
        if patterns is not None:
            if self.commutes or self.more:
                if not self.match_operands(equation, definitions, bound):
                    return False
            elif len(equation.invars) != len(patterns):
                return False
            else:
                # The common case, written out: every rule of a pass comes here for every equation that it may fit.
                for pattern, atom in zip(patterns, equation.invars):  # noqa: B905
                    if not pattern.match(atom, definitions, bound):
                        return False
        if self.name is not None:
            bound[self.name] = equation
        return True

    def match_operands(self, equation: Equation, definitions: Definitions, bound: Bound) -> bool:
        """Return whether the operands match, exchanged if the pattern allows it."""
        patterns, atoms = self.operands or (), equation.invars
        if len(atoms) < len(patterns) if self.more else len(atoms) != len(patterns):
            return False
        if not self.commutes:
            return all(p.match(a, definitions, bound) for p, a in zip(patterns, atoms, strict=False))
        for order in (patterns, patterns[::-1]):
            attempt = dict(bound)
            if all(p.match(a, definitions, attempt) for p, a in zip(order, atoms, strict=True)):
                bound.update(attempt)
                return True
        return False


class CarryMatch(NamedTuple):
    """A carry of a loop whose update matches: its index among the results, its argument in the body, its value before
    the first iteration, the equation of the body that computes its next value, and what the pattern bound in the body.
    """

    result: int
    argument: Var
    start: Atom
    equation: Equation
    bound: Bound
    definitions: Definitions
    """Definitions in the body."""


class LoopPattern(Apply):
    """A loop that updates some carries as a pattern says; binds these to `carries`."""

    def __init__(self, heads: tuple[str, ...], update: Pattern):
        super().__init__(heads[0], None)
        self.heads, self.update = heads, update

    def accepts(self, primitive: Primitive) -> bool:
        return primitive.name in self.heads

    def match_equation(self, equation: Equation, definitions: Definitions, bound: Bound) -> bool:
        bound["carries"] = list(self.match_carries(equation))
        return bool(bound["carries"])

    def match_carries(self, equation: Equation) -> Iterator[CarryMatch]:
        """Yield the carries whose next value matches the pattern in the body."""
        mapping = equation.primitive.body_map(equation.params)  # type: ignore[attr-defined]
        inside = [Definitions.of_jaxpr(body) for body in mapping.bodies]
        for index, argument, result in mapping.carries:
            body, defined = mapping.bodies[index], inside[index]
            bound: Bound = {carry.name: body.invars[argument]}
            value = body.outvars[result]
            if value in defined and self.update.match(value, defined, bound):
                start = equation.invars[mapping.arguments[index][argument]]
                yield CarryMatch(result, body.invars[argument], start, defined[value], bound, defined)


def operands(names: str) -> tuple[OperandPattern, ...]:
    """Return patterns of operands with these names, separated by spaces."""
    return tuple(OperandPattern(name) for name in names.split())


def literal(name: str) -> AnyLiteral:
    """Return the pattern of any literal, under a name."""
    return AnyLiteral(name)


def either(*patterns: Pattern) -> AnyOf:
    """Return the pattern of what one of several patterns matches, tried in order."""
    return AnyOf(patterns)


def operation(head: str | type[Primitive]) -> Callable[..., Apply]:
    """Return the function that makes patterns of an operation from those of its operands.

    A class of primitives matches each of its members. Without operands the pattern matches any; a last operand `...`
    stands for all that follow. Numbers stand for literals with the same bits.
    """

    def apply(*args: Any) -> Apply:
        more = bool(args) and isinstance(args[-1], EllipsisType)
        patterns = tuple(a if isinstance(a, Pattern) else Exactly(a) for a in (args[:-1] if more else args))
        return Apply(head, patterns or None, more=more)

    return apply


carry = OperandPattern("carry")
"""In the pattern of a loop: the value of the carry at the start of an iteration."""


def loop(*heads: str, update: Pattern) -> LoopPattern:
    """Return the pattern of loops with a carry whose next value matches `update`, a pattern over the loop's body in
    which `carry` is the value before. A rule gets the list of these carries as `carries`."""
    return LoopPattern(heads, update)


def same_literal(first: Any, second: Any) -> bool:
    """Return whether two operands are literals of one type with the same bits."""
    if type(first) is not Literal or type(second) is not Literal:
        return False
    return first.aval == second.aval and first.val.tobytes() == second.val.tobytes()
