"""`PartitionSpec`: the mesh axes that each dimension of an array is split over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError


class Unconstrained:
    """Entry of a dimension whose sharding is left open; a singleton."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED = Unconstrained()

Entry = Any  # None | the name of an axis | a tuple of such names | UNCONSTRAINED


class PartitionSpec:
    """Mesh axes that each dimension of an array is split over.

    An entry is the name of an axis, a tuple of names (the last one varies fastest), None if the dimension is whole, or
    UNCONSTRAINED. Dimensions beyond the last entry are whole.

    Args:
        *partitions: an entry for each dimension.
        unreduced: names of axes over which a sum is pending.
        reduced: names of axes over which the sum of the cotangent is pending.

    >>> from weft.sharding import PartitionSpec as P
    >>> P("data", None, ("model", "expert"))
    P('data', None, ('model', 'expert'))
    """

    UNCONSTRAINED: ClassVar[Unconstrained] = UNCONSTRAINED
    __slots__ = ("_hash", "_partitions", "reduced", "unreduced")

    _partitions: tuple[Entry, ...]
    unreduced: frozenset[Any]
    reduced: frozenset[Any]

    def __init__(self, *partitions: Entry, unreduced: Any = frozenset(), reduced: Any = frozenset()):
        entries = tuple(map(_entry, partitions))
        self._partitions = entries
        self.unreduced = _axis_set(unreduced, "unreduced")
        self.reduced = _axis_set(reduced, "reduced")
        self._hash = hash((entries, self.unreduced, self.reduced))
        if not (self.unreduced or self.reduced):
            return
        split = set(split_axes(entries))
        for overlap, what in (
            (split & self.unreduced, "split over and unreduced over"),
            (split & self.reduced, "split over and reduced over"),
            (self.unreduced & self.reduced, "unreduced and reduced over"),
        ):
            if overlap:
                names = ", ".join(sorted(map(repr, overlap)))
                raise ArgumentError(
                    f"A PartitionSpec cannot be {what} the same axis.", received=repr(self), fix=f"name {names} once"
                )

    @property
    def partitions(self) -> tuple[Entry, ...]:
        return self._partitions

    def __getitem__(self, index: Any) -> Any:
        return self._partitions[index]

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Entry]:
        if self.unreduced or self.reduced:
            raise ArgumentError(
                "A PartitionSpec with unreduced or reduced axes cannot be iterated over: that would leave them out.",
                received=repr(self),
                fix="spec.partitions   where only the dimensions are meant",
            )
        return iter(self._partitions)

    def __add__(self, other: Any) -> PartitionSpec:
        if isinstance(other, PartitionSpec):
            return PartitionSpec(
                *self._partitions,
                *other._partitions,
                unreduced=self.unreduced | other.unreduced,
                reduced=self.reduced | other.reduced,
            )
        return self.update(partitions=(*self._partitions, *other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> PartitionSpec:
        return self.update(partitions=(*other, *self._partitions)) if isinstance(other, tuple) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, PartitionSpec)
            and self._partitions == other._partitions
            and self.unreduced == other.unreduced
            and self.reduced == other.reduced
        )

    def __hash__(self) -> int:
        return self._hash

    def index(self, value: Any) -> int:
        return self._partitions.index(_entry(value))

    def count(self, value: Any) -> int:
        return self._partitions.count(_entry(value))

    def update(self, partitions: Any = None, unreduced: Any = None, reduced: Any = None) -> PartitionSpec:
        """Return a copy with some fields changed."""
        return PartitionSpec(
            *(self._partitions if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )

    def to_tangent_spec(self) -> PartitionSpec:
        """Return the spec of a tangent: this one."""
        return self

    def to_ct_spec(self) -> PartitionSpec:
        """Return the spec of a cotangent: unreduced and reduced are swapped."""
        return self.update(unreduced=self.reduced, reduced=self.unreduced)

    def __reduce__(self) -> Any:
        return _rebuild, (self._partitions, self.unreduced, self.reduced)

    def __repr__(self) -> str:
        parts = [repr(e) for e in self._partitions]
        for word, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)):
            if axes:
                parts.append(f"{word}={{{', '.join(sorted(map(repr, axes)))}}}")
        return f"P({parts[0]},)" if len(parts) == len(self._partitions) == 1 else f"P({', '.join(parts)})"


def _rebuild(partitions: Any, unreduced: Any, reduced: Any) -> PartitionSpec:
    return PartitionSpec(*partitions, unreduced=unreduced, reduced=reduced)


def _entry(entry: Any) -> Entry:
    """Normalize an entry: a tuple of one name becomes the name, an empty one None."""
    if isinstance(entry, (tuple, list)):
        if len(entry) < 2:
            return entry[0] if entry else None
        return tuple(entry)
    return entry


def _axis_set(axes: Any, what: str) -> frozenset[Any]:
    if not isinstance(axes, (set, frozenset)):
        raise ArgumentTypeError(
            f"`{what}` of a PartitionSpec must be a set of axes.", received=described(axes), fix=f"{what}={{'x'}}"
        )
    if None in axes:
        raise ArgumentError(
            f"`{what}` of a PartitionSpec must not contain None.", received=described(axes), fix=f"{what}={{'x'}}"
        )
    return frozenset(axes)


def entry_axes(entry: Entry) -> tuple[Any, ...]:
    """Return the axes that an entry names."""
    if entry is None or entry is UNCONSTRAINED:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def spec_dims(spec: PartitionSpec, rank: int) -> tuple[tuple[Any, ...], ...]:
    """Return the axes that each of `rank` dimensions is split over, major first."""
    entries = (*spec.partitions, *[None] * (rank - len(spec)))
    return tuple(entry_axes(e) for e in entries)


def split_axes(entries: Iterable[Entry]) -> list[Any]:
    """Return the axes that entries name, in order and with repetitions."""
    return [name for entry in entries for name in entry_axes(entry)]


def rename_axes(
    dims: tuple[tuple[Any, ...], ...], own: Mapping[Any, int], other: Mapping[Any, int]
) -> tuple[tuple[Any, ...], ...] | None:
    """Return how dimensions split over the axes of a mesh are split over those of another mesh of the same devices in
    the same order. `own` and `other` are the axes with their sizes, the major one first.

    Returns None where an axis of the first mesh is no product of axes of the second.
    """
    if all(a in other and other[a] == own[a] for axes in dims for a in axes):
        return dims
    if math.prod(own.values()) != math.prod(other.values()):
        return None

    def strides(sizes: Mapping[Any, int]) -> dict[Any, tuple[int, int]]:
        found, stride = {}, 1
        for axis, size in reversed(list(sizes.items())):
            found[axis] = (stride, stride * size)
            stride *= size
        return found

    ranges, others = strides(own), strides(other)
    names: dict[Any, tuple[Any, ...]] = {}
    for axis in {a for axes in dims for a in axes}:
        low, high = ranges[axis]
        inside = tuple(a for a, (first, last) in others.items() if low <= first < last <= high)
        names[axis] = inside[::-1]
        if math.prod(other[a] for a in inside) != own[axis]:
            return None
    return tuple(tuple(n for a in axes for n in names[a]) for axes in dims)
