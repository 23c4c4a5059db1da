"""How the dimensions of an equation's operands and results belong together, and how the values of bodies are tied to
the operands and results of loops, branches and `shard_map`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from weft.base.dataclass import dataclass
from weft.base.memo import cached_property
from weft.ir.jaxpr import Atom, Equation, Jaxpr
from weft.ir.missing_rule import MissingRule
from weft.ir.parameters import params_key
from weft.ir.types import ArrayType
from weft.primitives.control.shard_map import shard_map
from weft.sharding.factors import Names
from weft.sharding.halo import Reach

# The axes that each dimension of a value is split over, the major one first.
Dims = tuple[tuple[Any, ...], ...]

# Reductions over a split dimension that collectives finish.
COMBINED = ("sum", "max", "min", "prod", "and", "or", "xor")


def rank_of(aval: Any) -> int:
    return len(aval.shape) if isinstance(aval, ArrayType) else 0


def whole(aval: Any) -> Dims:
    """A value that is not split."""
    return ((),) * rank_of(aval)


def parts_of(axes: Sequence[Any], sizes: Mapping[Any, int]) -> int:
    """Into how many parts some axes split."""
    if len(axes) == 1:
        return sizes[axes[0]]
    return math.prod([sizes[a] for a in axes])


def local_shape(shape: Sequence[Any], dims: Dims, sizes: Mapping[Any, int]) -> tuple[Any, ...]:
    """The shape of one part; those of dimensions that do not split evenly are rounded up."""
    return tuple([-(-d // parts_of(axes, sizes)) if axes else d for d, axes in zip(shape, dims, strict=True)])


@dataclass(frozen=True, eq=False)
class Rule:
    """The factor of each dimension of operands and results, the sizes of factors, how factors that results do not have
    are combined, and those that the operation handles by itself. Equations that are alike share one."""

    names: tuple[Names, ...]
    operands: int
    combine: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    inside: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    passes: bool = False  # whether dimensions only pass through
    even: frozenset[str] = frozenset()  # the factors that must be split evenly
    reach: Mapping[str, Sequence[Reach | None]] = field(default_factory=dict)  # those with halos

    @cached_property
    def operand_names(self) -> tuple[Names, ...]:
        return self.names[: self.operands]

    @cached_property
    def result_names(self) -> tuple[Names, ...]:
        return self.names[self.operands :]

    @cached_property
    def results(self) -> frozenset[str | None]:
        """The factors of results."""
        return frozenset(n for names in self.result_names for n in names)

    @cached_property
    def dims(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """The dimensions of each factor: of which operand or result, and which."""
        found: dict[str, list[tuple[int, int]]] = {}
        for i, names in enumerate(self.names):
            for d, name in enumerate(names):
                if name is not None:
                    found.setdefault(name, []).append((i, d))
        return found

    def sums(self, chosen: Mapping[str, tuple[Any, ...]]) -> tuple[list[Any], str]:
        """The axes over which results are still to be combined where factors are split so, and how."""
        factors = [f for f, own in chosen.items() if own and f in self.combine and f not in self.results]
        if not factors:
            return [], "sum"
        hows = {self.combine[f] for f in factors}
        assert len(hows) < 2, f"parts are to be combined by {hows}"
        return [a for f in factors for a in chosen[f]], hows.pop()

    def why_whole(self, operand: int) -> str:
        """Why an operand must be whole in some dimensions, if the primitive says so."""
        return f": {self.reason}" if self.reason and None in self.names[operand] else ""


class Rules:
    """The rules of equations, each found once."""

    def __init__(self) -> None:
        self._of: dict[Any, Rule] = {}
        self._alike: dict[Any, Rule] = {}

    def __getitem__(self, equation: Equation) -> Rule:
        found = self._of.get(equation)
        if found is None:
            found = self._of[equation] = self._shared(equation)
        return found

    def _shared(self, equation: Equation) -> Rule:
        types = tuple([v.aval for v in (*equation.invars, *equation.outvars)])
        try:
            key = (equation.primitive, types, params_key(equation.params))
        except TypeError:  # a parameter that cannot be compared
            return rule_of(equation)
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = rule_of(equation)
        return found


def rule_of(equation: Equation) -> Rule:
    """The rule of an operation: its primitive's axis factors, without those whose reduction no collective finishes."""
    types = [a.aval for a in equation.invars]
    primitive: Any = equation.primitive
    values = (*equation.invars, *equation.outvars)
    rule = primitive.factors
    factors = None if isinstance(rule, MissingRule) else rule(*[t.plain for t in types], **equation.params)
    if factors is None:
        names: tuple[Names, ...] = tuple((None,) * rank_of(v.aval) for v in values)
        return Rule(names, len(types), reason=rule.reason if isinstance(rule, MissingRule) else "")
    found = {n for group in factors.results for n in group}
    lost = {
        n
        for n in factors.names()
        if n not in found and n not in factors.inside and factors.combine.get(n) not in COMBINED
    }
    # A factor that an operand has in two dimensions, as a diagonal does, is one of neither.
    lost |= {n for group in (*factors.operands, *factors.results) for n in group if n and group.count(n) > 1}
    factors = factors.without(lost)
    names = (*factors.operands, *factors.results)
    sizes: dict[str, int] = {}
    for v, group in zip(values, names, strict=True):
        for name, size in zip(group, v.aval.shape, strict=True):  # type: ignore[attr-defined]
            if name is not None:
                sizes[name] = math.gcd(sizes.get(name, 0), size)
    sizes.update({n: s for n, s in factors.sizes.items() if n in sizes})
    passes = primitive.pointwise or primitive.copies == "all"
    even = frozenset(n for n in (*factors.inside, *factors.sizes) if n not in factors.reach)
    inside, reach = factors.inside, factors.reach
    return Rule(names, len(types), factors.combine, sizes, inside, factors.reason, passes, even, reach)


