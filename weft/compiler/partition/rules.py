"""Sharding rules of equations (the factors that dimensions of operands and results share), and the relations between
values of bodies and the operands and results of loops, conditionals and `shard_map`."""

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
from weft.primitives.movement.shape import group_dimensions, reshape
from weft.sharding.factors import Names
from weft.sharding.halo import Reach

# The axes that each dimension of a value is split over, the major one first.
Dims = tuple[tuple[Any, ...], ...]

# Reductions over a split dimension that a collective completes.
COMBINED = ("sum", "max", "min", "prod", "and", "or", "xor")


def get_rank(aval: Any) -> int:
    """Return the number of dimensions of a type: 0 unless it is an array."""
    return len(aval.shape) if isinstance(aval, ArrayType) else 0


def whole(aval: Any) -> Dims:
    """Return the sharding of a value that is not split."""
    return ((),) * get_rank(aval)


def count_shards(axes: Sequence[Any], sizes: Mapping[Any, int]) -> int:
    """Return the number of shards into which axes split a dimension."""
    if len(axes) == 1:
        return sizes[axes[0]]
    return math.prod([sizes[a] for a in axes])


def local_shape(shape: Sequence[Any], dims: Dims, sizes: Mapping[Any, int]) -> tuple[Any, ...]:
    """Return the shape of one shard; dimensions that do not split evenly are rounded up."""
    return tuple([-(-d // count_shards(axes, sizes)) if axes else d for d, axes in zip(shape, dims, strict=True)])


@dataclass(frozen=True, eq=False)
class ShardingRule:
    """The factors of an operation (those of Shardy's sharding rules). Equal equations share one.

    Attributes:
        names: the factor of each dimension of operands and results, None where it must be whole.
        operands: the number of operands.
        combine: the reduction over each factor that results do not have.
        sizes: the sizes of factors.
        inside: factors along which the operation communicates by itself, with the number of slices that it sends.
        reason: why dimensions must be whole.
        passes: whether dimensions only pass through.
        even: factors that must be split evenly.
        reach: factors with halos, with the elements that each operand reads around its own.
    """

    names: tuple[Names, ...]
    operands: int
    combine: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    inside: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    passes: bool = False
    even: frozenset[str] = frozenset()
    reach: Mapping[str, Sequence[Reach | None]] = field(default_factory=dict)

    @cached_property
    def operand_names(self) -> tuple[Names, ...]:
        """Factors of the dimensions of operands."""
        return self.names[: self.operands]

    @cached_property
    def result_names(self) -> tuple[Names, ...]:
        """Factors of the dimensions of results."""
        return self.names[self.operands :]

    @cached_property
    def results(self) -> frozenset[str | None]:
        """All factors of results."""
        return frozenset(n for names in self.result_names for n in names)

    @cached_property
    def dims(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """Dimensions of each factor, as (index of the operand or result, dimension)."""
        found: dict[str, list[tuple[int, int]]] = {}
        for i, names in enumerate(self.names):
            for d, name in enumerate(names):
                if name is not None:
                    found.setdefault(name, []).append((i, d))
        return found

    def sums(self, chosen: Mapping[str, tuple[Any, ...]]) -> tuple[list[Any], str]:
        """Return the axes over which results are unreduced if factors are split so, and the reduction."""
        factors = [f for f, own in chosen.items() if own and f in self.combine and f not in self.results]
        if not factors:
            return [], "sum"
        hows = {self.combine[f] for f in factors}
        assert len(hows) < 2, f"partial results must be combined by one reduction, got {hows}"
        return [a for f in factors for a in chosen[f]], hows.pop()

    def why_whole(self, operand: int) -> str:
        """Explain why an operand must be whole in some dimensions, if the primitive says so."""
        return f": {self.reason}" if self.reason and None in self.names[operand] else ""


class ShardingRules:
    """Sharding rules of equations, memoized by equation and by what rules depend on."""

    def __init__(self) -> None:
        self._of: dict[Any, ShardingRule] = {}
        self._alike: dict[Any, ShardingRule] = {}

    def __getitem__(self, equation: Equation) -> ShardingRule:
        found = self._of.get(equation)
        if found is None:
            found = self._of[equation] = self._lookup(equation)
        return found

    def _lookup(self, equation: Equation) -> ShardingRule:
        types = tuple([v.aval for v in (*equation.invars, *equation.outvars)])
        try:
            key = (equation.primitive, types, params_key(equation.params))
        except TypeError:  # a parameter that cannot be compared
            return make_rule(equation)
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = make_rule(equation)
        return found


def make_rule(equation: Equation) -> ShardingRule:
    """Make the rule of an operation from its primitive's axis factors, without those whose reduction no collective
    completes."""
    types = [a.aval for a in equation.invars]
    primitive: Any = equation.primitive
    values = (*equation.invars, *equation.outvars)
    rule = primitive.factors
    factors = None if isinstance(rule, MissingRule) else rule(*[t.plain for t in types], **equation.params)
    if factors is None:
        names: tuple[Names, ...] = tuple((None,) * get_rank(v.aval) for v in values)
        return ShardingRule(names, len(types), reason=rule.reason if isinstance(rule, MissingRule) else "")
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
    passes = primitive.pointwise or primitive.copies == "all" or primitive.separate
    even = frozenset(n for n in (*factors.inside, *factors.sizes) if n not in factors.reach and n not in factors.padded)
    inside, reach = factors.inside, factors.reach
    return ShardingRule(names, len(types), factors.combine, sizes, inside, factors.reason, passes, even, reach)


class Relation(NamedTuple):
    """Values whose dimensions with the same factor are split alike, but for the `excluded` axes. If `forward`, axes go
    from operands to results only."""

    values: tuple[Atom, ...]
    rule: ShardingRule
    excluded: frozenset[Any] = frozenset()
    forward: bool = False


def relate(*values: Atom, skip: Sequence[int] = (), excluded: frozenset[Any] = frozenset()) -> Relation:
    """Relate values that are split alike; those in `skip` have one more leading dimension, which is whole."""
    names: list[Names] = []
    sizes: dict[str, int] = {}
    for i, v in enumerate(values):
        front: Names = (None,) if i in skip else ()
        own = tuple(f"d{k}" for k in range(get_rank(v.aval) - len(front)))
        names.append((*front, *own))
        for name, size in zip(own, v.aval.shape[len(front) :] if own else (), strict=True):  # type: ignore[attr-defined]
            sizes[name] = math.gcd(sizes.get(name, 0), size)
    return Relation(tuple(values), ShardingRule(tuple(names), len(values), sizes=sizes, passes=True), excluded)


def sharding_relations(jaxpr: Jaxpr, rules: ShardingRules) -> Iterator[Relation]:
    """Yield the sharding relations of a jaxpr: the rules of its equations and of those in bodies, in order, and the
    relations between values of bodies and the operands and results of the equations that run them."""
    for equation in jaxpr.eqns:
        primitive = equation.primitive
        if primitive is shard_map:
            body, manual = equation.params["jaxpr"], equation.params["manual_axes"]
            for a, v in zip(equation.invars, body.invars, strict=True):
                yield relate(a, v, excluded=manual)
            yield from sharding_relations(body, rules)
            for a, v in zip(body.outvars, equation.outvars, strict=True):
                yield relate(a, v, excluded=manual)
        elif primitive.higher_order:
            yield from body_relations(equation, rules)
        else:
            yield Relation((*equation.invars, *equation.outvars), rules[equation])
            if primitive is reshape:
                yield from division_relations(equation)


def division_relations(equation: Equation) -> Iterator[Relation]:
    """Yield the relations of a reshape that divides a dimension whose first part is too small for the axes over which
    the dimension is split, as that of a batch into a few microbatches: the next part is split over them, so that
    the operations that follow are."""
    (a,), (v,) = equation.invars, equation.outvars
    old, new = a.aval.shape, v.aval.shape  # type: ignore[attr-defined]
    for before, after in group_dimensions(old, new):
        if len(before) == 1 and len(after) > 1 and type(new[after[1]]) is int:
            names = tuple("part" if d == before[0] else None for d in range(len(old)))
            parts = tuple("part" if d == after[1] else None for d in range(len(new)))
            rule = ShardingRule((names, parts), 1, sizes={"part": new[after[1]]}, even=frozenset(("part",)))
            yield Relation((a, v), rule, forward=True)


def body_relations(equation: Equation, rules: ShardingRules) -> Iterator[Relation]:
    """Yield the relations of a loop or a conditional and of its bodies."""
    primitive: Any = equation.primitive
    mapping = primitive.body_map(equation.params)
    for body, arguments in zip(mapping.bodies, mapping.arguments, strict=True):
        for v, i in zip(body.invars, arguments, strict=True):
            if i is not None:
                operand = equation.invars[i if i >= 0 else ~i]
                yield relate(operand, v, skip=(0,) if i < 0 else ())
    for body in mapping.bodies:
        yield from sharding_relations(body, rules)
    for body_index, argument, result in mapping.carries:
        body = mapping.bodies[body_index]
        yield relate(body.invars[argument], body.outvars[result])
    for v, sources in zip(equation.outvars, mapping.results, strict=True):
        for body_index, result, stacked in sources:
            yield relate(mapping.bodies[body_index].outvars[result], v, skip=(1,) if stacked else ())
