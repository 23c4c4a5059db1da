"""Explicit sharding of reshapes: the spec of the result from the operand's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

from weft.sharding.infer import COMPILER, Operation, unsplit
from weft.sharding.spec import PartitionSpec, spec_dims

Groups = Sequence[tuple[Sequence[int], Sequence[int]]]


def infer_reshape_spec(operation: Operation, groups: Groups, shape: Sequence[Any], new: Sequence[Any]) -> PartitionSpec:
    """Infer the spec of a value of `shape` after a reshape to `new`.

    `groups` are the smallest groups of dimensions before and after with equally many elements. Merged dimensions must
    be split from the first on, without a gap; the result is split over the axes of all of them. A divided dimension
    passes its axes to the first new dimension, and the rest to the next one if the first is completely split. In a
    group that merges and divides, only the first dimension may be split, by a divisor of both sizes.
    """
    operand = operation.operands[0]
    before = spec_dims(operand.spec, len(shape))
    after: list[tuple[Any, ...]] = [()] * len(new)
    placed = {d for dims, _ in groups for d in dims}
    for dims, goals in groups:
        axes = [before[d] for d in dims]
        if not any(axes):
            continue
        count = next((i for i, own in enumerate(axes) if not own), len(axes))
        found: Sequence[tuple[Any, ...]] | None = None
        if not any(axes[count:]):
            flat = tuple(a for own in axes for a in own)
            if len(goals) == 1:
                found = [flat]
            elif len(dims) == 1:
                found = divide_axes(flat, [new[g] for g in goals], operation)
            elif count == 1 and math.gcd(shape[dims[0]], new[goals[0]]) % parts(flat, operation) == 0:
                found = [flat]
        if found is None:
            refuse(operation, shape, new, next(d for d in dims if before[d]))
        for goal, own in zip(goals, found, strict=False):
            after[goal] = own
    for d, own in enumerate(before):
        if own and d not in placed:
            refuse(operation, shape, new, d)
    return operand.spec.update(partitions=after)


def divide_axes(axes: tuple[Any, ...], sizes: Sequence[Any], operation: Operation) -> list[tuple[Any, ...]] | None:
    """Distribute axes over the dimensions that one is divided into; return None if they do not split evenly."""
    found: list[tuple[Any, ...]] = []
    for size in sizes:
        count = len(axes)
        while count and size % parts(axes[:count], operation):
            count -= 1
        found.append(axes[:count])
        axes, taken = axes[count:], parts(axes[:count], operation)
        if not axes:
            return found
        if taken != size:
            return None
    return None


def parts(axes: Sequence[Any], operation: Operation) -> int:
    """Return the number of shards along some axes."""
    return math.prod([operation.sizes[a] for a in axes])


def refuse(operation: Operation, shape: Sequence[Any], new: Sequence[Any], dim: int) -> NoReturn:
    spec = operation.operands[0].spec
    operation.fail(
        f"`{operation.name}` of {tuple(shape)} to {tuple(new)} merges or divides dimension {dim} of"
        f" {operation.label(0)}, which is split over {spec.partitions[dim]!r}: how the result is split is not said.",
        operation.reshard_fix(unsplit(spec, dim), 0),
        *COMPILER,
    )