class Tie(NamedTuple):
    """A rule between some values, which says nothing of some axes."""

    values: tuple[Atom, ...]
    rule: Rule
    excluded: frozenset[Any] = frozenset()


def tie(*values: Atom, skip: Sequence[int] = (), excluded: frozenset[Any] = frozenset()) -> Tie:
    """Values that are split alike; those in `skip` have one more dimension at the front, which is whole."""
    names: list[Names] = []
    sizes: dict[str, int] = {}
    for i, v in enumerate(values):
        front: Names = (None,) if i in skip else ()
        own = tuple(f"d{k}" for k in range(rank_of(v.aval) - len(front)))
        names.append((*front, *own))
        for name, size in zip(own, v.aval.shape[len(front) :] if own else (), strict=True):  # type: ignore[attr-defined]
            sizes[name] = math.gcd(sizes.get(name, 0), size)
    return Tie(tuple(values), Rule(tuple(names), len(values), sizes=sizes, passes=True), excluded)


def all_ties(jaxpr: Jaxpr, rules: Rules) -> Iterator[Tie]:
    """What ties the values of all equations in order, those of bodies too, and bodies to what they are for."""
    for equation in jaxpr.eqns:
        primitive = equation.primitive
        if primitive is shard_map:
            body, manual = equation.params["jaxpr"], equation.params["manual_axes"]
            for a, v in zip(equation.invars, body.invars, strict=True):
                yield tie(a, v, excluded=manual)
            yield from all_ties(body, rules)
            for a, v in zip(body.outvars, equation.outvars, strict=True):
                yield tie(a, v, excluded=manual)
        elif primitive.higher_order:
            yield from carried_ties(equation, rules)
        else:
            yield Tie((*equation.invars, *equation.outvars), rules[equation])


def carried_ties(equation: Equation, rules: Rules) -> Iterator[Tie]:
    primitive: Any = equation.primitive
    carried = primitive.body_map(equation.params)
    for body, arguments in zip(carried.bodies, carried.arguments, strict=True):
        for v, i in zip(body.invars, arguments, strict=True):
            if i is not None:
                operand = equation.invars[i if i >= 0 else ~i]
                yield tie(operand, v, skip=(0,) if i < 0 else ())
    for body in carried.bodies:
        yield from all_ties(body, rules)
    for body_index, argument, result in carried.carries:
        body = carried.bodies[body_index]
        yield tie(body.invars[argument], body.outvars[result])
    for v, sources in zip(equation.outvars, carried.results, strict=True):
        for body_index, result, stacked in sources:
            yield tie(carried.bodies[body_index].outvars[result], v, skip=(1,) if stacked else ())
