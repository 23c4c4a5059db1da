"""Filters: sets of names of collections or rng streams.

True is the set of all names, False the empty set, a string that name, a collection of strings those names, and
`DenyList(filter)` the complement of a filter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from weft.errors import ArgumentTypeError

Filter: TypeAlias = "bool | str | Collection[str] | DenyList"
Value = TypeVar("Value")


@dataclass(frozen=True, eq=True)
class DenyList:
    """All names except for those in `deny`."""

    deny: Any


def matches(wanted: Filter, name: str) -> bool:
    """Return whether a name is in a filter."""
    if isinstance(wanted, bool):
        return wanted
    if isinstance(wanted, str):
        return wanted == name
    if isinstance(wanted, DenyList):
        return not matches(wanted.deny, name)
    if isinstance(wanted, Collection):
        return name in wanted
    raise ArgumentTypeError(
        f"A filter must be True, False, a name, a collection of names or a DenyList; got {wanted!r} of type "
        f"{type(wanted).__name__}."
    )


def _normal(wanted: Filter) -> tuple[frozenset[str], bool]:
    """Return a filter as a set of names, and whether it is the complement of that set."""
    if isinstance(wanted, bool):
        return frozenset(), wanted
    if isinstance(wanted, str):
        return frozenset((wanted,)), False
    if isinstance(wanted, DenyList):
        names, inverted = _normal(wanted.deny)
        return names, not inverted
    return frozenset(wanted), False


def _filter(names: Iterable[str], inverted: bool) -> Filter:
    found = frozenset(names)
    if inverted:
        return DenyList(found) if found else True
    return found or False


def union(a: Filter, b: Filter) -> Filter:
    """Return the filter of names in either filter."""
    return _complement(intersect(_complement(a), _complement(b)))


def _complement(wanted: Filter) -> Filter:
    names, inverted = _normal(wanted)
    return _filter(names, not inverted)


def intersect(a: Filter, b: Filter) -> Filter:
    """Return the filter of names in both filters."""
    (left, left_inverted), (right, right_inverted) = _normal(a), _normal(b)
    if left_inverted and right_inverted:
        return _filter(left | right, True)
    if left_inverted:
        return _filter(right - left, False)
    return _filter(left - right if right_inverted else left & right, False)


def subtract(a: Filter, b: Filter) -> Filter:
    """Return the filter of names in `a` but not in `b`."""
    return intersect(a, DenyList(b))


def group(values: Mapping[str, Value], wanted: Sequence[Filter]) -> tuple[dict[str, Value], ...]:
    """Group the items of a dict by the first filter that contains their name; drop names in no filter."""
    groups: tuple[dict[str, Value], ...] = tuple({} for _ in wanted)
    for name, value in values.items():
        for members, one in zip(groups, wanted, strict=True):
            if matches(one, name):
                members[name] = value
                break
    return groups
