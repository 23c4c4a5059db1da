"""Axis factors: how the dimensions of an operation's operands and results correspond.

`i j, j k -> i k; j sum` says that a matmul may be split over i and k freely, and over j if the pieces are
summed. From this one piece of data follow sharding propagation in both directions, partitioning, and the collectives
that are needed.
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
    """A factor name per dimension of each operand and result (None: must be whole), and how the
    partial results of factors that results do not have are combined."""

    operands: tuple[Names, ...]
    results: tuple[Names, ...]
    combine: dict[str, str] = field(default_factory=dict)
    # Of a factor that is the major part of a dimension, its size; others have that of their dimension.
    sizes: dict[str, int] = field(default_factory=dict)
    # Factors that the operation on parts handles by itself (`bind_local`): by masks, or by collectives of its own, for
    # which each device sends so many slices of the first operand, along this factor, to every other. Whether they pay
    # is a question of costs, so types need such dimensions whole.
    inside: dict[str, int] = field(default_factory=dict)
    # Of the factors inside, those with halos: what is read of each operand, None of one that does not have the factor.
    reach: dict[str, tuple[Reach | None, ...]] = field(default_factory=dict)
    # Factors in which types need all operands split alike, and none of them whole if one is split.
    alike: frozenset[str] = frozenset()
    # Why the other dimensions must be whole.
    reason: str = ""

    def __str__(self) -> str:
        def side(groups: tuple[Names, ...]) -> str:
            return ", ".join(" ".join(name or "." for name in group) for group in groups)

        combined = "".join(f"; {name} {how}" for name, how in self.combine.items())
        return f"{side(self.operands)} -> {side(self.results)}{combined}"

    def without(self, lost: Collection[str]) -> AxisFactors:
        """The same where some factors must be whole."""
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
            self.alike.difference(lost),
            self.reason,
        )

    def names(self) -> list[str]:
        """All factors, in order of appearance."""
        seen: dict[str, None] = {}
        for group in (*self.operands, *self.results):
            for name in group:
                if name is not None:
                    seen[name] = None
        return list(seen)


def parse(text: str) -> AxisFactors:
    """Read `i j, j k -> i k; j sum`; a dot is a dimension that must be whole."""
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
    """All operands of full rank share every dimension; rank-0 operands have none."""
    rank = max(ranks, default=0)
    names: Names = tuple(f"d{i}" for i in range(rank))
    return AxisFactors(tuple(names if r == rank else () for r in ranks), (names,))


def by_dimension(operands: Sequence[int], results: int = 1, alike: Sequence[int] = ()) -> AxisFactors:
    """Operands of these ranks and all results share every dimension, whatever their sizes; rank-0 operands have none.
    In some dimensions all operands must be split alike."""
    rank = max(operands, default=0)
    names: Names = tuple(f"d{i}" for i in range(rank))
    shared = tuple(names if r == rank else () for r in operands)
    return AxisFactors(shared, (names,) * results, alike=frozenset(f"d{i}" for i in alike))
