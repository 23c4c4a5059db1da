"""How results are split, from how operands are: one pass over an operation's axis factors.

Nothing here is communicated. Where operands do not say how the result is split without communication that the user did
not ask for, a `ShardingTypeError` names them and what to write.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn

from weft.base.dataclass import dataclass
from weft.base.errors import ShardingTypeError
from weft.base.text import bytes_text
from weft.sharding.factors import AxisFactors, Names
from weft.sharding.manual import ManualAxisType
from weft.sharding.routes import sent_bytes
from weft.sharding.spec import PartitionSpec, dims_of, entry_axes, split_axes


@dataclass(frozen=True)
class Operand:
    """An operand: the text of its type for messages, its shape and the bytes of an element, how it is split and what it
    is along manual axes. Nothing that is split flows back to a `constant` one: a single number, or integers. `name` is
    what the user calls it and `origin` where it got its sharding, as far as that is known."""

    text: str
    shape: tuple[Any, ...]
    itemsize: int
    spec: PartitionSpec
    manual: ManualAxisType
    constant: bool
    name: str = ""
    origin: str = ""


@dataclass(frozen=True)
class Operation:
    """An operation on operands: in which of them it is linear, `apart` in each (mul) rather than in all together; and
    the sizes of the axes of the mesh."""

    name: str
    operands: tuple[Operand, ...]
    linear: frozenset[int]
    apart: bool
    sizes: dict[Any, int] = field(default_factory=dict)

    def named(self, i: int) -> str:
        """What an operand is called."""
        return f"`{self.operands[i].name}`" if self.operands[i].name else f"operand {i}"

    def fail(self, what: str, *fixes: str) -> NoReturn:
        """Raise, with the types of all operands and where they got their shardings."""
        lines = []
        for i, o in enumerate(self.operands):
            origin = f", {o.origin}" if o.origin and (split_axes(o.spec.partitions) or o.spec.unreduced) else ""
            lines.append(f"{self.named(i)}: {o.text}{origin}")
        received = "\n".join(lines) if any(o.origin for o in self.operands) else ", ".join(lines)
        raise ShardingTypeError(what, received=received, fix=fixes)

    def resharded(self, spec: PartitionSpec, i: int) -> str:
        """What to write for an operand to be split so, and what that sends."""
        operand = self.operands[i]
        call = f"weft.sharding.reshard({operand.name or 'x'}, {spec!r})"
        sent = self.sent(operand.shape, operand.itemsize, operand.spec, spec)
        return f"{call}{'' if operand.name else f' for operand {i}'}{sent}"

    def sent(self, shape: Sequence[Any], itemsize: int, before: PartitionSpec, after: PartitionSpec) -> str:
        """What a device sends where a value is split otherwise, as text."""
        if not all(isinstance(d, int) for d in shape) or not self.sizes:
            return ""
        src, dst = dims_of(before, len(shape)), dims_of(after, len(shape))
        count = sent_bytes(itemsize, tuple(shape), src, tuple(before.unreduced), dst, self.sizes)
        return f"   sends {bytes_text(count)} a device" if count else "   sends nothing"


def result_specs(
    operation: Operation, factors: AxisFactors | None, reason: str, shapes: Sequence[Sequence[Any]]
) -> list[PartitionSpec]:
    """The specs of results with these shapes; `reason` is why there are no factors."""
    specs = [o.spec for o in operation.operands]
    if factors is None:
        for i, spec in enumerate(specs):
            if split_axes(spec.partitions):
                operation.fail(
                    f"`{operation.name}` needs whole operands: {reason}.",
                    operation.resharded(unsplit(spec), i),
                    *COMPILER,
                )
        factors = AxisFactors(tuple((None,) * len(s) for s in specs), tuple((None,) * len(shape) for shape in shapes))
    chosen = split_factors(operation, factors, shapes)
    unreduced = unreduced_axes(operation, [s.unreduced for s in specs], [s.reduced for s in specs])
    reduced = reduced_axes(operation, factors)
    results = []
    for names, shape in zip(factors.results, shapes, strict=True):
        entries = [chosen.get(name) if name is not None else None for name in names]
        for dim, (entry, size) in enumerate(zip(entries, shape, strict=True)):
            check_even(operation, factors, dim, names[dim], entry, size)
        used = split_axes(entries)
        for axis in used:
            if used.count(axis) > 1:
                operation.fail(
                    f"The result of `{operation.name}` would be split twice over {axis!r}: {PartitionSpec(*entries)}.",
                    *(
                        operation.resharded(as_others(operation, factors, i, axis), i)
                        for i, o in enumerate(operation.operands)
                        if axis in split_axes(o.spec.partitions)
                    ),
                    COMPILER[1],
                )
        for axis in unreduced & {a for s in specs for a in split_axes(s.partitions)}:
            holder = next(i for i, s in enumerate(specs) if axis in s.unreduced)
            operation.fail(
                f"`{operation.name}` has {operation.named(holder)} unreduced over {axis!r} and an operand split over"
                " it.",
                summed(operation, holder, axis),
            )
        results.append(PartitionSpec(*entries, unreduced=unreduced, reduced=reduced - set(used)))
    return results


def check_even(operation: Operation, factors: AxisFactors, dim: int, name: str | None, entry: Any, size: Any) -> None:
    """Where a dimension of a result is smaller or larger than the operand's, it must split evenly too."""
    count = math.prod([operation.sizes.get(axis, 1) for axis in entry_axes(entry)])
    if count == 1 or not isinstance(size, int) or size % count == 0:
        return
    for i, names in enumerate(factors.operands):
        spec = operation.operands[i].spec
        if name in names and spec.partitions[names.index(name)] is not None:
            operation.fail(
                f"`{operation.name}` has {size} elements in dimension {dim} of its result, which do not split evenly"
                f" into {count} parts over {entry!r}.",
                operation.resharded(unsplit(spec, names.index(name)), i),
                *COMPILER,
            )


