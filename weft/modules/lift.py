"""Lifting: what a transformation must see of the scopes that its function touches, going in and coming out.

A `Lift` cuts the variables below some scopes out as plain trees, a group for each way in which the transformation
treats them; these and the keys become arguments and results of the transformed function. Inside, scopes of the same
paths stand on a call of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import weft
from weft.errors import ScopeLeakError, user_line
from weft.modules.filters import Filter, group, intersect, matches
from weft.modules.scope import Call, Path, Scope, copied

# For each collection, the part below each root of the lift.
Group = dict[str, tuple[Any, ...]]


class Lift:
    """The scopes that go through a transformation, their variables in groups and their keys in groups."""

    def __init__(
        self,
        transformation: str,
        scopes: Sequence[Scope],
        variables: Sequence[Filter] = (True,),
        rngs: Sequence[Filter] = (True,),
    ):
        self.transformation = transformation
        self.scopes = list(scopes)
        calls = {id(scope.call): scope.call for scope in scopes}
        if len(calls) != 1:
            raise ScopeLeakError(
                f"{transformation} got modules of {len(calls)} different calls; they must belong to one.",
                at=user_line(),
                received=", ".join(scope.path_text for scope in scopes) or "no bound module",
                fix="pass modules that the same init or apply has bound",
            )
        (self.call,) = calls.values()
        self.roots = topmost([scope.path for scope in scopes])
        parts = {name: self._parts(tree) for name, tree in self.call.collections.items()}
        self.variables: tuple[Group, ...] = group({name: part for name, part in parts.items() if any(part)}, variables)
        self.rngs: tuple[dict[str, Any], ...] = group(self.call.rngs, rngs)
        self.origins = self.call.origins

    def _parts(self, tree: Any) -> tuple[Any, ...]:
        return tuple(copied(below(tree, root)) for root in self.roots)

    def _covers(self, path: Path) -> bool:
        return any(path[: len(root)] == root for root in self.roots)

    def relative(self, path: Path) -> tuple[int, Path] | None:
        """Return a path as the index of a root and the path below it, or None if it is below none."""
        found = ((i, path[len(root) :]) for i, root in enumerate(self.roots) if path[: len(root)] == root)
        return next(found, None)

    def absolute(self, path: tuple[int, Path]) -> Path:
        """Return the path that `relative` has split."""
        return (*self.roots[path[0]], *path[1])

    def split(self, rngs: Mapping[str, Any], count: int) -> dict[str, Any]:
        """`count` keys of each stream. The path and counter of each draw inside are folded into them as elsewhere."""
        return {stream: weft.random.split(key, count) for stream, key in rngs.items()}

    def fork_keys(self) -> None:
        """Draw the keys of all streams from the first scope; paths inside begin at the scopes that are lifted."""
        drawn = {stream: self.scopes[0].make_rng(stream) for stream in self.call.rngs}
        self.rngs = tuple({stream: drawn[stream] for stream in some} for some in self.rngs)
        self.origins = tuple(self.roots)

    def inside(self, variables: Sequence[Group], rngs: Sequence[Mapping[str, Any]], mutable: Filter = True) -> Call:
        """A call over the groups, as the transformed function received them; it may write what both may."""
        collections: dict[str, Any] = {}
        for one in variables:
            for name, parts in one.items():
                tree = collections.setdefault(name, {})
                for root, part in zip(self.roots, parts, strict=True):
                    insert(tree, root, part)
        keys = {stream: key for some in rngs for stream, key in some.items()}
        call = Call(collections, keys, intersect(self.call.mutable, mutable), self.call.flags, self.call.frontend)
        call.flags = self.call.flags  # shared: what a frontend notes inside belongs to the whole call
        call.origins = self.origins
        call.counters = {where: count for where, count in self.call.counters.items() if self._covers(where[0])}
        return call

    def collect(self, call: Call, outs: Sequence[Filter]) -> tuple[Group, ...]:
        """What was written inside, in groups; keys drawn there count outside too."""
        self.call.counters.update(call.counters)
        written = {name: self._parts(tree) for name, tree in call.collections.items() if matches(call.mutable, name)}
        groups = group({name: parts for name, parts in written.items() if any(parts)}, outs)
        call.close()
        return groups

    def put_back(self, groups: Sequence[Group]) -> None:
        """Write what came out of the transformation into the scopes outside."""
        for one in groups:
            for name, parts in one.items():
                for root, part in zip(self.roots, parts, strict=True):
                    if part:
                        node = Scope(self.call, root).mutable_node(name)
                        node.clear()
                        node.update(copied(part))

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the transformed function runs, changes outside of the lift are errors."""
        call = self.call
        before, call.lifting = call.lifting, self.transformation
        try:
            yield
        finally:
            call.lifting = before


def topmost(paths: Sequence[Path]) -> list[Path]:
    """The paths that are not below another one, in the order given."""
    unique = list(dict.fromkeys(paths))
    return [path for path in unique if not any(path != other and path[: len(other)] == other for other in unique)]


def below(tree: Any, path: Path) -> Any:
    """The part of a tree at a path; empty when there is none."""
    for part in path:
        if not isinstance(tree, Mapping):
            return {}
        tree = tree.get(part)
    return tree if isinstance(tree, Mapping) else {}


def insert(tree: dict[str, Any], path: Path, part: Any) -> None:
    """Insert a part into a tree at a path."""
    if not path:
        tree.update(part)
        return
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = part
