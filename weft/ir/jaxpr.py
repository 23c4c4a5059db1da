"""The jaxpr: a typed, first-order, functional program with its constants attached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from weft.base.source import Location
from weft.ir.equation_info import CONTEXT, EquationContext, NameStack, SourceInfo
from weft.ir.primitive import NO_EFFECTS, Params, Primitive
from weft.ir.types import Type

T = TypeVar("T")


class Var:
    """Variable of a jaxpr, defined once. It has no name: its identity distinguishes it."""

    __slots__ = ("aval",)

    def __init__(self, aval: Type):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var({self.aval.short()})"


class Literal:
    """Scalar constant, stored in the equation that uses it."""

    __slots__ = ("aval", "val")

    def __init__(self, val: Any, aval: Type):
        self.val = val
        self.aval = aval

    def __repr__(self) -> str:
        return f"{self.val}:{self.aval.short()}"


Atom = Var | Literal


class Equation:
    """`outvars = primitive[params] invars`, with its effects, the user's line and the stack of names around it."""

    __slots__ = ("effects", "invars", "outvars", "params", "primitive", "source", "stack")

    def __init__(
        self,
        invars: Sequence[Atom],
        outvars: Sequence[Var],
        primitive: Primitive,
        params: Params,
        effects: frozenset[Any] = NO_EFFECTS,
        source: Location | None = None,
        stack: tuple[str, ...] = (),
    ):
        self.invars = tuple(invars)
        self.outvars = tuple(outvars)
        self.primitive = primitive
        self.params = params
        self.effects = effects
        self.source = source
        self.stack = stack

    @property
    def source_info(self) -> SourceInfo:
        """User's line and the name stack, in the form of JAX's equations."""
        return SourceInfo(self.source, NameStack(self.stack))

    @property
    def ctx(self) -> EquationContext:
        """Settings under which the equation is computed, in the form of JAX's equations."""
        return CONTEXT

    def replace(self, **changes: Any) -> Equation:
        """Return the equation with some attributes replaced."""
        parts = {name: getattr(self, name) for name in self.__slots__}
        return Equation(**{**parts, **changes})

    def __repr__(self) -> str:
        return f"{list(self.outvars)} = {self.primitive.name} {list(self.invars)}"


class Jaxpr:
    """Typed, first-order, functional program: `constvars` are bound to `consts`, `invars` to the arguments; `eqns`
    run in order; `outvars` are the results.

    For compatibility with JAX, `effects` and `debug_info` may be passed. Effects are always computed from the
    equations; of `debug_info` only the function's name is kept.

    Jaxprs are immutable once built; `memoize` stores what is derived from them.
    """

    __slots__ = ("__weakref__", "_cache", "constvars", "consts", "effects", "eqns", "invars", "name", "outvars")

    def __init__(
        self,
        constvars: Sequence[Var],
        invars: Sequence[Var],
        outvars: Sequence[Atom],
        eqns: Sequence[Equation],
        consts: Sequence[Any] = (),
        name: str = "",
        *,
        effects: Any = None,
        debug_info: Any = None,
    ):
        self.constvars = tuple(constvars)
        self.invars = tuple(invars)
        self.outvars = tuple(outvars)
        self.eqns = tuple(eqns)
        self.consts = tuple(consts)
        self.name = name or getattr(debug_info, "func_name", "")
        self.effects = join_effects(self.eqns)
        self._cache: dict[Any, Any] = {}

    @property
    def jaxpr(self) -> Jaxpr:
        """The jaxpr itself: constants are always attached, so there is no separate closed form."""
        return self

    @property
    def literals(self) -> tuple[Any, ...]:
        return self.consts

    @property
    def in_avals(self) -> list[Type]:
        return [v.aval for v in self.invars]

    @property
    def out_avals(self) -> list[Type]:
        return [v.aval for v in self.outvars]

    def replace(self, **changes: Any) -> Jaxpr:
        """Return the jaxpr with some attributes replaced."""
        parts = {n: getattr(self, n) for n in ("constvars", "invars", "outvars", "eqns", "consts", "name")}
        return Jaxpr(**{**parts, **changes})

    def memoize(self, key: Any, make: Callable[[], T]) -> T:
        """Return `make()`, memoized under `key` for the lifetime of this jaxpr."""
        found: T | None = self._cache.get(key)
        if found is None:
            found = self._cache.setdefault(key, make())
        return found

    def __repr__(self) -> str:
        # The printer imports this module, so it registers itself by `set_printer`.
        return _printer(self)

    __str__ = __repr__


