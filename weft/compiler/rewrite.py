"""Rewriting by named rules: what replaces the equations that a pattern matches, and the driver that applies rules.

A rule is a pattern (`patterns.py`) and a function that returns the replacement:

    @rule(x * 1)
    def multiply_by_one(m, x):
        return x if m.kind in "iuf" else None       # None: the rule does not apply

    @rule(reshape(reshape(x)))
    def merge_reshapes(m, x):
        return m.make("reshape", x, **m.params)

The function gets what its argument names ask for: operands and inner equations by the names in the pattern, and `m`,
the match, which has the equation and makes new ones. Patterns match the operands of an equation, never its readers
(only their number, by `.once`), so that one pass over the equations in order reaches the fixpoint: an equation is
matched when all that it reads is final.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.base.settings import config
from weft.compiler.patterns import Apply, Bound, Definitions, Uses, count_uses
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.primitive import NO_EFFECTS, Params, Primitive, lookup
from weft.ir.printer import equation_text, to_text
from weft.ir.types import array_type
from weft.primitives.control.remat import optimization_barrier

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
        """Parameters of the matched equation."""
        return self.equation.params

    @property
    def type(self) -> Any:
        """Type of the (first) result."""
        return self.equation.outvars[0].aval

    @property
    def shape(self) -> Any:
        """Shape of the (first) result."""
        return self.type.shape

    @property
    def kind(self) -> str:
        """Kind of the result's dtype: b i u f c, or k for keys."""
        return dtypes.kind(self.type.dtype)

    def emit(self, equation: Equation) -> Var:
        """Add a new equation and return its first result."""
        self.new_equations.append(equation)
        return equation.outvars[0]

    def make(self, name: str, *args: Atom, **params: Any) -> Var:
        """Add an equation with the source line and name stack of the matched one, and return its result."""
        return self.emit(new_equation(lookup(name), args, params, self.equation))

    def replace(self, **changes: Any) -> list[Var]:
        """Add the matched equation with some attributes replaced, its effects included, and return new results."""
        results = [Var(v.aval) for v in self.equation.outvars]
        self.new_equations.append(self.equation.replace(**{"outvars": results, **changes}))
        return results

    def literal(self, value: Any, dtype: Any = None) -> Literal:
        """Return a scalar of the result's dtype, or of another one."""
        return make_literal(value, self.type.dtype if dtype is None else dtype)

    def full(self, value: Any) -> Atom:
        """Return an array of the result's type filled with one value."""
        return self.broadcast(self.literal(value), self.shape)

    def broadcast(self, scalar: Atom, shape: Any) -> Atom:
        """Broadcast a scalar to a shape."""
        return scalar if not shape else self.make("broadcast_in_dim", scalar, shape=shape, broadcast_dimensions=())

    def reshape(self, x: Atom, shape: Sequence[Any]) -> Atom:
        """Reshape an operand; no equation is added if it has the shape already."""
        shape = tuple(shape)
        return x if x.aval.shape == shape else self.make("reshape", x, new_sizes=shape, dimensions=None)  # type: ignore[attr-defined]


class RewriteRule:
    """A named pattern and the function that builds its replacement. One that `keeps_effects` also replaces equations
    with effects, by an equation with the same ones."""

    def __init__(self, pattern: Apply, build: Callable[..., Any], keeps_effects: bool = False):
        self.pattern, self.build, self.keeps_effects = pattern, build, keeps_effects
        self.name = build.__name__
        self.__doc__ = build.__doc__
        self.wanted = tuple(inspect.signature(build).parameters)[1:]

    def __repr__(self) -> str:
        return f"<rule {self.name}>"


def rule(pattern: Apply, *, keeps_effects: bool = False) -> Callable[[Callable[..., Any]], RewriteRule]:
    """Make a rule of a function `(m, ...) -> operand`, or a list of them for several results, or None."""
    return lambda build: RewriteRule(pattern, build, keeps_effects)


