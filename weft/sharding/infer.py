"""How results are split, from how operands are: one pass over an operation's axis factors.

Nothing here is communicated. Where operands do not say how the result is split without communication that the user did
not ask for, a `ShardingTypeError` names them and what to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from weft.base.errors import ShardingTypeError
from weft.sharding.factors import AxisFactors, Names
from weft.sharding.manual import ManualAxisType
from weft.sharding.spec import PartitionSpec, entry_axes, split_axes


@dataclass(frozen=True)
class Operand:
    """An operand: its text for messages, how it is split and what it is along manual axes. Nothing that is
    split flows back to a `constant` one: a single number, or integers."""

    text: str
    spec: PartitionSpec
    manual: ManualAxisType
    constant: bool


@dataclass(frozen=True)
class Operation:
    """An operation on operands: in which of them it is linear, `apart` in each (mul) rather than in all together."""

    name: str
    operands: tuple[Operand, ...]
    linear: frozenset[int]
    apart: bool

    def fail(self, what: str, *fixes: str) -> NoReturn:
        """Raise, with the types of all operands."""
        received = ", ".join(f"{o.text} (operand {i})" for i, o in enumerate(self.operands))
        raise ShardingTypeError(what, received=received, fix=fixes)


def result_specs(
    operation: Operation, factors: AxisFactors | None, reason: str, ranks: Sequence[int]
) -> list[PartitionSpec]:
    """The specs of results with these ranks; `reason` is why there are no factors."""
    specs = [o.spec for o in operation.operands]
    if factors is None:
        for i, spec in enumerate(specs):
            if split_axes(spec.partitions):
                operation.fail(
                    f"`{operation.name}` needs whole operands: {reason}.",
                    resharded(unsplit(spec), i),
                    *COMPILER,
                )
        factors = AxisFactors(tuple((None,) * len(s) for s in specs), tuple((None,) * rank for rank in ranks))
    chosen = split_factors(operation, factors)
    unreduced = unreduced_axes(operation, [s.unreduced for s in specs], [s.reduced for s in specs])
    reduced = reduced_axes(operation, factors)
    results = []
    for names in factors.results:
        entries = [chosen.get(name) if name is not None else None for name in names]
        used = split_axes(entries)
        for axis in used:
            if used.count(axis) > 1:
                operation.fail(
                    f"The result of `{operation.name}` would be split twice over {axis!r}: {PartitionSpec(*entries)}.",
                    f"leave one of the two dimensions that are split over {axis!r} whole, with None in its spec:"
                    " weft.sharding.reshard(x, spec)",
                )
        for axis in unreduced & {a for s in specs for a in split_axes(s.partitions)}:
            operation.fail(
                f"`{operation.name}` has an operand unreduced over {axis!r} and one split over it.",
                f"sum the unreduced one over {axis!r} first",
            )
        results.append(PartitionSpec(*entries, unreduced=unreduced, reduced=reduced - set(used)))
    return results


def split_factors(operation: Operation, factors: AxisFactors) -> dict[str, Any]:
    """The entry of each factor along which results are split. Operands are split alike along a factor, or whole."""
    chosen: dict[str, tuple[Any, int]] = {}
    holders: dict[str, list[int]] = {}
    for i, (operand, names) in enumerate(zip(operation.operands, factors.operands, strict=True)):
        for dim, (entry, name) in enumerate(zip(operand.spec.partitions, names, strict=True)):
            if entry is None:
                continue
            if name is None:
                operation.fail(
                    f"`{operation.name}` needs dimension {dim} of operand {i} whole; it is split over {entry!r}.",
                    resharded(unsplit(operand.spec, dim), i),
                    *COMPILER,
                )
            holders.setdefault(name, []).append(i)
            first, where = chosen.setdefault(name, (entry, i))
            if first != entry:
                other = operation.operands[where].spec
                operation.fail(
                    f"`{operation.name}` has operands {where} and {i} whose dimensions belong together and are split"
                    f" over {first!r} and {entry!r}.",
                    resharded(respelled(operand.spec, dim, first), i),
                    resharded(respelled(other, factors.operands[where].index(name), entry), where),
                )
    for name, where_all in holders.items():
        if name in factors.combine and len(where_all) > 1:
            dims = [factors.operands[i].index(name) for i in where_all]
            pairs = " and ".join(f"dimension {d} of operand {i}" for d, i in zip(dims, where_all, strict=True))
            operation.fail(
                f"`{operation.name}` sums over {pairs}, which are split over {chosen[name][0]!r}: whether the result"
                " is unreduced, split or summed on every device is not said.",
                *COMPILER,
                *(resharded(unsplit(operation.operands[i].spec, d), i) for d, i in zip(dims, where_all, strict=True)),
            )
    return {name: entry for name, (entry, _) in chosen.items() if name not in factors.combine}


def unreduced_axes(
    operation: Operation, unreduced: Sequence[frozenset[Any]], reduced: Sequence[frozenset[Any]]
) -> frozenset[Any]:
    """The axes over which results are unreduced: sums wait only where the operation is linear."""
    axes = frozenset[Any]().union(*unreduced)
    for axis in sorted(axes, key=str):
        holders = [i for i, own in enumerate(unreduced) if axis in own]
        for i in holders:
            if i not in operation.linear:
                operation.fail(
                    f"`{operation.name}` is not linear in operand {i}, which is unreduced over {axis!r}.",
                    f"sum operand {i} over {axis!r} first",
                )
        if not operation.apart:
            for i in operation.linear:
                if i not in holders:
                    operation.fail(
                        f"`{operation.name}` would add operand {i} once for each device along {axis!r}, since operand"
                        f" {holders[0]} is unreduced over that axis.",
                        f"sum operand {holders[0]} over {axis!r} first",
                    )
            continue
        if len(holders) > 1:
            operation.fail(
                f"`{operation.name}` multiplies operands {holders[0]} and {holders[1]}, both unreduced over {axis!r}.",
                f"sum one of them over {axis!r} first",
            )
        for i, operand in enumerate(operation.operands):
            if i not in holders and not operand.constant and axis not in reduced[i]:
                operation.fail(
                    f"`{operation.name}` needs operand {i} reduced over {axis!r}, since operand {holders[0]} is"
                    " unreduced over that axis.",
                    f"reduced={{{axis!r}}} in the spec of operand {i}",
                    f"sum operand {holders[0]} over {axis!r} first",
                )
    return axes


def reduced_axes(operation: Operation, factors: AxisFactors) -> frozenset[Any]:
    """The axes over which results are reduced: those over which all operands are that something flows back to."""
    operands = operation.operands
    axes = frozenset[Any]().union(*(o.spec.reduced for o in operands))
    found = set()
    for axis in sorted(axes, key=str):
        holders = [i for i, o in enumerate(operands) if axis in o.spec.reduced]
        shared = {name for i in holders for name in factors.operands[i] if name is not None}
        all_reduced = True
        for i, operand in enumerate(operands):
            if i in holders or operand.constant:
                continue
            all_reduced = False
            names = split_along(operand.spec, factors.operands[i], axis)
            if axis in operand.spec.unreduced or (names and not shared & set(names)):
                continue
            state = "split" if names else "whole"
            operation.fail(
                f"`{operation.name}` has operand {holders[0]} reduced over {axis!r} and operand {i} {state} there.",
                f"reduced={{{axis!r}}} in the spec of operand {i}",
                f"leave {axis!r} out of reduced for operand {holders[0]}",
            )
        if all_reduced:
            found.add(axis)
    return frozenset(found)


def merged_state(operation: Operation) -> ManualAxisType:
    """What a result is along manual axes: varying where an operand is; else reduced where one is; unreduced where the
    operation is linear."""
    states = [o.manual for o in operation.operands]
    varying = frozenset[Any]().union(*(s.varying for s in states))
    unreduced = unreduced_axes(operation, [s.unreduced for s in states], [s.reduced for s in states])
    for axis in sorted(unreduced & varying, key=str):
        operation.fail(
            f"`{operation.name}` has an operand unreduced over {axis!r} and one that varies along it.",
            f"psum the unreduced one over {axis!r} first",
        )
    reduced = frozenset[Any]().union(*(s.reduced for s in states)) - varying - unreduced
    return ManualAxisType(varying=varying, unreduced=unreduced, reduced=reduced)


# What says how a result is split where operands do not.
COMPILER = (
    "out_sharding=spec in the call, where the function takes it",
    "weft.sharding.auto_axes(function, out_sharding=spec)   around what the compiler is to split",
)


def resharded(spec: PartitionSpec, operand: int) -> str:
    """What to write for an operand to be split so."""
    return f"weft.sharding.reshard(x, {spec}) for operand {operand}"


def split_along(spec: PartitionSpec, names: Names, axis: Any) -> list[str | None]:
    """The factors along which a spec splits over an axis."""
    return [name for entry, name in zip(spec.partitions, names, strict=True) if axis in entry_axes(entry)]


def respelled(spec: PartitionSpec, dim: int, entry: Any) -> PartitionSpec:
    """The spec with another entry for a dimension; other dimensions over its axes are whole."""
    taken = set(entry_axes(entry))
    entries: Iterable[Any] = (None if taken & set(entry_axes(e)) else e for e in spec.partitions)
    return spec.update(partitions=[entry if i == dim else e for i, e in enumerate(entries)])


def unsplit(spec: PartitionSpec, dim: int | None = None) -> PartitionSpec:
    """The spec with a dimension, or all of them, not split."""
    return spec.update(partitions=[None if dim in (None, i) else e for i, e in enumerate(spec.partitions)])
