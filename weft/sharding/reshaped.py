"""How the result of a reshape is split, from how the operand is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

from weft.sharding.infer import COMPILER, Operation, unsplit
from weft.sharding.spec import PartitionSpec, dims_of

Groups = Sequence[tuple[Sequence[int], Sequence[int]]]


def reshaped_spec(operation: Operation, groups: Groups, shape: Sequence[Any], new: Sequence[Any]) -> PartitionSpec:
    """The spec of a value of `shape` after a reshape to `new`. `groups` are dimensions before and after with as many
    elements, in the smallest groups.

    Dimensions that are merged must be split from the first on; the result is split over the axes of all of them. A
    dimension that is divided passes its axes on to the first of the new ones, and those that are left, where that one
    is split completely, to the next. Where some are merged and divided at once, only the first may be split, as far as
    both sizes can be.
    """
    operand = operation.operands[0]
    before = dims_of(operand.spec, len(shape))
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
                found = divided(flat, [new[g] for g in goals], operation)
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


def divided(axes: tuple[Any, ...], sizes: Sequence[Any], operation: Operation) -> list[tuple[Any, ...]] | None:
    """The axes of each of the dimensions that one is divided into; None if they do not split evenly."""
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
    """Into how many parts some axes split."""
    return math.prod([operation.sizes[a] for a in axes])


def refuse(operation: Operation, shape: Sequence[Any], new: Sequence[Any], dim: int) -> NoReturn:
    spec = operation.operands[0].spec
    operation.fail(
        f"`{operation.name}` of {tuple(shape)} to {tuple(new)} merges or divides dimension {dim} of"
        f" {operation.named(0)}, which is split over {spec.partitions[dim]!r}: how the result is split is not said.",
        operation.resharded(unsplit(spec, dim), 0),
        *COMPILER,
    )
