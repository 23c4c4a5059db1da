"""Axis factors: how the dimensions of an operation's operands and results correspond.

`i j, j k -> i k; j sum` says that a matmul may be split over i and k freely, and over j if the partial results are
summed. Sharding propagation in both directions, partitioning and the necessary collectives follow from this
description.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Any

from weft.base.dataclass import dataclass
from weft.sharding.halo import Reach

Names = tuple[str | None, ...]


@dataclass(frozen=True)
class AxisFactors:
    """Factors of an operation: a name per dimension of each operand and result (None: must be whole), and how partial
    results are combined along factors that results do not have."""

    operands: tuple[Names, ...]
    results: tuple[Names, ...]
    combine: dict[str, str] = field(default_factory=dict)
    # Sizes of factors that are the major part of a dimension; other factors have the size of their dimension.
    sizes: dict[str, int] = field(default_factory=dict)
    # Factors that the operation on shards handles by itself (`bind_local`), by masks or by its own collectives: the
    # number of slices of the first operand along the factor that each device sends to every other. Whether that pays is
    # a question of costs, so explicit sharding needs such dimensions whole.
    inside: dict[str, int] = field(default_factory=dict)
    # Factors of `inside` with halos: the `Reach` in each operand, None if the operand does not have the factor.
    reach: dict[str, tuple[Reach | None, ...]] = field(default_factory=dict)
    # Factors of `inside` that may be split unevenly: the padding of shards is replaced by the neutral element of their
    # reduction, in all operands.
    padded: frozenset[str] = frozenset()
    # Factors along which explicit sharding needs all operands split alike: none may be whole if one is split.
    alike: frozenset[str] = frozenset()
    # Why dimensions without a factor must be whole.
    reason: str = ""

    def __str__(self) -> str:
        def side(groups: tuple[Names, ...]) -> str:
            return ", ".join(" ".join(name or "." for name in group) for group in groups)

        combined = "".join(f"; {name} {how}" for name, how in self.combine.items())
        return f"{side(self.operands)} -> {side(self.results)}{combined}"

    def without(self, lost: Collection[str]) -> AxisFactors:
        """Return the factors without some of them: their dimensions must be whole."""
        if not lost:
            return self

        def side(groups: tuple[Names, ...]) -> tuple[Names, ...]:
            return tuple(tuple(None if name in lost else name for name in group) for group in groups)

        def rest(found: dict[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in found.items() if name not in lost}

        return AxisFactors(
            side(self.operands),
            side(self.results),
            rest(self.combine),
            rest(self.sizes),
            rest(self.inside),
            rest(self.reach),
            self.padded.difference(lost),
            self.alike.difference(lost),
            self.reason,
        )

    def names(self) -> list[str]:
        """Return all factors in order of appearance."""
        seen: dict[str, None] = {}
        for group in (*self.operands, *self.results):
            for name in group:
                if name is not None:
                    seen[name] = None
        return list(seen)


def parse(text: str) -> AxisFactors:
    """Parse factors such as `i j, j k -> i k; j sum`; a dot is a dimension that must be whole."""
    body, *combined = text.split(";")
    left, right = body.split("->")

    def side(part: str) -> tuple[Names, ...]:
        return (
            tuple(tuple(None if n == "." else n for n in group.split()) for group in part.split(","))
            if part.strip()
            else ((),)
        )

    combine = dict(item.split() for item in combined)
    return AxisFactors(side(left), side(right), {name: how for name, how in combine.items()})


def elementwise(ranks: list[int]) -> AxisFactors:
    """Return the factors of an elementwise operation: operands of full rank share every dimension."""
    rank = max(ranks, default=0)
    names: Names = tuple(f"d{i}" for i in range(rank))
    return AxisFactors(tuple(names if r == rank else () for r in ranks), (names,))


def by_dimension(operands: Sequence[int], results: int = 1, alike: Sequence[int] = ()) -> AxisFactors:
    """Return factors that operands of these ranks and all results share by dimension, whatever its sizes.

    Operands of rank 0 have none. In the dimensions `alike`, all operands must be split alike.
    """
    rank = max(operands, default=0)
    names: Names = tuple(f"d{i}" for i in range(rank))
    shared = tuple(names if r == rank else () for r in operands)
    return AxisFactors(shared, (names,) * results, alike=frozenset(f"d{i}" for i in alike))
