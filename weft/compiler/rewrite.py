"""Rewriting by named rules: patterns over equations, and the one driver that applies them.

A rule is a pattern in the algebra of the user and a function that says what to put in its place:

    @rule(x * 1)
    def multiply_by_one(m, x):
        return x if m.kind in "iuf" else None       # None: the rule does not apply

    @rule(reshape(reshape(x)))
    def merge_reshapes(m, x):
        return m.make("reshape", x, **m.params)

The function gets what its argument names ask for: operands and inner equations by the names in the pattern, and `m`,
the match, which knows the equation and makes new ones. Rules look at operands, never at users, so that one pass over
the equations in order reaches the fixpoint: an equation is seen when all that it reads is final.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.base.settings import config
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.primitive import NO_EFFECTS, Params, Primitive, lookup
from weft.ir.printer import equation_text, to_text
from weft.ir.types import array_type

Definitions = dict[Any, Equation]
Bound = dict[str, Any]

# ------------------------------------------------------------------------------------------------------------ patterns


class Pattern:
    """What an operand looks like. Operators and `operation` build patterns as users build expressions."""

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

    def __neg__(self) -> Apply:
        return operation("neg")(self)

    def __invert__(self) -> Apply:
        return operation("not")(self)

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        """Whether the operand fits; what the pattern names is entered into `bound`."""
        raise NotImplementedError


class Operand(Pattern):
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
        return atom.val.tobytes() == bits


class Apply(Pattern):
    """The result of an operation on operands that fit; `named` binds its equation."""

    def __init__(self, head: str | type[Primitive], operands: tuple[Pattern, ...] | None, name: str | None = None):
        self.head, self.operands, self.name = head, operands, name

    def named(self, name: str) -> Apply:
        return Apply(self.head, self.operands, name)

    def accepts(self, card: Primitive) -> bool:
        return card.name == self.head if isinstance(self.head, str) else isinstance(card, self.head)

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        equation = definitions.get(atom)
        if equation is None or not self.accepts(equation.primitive):
            return False
        return self.match_equation(equation, definitions, bound)

    def match_equation(self, equation: Equation, definitions: Definitions, bound: Bound) -> bool:
        if self.operands is not None:
            if len(equation.invars) != len(self.operands):
                return False
            for pattern, atom in zip(self.operands, equation.invars, strict=True):
                if not pattern.match(atom, definitions, bound):
                    return False
        if self.name is not None:
            bound[self.name] = equation
        return True


def operands(names: str) -> tuple[Operand, ...]:
    """Names for operands, separated by spaces."""
    return tuple(Operand(name) for name in names.split())


def literal(name: str) -> AnyLiteral:
    return AnyLiteral(name)


def operation(head: str | type[Primitive]) -> Callable[..., Apply]:
    """The operation of that name in patterns. A family matches any of its members; without operands, on any."""

    def apply(*args: Any) -> Apply:
        patterns = tuple(a if isinstance(a, Pattern) else Exactly(a) for a in args)
        return Apply(head, patterns or None)

    return apply


def same_literal(first: Any, second: Any) -> bool:
    """Whether two operands are literals of one type with the same bits."""
    if type(first) is not Literal or type(second) is not Literal:
        return False
    return first.aval == second.aval and first.val.tobytes() == second.val.tobytes()


# --------------------------------------------------------------------------------------------------------------- rules


class Match:
    """An equation that a pattern fits, and the new equations that replace it."""

    __slots__ = ("definitions", "equation", "new_equations")

    def __init__(self, equation: Equation, definitions: Definitions):
        self.equation = equation
        self.definitions = definitions
        self.new_equations: list[Equation] = []

    @property
    def params(self) -> Params:
        return self.equation.params

    @property
    def type(self) -> Any:
        """The type of the (first) result."""
        return self.equation.outvars[0].aval

    @property
    def shape(self) -> Any:
        return self.type.shape

    @property
    def kind(self) -> str:
        """The kind of the result's dtype: b i u f c, or k for keys."""
        return dtypes.kind(self.type.dtype)

    def make(self, name: str, *args: Atom, **params: Any) -> Var:
        """The result of a new equation, which takes over line and names from the one that is replaced."""
        equation = new_equation(lookup(name), args, params, self.equation)
        self.new_equations.append(equation)
        return equation.outvars[0]

    def literal(self, value: Any, dtype: Any = None) -> Literal:
        """A scalar of the result's dtype, or of another one."""
        return make_literal(value, self.type.dtype if dtype is None else dtype)

    def full(self, value: Any) -> Atom:
        """The result's type filled with one value."""
        return self.broadcast(self.literal(value), self.shape)

    def broadcast(self, scalar: Atom, shape: Any) -> Atom:
        """A scalar broadcast to a shape."""
        return scalar if not shape else self.make("broadcast_in_dim", scalar, shape=shape, broadcast_dimensions=())

    def reshape(self, x: Atom, shape: Sequence[Any]) -> Atom:
        """The operand in another shape; no equation is added if it has it already."""
        shape = tuple(shape)
        return x if x.aval.shape == shape else self.make("reshape", x, new_sizes=shape, dimensions=None)  # type: ignore[attr-defined]