_printer: Callable[[Jaxpr], str] = lambda jaxpr: f"<jaxpr of {len(jaxpr.eqns)} equations>"


def set_printer(function: Callable[[Jaxpr], str]) -> None:
    """Register the function that formats jaxprs."""
    global _printer
    _printer = function


def join_effects(equations: Sequence[Equation]) -> frozenset[Any]:
    """Return the union of the effects of equations."""
    effects = [e.effects for e in equations if e.effects]
    return frozenset().union(*effects) if effects else NO_EFFECTS


def subjaxprs(params: Params) -> list[Jaxpr]:
    """Return the jaxprs among the parameters of an equation, including those in tuples and lists."""
    found: list[Jaxpr] = []
    for value in params.values():
        if isinstance(value, Jaxpr):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(v for v in value if isinstance(v, Jaxpr))
    return found


def named_axes(jaxpr: Jaxpr) -> tuple[Any, ...]:
    """Return the named axes that the jaxpr and its sub-jaxprs communicate over, without those that they bind."""

    def compute() -> tuple[Any, ...]:
        found: dict[Any, None] = {}
        for equation in jaxpr.eqns:
            found.update(dict.fromkeys(equation.primitive.named_axes(equation.params)))
            operation: Any = equation.primitive
            bound = operation.bound_axes(equation.params) if operation.higher_order else ()
            for inner in subjaxprs(equation.params):
                found.update(dict.fromkeys(name for name in named_axes(inner) if name not in bound))
        return tuple(found)

    return jaxpr.memoize("named_axes", compute)


def constants_to_arguments(jaxpr: Jaxpr) -> Jaxpr:
    """Turn the constants into leading arguments, for equations that pass them as operands."""
    if not jaxpr.constvars:
        return jaxpr
    return jaxpr.memoize(
        "constants_to_arguments",
        lambda: jaxpr.replace(constvars=(), consts=(), invars=(*jaxpr.constvars, *jaxpr.invars)),
    )


def drop_dead(
    jaxpr: Jaxpr, live_results: Sequence[bool], keep_inputs: bool | Sequence[bool] = True
) -> tuple[Jaxpr, list[bool]]:
    """Remove equations, constants and arguments that no live result and no effect needs.

    Return the jaxpr and which arguments remain. Arguments are dropped only where `keep_inputs` is false; unused
    constants always are.
    """
    keep = [keep_inputs] * len(jaxpr.invars) if isinstance(keep_inputs, bool) else list(keep_inputs)
    outvars = [v for v, live in zip(jaxpr.outvars, live_results, strict=True) if live]
    needed = {v for v in outvars if type(v) is Var}
    equations: list[Equation] = []
    for equation in reversed(jaxpr.eqns):
        live = [v in needed for v in equation.outvars]
        if not any(live) and not equation.effects:
            continue
        if not all(live):
            smaller = equation.primitive.live_operands(live, equation.params)
            if smaller is not None:
                used, params, remaining = smaller
                equation = equation.replace(
                    invars=[v for v, u in zip(equation.invars, used, strict=True) if u],
                    outvars=[v for v, m in zip(equation.outvars, remaining, strict=True) if m],
                    params=params,
                )
        needed.update(v for v in equation.invars if type(v) is Var)
        equations.append(equation)
    used_inputs = [k or v in needed for v, k in zip(jaxpr.invars, keep, strict=True)]
    constants = [(v, c) for v, c in zip(jaxpr.constvars, jaxpr.consts, strict=True) if v in needed]
    result = Jaxpr(
        [v for v, _ in constants],
        [v for v, k in zip(jaxpr.invars, used_inputs, strict=True) if k],
        outvars,
        equations[::-1],
        [c for _, c in constants],
        jaxpr.name,
    )
    return result, used_inputs
