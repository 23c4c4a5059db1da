"""Explicit sharding: the spec of an operation's results from those of its operands, in one pass over its axis factors.

Results never need communication that the user did not request. If the specs of the operands do not determine the
result's without it, a `ShardingTypeError` names them and says what to write.
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
from weft.sharding.spec import PartitionSpec, entry_axes, spec_dims, split_axes


@dataclass(frozen=True)
class Operand:
    """Operand of an operation: the text of its type for messages, its shape, bytes per element, spec and manual axes.

    A `constant` operand (a single number, or integers) has no cotangent that is split. `name` is the user's name for
    it and `origin` the place that set its sharding, if they are known.
    """

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
    """Operation on operands. It is linear in those of `linear`: in each separately if `apart` (mul), otherwise jointly
    (add). `sizes` are those of the axes of the mesh."""

    name: str
    operands: tuple[Operand, ...]
    linear: frozenset[int]
    apart: bool
    sizes: dict[Any, int] = field(default_factory=dict)

    def label(self, i: int) -> str:
        """Return the text that names an operand in messages."""
        return f"`{self.operands[i].name}`" if self.operands[i].name else f"operand {i}"

    def fail(self, what: str, *fixes: str) -> NoReturn:
        """Raise ShardingTypeError with the types of all operands and the origins of their shardings."""
        lines = []
        for i, o in enumerate(self.operands):
            origin = f", {o.origin}" if o.origin and (split_axes(o.spec.partitions) or o.spec.unreduced) else ""
            lines.append(f"{self.label(i)}: {o.text}{origin}")
        received = "\n".join(lines) if any(o.origin for o in self.operands) else ", ".join(lines)
        raise ShardingTypeError(what, received=received, fix=fixes)

    def reshard_fix(self, spec: PartitionSpec, i: int) -> str:
        """Return the call that reshards an operand to a spec, as text with the bytes that it sends."""
        operand = self.operands[i]
        call = f"weft.sharding.reshard({operand.name or 'x'}, {spec!r})"
        sent = self.traffic_text(operand.shape, operand.itemsize, operand.spec, spec)
        return f"{call}{'' if operand.name else f' for operand {i}'}{sent}"

    def traffic_text(self, shape: Sequence[Any], itemsize: int, before: PartitionSpec, after: PartitionSpec) -> str:
        """Return the bytes that each device sends to change the spec of a value, as text."""
        if not all(isinstance(d, int) for d in shape) or not self.sizes:
            return ""
        src, dst = spec_dims(before, len(shape)), spec_dims(after, len(shape))
        count = sent_bytes(itemsize, tuple(shape), src, tuple(before.unreduced), dst, self.sizes)
        return f"   sends {bytes_text(count)} a device" if count else "   sends nothing"


def result_specs(
    operation: Operation, factors: AxisFactors | None, reason: str, shapes: Sequence[Sequence[Any]]
) -> list[PartitionSpec]:
    """Infer the specs of results with these shapes; `reason` says why there are no factors, if there are none."""
    specs = [o.spec for o in operation.operands]
    if factors is None:
        for i, spec in enumerate(specs):
            if split_axes(spec.partitions):
                operation.fail(
                    f"`{operation.name}` needs whole operands: {reason}.",
                    operation.reshard_fix(unsplit(spec), i),
                    *COMPILER,
                )
        factors = AxisFactors(tuple((None,) * len(s) for s in specs), tuple((None,) * len(shape) for shape in shapes))
    chosen = split_factors(operation, factors, shapes)
    unreduced = infer_unreduced(operation, [s.unreduced for s in specs], [s.reduced for s in specs])
    reduced = infer_reduced(operation, factors)
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
                        operation.reshard_fix(split_like_others(operation, factors, i, axis), i)
                        for i, o in enumerate(operation.operands)
                        if axis in split_axes(o.spec.partitions)
                    ),
                    COMPILER[1],
                )
        for axis in unreduced & {a for s in specs for a in split_axes(s.partitions)}:
            holder = next(i for i, s in enumerate(specs) if axis in s.unreduced)
            operation.fail(
                f"`{operation.name}` has {operation.label(holder)} unreduced over {axis!r} and an operand split over"
                " it.",
                sum_fix(operation, holder, axis),
            )
        results.append(PartitionSpec(*entries, unreduced=unreduced, reduced=reduced - set(used)))
    return results


def check_even(operation: Operation, factors: AxisFactors, dim: int, name: str | None, entry: Any, size: Any) -> None:
    """Raise unless a split dimension of a result splits evenly; it may have another size than the operand's."""
    count = math.prod([operation.sizes.get(axis, 1) for axis in entry_axes(entry)])
    if count == 1 or not isinstance(size, int) or size % count == 0:
        return
    for i, names in enumerate(factors.operands):
        spec = operation.operands[i].spec
        if name in names and spec.partitions[names.index(name)] is not None:
            operation.fail(
                f"`{operation.name}` has {size} elements in dimension {dim} of its result, which do not split evenly"
                f" into {count} parts over {entry!r}.",
                operation.reshard_fix(unsplit(spec, names.index(name)), i),
                *COMPILER,
            )