class Rule:
    """A named pattern and what replaces it."""

    def __init__(self, pattern: Apply, build: Callable[..., Any]):
        self.pattern, self.build = pattern, build
        self.name = build.__name__
        self.__doc__ = build.__doc__
        self.wanted = tuple(inspect.signature(build).parameters)[1:]

    def __repr__(self) -> str:
        return f"<rule {self.name}>"


def rule(pattern: Apply) -> Callable[[Callable[..., Any]], Rule]:
    """Make a rule of a function `(m, ...) -> operand`, or a list of them for several results, or None."""
    return lambda build: Rule(pattern, build)


class Rules:
    """Rules by the primitive they begin with; tried in order."""

    def __init__(self, *rules: Rule | Rules):
        self.rules: tuple[Rule, ...] = tuple(
            r for member in rules for r in (member.rules if isinstance(member, Rules) else (member,))
        )
        names = [r.name for r in self.rules]
        assert len(set(names)) == len(names), f"two rules have one name: {names}"
        self.by_primitive: dict[Primitive, tuple[Rule, ...]] = {}

    def of(self, card: Primitive) -> tuple[Rule, ...]:
        found = self.by_primitive.get(card)
        if found is None:
            found = () if card.fence else tuple(r for r in self.rules if r.pattern.accepts(card))
            self.by_primitive[card] = found
        return found

    def __iter__(self) -> Any:
        return iter(self.rules)


# ---------------------------------------------------------------------------------------------------------- the driver


def rewrite(jaxpr: Jaxpr, rules: Rules, *, fired: Counter[str] | None = None, budget: int | None = None) -> Jaxpr:
    """Apply `rules` until none fires; the same object comes back if none did. Sub-jaxprs are not entered.

    Equations with effects and barriers stay as they are, and patterns do not see through them. `fired` counts the rules
    by name. More than `budget` firings are a bug of the rules, as is a rule that changes a type.
    """
    limit = 1000 + 20 * len(jaxpr.eqns) if budget is None else budget
    definitions: Definitions = {}
    renamed: dict[Any, Atom] = {}
    final: list[Equation] = []
    for original in jaxpr.eqns:
        todo = [original]
        while todo:
            equation = todo.pop()
            if renamed:
                equation = with_renamed(equation, renamed)
            card = equation.primitive
            candidates = rules.by_primitive.get(card)
            if candidates is None:
                candidates = rules.of(card)
            if candidates and not equation.effects:
                match = first_match(equation, candidates, definitions)
                if match is not None:
                    matched, which, results = match
                    limit -= 1
                    if limit < 0:
                        raise InternalError(
                            f"Rewriting does not end; the last rule that fired is {which.name}.",
                            stage="rewrite",
                            text=to_text(jaxpr),
                        )
                    if fired is not None:
                        fired[which.name] += 1
                    for var, atom in zip(equation.outvars, results, strict=True):
                        check_type(which, equation, var, atom)
                        renamed[var] = atom
                    todo.extend(reversed(matched.new_equations))
                    continue
            final.append(equation)
            for var in equation.outvars:
                definitions[var] = equation
    if not renamed:
        return jaxpr
    outvars = [resolved(a, renamed) for a in jaxpr.outvars]
    return Jaxpr(jaxpr.constvars, jaxpr.invars, outvars, final, jaxpr.consts, jaxpr.name)