class Rules:
    """Rules by the primitive of the outermost operation of their patterns; tried in order."""

    def __init__(self, *rules: RewriteRule | Rules):
        self.rules: tuple[RewriteRule, ...] = tuple(
            r for member in rules for r in (member.rules if isinstance(member, Rules) else (member,))
        )
        names = [r.name for r in self.rules]
        assert len(set(names)) == len(names), f"two rules have one name: {names}"
        self.by_primitive: dict[Primitive, tuple[RewriteRule, ...]] = {}
        self.counts_uses = any(r.pattern.counts_uses for r in self.rules)

    def candidates(self, primitive: Primitive) -> tuple[RewriteRule, ...]:
        """Return the rules that may match equations of a primitive: none for barriers."""
        found = self.by_primitive.get(primitive)
        if found is None:
            found = (
                ()
                if primitive is optimization_barrier
                else tuple(r for r in self.rules if r.pattern.accepts(primitive))
            )
            self.by_primitive[primitive] = found
        return found

    def __iter__(self) -> Any:
        return iter(self.rules)


# ---------------------------------------------------------------------------------------------------------- the driver


def rewrite(jaxpr: Jaxpr, rules: Rules, *, fired: Counter[str] | None = None, budget: int | None = None) -> Jaxpr:
    """Apply `rules` until none fires; the same object comes back if none did. Sub-jaxprs are not entered.

    Barriers stay as they are, and equations with effects but for rules that keep them; patterns do not see through
    them. `fired` counts the rules by name. More than `budget` firings are a bug of the rules, as is a rule that changes
    a type.
    """
    limit = 1000 + 20 * len(jaxpr.eqns) if budget is None else budget
    uses = count_uses(jaxpr) if rules.counts_uses else None
    definitions = Definitions(uses)
    renamed: dict[Any, Atom] = {}
    final: list[Equation] = []
    for original in jaxpr.eqns:
        todo = [original]
        while todo:
            equation = todo.pop()
            if renamed:
                equation = rename_operands(equation, renamed)
            candidates = rules.by_primitive.get(equation.primitive)
            if candidates is None:
                candidates = rules.candidates(equation.primitive)
            found = first_match(equation, candidates, definitions) if candidates else None
            if found is not None:
                limit -= 1
                if limit < 0:
                    raise InternalError(
                        f"Rewriting does not end; the last rule that fired is {found.rule.name}.",
                        stage="rewrite",
                        text=to_text(jaxpr),
                    )
                if fired is not None:
                    fired[found.rule.name] += 1
                for var, atom in zip(equation.outvars, found.results, strict=True):
                    check_type(found.rule, equation, var, atom)
                    renamed[var] = atom
                if uses is not None:
                    update_uses(uses, equation, found)
                todo.extend(reversed(found.new_equations))
                continue
            final.append(equation)
            for var in equation.outvars:
                definitions[var] = equation
    if not renamed:
        return jaxpr
    outvars = [resolve(a, renamed) for a in jaxpr.outvars]
    return Jaxpr(jaxpr.constvars, jaxpr.invars, outvars, final, jaxpr.consts, jaxpr.name)


class Firing(NamedTuple):
    """A rule that applies to an equation: the operands that replace its results, and the equations that make them."""

    rule: RewriteRule
    results: list[Atom]
    new_equations: list[Equation]


def first_match(equation: Equation, candidates: Iterable[RewriteRule], definitions: Definitions) -> Firing | None:
    """Return the first rule that applies to an equation, or None."""
    for candidate in candidates:
        if equation.effects and not candidate.keeps_effects:
            continue
        bound: Bound = {}
        if not candidate.pattern.match_equation(equation, definitions, bound):
            continue
        match = Match(equation, definitions)
        results = candidate.build(match, *[bound[name] for name in candidate.wanted])
        if results is not None:
            return Firing(candidate, results if isinstance(results, list) else [results], match.new_equations)
    return None


def update_uses(uses: Uses, equation: Equation, found: Firing) -> None:
    """Keep the numbers of readers right after an equation was replaced."""
    uses.subtract(a for a in equation.invars if type(a) is Var)
    uses.update(a for e in found.new_equations for a in e.invars if type(a) is Var)
    for var, atom in zip(equation.outvars, found.results, strict=True):
        if type(atom) is Var:
            uses[atom] += uses.pop(var, 0)