def split_factors(operation: Operation, factors: AxisFactors, shapes: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the spec entry of each factor along which results are split; raise if operands disagree.

    Along a factor an operand is split as the others are, or whole.
    """
    chosen: dict[str, tuple[Any, int]] = {}
    holders: dict[str, list[int]] = {}
    for i, (operand, names) in enumerate(zip(operation.operands, factors.operands, strict=True)):
        for dim, (entry, name) in enumerate(zip(operand.spec.partitions, names, strict=True)):
            if entry is None:
                continue
            if name is None:
                operation.fail(
                    f"`{operation.name}` needs dimension {dim} of {operation.label(i)} whole; it is split over"
                    f" {entry!r}.",
                    operation.reshard_fix(unsplit(operand.spec, dim), i),
                    *COMPILER,
                )
            holders.setdefault(name, []).append(i)
            first, where = chosen.setdefault(name, (entry, i))
            if first != entry:
                other = operation.operands[where].spec
                operation.fail(
                    f"`{operation.name}` has {operation.label(where)} and {operation.label(i)}, whose dimensions belong"
                    f" together and are split over {first!r} and {entry!r}.",
                    operation.reshard_fix(replace_entry(operand.spec, dim, first), i),
                    operation.reshard_fix(replace_entry(other, factors.operands[where].index(name), entry), where),
                    COMPILER[1],
                )
    for name, where_all in holders.items():
        if name in factors.alike:
            check_alike(operation, factors, name, chosen[name][0], where_all)
        if name in factors.combine and len(where_all) > 1:
            dims = [factors.operands[i].index(name) for i in where_all]
            pairs = " and ".join(f"dimension {d} of {operation.label(i)}" for d, i in zip(dims, where_all, strict=True))
            rest = {n: e for n, (e, _) in chosen.items() if n not in factors.combine}
            operation.fail(
                f"`{operation.name}` sums over {pairs}, which are split over {chosen[name][0]!r}: whether the result"
                " is unreduced, split or summed on every device is not said.",
                *sum_result_fix(operation, factors, shapes, rest, chosen[name][0]),
                COMPILER[1],
                *(
                    operation.reshard_fix(unsplit(operation.operands[i].spec, d), i)
                    for d, i in zip(dims, where_all, strict=True)
                ),
            )
    return {name: entry for name, (entry, _) in chosen.items() if name not in factors.combine}


def check_alike(operation: Operation, factors: AxisFactors, name: str, entry: Any, holders: Sequence[int]) -> None:
    """Raise unless all operands that have a factor are split along it."""
    for i, names in enumerate(factors.operands):
        if name in names and i not in holders:
            dim, first = names.index(name), holders[0]
            split = operation.operands[first].spec
            operation.fail(
                f"`{operation.name}` has {operation.label(first)} and {operation.label(i)}, whose dimensions belong"
                f" together; one is split over {entry!r}, the other is whole.",
                operation.reshard_fix(replace_entry(operation.operands[i].spec, dim, entry), i),
                operation.reshard_fix(unsplit(split, factors.operands[first].index(name)), first),
                COMPILER[1],
            )


def sum_result_fix(
    operation: Operation, factors: AxisFactors, shapes: Sequence[Sequence[Any]], rest: Mapping[str, Any], entry: Any
) -> list[str]:
    """Return the fix that sums the result over all devices, as text with the bytes that it sends."""
    entries = [rest.get(n) if n is not None else None for n in factors.results[0]]
    used, axes = split_axes(entries), entry_axes(entry)
    if len(set(used)) < len(used) or set(used) & set(axes):
        return [COMPILER[0]]
    spec = PartitionSpec(*entries)
    itemsize = max(o.itemsize for o in operation.operands)
    sent = operation.traffic_text(shapes[0], itemsize, spec.update(unreduced=frozenset(axes)), spec)
    return [f"out_sharding={spec!r} in the call, for the sum on all devices{sent}"]


def infer_unreduced(
    operation: Operation, unreduced: Sequence[frozenset[Any]], reduced: Sequence[frozenset[Any]]
) -> frozenset[Any]:
    """Return the axes over which results are unreduced; raise if the operation is not linear there."""
    axes = frozenset[Any]().union(*unreduced)
    for axis in sorted(axes, key=str):
        holders = [i for i, own in enumerate(unreduced) if axis in own]
        for i in holders:
            if i not in operation.linear:
                operation.fail(
                    f"`{operation.name}` is not linear in {operation.label(i)}, which is unreduced over {axis!r}.",
                    sum_fix(operation, i, axis),
                )
        if not operation.apart:
            for i in operation.linear:
                if i not in holders:
                    operation.fail(
                        f"`{operation.name}` would add {operation.label(i)} once for each device along {axis!r},"
                        f" since {operation.label(holders[0])} is unreduced over that axis.",
                        sum_fix(operation, holders[0], axis),
                    )
            continue
        if len(holders) > 1:
            operation.fail(
                f"`{operation.name}` multiplies {operation.label(holders[0])} and"
                f" {operation.label(holders[1])}, both unreduced over {axis!r}.",
                sum_fix(operation, holders[0], axis),
                sum_fix(operation, holders[1], axis),
            )
        for i, operand in enumerate(operation.operands):
            if i not in holders and not operand.constant and axis not in reduced[i]:
                operation.fail(
                    f"`{operation.name}` needs {operation.label(i)} reduced over {axis!r}, since"
                    f" {operation.label(holders[0])} is unreduced over that axis.",
                    f"reduced={{{axis!r}}} in the spec of {operation.label(i)}",
                    sum_fix(operation, holders[0], axis),
                )
    return axes


def infer_reduced(operation: Operation, factors: AxisFactors) -> frozenset[Any]:
    """Return the axes over which results are reduced: those over which all operands with a cotangent are."""
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
                f"`{operation.name}` has {operation.label(holders[0])} reduced over {axis!r} and"
                f" {operation.label(i)} {state} there.",
                f"reduced={{{axis!r}}} in the spec of {operation.label(i)}",
                f"leave {axis!r} out of reduced for {operation.label(holders[0])}",
            )
        if all_reduced:
            found.add(axis)
    return frozenset(found)


def infer_manual_type(operation: Operation) -> ManualAxisType:
    """Infer the manual axis type of a result.

    It is varying along an axis if an operand is, otherwise reduced if one is; and unreduced if the operation is linear
    in the unreduced operand.
    """
    states = [o.manual for o in operation.operands]
    varying = frozenset[Any]().union(*(s.varying for s in states))
    unreduced = infer_unreduced(operation, [s.unreduced for s in states], [s.reduced for s in states])
    for axis in sorted(unreduced & varying, key=str):
        operation.fail(
            f"`{operation.name}` has an operand unreduced over {axis!r} and one that varies along it.",
            f"psum the unreduced one over {axis!r} first",
        )
    reduced = frozenset[Any]().union(*(s.reduced for s in states)) - varying - unreduced
    return ManualAxisType(varying=varying, unreduced=unreduced, reduced=reduced)


# Fixes for users that set the sharding of a result if the operands do not determine it.
COMPILER = (
    "out_sharding=spec in the call, where the function takes it",
    "weft.sharding.auto_axes(f, out_sharding=spec)   around what the compiler is to split",
)


def sum_fix(operation: Operation, i: int, axis: Any) -> str:
    """Return the fix that sums an operand over an axis, as text."""
    operand = operation.operands[i]
    if axis not in operand.spec.unreduced:
        return f"lax.psum({operand.name or 'x'}, {axis!r}){'' if operand.name else f' for operand {i}'} first"
    return operation.reshard_fix(operand.spec.update(unreduced=operand.spec.unreduced - {axis}), i)


def split_along(spec: PartitionSpec, names: Names, axis: Any) -> list[str | None]:
    """Return the factors that a spec splits over an axis."""
    return [name for entry, name in zip(spec.partitions, names, strict=True) if axis in entry_axes(entry)]


def replace_entry(spec: PartitionSpec, dim: int, entry: Any) -> PartitionSpec:
    """Return the spec with another entry for a dimension; other dimensions that used its axes become whole."""
    taken = set(entry_axes(entry))
    entries: Iterable[Any] = (None if taken & set(entry_axes(e)) else e for e in spec.partitions)
    return spec.update(partitions=[entry if i == dim else e for i, e in enumerate(entries)])


def split_like_others(operation: Operation, factors: AxisFactors, i: int, axis: Any) -> PartitionSpec:
    """Return the spec that splits an operand over an axis in the dimension where other operands are, or not at all."""
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
    """Return the spec with one dimension, or all of them, whole."""
    return spec.update(partitions=[None if dim in (None, i) else e for i, e in enumerate(spec.partitions)])