def first_match(equation: Equation, candidates: Iterable[Rule], definitions: Definitions) -> Any:
    """The first rule that applies, as (match, rule, results), or None."""
    for candidate in candidates:
        bound: Bound = {}
        if not candidate.pattern.match_equation(equation, definitions, bound):
            continue
        match = Match(equation, definitions)
        results = candidate.build(match, *[bound[name] for name in candidate.wanted])
        if results is not None:
            return match, candidate, results if isinstance(results, list) else [results]
    return None


def check_type(which: Rule, equation: Equation, var: Var, atom: Atom) -> None:
    if atom.aval is not var.aval and not atom.aval.matches(var.aval):
        raise InternalError(
            f"The rule {which.name} changes a type: {var.aval.short()} became {atom.aval.short()}.",
            stage="rewrite",
            text=equation_text(equation),
        )


def resolved(atom: Atom, renamed: dict[Any, Atom]) -> Atom:
    """What an operand is by now: what replaced it may have been replaced in turn."""
    while (found := renamed.get(atom)) is not None:
        atom = found
    return atom


def with_renamed(equation: Equation, renamed: dict[Any, Atom]) -> Equation:
    for atom in equation.invars:
        if atom in renamed:
            return with_operands(equation, [resolved(a, renamed) for a in equation.invars])
    return equation


# ------------------------------------------------------------------------------------------------- parts of every pass


def with_operands(equation: Equation, operands: Sequence[Atom]) -> Equation:
    """The same equation on other operands of the same types."""
    return Equation(
        operands,
        equation.outvars,
        equation.primitive,
        equation.params,
        equation.effects,
        equation.source,
        equation.stack,
    )


def new_equation(card: Primitive, args: Sequence[Atom], params: Params, like: Equation) -> Equation:
    """An equation without effects that replaces another one."""
    types = card.type(*[a.aval for a in args], **params)
    variables = [Var(t) for t in types] if card.multiple_results else [Var(types)]
    return Equation(args, variables, card, params, NO_EFFECTS, like.source, like.stack)


def make_literal(value: Any, dtype: Any) -> Literal:
    """A scalar literal."""
    array = np.asarray(value).astype(dtype)
    array.flags.writeable = False
    return Literal(array, array_type((), dtype))


def everywhere(function: Callable[..., Jaxpr]) -> Callable[..., Jaxpr]:
    """A pass over a jaxpr and over its sub-jaxprs (bodies of loops, branches of conditions), innermost first.

    The result for a sub-jaxpr is cached on it, because equal calls and loops share their bodies. A pass that depends on
    the machine takes its `Target` too.
    """

    def apply(jaxpr: Jaxpr, *target: Target) -> Jaxpr:
        def inside(equation: Equation, inner: Jaxpr) -> Jaxpr:
            within = [machine.inside(equation) for machine in target]
            return inner.memoize((function, config.key(), *within), lambda: apply(inner, *within))

        return function(map_subjaxprs(jaxpr, inside), *target)

    apply.__name__, apply.__doc__, apply.__module__ = function.__name__, function.__doc__, function.__module__
    return apply


def map_subjaxprs(jaxpr: Jaxpr, change: Callable[[Equation, Jaxpr], Jaxpr]) -> Jaxpr:
    """The jaxpr with its sub-jaxprs replaced, by what a function of the equation and of each of them returns;
    the same object if all of them stay."""
    changed: dict[int, Equation] = {}
    for i, equation in enumerate(jaxpr.eqns):
        for value in equation.params.values():
            if type(value) is Jaxpr or (type(value) is tuple and any(type(v) is Jaxpr for v in value)):
                new = with_mapped_params(equation, functools.partial(change, equation))
                if new is not equation:
                    changed[i] = new
                break
    if not changed:
        return jaxpr
    return jaxpr.replace(eqns=[changed.get(i, e) for i, e in enumerate(jaxpr.eqns)])


def with_mapped_params(equation: Equation, change: Callable[[Jaxpr], Jaxpr]) -> Equation:
    params: Params = {}
    different = False
    for name, value in equation.params.items():
        new = value
        if type(value) is Jaxpr:
            new = change(value)
        elif type(value) is tuple and any(type(v) is Jaxpr for v in value):
            new = tuple(change(v) if type(v) is Jaxpr else v for v in value)
            if all(a is b for a, b in zip(new, value, strict=True)):
                new = value
        different = different or new is not value
        params[name] = new
    if not different:
        return equation
    effects = equation.primitive.effects([a.aval for a in equation.invars], params)
    return equation.replace(params=params, effects=effects)