def check_type(which: RewriteRule, equation: Equation, var: Var, atom: Atom) -> None:
    """Raise unless the operand that replaces a result has its type."""
    if atom.aval is not var.aval and not atom.aval.matches(var.aval):
        raise InternalError(
            f"The rule {which.name} must not change a type: {var.aval.short()} became {atom.aval.short()}.",
            stage="rewrite",
            text=equation_text(equation),
        )


def resolve(atom: Atom, renamed: dict[Any, Atom]) -> Atom:
    """Follow the renamings of an operand to the last: what replaced it may have been replaced in turn."""
    while (found := renamed.get(atom)) is not None:
        atom = found
    return atom


def rename_operands(equation: Equation, renamed: dict[Any, Atom]) -> Equation:
    """Replace the operands that are renamed; return the same object if none is."""
    for atom in equation.invars:
        if atom in renamed:
            return with_operands(equation, [resolve(a, renamed) for a in equation.invars])
    return equation


def drop_unread(jaxpr: Jaxpr, names: Collection[str]) -> Jaxpr:
    """Remove equations of the primitives with these names, which have no effects, if nothing reads their results."""
    read: set[Any] = set(jaxpr.outvars)
    live: list[Equation] = []
    for equation in reversed(jaxpr.eqns):
        if equation.primitive.name in names and read.isdisjoint(equation.outvars):
            continue
        live.append(equation)
        read.update(equation.invars)
    return jaxpr if len(live) == len(jaxpr.eqns) else jaxpr.replace(eqns=live[::-1])


# ----------------------------------------------------------------------------------------------- shared by all passes


def with_operands(equation: Equation, operands: Sequence[Atom]) -> Equation:
    """Return the equation on other operands of the same types."""
    return Equation(
        operands,
        equation.outvars,
        equation.primitive,
        equation.params,
        equation.effects,
        equation.source,
        equation.stack,
    )


def new_equation(primitive: Primitive, args: Sequence[Atom], params: Params, like: Equation) -> Equation:
    """Make an equation without effects, with the source line and name stack of the one that it replaces."""
    types = primitive.type(*[a.aval for a in args], **params)
    variables = [Var(t) for t in types] if primitive.multiple_results else [Var(types)]
    return Equation(args, variables, primitive, params, NO_EFFECTS, like.source, like.stack)


def make_literal(value: Any, dtype: Any) -> Literal:
    """Make a scalar literal."""
    array = np.asarray(value).astype(dtype)
    array.flags.writeable = False
    return Literal(array, array_type((), dtype))


def everywhere(function: Callable[..., Jaxpr]) -> Callable[..., Jaxpr]:
    """Extend a pass over one jaxpr to its sub-jaxprs (bodies of loops, branches of conditions), innermost first.

    The result for a sub-jaxpr is memoized on it, because equal calls and loops share their bodies. A pass that depends
    on the machine takes its `Target` too.
    """

    def apply(jaxpr: Jaxpr, *target: Target) -> Jaxpr:
        def inside(equation: Equation, inner: Jaxpr) -> Jaxpr:
            within = [machine.inside(equation) for machine in target]
            return inner.memoize((function, config.key(), *within), lambda: apply(inner, *within))

        return function(map_subjaxprs(jaxpr, inside), *target)

    apply.__name__, apply.__doc__, apply.__module__ = function.__name__, function.__doc__, function.__module__
    return apply


def map_subjaxprs(jaxpr: Jaxpr, change: Callable[[Equation, Jaxpr], Jaxpr]) -> Jaxpr:
    """Replace each sub-jaxpr by what `change` makes of its equation and of it; the same object if all of them stay."""
    changed: dict[int, Equation] = {}
    for i, equation in enumerate(jaxpr.eqns):
        for value in equation.params.values():
            if type(value) is Jaxpr or (type(value) is tuple and any(type(v) is Jaxpr for v in value)):
                new = map_bodies(equation, functools.partial(change, equation))
                if new is not equation:
                    changed[i] = new
                break
    if not changed:
        return jaxpr
    return jaxpr.replace(eqns=[changed.get(i, e) for i, e in enumerate(jaxpr.eqns)])


def map_bodies(equation: Equation, change: Callable[[Jaxpr], Jaxpr]) -> Equation:
    """Replace the sub-jaxprs in an equation's parameters, and recompute its effects; the same object if all stay."""
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
