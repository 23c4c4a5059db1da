"""Specialise a jaxpr with symbolic sizes to given sizes: the same equations with other types and parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.indexing.expression import Expression, Integer, Symbol, free_symbols, linear_in, substitute, value_range
from weft.indexing.guards import ZERO, Guard, RuleGuard
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var, subjaxprs
from weft.ir.kinds import Constant
from weft.ir.types import ArrayType, TapeType, Type, array_type


def at_sizes(jaxpr: Jaxpr, sizes: Mapping[Symbol, Integer]) -> Jaxpr:
    """Substitute sizes for symbols in a jaxpr and its sub-jaxprs. Sizes that the jaxpr computes with become literals,
    as in a trace for known shapes, unless symbols are replaced by other expressions."""
    return AtSizes(sizes).jaxpr(jaxpr)


def equal_sizes(guards: Iterable[Guard | RuleGuard]) -> dict[Symbol, Integer]:
    """Solve guards that are equations: return the values of symbols, which are integers or expressions over other
    symbols.

    An expression is used only if its range is within the symbol's. Some equations cannot be solved in integers (`2*a ==
    3*b`, `n % 2 == 0`) and are skipped.
    """
    found: dict[Symbol, Integer] = {}
    for guard in guards:
        if not isinstance(guard, Guard) or guard.relation != ZERO:
            continue
        difference = substitute(guard.expression, found)
        for symbol in free_symbols(difference):
            coefficient, rest = linear_in(difference, symbol) or (0, 0)
            if not isinstance(coefficient, int) or coefficient == 0 or rest % coefficient != 0:
                continue
            value = -rest // coefficient
            if value_range(value).within(symbol.range):
                found = {s: substitute(e, {symbol: value}) for s, e in found.items()} | {symbol: value}
                break
    return found


def symbols_of_jaxpr(jaxpr: Jaxpr) -> tuple[Symbol, ...]:
    """Return the symbols in types and parameters of a jaxpr and its sub-jaxprs, sorted by name."""
    found: set[Symbol] = set()

    def visit(value: Any) -> None:
        if isinstance(value, Expression):
            found.update(value.symbols)
        elif type(value) in (tuple, list):
            for item in value:
                visit(item)
        elif isinstance(value, Jaxpr):
            found.update(value.memoize("symbols", lambda: symbols_of_jaxpr(value)))
        elif isinstance(value, ArrayType):
            visit(value.shape)
        elif isinstance(value, TapeType):
            visit(value.element)

    for v in (*jaxpr.constvars, *jaxpr.invars):
        visit(v.aval)
    for e in jaxpr.eqns:
        for v in e.outvars:
            visit(v.aval)
        for value in e.params.values():
            visit(value)
    return tuple(sorted(found, key=lambda s: s.order))


def has_rules_for_symbols(jaxpr: Jaxpr) -> bool:
    """Return whether a specialised jaxpr has custom derivative or batching rules. These are functions for the symbolic
    sizes, so transformations need a jaxpr traced at the given sizes."""
    return isinstance(jaxpr, JaxprAtSizes) and _has_rules(jaxpr.general)


def _has_rules(jaxpr: Jaxpr) -> bool:
    def compute() -> bool:
        return any("rule" in e.params or any(map(_has_rules, subjaxprs(e.params))) for e in jaxpr.eqns)

    return jaxpr.memoize("has rules", compute)


def general_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """Return the jaxpr with symbols that a specialised jaxpr comes from, which has the same structure; any other jaxpr
    itself."""
    return jaxpr.general if isinstance(jaxpr, JaxprAtSizes) else jaxpr


class JaxprAtSizes(Jaxpr):
    """Specialised jaxpr whose equations are created on first access, because a program that is compiled once for many
    sizes never reads them."""

    __slots__ = ("_known", "general", "sizes")

    def __init__(self, general: Jaxpr, sizes: Mapping[Symbol, int]) -> None:
        self.general, self.sizes = general, dict(sizes)
        at = AtSizes(sizes)
        known: dict[Atom, Atom] = {}

        def variable(v: Any) -> Any:
            if type(v) is Literal:
                return v
            if v not in known:
                known[v] = Var(at.type(v.aval))
            return known[v]

        self.constvars, self.consts = (), ()
        self.invars, self.outvars = (tuple(map(variable, vs)) for vs in (general.invars, general.outvars))
        self.name, self.effects = general.name, general.effects
        self._known, self._cache = known, {}

    def plain(self) -> Jaxpr:
        """Return a copy as an ordinary `Jaxpr`."""
        return self.memoize("plain", self.replace)

    def __getattr__(self, name: str) -> Any:
        if name != "eqns":
            raise AttributeError(name)
        at = AtSizes(self.sizes)
        complete = at.outline(self.general, dict(self._known), lambda e: at.params(e.params))
        self.outvars, self.eqns = complete.outvars, complete.eqns
        return self.eqns


class AtSizes:
    """Substitutes sizes in types, parameters and jaxprs; results for types and expressions are memoized."""

    def __init__(self, sizes: Mapping[Symbol, Integer]) -> None:
        self.sizes = sizes
        self._types: dict[Type, Type] = {}
        self._values: dict[Expression, Any] = {}

    def type(self, aval: Type) -> Type:
        found = self._types.get(aval)
        if found is None:
            found = self._types[aval] = self._type(aval)
        return found

    def _type(self, aval: Type) -> Type:
        if isinstance(aval, TapeType):
            return TapeType(self.type(aval.element))
        if not isinstance(aval, ArrayType) or not any(isinstance(d, Expression) for d in aval.shape):
            return aval
        shape = tuple(self.value(d) for d in aval.shape)
        return array_type(shape, aval.dtype, aval.weak_type, aval.explicit_sharding, aval.manual, aval.memory_space)

    def value(self, value: Any) -> Any:
        """Substitute sizes in a dimension or any parameter of an equation."""
        kind = type(value)
        if kind is tuple or kind is list:
            changed = [self.value(item) for item in value]
            return value if all(a is b for a, b in zip(changed, value, strict=True)) else kind(changed)
        if isinstance(value, Expression):
            found = self._values.get(value)
            if found is None:
                found = self._values[value] = substitute(value, self.sizes)
            return found
        if isinstance(value, Jaxpr):
            return self.jaxpr(value)
        return self.type(value) if isinstance(value, Type) else value

    def params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.value(value) for name, value in params.items()}

    def jaxpr(self, jaxpr: Jaxpr) -> Jaxpr:
        """Substitute sizes in a jaxpr and its sub-jaxprs."""
        known: dict[Atom, Atom] = {}
        return self.outline(jaxpr, known, lambda e: self.params(e.params))

    def outline(self, jaxpr: Jaxpr, known: dict[Atom, Atom], parameters: Any) -> Jaxpr:
        """Rebuild a jaxpr with substituted types of variables (`known` maps old atoms to new ones) and the parameters
        that `parameters(equation)` returns."""

        def atom(a: Any) -> Any:
            if type(a) is Literal:
                return a
            found = known.get(a)
            if found is None:
                aval = self.type(a.aval)
                found = known[a] = a if aval is a.aval else Var(aval)
            return found

        equations: list[Equation] = []
        for e in jaxpr.eqns:
            params = parameters(e)
            if isinstance(e.primitive, Constant) and (value := e.primitive.literal(params)) is not None:
                known[e.outvars[0]] = Literal(value, e.outvars[0].aval)
                continue
            operands, results = [atom(a) for a in e.invars], [atom(v) for v in e.outvars]
            equations.append(Equation(operands, results, e.primitive, params, e.effects, e.source, e.stack))
        constvars, invars, outvars = (
            [atom(a) for a in atoms] for atoms in (jaxpr.constvars, jaxpr.invars, jaxpr.outvars)
        )
        return Jaxpr(constvars, invars, outvars, equations, jaxpr.consts, jaxpr.name)