def split_factors(operation: Operation, factors: AxisFactors, shapes: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The entry of each factor along which results are split. Operands are split alike along a factor, or whole."""
    chosen: dict[str, tuple[Any, int]] = {}
    holders: dict[str, list[int]] = {}
    for i, (operand, names) in enumerate(zip(operation.operands, factors.operands, strict=True)):
        for dim, (entry, name) in enumerate(zip(operand.spec.partitions, names, strict=True)):
            if entry is None:
                continue
            if name is None:
                operation.fail(
                    f"`{operation.name}` needs dimension {dim} of {operation.named(i)} whole; it is split over"
                    f" {entry!r}.",
                    operation.resharded(unsplit(operand.spec, dim), i),
                    *COMPILER,
                )
            holders.setdefault(name, []).append(i)
            first, where = chosen.setdefault(name, (entry, i))
            if first != entry:
                other = operation.operands[where].spec
                operation.fail(
                    f"`{operation.name}` has {operation.named(where)} and {operation.named(i)}, whose dimensions belong"
                    f" together and are split over {first!r} and {entry!r}.",
                    operation.resharded(respelled(operand.spec, dim, first), i),
                    operation.resharded(respelled(other, factors.operands[where].index(name), entry), where),
                    COMPILER[1],
                )
    for name, where_all in holders.items():
        if name in factors.alike:
            check_alike(operation, factors, name, chosen[name][0], where_all)
        if name in factors.combine and len(where_all) > 1:
            dims = [factors.operands[i].index(name) for i in where_all]
            pairs = " and ".join(f"dimension {d} of {operation.named(i)}" for d, i in zip(dims, where_all, strict=True))
            rest = {n: e for n, (e, _) in chosen.items() if n not in factors.combine}
            operation.fail(
                f"`{operation.name}` sums over {pairs}, which are split over {chosen[name][0]!r}: whether the result"
                " is unreduced, split or summed on every device is not said.",
                *summed_result(operation, factors, shapes, rest, chosen[name][0]),
                COMPILER[1],
                *(
                    operation.resharded(unsplit(operation.operands[i].spec, d), i)
                    for d, i in zip(dims, where_all, strict=True)
                ),
            )
    return {name: entry for name, (entry, _) in chosen.items() if name not in factors.combine}


def check_alike(operation: Operation, factors: AxisFactors, name: str, entry: Any, holders: Sequence[int]) -> None:
    """All operands that have a factor must be split along it, if one is."""
    for i, names in enumerate(factors.operands):
        if name in names and i not in holders:
            dim, first = names.index(name), holders[0]
            split = operation.operands[first].spec
            operation.fail(
                f"`{operation.name}` has {operation.named(first)} and {operation.named(i)}, whose dimensions belong"
                f" together; one is split over {entry!r}, the other is whole.",
                operation.resharded(respelled(operation.operands[i].spec, dim, entry), i),
                operation.resharded(unsplit(split, factors.operands[first].index(name)), first),
                COMPILER[1],
            )


def summed_result(
    operation: Operation, factors: AxisFactors, shapes: Sequence[Sequence[Any]], rest: Mapping[str, Any], entry: Any
) -> list[str]:
    """What to write for the result to be summed over all devices, and what that sends."""
    entries = [rest.get(n) if n is not None else None for n in factors.results[0]]
    used, axes = split_axes(entries), entry_axes(entry)
    if len(set(used)) < len(used) or set(used) & set(axes):
        return [COMPILER[0]]
    spec = PartitionSpec(*entries)
    itemsize = max(o.itemsize for o in operation.operands)
    sent = operation.sent(shapes[0], itemsize, spec.update(unreduced=frozenset(axes)), spec)
    return [f"out_sharding={spec!r} in the call, for the sum on all devices{sent}"]


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
                    f"`{operation.name}` is not linear in {operation.named(i)}, which is unreduced over {axis!r}.",
                    summed(operation, i, axis),
                )
        if not operation.apart:
            for i in operation.linear:
                if i not in holders:
                    operation.fail(
                        f"`{operation.name}` would add {operation.named(i)} once for each device along {axis!r},"
                        f" since {operation.named(holders[0])} is unreduced over that axis.",
                        summed(operation, holders[0], axis),
                    )
            continue
        if len(holders) > 1:
            operation.fail(
                f"`{operation.name}` multiplies {operation.named(holders[0])} and"
                f" {operation.named(holders[1])}, both unreduced over {axis!r}.",
                summed(operation, holders[0], axis),
                summed(operation, holders[1], axis),
            )
        for i, operand in enumerate(operation.operands):
            if i not in holders and not operand.constant and axis not in reduced[i]:
                operation.fail(
                    f"`{operation.name}` needs {operation.named(i)} reduced over {axis!r}, since"
                    f" {operation.named(holders[0])} is unreduced over that axis.",
                    f"reduced={{{axis!r}}} in the spec of {operation.named(i)}",
                    summed(operation, holders[0], axis),
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
                f"`{operation.name}` has {operation.named(holders[0])} reduced over {axis!r} and"
                f" {operation.named(i)} {state} there.",
                f"reduced={{{axis!r}}} in the spec of {operation.named(i)}",
                f"leave {axis!r} out of reduced for {operation.named(holders[0])}",
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
    "weft.sharding.auto_axes(f, out_sharding=spec)   around what the compiler is to split",
)


def summed(operation: Operation, i: int, axis: Any) -> str:
    """What to write for an operand to be summed over an axis."""
    operand = operation.operands[i]
    if axis not in operand.spec.unreduced:
        return f"lax.psum({operand.name or 'x'}, {axis!r}){'' if operand.name else f' for operand {i}'} first"
    return operation.resharded(operand.spec.update(unreduced=operand.spec.unreduced - {axis}), i)


def split_along(spec: PartitionSpec, names: Names, axis: Any) -> list[str | None]:
    """The factors along which a spec splits over an axis."""
    return [name for entry, name in zip(spec.partitions, names, strict=True) if axis in entry_axes(entry)]


def respelled(spec: PartitionSpec, dim: int, entry: Any) -> PartitionSpec:
    """The spec with another entry for a dimension; other dimensions over its axes are whole."""
    taken = set(entry_axes(entry))
    entries: Iterable[Any] = (None if taken & set(entry_axes(e)) else e for e in spec.partitions)
    return spec.update(partitions=[entry if i == dim else e for i, e in enumerate(entries)])


def as_others(operation: Operation, factors: AxisFactors, i: int, axis: Any) -> PartitionSpec:
    """The spec of an operand that is split over an axis where the other operands are, or not at all."""
    spec, own = operation.operands[i].spec, factors.operands[i]
    others = {
        name: entry
        for k, (operand, names) in enumerate(zip(operation.operands, factors.operands, strict=True))
        for name, entry in zip(names, operand.spec.partitions, strict=True)
        if k != i and axis in entry_axes(entry)
    }
    rest = [tuple(a for a in entry_axes(e) if a != axis) for e in spec.partitions]
    return spec.update(partitions=[others.get(n, e) if n is not None else e for n, e in zip(own, rest, strict=True)])


def unsplit(spec: PartitionSpec, dim: int | None = None) -> PartitionSpec:
    """The spec with a dimension, or all of them, not split."""
    return spec.update(partitions=[None if dim in (None, i) else e for i, e in enumerate(spec.partitions)])
