"""How the dimensions of an equation's operands and results belong together, and how the values of bodies are tied to
the operands and results of loops, branches and `shard_map`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.ir.jaxpr import Atom, Equation, Jaxpr
from weft.ir.primitive import MissingRule
from weft.ir.types import ArrayType
from weft.sharding.factors import Names

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
    return math.prod(sizes[a] for a in axes)


def local_shape(shape: Sequence[Any], dims: Dims, sizes: Mapping[Any, int]) -> tuple[Any, ...]:
    """The shape of one part."""
    return tuple(d // parts_of(axes, sizes) for d, axes in zip(shape, dims, strict=True))


@dataclass(frozen=True)
class Rule:
    """The factor of each dimension of operands and results, the sizes of factors, how factors that results do not have
    are combined, those that the operation handles by itself, and axes that it says nothing of."""

    values: tuple[Atom, ...]
    names: tuple[Names, ...]
    operands: int
    combine: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    inside: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    excluded: frozenset[Any] = frozenset()
    passes: bool = False  # whether dimensions only pass through
    results: frozenset[str | None] = frozenset()  # the factors of results

    @property
    def operand_names(self) -> tuple[Names, ...]:
        return self.names[: self.operands]

    @property
    def result_names(self) -> tuple[Names, ...]:
        return self.names[self.operands :]

    def in_results(self, factor: str) -> bool:
        return factor in self.results

    def sums(self, chosen: Mapping[str, tuple[Any, ...]]) -> tuple[list[Any], str]:
        """The axes over which results are still to be combined where factors are split so, and how."""
        factors = [f for f, own in chosen.items() if own and f in self.combine and f not in self.results]
        hows = {self.combine[f] for f in factors}
        assert len(hows) < 2, f"parts are to be combined by {hows}"
        return [a for f in factors for a in chosen[f]], (hows.pop() if hows else "sum")

    def why_whole(self, chosen: Mapping[str, tuple[Any, ...]], operand: int) -> str:
        """Why an operand must be as it must, if the card says so."""
        whole = any(name is None for name in self.names[operand])
        return f": {self.reason}" if whole and self.reason else ""


def rule_of(equation: Equation) -> Rule:
    """The rule of an operation: its card's axis factors, without those whose reduction no collective finishes."""
    types = [a.aval for a in equation.invars]
    card: Any = equation.primitive
    values = (*equation.invars, *equation.outvars)
    rule = card.factors
    factors = None if isinstance(rule, MissingRule) else rule(*[t.plain for t in types], **equation.params)
    if factors is None:
        names: tuple[Names, ...] = tuple((None,) * rank_of(v.aval) for v in values)
        return Rule(values, names, len(types), reason=rule.reason if isinstance(rule, MissingRule) else "")
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
    return Rule(
        values,
        names,
        len(types),
        factors.combine,
        sizes,
        factors.inside,
        factors.reason,
        passes=card.pointwise or card.copies == "all",
        results=frozenset(found - lost),
    )


def tie(*values: Atom, skip: Sequence[int] = (), excluded: frozenset[Any] = frozenset()) -> Rule:
    """Values that are split alike; those in `skip` have one more dimension at the front, which is whole."""
    names: list[Names] = []
    sizes: dict[str, int] = {}
    for i, v in enumerate(values):
        front: Names = (None,) if i in skip else ()
        own = tuple(f"d{k}" for k in range(rank_of(v.aval) - len(front)))
        names.append((*front, *own))
        for name, size in zip(own, v.aval.shape[len(front) :] if own else (), strict=True):  # type: ignore[attr-defined]
            sizes[name] = math.gcd(sizes.get(name, 0), size)
    return Rule(tuple(values), tuple(names), len(values), sizes=sizes, excluded=excluded, passes=True)


def all_rules(jaxpr: Jaxpr) -> Iterator[Rule]:
    """The rules of all equations in order, those of bodies too, with ties between bodies and what they are for."""
    for equation in jaxpr.eqns:
        card = equation.primitive
        if card.bound_axes(equation.params):
            body, manual = equation.params["jaxpr"], equation.params["manual_axes"]
            for a, v in zip(equation.invars, body.invars, strict=True):
                yield tie(a, v, excluded=manual)
            yield from all_rules(body)
            for a, v in zip(body.outvars, equation.outvars, strict=True):
                yield tie(a, v, excluded=manual)
        elif card.higher_order:
            yield from carried_rules(equation)
        else:
            yield rule_of(equation)


def carried_rules(equation: Equation) -> Iterator[Rule]:
    card: Any = equation.primitive
    carried = card.carried(equation.params)
    for body, arguments in zip(carried.bodies, carried.arguments, strict=True):
        for v, i in zip(body.invars, arguments, strict=True):
            if i is not None:
                operand = equation.invars[i if i >= 0 else ~i]
                yield tie(operand, v, skip=(0,) if i < 0 else ())
    for body in carried.bodies:
        yield from all_rules(body)
    for body_index, argument, result in carried.carries:
        body = carried.bodies[body_index]
        yield tie(body.invars[argument], body.outvars[result])
    for v, sources in zip(equation.outvars, carried.results, strict=True):
        for body_index, result, stacked in sources:
            yield tie(carried.bodies[body_index].outvars[result], v, skip=(1,) if stacked else ())
